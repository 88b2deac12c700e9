"""The requests to one shard: decided, appended to its log, and answered once they may be.

A request is decided against the latest projection. The decision's records become one log entry in the same
turn of the loop, and the reply is held until that entry is committed. A decision without records waits for
the last entry before it, so that no client reads what could be taken back, and for a proof, obtained after
the request arrived, that this node still leads, so that no client reads what another leader has replaced. One
round to the peers proves it for all requests of a turn. A request that is too large for one decision takes
several, each in a share of the node's slices, and is answered with the last.

Invariants:

- A decision's records are appended at the index that it was given, in the turn in which they were applied; if
  that fails the node stops, because its projection is ahead of its log.
- Refusals for want of room come before the first record; requests that never write need no room in the log.
- After a lack of room that lasted, nothing is written until every session has been renewed: no member expires
  because this node refused its heartbeats.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster.node_info import ClientInfo
from cluster.runtime.answers import READ_APIS, Unavailable, refusal
from cluster.runtime.pending_replies import PendingReplies, PendingReply, PendingRun, ReadBarrier
from cluster.runtime.refusal_notes import NOTED_APIS, ORDINARY, first_error, owned_partitions
from cluster.runtime.shard_context import ShardContext
from cluster.runtime.shard_counters import ShardCounters
from cluster.runtime.shard_state import ShardState
from cluster.runtime.slices import OWN
from coordinator.api import Context, Decision, Failure, Later
from raftlog.env.errors import in_one_line
from raftlog.replica.replica import Replica
from records import Cause, RawRecord, dump_cause, join_body
from wire.apis import ApiKey

LOG = logging.getLogger("quorate.runtime")

NO_ROOM_PAUSE_MS: Final = 50.0
"""Delay of work that can wait while the disk has no room for more: several syncs of a slow disk."""

REFUSING_MS: Final = 500.0
"""Heartbeats refused for longer than this were missed by the node, so all members get a new session."""

WAITING_APIS: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that may wait for other members, for minutes. They have a bound of their own, so that members who
wait cannot keep a node from answering heartbeats and commits."""

NOBODY: Final = ClientInfo()


class RequestDuties(Protocol):
    """The work of one kind of shard for its requests beside deciding them."""

    def begin(self) -> Iterator[None]:
        """Yield the steps after which every member has a full session; each takes much less than a slice."""

    def refuses(self, api_key: int, api_version: int, now_ms: float) -> Unavailable | None:
        """Return why a request must not be decided on the node's catalog, or None if it may."""

    def appended(self, index: int, records: list[RawRecord]) -> None:
        """Follow records that were applied and appended here; they are not committed yet."""

    def decided(self, pending: PendingReply, decision: Decision, ctx: Context) -> None:
        """Follow a decision of a request: its records are appended, its reply is held or given."""


class RequestedShard(Protocol):
    """The shard that requests are decided on, as its runtime has it."""

    machine: Any
    name: str
    node: ShardContext
    replica: Replica
    counters: ShardCounters
    is_ready: bool

    @property
    def state(self) -> ShardState: ...

    @property
    def is_alone(self) -> bool:
        """Whether the cluster has no other node."""

    @property
    def pending_replies(self) -> PendingReplies: ...

    @property
    def duties(self) -> RequestDuties: ...

    def hold(self, now_ms: float, pending: PendingReply, response: object, *, has_written: bool) -> None:
        """Hold a reply until the last entry so far is committed, and the lead proven."""


@dataclass(slots=True)
class Unfinished:
    """A request that takes more than one decision, its client, and its deadline."""

    pending: PendingReply
    client: ClientInfo
    deadline_ms: float
    continuation: Callable[[Context], Decision]


class ShardRequests:
    """The requests to one shard, while this node leads it."""

    def __init__(self, shard: RequestedShard) -> None:
        node = shard.node
        self._shard = shard
        self._node = node
        self._host = node.host
        self._slices = node.slices
        self._held = shard.pending_replies
        self._replies_max = node.runtime_settings.held_replies_max
        self._timeout_ms = node.runtime_settings.held_reply_timeout_ms
        self._unfinished: deque[Unfinished] = deque()
        self._waiting: dict[int, PendingReply] = {}
        """Requests whose answer a later decision has, by the number in their `Later`."""
        self._cause: Cause | None = None
        self._cause_bytes = b""
        """The cause of the newest entry, encoded."""
        self._is_going_on = False
        self._no_room_since_ms: float | None = None
        self._renewing: Iterator[None] | None = None
        self.has_room = True
        """Whether a decision may write, as of the last `observe_room`."""

    def submit(self, pending: PendingReply, client: ClientInfo) -> None:
        """Decide, append, and answer once that is durable; `pending` is answered exactly once."""
        now_ms = self._host.monotonic_ms()
        if not self._admits(pending, client, now_ms):
            return
        ctx = self.context(now_ms, client)
        decision = self._decide(pending, pending.request, ctx)
        try:
            self._conclude(pending, client, now_ms + self._timeout_ms, decision, ctx)
        except Exception as error:
            self._not_carried_out(error)

    def submit_run(self, run: PendingRun, client: ClientInfo) -> None:
        """Do the same for requests of one API that came together, in their order.

        Each has a decision of its own, which must not take several or be answered later. They share a
        context, whose `next_index` goes on, and are answered together.
        """
        now_ms, shard = self._host.monotonic_ms(), self._shard
        if not self._admits(run, client, now_ms):
            return
        ctx, replica = self.context(now_ms, client), shard.replica
        responses: list[object] = []
        try:
            for request in run.requests:
                if responses and not replica.has_room:  # there was room for the first
                    shard.counters.refused += run.num_requests - len(responses)
                    responses += run.refusal(Unavailable.OVERLOADED)[len(responses) :]
                    break
                ctx.next_index = replica.next_index
                decision = self._decide(run, request, ctx)
                self.append(decision, ctx)
                run.has_written |= bool(decision.records)
                responses.append(self._response(run, request, decision, client))
            shard.hold(now_ms, run, responses, has_written=run.has_written)
            shard.duties.decided(run, decision, ctx)
        except Exception as error:
            self._not_carried_out(error)

    def _admits(self, pending: PendingReply, client: ClientInfo, now_ms: float) -> bool:
        """Whether what has just come is decided now; it is refused otherwise."""
        shard, api_key = self._shard, pending.api_key
        shard.counters.requests += pending.num_requests
        self._node.observe_clock(now_ms)
        if api_key in READ_APIS:
            why = self._why_not_read()
        else:
            self.observe_room(now_ms)
            why = self.why_not()
        if why is None and api_key in WAITING_APIS and len(self._waiting) >= self._replies_max:
            why = Unavailable.OVERLOADED
        if why is None and not shard.is_alone:
            why = shard.duties.refuses(api_key, pending.api_version, now_ms)
        if why is None:
            return True
        shard.counters.refused += pending.num_requests
        response = pending.refusal(why)
        if why in (Unavailable.OVERLOADED, Unavailable.DISK_FULL):
            for request, one in pending.each(response):
                self._note_refusal(api_key, request, one, client)
        pending.answer(response)
        return False

    def _decide(self, pending: PendingReply, request: object, ctx: Context) -> Decision:
        try:
            decision: Decision = self._shard.machine.handle(
                pending.api_key, pending.api_version, request, ctx
            )
        except Exception as error:
            return Decision(error=error)
        return decision

    def _not_carried_out(self, error: Exception) -> None:
        self._host.fatal(f"{self._shard.name}: a decision was not carried out: {in_one_line(error)}")

    def _conclude(
        self, pending: PendingReply, client: ClientInfo, deadline_ms: float, decision: Decision, ctx: Context
    ) -> None:
        """Append one decision of a request and hold the reply if it is the last.

        A failure in here leaves the shard in an unknown state, so it must not propagate to whoever read the
        request.
        """
        shard = self._shard
        self.append(decision, ctx)
        has_written = bool(decision.records)
        pending.has_written |= has_written
        if decision.continuation is not None:
            self._unfinished.append(Unfinished(pending, client, deadline_ms, decision.continuation))
            self._go_on_later()
        elif isinstance(decision.reply, Later) and decision.error is None:
            self._waiting[decision.reply.token] = pending
        else:
            response = self._response(pending, pending.request, decision, client)
            shard.hold(ctx.monotonic_ms, pending, response, has_written=has_written)
        self._answer_waiting(decision, ctx.monotonic_ms)
        shard.duties.decided(pending, decision, ctx)

    def _response(
        self, pending: PendingReply, request: object, decision: Decision, client: ClientInfo
    ) -> object:
        """Return the decision's reply, or the error with which it failed."""
        api_key = pending.api_key
        if decision.error is not None or decision.reply is None:
            message = self._report(decision.error, api_key)
            return refusal(Unavailable.FAILED, api_key, pending.api_version, request, message)
        if not decision.records and api_key in NOTED_APIS:
            self._note_refusal(api_key, request, decision.reply, client, decision.refusal)
        return decision.reply

    def _answer_waiting(self, decision: Decision, now_ms: float) -> None:
        """Hold the answers that a decision has for earlier requests."""
        for token, response in decision.answers:
            pending = self._waiting.pop(token, None)
            if pending is None:  # its own decision failed after the member was noted, and it was refused
                continue
            self._shard.hold(now_ms, pending, response, has_written=bool(decision.records))

    # Requests of several decisions.

    @property
    def num_unfinished(self) -> int:
        """The number of requests that have had some of their decisions, but not all."""
        return len(self._unfinished)

    is_long = False

    def _go_on_later(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self._slices.queue(self, OWN)

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Take the next decision of the oldest unfinished request (`slices.Work`): one for each share."""
        self._node.observe_clock(now_ms)
        unfinished = self._unfinished
        if unfinished and unfinished[0].deadline_ms <= now_ms:
            unfinished.popleft().pending.refuse(Unavailable.TIMED_OUT)
        elif unfinished and not self._may_go_on(now_ms):
            self._host.call_later(NO_ROOM_PAUSE_MS, self._slices.queue, self, OWN)
            return now_ms
        elif unfinished:
            asked = unfinished.popleft()
            ctx = self.context(now_ms, asked.client)
            try:
                decision = asked.continuation(ctx)
            except Exception as error:
                decision = Decision(error=error)
            self._conclude(asked.pending, asked.client, asked.deadline_ms, decision, ctx)
        if self._unfinished:
            return None
        self._is_going_on = False
        return self._host.monotonic_ms()

    def _may_go_on(self, now_ms: float) -> bool:
        if self._unfinished[0].pending.api_key in READ_APIS:
            return True
        self.observe_room(now_ms)
        return self.has_room

    def failed(self, error: Exception) -> None:
        """Stop the node: a decision was taken and not carried out (`slices.Work`)."""
        self._host.fatal(f"{self._shard.name}: a request cannot continue: {in_one_line(error)}")

    def resign(self) -> None:
        """Refuse unfinished requests, as this node will not learn their outcome."""
        self._no_room_since_ms = self._renewing = None
        unfinished, self._unfinished = self._unfinished, deque()
        for asked in unfinished:
            asked.pending.refuse(Unavailable.DEPOSED)
        waiting, self._waiting = self._waiting, {}
        for pending in waiting.values():
            pending.refuse(Unavailable.DEPOSED)

    def shift_deadlines(self, gap_ms: float) -> None:
        for asked in self._unfinished:
            asked.deadline_ms += gap_ms

    # Whether a request can be taken.

    def why_not(self) -> Unavailable | None:
        """Return why a request that may write is refused as of the last `observe_room`, or None."""
        shard = self._shard
        if not shard.is_ready:
            return self._not_ready()
        if self.has_room:
            return None
        if shard.replica.leadership.is_handing_over:
            return Unavailable.NOT_LEADER
        return Unavailable.DISK_FULL if shard.replica.is_disk_full else Unavailable.OVERLOADED

    def _why_not_read(self) -> Unavailable | None:
        shard = self._shard
        if not shard.is_ready:
            return self._not_ready()
        if shard.replica.leadership.is_handing_over:
            return Unavailable.NOT_LEADER
        return None if self._can_hold else Unavailable.OVERLOADED

    def _not_ready(self) -> Unavailable:
        return Unavailable.NOT_LEADER if self._shard.state is ShardState.DOWN else Unavailable.LOADING

    @property
    def _can_hold(self) -> bool:
        return len(self._held) + len(self._unfinished) < self._replies_max

    def observe_room(self, now_ms: float) -> None:
        """Look whether a decision may write, before its first record, which cannot be taken back.

        The first look that finds room again after a lack that lasted begins to renew all sessions.
        """
        shard = self._shard
        if not shard.is_ready:
            self.has_room = False
            return
        shard.replica.disk_room.observe(now_ms)
        if not (self._can_hold and shard.replica.can_append):
            self.has_room = False
            if self._no_room_since_ms is None:
                self._no_room_since_ms = now_ms
            return
        since_ms, self._no_room_since_ms = self._no_room_since_ms, None
        if since_ms is not None and now_ms - since_ms > REFUSING_MS:
            self._renewing = steps = self._renew()
            self._slices.run(steps, lambda: steps is self._renewing, OWN)
        self.has_room = self._renewing is None

    def _renew(self) -> Iterator[None]:
        """Give every member a full session. There is no room until the last one has it."""
        try:
            yield from self._shard.duties.begin()
        except Exception as error:
            self._host.fatal(f"{self._shard.name}: sessions cannot be renewed: {in_one_line(error)}")
            return
        self._renewing = None

    # Decisions of every kind.

    def decide(self, now_ms: float, decide: Callable[[Context], Decision | None]) -> Decision | None:
        """Take a decision that no client asked for, and append it; None if there was nothing to decide."""
        ctx = self.context(now_ms)
        try:
            decision = decide(ctx)
        except Exception as error:
            decision = Decision(error=error)
        if decision is not None:
            self.append(decision, ctx)
            self._answer_waiting(decision, now_ms)
            if decision.error is not None:
                LOG.error("%s: a timer or a job failed", self._shard.name, exc_info=decision.error)
                self._shard.counters.failures += 1
        return decision

    def context(self, now_ms: float, client: ClientInfo = NOBODY) -> Context:
        """Return the inputs of a decision: of a client's request, or one that no client asked for."""
        node, host, replica = self._node, self._host, self._shard.replica
        return Context(
            monotonic_ms=now_ms,
            wall_ms=replica.time_at(now_ms),
            settled_ms=replica.past_ms,
            next_index=replica.next_index,
            catalog=node.catalog,
            settings=node.group_settings,
            fresh_id=host.fresh_id,
            fresh_uuid=host.fresh_uuid,
            stopwatch_ms=host.monotonic_ms,
            turn=node.turns.current(),
            client_id=client.client_id,
            client_host=client.host,
            principal=client.principal,
            is_one_of_several=client.is_one_of_several,
        )

    def append(self, decision: Decision, ctx: Context) -> None:
        """Append one decision as one entry. The node stops if its projection gets ahead of its log."""
        shard = self._shard
        if decision.failure is not None:
            self._note_failure(decision.failure)
        if decision.notice:
            LOG.warning("%s: %s", shard.name, decision.notice)
        shard.counters.assignor_failures += decision.has_assignor_failed
        if not decision.records:
            if shard.machine.applied_index >= ctx.next_index:
                what = f"a decision changed the state without records: {decision.error}"
                self._host.fatal(f"{shard.name}: {what}")
            return
        try:
            assert decision.cause is not None, "records without a cause"
            if decision.cause is not self._cause:  # commits that come together have the same one
                self._cause, self._cause_bytes = decision.cause, dump_cause(decision.cause)
            body = join_body(self._cause_bytes, decision.records)
            index = shard.replica.propose(body, len(decision.records), ctx.wall_ms)
            assert index == ctx.next_index, f"appended at {index}, applied at {ctx.next_index}"
        except Exception as error:
            what = f"entry {ctx.next_index} is applied and cannot be appended: {error}"
            self._host.fatal(f"{shard.name}: {what}")
            return
        shard.duties.appended(index, decision.records)
        shard.counters.count(decision.cause, decision.records, len(body))

    def when_consistent(self, told: Callable[[Unavailable | None], None]) -> None:
        """Call `told` with None when a read that arrives now would be answered, or else with the reason.

        It may be called at once. By then everything applied so far is committed, and this node was proven to
        lead.
        """
        now_ms = self._host.monotonic_ms()
        self._node.observe_clock(now_ms)
        barrier = ReadBarrier(told)
        if (why := self._why_not_read()) is not None:
            barrier.refuse(why)
            return
        try:
            self._shard.hold(now_ms, barrier, None, has_written=False)
        except Exception as error:  # the caller would mistake it for a failure of its own
            self._host.fatal(f"{self._shard.name}: a read cannot be queued: {in_one_line(error)}")

    # Evidence.

    def _note_failure(self, failure: Failure) -> None:
        """Report failed work in the node's log, and as evidence for whoever explains the group later."""
        LOG.warning("%s: %s", self._shard.name, failure.words)
        self._node.evidence.trouble(
            failure.group_id, failure.words, work=failure.work, member_id=failure.member_id
        )

    def _note_refusal(
        self, api_key: int, request: object, response: object, client: ClientInfo, reason: str = ""
    ) -> None:
        """Keep the reason of a refusal as evidence for later explanations of the group."""
        error = first_error(response)
        if error is not None and error[0] not in ORDINARY:
            self._node.evidence.refused(
                api=api_key,
                error=error[0],
                reason=error[1] or reason,
                group_id=getattr(request, "group_id", ""),
                member_id=getattr(request, "member_id", ""),
                client=f"{client.client_id}{client.host}",
                owned=owned_partitions(request),
            )

    def _report(self, error: BaseException | None, api_key: int) -> str:
        """Log a failure under an id that the client is given too."""
        trace_id = self._host.fresh_id()
        self._shard.counters.failures += 1
        LOG.error(
            "%s: request to API %d failed, trace %s", self._shard.name, api_key, trace_id, exc_info=error
        )
        return f"{Unavailable.FAILED.value} (trace {trace_id})"
