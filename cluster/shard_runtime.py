"""One shard on one node: its projection, its log, and the replies between the two.

A request is decided against the latest projection, the decision's records become one log entry in the same
turn of the loop, and the reply is held until that entry is durable. A decision without records waits for the
last entry before it, so that nobody reads what a crash could take back.

What must stay true:
- The projection changes through `apply` only, in index order, live as at load.
- A decision's records are appended at the index that it was told, in the turn in which they were applied;
  if that fails the node stops, for its projection is ahead of its log.
- Each reply is called exactly once, on the loop, and never before what it says is committed.
- Refusals for want of room come before the first record.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from cluster.answers import Why
from cluster.held import HeldReplies, Question, Reply
from cluster.node_info import ClientInfo
from cluster.refusal_notes import NOTED_APIS, first_error
from cluster.shard_counters import ShardCounters
from cluster.shard_state import ShardEvent, ShardState, Standing
from coordinator.api import Context, Outcome
from coordinator.limits import SettingsView
from coordinator.topics import CatalogView
from raftlog.directory import NodeDirectory, shard_name
from raftlog.evidence import Evidence
from raftlog.host import Host, Timer
from raftlog.machine import SnapshotHeader
from raftlog.replica import Replica
from raftlog.settings import LogSettings
from records import RawRecord, encode_entry, iter_records

LOG = logging.getLogger("quorate.runtime")

SLICE_MS: Final = 5.0
"""Due work of one shard may hold the loop this long: all of them in one turn stay below half of the longest
stall."""


class Projection(Protocol):
    """What every shard's state machine has."""

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None: ...

    def handle(self, api_key: int, api_version: int, request: Any, ctx: Context) -> Outcome: ...

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


class Surroundings(Protocol):
    """What a shard's runtime takes from its node."""

    host: Host
    evidence: Evidence
    turns: TurnCounter
    group_settings: SettingsView
    runtime_settings: RuntimeSettings

    @property
    def catalog(self) -> CatalogView: ...

    def is_catalog_usable(self, version: int) -> bool:
        """Whether the committed catalog is at least this new."""

    def catalog_changed(self, topic_names: Sequence[str]) -> None:
        """The committed catalog moved."""

    def observe_clock(self, now_ms: float) -> None:
        """A fresh reading, before any deadline is compared with it."""

    def quiet_ms(self, now_ms: float) -> float:
        """How much longer no timer may act, after a gap."""

    def shard_moved(self, runtime: ShardRuntime) -> None:
        """The state of a shard changed."""


class _Waiter:
    """Somebody who wants to know when an index is committed; one of `others` until then."""

    __slots__ = ("fn", "index", "others")

    def __init__(self, index: int, fn: Callable[[], None], others: dict[_Waiter, None]) -> None:
        self.index = index
        self.fn: Callable[[], None] | None = fn
        self.others = others

    def cancel(self) -> None:
        self.fn = None
        self.others.pop(self, None)


class ShardRuntime(ABC):
    """The runtime of one shard; `raftlog.machine.StateMachine` towards its replica."""

    def __init__(self, node: Surroundings, directory: NodeDirectory, shard: int, machine: Projection) -> None:
        self.node = node
        self.host = node.host
        self.shard = shard
        self.name = shard_name(shard)
        self.machine = machine
        self.counters = ShardCounters()
        self.standing = Standing(since_ms=self.host.wall_ms())
        settings = node.runtime_settings
        self._settings = settings
        self._held = HeldReplies(settings.held_reply_timeout_ms)
        self._held_timer: Timer | None = None
        self._committed_index = 0
        self._waiters: dict[_Waiter, None] = {}
        self.replica = Replica(self.host, directory, shard, self, settings.log)

    # What others see of it.

    @property
    def state(self) -> ShardState:
        return self.standing.state

    @property
    def is_ready(self) -> bool:
        return self.standing.state is ShardState.READY

    @property
    def commit_index(self) -> int:
        return self._committed_index

    @property
    def num_held(self) -> int:
        return len(self._held)

    def status(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "shard": self.shard,
            "name": self.name,
            "state": self.state.value,
            "since_ms": self.standing.since_ms,
            "applied_index": self.machine.applied_index,
            "committed_index": self._committed_index,
            "state_hash": f"{self.machine.state_hash:016x}",
            "replies_held": len(self._held),
            "waiting_for_commit": len(self._waiters),
            "log": self.replica.status(),
        }

    def when_committed(self, index: int, fn: Callable[[], None]) -> _Waiter:
        """Calls `fn` once, in a later turn, when `index` is committed; `cancel` keeps it from that."""
        waiter = _Waiter(index, fn, self._waiters)
        if index <= self._committed_index:
            self.host.call_soon(self._wake, waiter)
        else:
            self._waiters[waiter] = None
        return waiter

    # Its life.

    def start(self) -> None:
        """Loads the log in slices; requests are answered LOAD_IN_PROGRESS until `ready`."""
        self._move(ShardEvent.LEADING)
        self.replica.start()

    def stop(self, done: Callable[[], None]) -> None:
        """Takes nothing more, syncs and answers what that decides, leaves the marker of a clean stop."""
        self._move(ShardEvent.DEPOSED)
        self._cancel_timers()

        def stopped() -> None:
            self._held.fail(Why.STOPPED)
            done()

        self.replica.stop(stopped)

    # Requests.

    def submit(
        self, api_key: int, api_version: int, request: object, client: ClientInfo, reply: Reply
    ) -> None:
        """Decides, appends, and answers when that is durable; `reply` is called exactly once."""
        self.counters.requests += 1
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        question = Question(api_key, api_version, request, reply)
        if (why := self._why_not()) is not None:
            self.counters.refused += 1
            response = question.refusal(why)
            if why in (Why.OVERLOADED, Why.DISK_FULL):
                self._note_refusal(question, client, response)
            question.answer(response)
            return
        ctx = self._context(now_ms, client)
        try:
            outcome = self.machine.handle(api_key, api_version, request, ctx)
        except Exception as error:
            outcome = Outcome(error=error)
        self._append(outcome, ctx)
        if outcome.error is not None or outcome.reply is None:
            self._hold(now_ms, question, None, self._report(outcome.error, api_key))
        else:
            if not outcome.records and api_key in NOTED_APIS:
                self._note_refusal(question, client, outcome.reply)
            self._hold(now_ms, question, outcome.reply)
        self._handled(api_key, request, outcome.reply, now_ms)

    def _why_not(self) -> Why | None:
        if self.standing.state is not ShardState.READY:
            return Why.NOT_LEADER if self.standing.state is ShardState.DOWN else Why.LOADING
        if self._has_room():
            return None
        return Why.DISK_FULL if self.replica.is_disk_full else Why.OVERLOADED

    def _has_room(self) -> bool:
        """Asked before the first record of a decision: afterwards there is no way back."""
        return len(self._held) < self._settings.held_replies_max and self.replica.can_append

    def _context(self, now_ms: float, client: ClientInfo) -> Context:
        node = self.node
        return Context(
            monotonic_ms=now_ms,
            wall_ms=max(self.host.wall_ms(), self.replica.last_timestamp_ms),
            next_index=self.replica.next_index,
            catalog=node.catalog,
            settings=node.group_settings,
            fresh_id=self.host.fresh_id,
            fresh_uuid=self.host.fresh_uuid,
            stopwatch_ms=self.host.monotonic_ms,
            turn=node.turns.current(),
            client_id=client.client_id,
            client_host=client.host,
            principal=client.principal,
        )

    def _append(self, outcome: Outcome, ctx: Context) -> None:
        """One decision, one entry. A projection that is ahead of its log ends the node."""
        if not outcome.records:
            if self.machine.applied_index >= ctx.next_index:
                self.host.fatal(
                    f"{self.name}: a decision changed the state and left no records: {outcome.error}"
                )
            return
        try:
            assert outcome.cause is not None, "records without a cause"
            body = encode_entry(outcome.cause, outcome.records)
            index = self.replica.propose(body, len(outcome.records), ctx.wall_ms)
            assert index == ctx.next_index, f"appended at {index}, applied at {ctx.next_index}"
        except Exception as error:
            self.host.fatal(f"{self.name}: entry {ctx.next_index} is applied and cannot be appended: {error}")
            return
        self.counters.count(outcome.records, len(body))
        if outcome.warning is not None:
            LOG.warning("%s: %s", self.name, outcome.warning)
        self._decided(index, outcome.records)

    def _hold(self, now_ms: float, question: Question, response: object, failure: str | None = None) -> None:
        """Waits for the last entry so far: the decision's own, or the newest that it has seen.

        One node alone needs no more. With peers a decision without records also waits for a proof of
        leadership obtained after the request arrived; that belongs here, before `hold`.
        """
        if failure is not None:
            response = question.refusal(Why.FAILED, failure)
        index = self.replica.last_index
        if index <= self._committed_index:
            question.answer(response)
            return
        self._held.hold(index, now_ms, question, response)
        self.counters.replies_held += 1
        if self._held_timer is None:
            self._held_timer = self.host.call_later(self._settings.held_reply_timeout_ms, self._expire_held)

    def _note_refusal(self, question: Question, client: ClientInfo, response: object) -> None:
        """Keeps the reason of a refusal as evidence, for whoever explains the group later."""
        error = first_error(response)
        if error is not None:
            self.node.evidence.refused(
                api=question.api_key,
                error=error[0],
                reason=error[1],
                group_id=getattr(question.request, "group_id", ""),
                member_id=getattr(question.request, "member_id", ""),
                client=f"{client.client_id}{client.host}",
            )

    def _report(self, error: BaseException | None, api_key: int) -> str:
        """Logs a failure under an id that the client gets too."""
        trace_id = self.host.fresh_id()
        self.counters.failures += 1
        LOG.error("%s: request to API %d failed, trace %s", self.name, api_key, trace_id, exc_info=error)
        return f"{Why.FAILED.value} (trace {trace_id})"

    def _expire_held(self) -> None:
        self._held_timer = None
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        self.counters.replies_expired += self._held.expire(now_ms)
        deadline_ms = self._held.next_deadline_ms
        if deadline_ms is not None:
            self._held_timer = self.host.call_later(max(1.0, deadline_ms - now_ms), self._expire_held)

    # What the replica calls (raftlog.machine.StateMachine).

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        self.machine.apply_all(records, header.last_index)
        self._restored(records, header.last_index)

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        raws = iter_records(body)
        self.machine.apply_all(raws, index)
        self._decided(index, raws)

    def committed(self, index: int) -> None:
        """Lets go, in order: what the node learns from it, then the replies, then those who wait for more."""
        self._committed_index = index
        self._learned(index)
        self._held.release(index)
        if self._waiters:
            for waiter in [waiter for waiter in self._waiters if waiter.index <= index]:
                del self._waiters[waiter]
                self.host.call_soon(self._wake, waiter)

    @abstractmethod
    def ready(self, term: int) -> None: ...

    def deposed(self, reason: str) -> None:
        LOG.warning("%s: leadership lost (%s)", self.name, reason)
        self._move(ShardEvent.DEPOSED)
        self._held.fail(Why.DEPOSED)

    def state_hash(self) -> int:
        return self.machine.state_hash

    def applied_index(self) -> int:
        return self.machine.applied_index

    @abstractmethod
    def catalog_version(self) -> int: ...

    # What the two kinds of shards do differently.

    @abstractmethod
    def _handled(self, api_key: int, request: Any, reply: Any, now_ms: float) -> None:
        """A request was decided: deadlines may have moved."""

    @abstractmethod
    def _decided(self, index: int, raws: Iterable[RawRecord]) -> None:
        """An entry was applied; perhaps it is not committed yet."""

    @abstractmethod
    def _restored(self, raws: Iterable[RawRecord], index: int) -> None:
        """A chunk of a snapshot was applied."""

    @abstractmethod
    def _learned(self, index: int) -> None:
        """Everything up to `index` is committed."""

    def shift_deadlines(self, gap_ms: float) -> None:
        """The loop stood still for `gap_ms`."""
        self._held.shift_deadlines(gap_ms)

    # Inside.

    def _move(self, event: ShardEvent) -> None:
        if self.standing.on(event, self.host.wall_ms()):
            LOG.info("%s is %s", self.name, self.state.value)
            self.node.shard_moved(self)

    def _wake(self, waiter: _Waiter) -> None:
        fn, waiter.fn = waiter.fn, None
        if fn is not None:
            fn()

    def _cancel_timers(self) -> None:
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
