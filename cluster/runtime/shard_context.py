"""The context of a shard: settings of its runtime, the interface of its node and of every state machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cluster.runtime.job_slots import JobSlots
from cluster.runtime.slices import Slices
from coordinator.api import Context, Decision, JobKind
from coordinator.limits import SettingsView
from coordinator.topics import CatalogView
from raftlog.env.host import Host
from raftlog.env.settings import LogSettings
from raftlog.replica.clock import AgreedClock
from raftlog.storage.evidence import Evidence
from raftlog.transport.links import Links
from records import LeadershipValue, RawRecord, TransactionValue


class ShardMachine(Protocol):
    """The interface of every shard's state machine."""

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None: ...

    def handle(self, api_key: int, api_version: int, request: Any, ctx: Context) -> Decision: ...

    def free_incrementally(self) -> Iterator[None]: ...

    @property
    def applied_index(self) -> int: ...

    @property
    def state_hash(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Bounds of one shard's runtime (`cluster.settings` has defaults and reasons)."""

    held_reply_timeout_ms: int = 5_000
    held_replies_max: int = 100_000
    log: LogSettings = field(default_factory=LogSettings)


class TurnCounter:
    """Numbers the turns of the loop, so that pure code can tell "again in this turn" from "later"."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turn = 1
        self._is_ending = False

    def current(self) -> int:
        if not self._is_ending:
            self._is_ending = True
            self._host.call_soon(self._end)
        return self._turn

    def _end(self) -> None:
        self._turn += 1
        self._is_ending = False


class ShardContext(Protocol):
    """The interface of a node towards the runtimes of its shards."""

    host: Host
    evidence: Evidence
    turns: TurnCounter
    slices: Slices
    """Budget for slow work of clients and of shards."""
    group_settings: SettingsView
    runtime_settings: RuntimeSettings
    job_slots: dict[JobKind, JobSlots]
    clock: AgreedClock
    links: Links | None
    """Links to the other nodes; None if there are no others."""

    @property
    def catalog(self) -> CatalogView: ...

    def is_catalog_usable(self, version: int) -> bool:
        """Whether the committed catalog is at least this new."""

    def report_missing_catalog(self, version: int) -> None:
        """Log that a shard needs this version of the catalog, if no other node can have it either."""

    def is_catalog_fresh(self, now_ms: float) -> bool:
        """Whether the committed catalog is so new that a topic's name means the same on every node."""

    def catalog_changed(self, topic_names: Sequence[str], *, is_complete: bool) -> None:
        """Notify the groups of changed topics; unless `is_complete`, others may have come and gone."""

    def transactions_changed(self, changes: Sequence[tuple[str, TransactionValue]]) -> None:
        """Notify the groups, and what else follows transactions, of committed records."""

    def decisions_followed(self, shard: int, decided: int) -> None:
        """Note that a group shard has followed the decisions about transactions up to this index."""

    def followed_decisions(self) -> Iterable[tuple[int, int]]:
        """Return each group shard's number, and the decision up to which it is known to have followed."""

    def leadership_asked(self, leadership: LeadershipValue) -> None:
        """Follow what operators ask for about leadership."""

    def configs_changed(self, group_ids: Sequence[str]) -> None:
        """Notify the groups whose committed configs changed."""

    def catalog_moved(self) -> None:
        """Notify the group shards of a newer catalog, perhaps with the same topics."""

    def observe_clock(self, now_ms: float) -> None:
        """Take a fresh reading of the clock, before any deadline is compared with it."""

    def quiet_ms(self, now_ms: float) -> float:
        """Return for how many more milliseconds no timer may act, after a gap."""

    def shard_moved(self, shard: int) -> None:
        """Handle a change of a shard's state, its leader, or the currency of its follower."""

    def shard_given_away(self, shard: int) -> None:
        """Handle a planned hand-over of a shard's lead."""
