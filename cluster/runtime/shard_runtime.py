"""One shard on one node: requests in, decisions to the log, replies once they may be given.

A request is decided against the latest projection. The decision's records become one log entry in the same
turn of the loop, and the reply is held until that entry is committed. A decision without records waits for
the last entry before it, so that no client reads what could be taken back, and for a proof, obtained after
the request arrived, that this node still leads, so that no client reads what another leader has replaced. One
round to the peers proves it for all requests of a turn. A request that is too large for one decision takes
several, each in a turn of its own, and is answered with the last.

Invariants:

- A decision's records are appended at the index that it was given, in the turn in which they were applied; if
  that fails the node stops, because its projection is ahead of its log.
- Each reply is called exactly once, on the loop, and never before its content is committed.
- Refusals for want of room come before the first record; requests that never write need no room in the log.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cluster.node_info import ClientInfo
from cluster.runtime.answers import READ_APIS, Unavailable
from cluster.runtime.pending_replies import NO_PROOF, PendingReply, ReadBarrier, Reply
from cluster.runtime.refusal_notes import NOTED_APIS, first_error, owned_partitions
from cluster.runtime.shard_context import ShardContext, ShardMachine
from cluster.runtime.shard_replica import ShardReplica
from cluster.runtime.shard_state import ShardState
from coordinator.api import Context, Decision, Failure
from raftlog.env.errors import in_one_line
from raftlog.env.host import Timer
from raftlog.storage.directory import NodeDirectory
from records import encode_entry

LOG = logging.getLogger("quorate.runtime")


NO_ROOM_PAUSE_MS: Final = 50.0
"""Delay of work that can wait while the disk has no room for more: several syncs of a slow disk."""


@dataclass(slots=True)
class Unfinished:
    """A request that takes more than one decision, its client, and its deadline."""

    pending: PendingReply
    client: ClientInfo
    deadline_ms: float
    continuation: Callable[[Context], Decision]


class ShardRuntime(ShardReplica):
    """The runtime of one shard."""

    def __init__(
        self,
        node: ShardContext,
        directory: NodeDirectory,
        shard: int,
        make_machine: Callable[[], ShardMachine],
    ) -> None:
        super().__init__(node, directory, shard, make_machine)
        self._unfinished: deque[Unfinished] = deque()
        self._going_on: Timer | None = None

    def stop(self, done: Callable[[], None]) -> None:
        self._cancel_timers()
        super().stop(done)

    def submit(
        self, api_key: int, api_version: int, request: object, client: ClientInfo, reply: Reply
    ) -> None:
        """Decide, append, and answer once that is durable; `reply` is called exactly once."""
        self.counters.requests += 1
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        pending = PendingReply(api_key, api_version, request, reply)
        why = self._why_not(only_reads=api_key in READ_APIS)
        if why is None and not self._is_alone:
            why = self._why_not_by_name(api_key, api_version, now_ms)
        if why is not None:
            self.counters.refused += 1
            response = pending.refusal(why)
            if why in (Unavailable.OVERLOADED, Unavailable.DISK_FULL):
                self._note_refusal(pending, client, response)
            pending.answer(response)
            return
        ctx = self._context(now_ms, client)
        try:
            decision = self.machine.handle(api_key, api_version, request, ctx)
        except Exception as error:
            decision = Decision(error=error)
        deadline_ms = now_ms + self._settings.held_reply_timeout_ms
        try:
            self._conclude(pending, client, deadline_ms, decision, ctx)
        except Exception as error:
            self.host.fatal(f"{self.name}: a decision was not carried out: {in_one_line(error)}")

    def _conclude(
        self, pending: PendingReply, client: ClientInfo, deadline_ms: float, decision: Decision, ctx: Context
    ) -> None:
        """Append one decision of a request and hold the reply if it is the last.

        A failure in here leaves the shard in an unknown state, so it must not propagate to whoever read the
        request.
        """
        api_key, now_ms = pending.api_key, ctx.monotonic_ms
        self._append(decision, ctx)
        has_written = bool(decision.records)
        pending.has_written |= has_written
        if decision.continuation is not None:
            self._unfinished.append(Unfinished(pending, client, deadline_ms, decision.continuation))
            if self._going_on is None:
                self._going_on = self.host.call_later(0.0, self._go_on)
        elif decision.error is not None or decision.reply is None:
            response = pending.refusal(Unavailable.FAILED, self._report(decision.error, api_key))
            self._hold(now_ms, pending, response, has_written)
        else:
            if not has_written and api_key in NOTED_APIS:
                self._note_refusal(pending, client, decision.reply)
            self._hold(now_ms, pending, decision.reply, has_written)
        self._handled(api_key, pending.request, decision.reply, now_ms)

    def _go_on(self) -> None:
        """Take the next decision of the oldest unfinished request; one that may write waits for room."""
        self._going_on = None
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        pause_ms = 0.0
        if self._unfinished and self._unfinished[0].deadline_ms <= now_ms:
            self._unfinished.popleft().pending.refuse(Unavailable.TIMED_OUT)
        elif (
            self._unfinished and self._unfinished[0].pending.api_key not in READ_APIS and not self._has_room()
        ):
            pause_ms = NO_ROOM_PAUSE_MS
        elif self._unfinished:
            asked = self._unfinished.popleft()
            ctx = self._context(now_ms, asked.client)
            try:
                decision = asked.continuation(ctx)
            except Exception as error:
                decision = Decision(error=error)
            self._conclude(asked.pending, asked.client, asked.deadline_ms, decision, ctx)
        if self._unfinished and self._going_on is None:
            self._going_on = self.host.call_later(pause_ms, self._go_on)

    @property
    def requests_waiting(self) -> int:
        """The number of requests that have had some of their decisions, but not all."""
        return len(self._unfinished)

    def _stand_down(self) -> None:
        """Refuse unfinished requests, as this node will not learn their outcome."""
        super()._stand_down()
        unfinished, self._unfinished = self._unfinished, deque()
        for asked in unfinished:
            asked.pending.refuse(Unavailable.DEPOSED)

    def shift_deadlines(self, gap_ms: float) -> None:
        super().shift_deadlines(gap_ms)
        for asked in self._unfinished:
            asked.deadline_ms += gap_ms

    def _why_not(self, *, only_reads: bool = False) -> Unavailable | None:
        if self.shard_status.state is not ShardState.READY:
            return (
                Unavailable.NOT_LEADER if self.shard_status.state is ShardState.DOWN else Unavailable.LOADING
            )
        if only_reads:
            if self.replica.is_handing_over:
                return Unavailable.NOT_LEADER
            return None if self._can_hold else Unavailable.OVERLOADED
        if self._has_room():
            return None
        if self.replica.is_handing_over:
            return Unavailable.NOT_LEADER
        return Unavailable.DISK_FULL if self.replica.is_disk_full else Unavailable.OVERLOADED

    def _why_not_by_name(self, api_key: int, api_version: int, now_ms: float) -> Unavailable | None:
        """Return why a name in the request cannot be resolved reliably, or None if it can."""
        return None

    def _has_room(self) -> bool:
        """Whether a decision may write; checked before its first record, which cannot be taken back."""
        return self._can_hold and self.replica.can_append

    @property
    def _can_hold(self) -> bool:
        return len(self._pending_replies) + len(self._unfinished) < self._settings.held_replies_max

    def _context(self, now_ms: float, client: ClientInfo) -> Context:
        node = self.node
        return Context(
            monotonic_ms=now_ms,
            wall_ms=self.replica.time_at(now_ms),
            settled_ms=self.replica.past_ms,
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

    def _append(self, decision: Decision, ctx: Context) -> None:
        """Append one decision as one entry. The node stops if its projection gets ahead of its log."""
        if decision.failure is not None:
            self._note_failure(decision.failure)
        self.counters.assignor_failures += decision.has_assignor_failed
        if not decision.records:
            if self.machine.applied_index >= ctx.next_index:
                self.host.fatal(
                    f"{self.name}: a decision changed the state without records: {decision.error}"
                )
            return
        try:
            assert decision.cause is not None, "records without a cause"
            body = encode_entry(decision.cause, decision.records)
            index = self.replica.propose(body, len(decision.records), ctx.wall_ms)
            assert index == ctx.next_index, f"appended at {index}, applied at {ctx.next_index}"
        except Exception as error:
            self.host.fatal(f"{self.name}: entry {ctx.next_index} is applied and cannot be appended: {error}")
            return
        self.counters.count(decision.cause, decision.records, len(body))
        self._decided(index, decision.records)

    def when_consistent(self, told: Callable[[Unavailable | None], None]) -> None:
        """Call `told` with None when a read that arrives now would be answered, or else with the reason.

        It may be called at once. By then everything applied so far is committed, and this node was proven to
        lead.
        """
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        barrier = ReadBarrier(told)
        if (why := self._why_not(only_reads=True)) is not None:
            barrier.refuse(why)
            return
        try:
            self._hold(now_ms, barrier, None, has_written=False)
        except Exception as error:  # the caller would mistake it for a failure of its own
            self.host.fatal(f"{self.name}: a read cannot be queued: {in_one_line(error)}")

    def _hold(self, now_ms: float, pending: PendingReply, response: object, has_written: bool) -> None:
        """Hold a reply until the last entry so far is committed, and the lead proven.

        The last entry is the decision's own, or the newest that it has seen. The commit of its own entry also
        proves the lead; a decision that wrote nothing waits for a separate proof.
        """
        index = self.replica.last_index
        proof_ms = NO_PROOF if has_written else now_ms
        if index <= self._committed_index and proof_ms <= self._proven_ms:
            pending.answer(response)
            return
        self._pending_replies.hold(index, now_ms, pending, response, proof_ms)
        self.counters.replies_held += 1
        if proof_ms > self._proven_ms:
            self.replica.ask_proof()
        if self._held_timer is None:
            self._held_timer = self.host.call_later(self._settings.held_reply_timeout_ms, self._expire_held)

    def _note_failure(self, failure: Failure) -> None:
        """Report failed work in the node's log, and as evidence for whoever explains the group later."""
        LOG.warning("%s: %s", self.name, failure.words)
        self.node.evidence.trouble(
            failure.group_id, failure.words, work=failure.work, member_id=failure.member_id
        )

    def _note_refusal(self, pending: PendingReply, client: ClientInfo, response: object) -> None:
        """Keep the reason of a refusal as evidence for later explanations of the group."""
        error = first_error(response)
        if error is not None:
            self.node.evidence.refused(
                api=pending.api_key,
                error=error[0],
                reason=error[1],
                group_id=getattr(pending.request, "group_id", ""),
                member_id=getattr(pending.request, "member_id", ""),
                client=f"{client.client_id}{client.host}",
                owned=owned_partitions(pending.request),
            )

    def _report(self, error: BaseException | None, api_key: int) -> str:
        """Log a failure under an id that the client is given too."""
        trace_id = self.host.fresh_id()
        self.counters.failures += 1
        LOG.error("%s: request to API %d failed, trace %s", self.name, api_key, trace_id, exc_info=error)
        return f"{Unavailable.FAILED.value} (trace {trace_id})"

    def _expire_held(self) -> None:
        self._held_timer = None
        now_ms = self.host.monotonic_ms()
        self.node.observe_clock(now_ms)
        self.counters.replies_expired += self._pending_replies.expire(now_ms)
        deadline_ms = self._pending_replies.next_deadline_ms
        if deadline_ms is not None:
            self._held_timer = self.host.call_later(max(1.0, deadline_ms - now_ms), self._expire_held)

    @abstractmethod
    def _handled(self, api_key: int, request: Any, reply: Any, now_ms: float) -> None:
        """Hook: a request was decided, so deadlines may have moved."""

    def _cancel_timers(self) -> None:
        for timer in (self._held_timer, self._going_on):
            if timer is not None:
                timer.cancel()
        self._held_timer = self._going_on = None
