"""One group shard, as the coordinators of older protocols use it: may it decide, write, tell when committed.

Their decisions are entries of the shard's log like any other (`cluster.runtime.requests`), and what they send
waits like any other reply (`cluster.runtime.pending_replies`).

Their deadlines are on a clock of their own, which stands still while the loop does or while the shard has no
room for entries: no consumer is found dead because this node did not hear it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

from cluster.runtime.answers import Unavailable
from cluster.runtime.group_duties import GroupRuntime
from cluster.runtime.pending_replies import ReadBarrier
from coordinator.api import Context, Decision, JobKind
from coordinator.members.numbering import number_records
from coordinator.oldgroups import IdsForOldGroups
from coordinator.state.projection import OldGroupKey, Projection
from coordinator.topics import CatalogView
from records import OLD_GROUPS_SINCE, Cause, RawRecord

LOG = logging.getLogger("quorate.lineage")

Told = Callable[[Unavailable | None], None]
"""Is told None when everything so far is committed and this node proven to lead; else why that is unknown."""


class ShardDoor:
    """The way into one shard; `shard` is its number."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime
        self._node = runtime.node
        self._behind_ms = 0.0
        self._shut_since_ms: float | None = None
        self.shard = runtime.shard

    @property
    def projection(self) -> Projection:
        return self._runtime.machine.projection

    @property
    def catalog(self) -> CatalogView:
        return self._node.catalog

    @property
    def is_ready(self) -> bool:
        return self._runtime.is_ready

    @property
    def is_loading(self) -> bool:
        """Whether this node leads, or may lead, and does not serve yet."""
        return self._runtime.serving == "loading"

    @property
    def term(self) -> int:
        return self._runtime.replica.term

    def enter(self) -> float | None:
        """Return the time of a decision, in monotonic ms, or None if none may be taken now.

        Reasons are that this node does not serve the shard, that its log has no room, that its catalog is too
        old for names of topics, or that the cluster's format level is too low for these groups."""
        runtime, now_ms = self._runtime, self._runtime.host.monotonic_ms()
        self._node.observe_clock(now_ms)
        runtime.requests.observe_room(now_ms)
        is_open = (
            runtime.is_ready
            and runtime.requests.has_room
            and (runtime.is_alone or self._node.is_catalog_fresh(now_ms))
            and self.catalog.format_level >= OLD_GROUPS_SINCE
        )
        if not is_open:
            if self._shut_since_ms is None:
                self._shut_since_ms = now_ms
            return None
        if self._shut_since_ms is not None:
            self._behind_ms += now_ms - self._shut_since_ms
            self._shut_since_ms = None
        return now_ms

    def clock_ms(self, now_ms: float) -> float:
        """The time for deadlines."""
        return now_ms - self._behind_ms

    def wall_ms(self, now_ms: float) -> int:
        """The time for records: epoch ms, no earlier than that of any entry of the shard."""
        return self._runtime.replica.time_at(now_ms)

    def delay_ms(self, deadline_ms: float) -> float:
        """The time from now until a deadline of `clock_ms` is due; longer if no timer may act yet."""
        now_ms = self._runtime.host.monotonic_ms()
        return max(deadline_ms - self.clock_ms(now_ms), self._node.quiet_ms(now_ms), 0.0)

    def shift(self, gap_ms: float) -> None:
        """Move all deadlines: the loop stood still. Negative: bring them nearer."""
        self._behind_ms += gap_ms
        if self._shut_since_ms is not None:
            self._shut_since_ms += gap_ms

    def ids_for(self, key: type[OldGroupKey]) -> IdsForOldGroups:
        """Questions about other groups, for the coordinators of the protocol with this class of key."""
        return IdsForOldGroups(lambda: self._runtime.machine.groups, key)

    def write(self, now_ms: float, group_id: str, cause: Cause, records: list[RawRecord]) -> None:
        """Apply records of a group and append them as one entry. The node stops if that fails."""
        self._runtime.requests.decide(now_ms, functools.partial(self._applied, group_id, cause, records))

    def _applied(self, group_id: str, cause: Cause, records: list[RawRecord], ctx: Context) -> Decision:
        machine = self._runtime.machine
        machine.apply_all(records, ctx.next_index)
        if numbers := number_records(machine.projection, records, ctx):
            machine.apply_all(numbers, ctx.next_index)
            records = records + numbers
        machine.followed_old_group(ctx, group_id)
        return Decision(cause=cause, records=records)

    def strategy_failed(self, group_id: str, said: str) -> None:
        """Report a user's strategy as an assignor that failed: in the log, to the metrics, as evidence."""
        LOG.warning("%s: %s", self._runtime.name, said)
        self._runtime.counters.assignor_failures += 1
        self._node.evidence.trouble(group_id, said, work=JobKind.ASSIGN)

    def hold(self, now_ms: float, told: Told, *, has_written: bool) -> None:
        """Call `told` once the newest entry is committed and, unless `has_written`, the lead proven."""
        self._runtime.hold(now_ms, ReadBarrier(told), None, has_written=has_written)
