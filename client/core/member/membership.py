"""The member: its identity, its partitions, and the one door to its state.

The other managers of this package report what happened, such as the answer to a heartbeat or the end of a
reconciliation; this one decides by the table in `states` what it means. Invariants:

- The epoch of an answer is taken before anything else in it.
- A partition is in `owned` from the moment in which it is handed to the application until its revocation
  begins. Then it is in `revoking` until the application has acknowledged. Heartbeats name both, so that the
  coordinator gives it to nobody else while a callback still runs.
- Heartbeats also name what is assigned and not taken yet. For the coordinator, what a heartbeat leaves out is
  given up: without this, it could give a partition away while the heartbeat is on its way and the member,
  which has not heard of it, begins to use the partition.
- A member that is fenced clears both at once, without a revocation or a commit.
- Leaving ends: with the coordinator's answer, or at the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from client.core.assignors import AssignorData
from client.core.env import Environment
from client.core.errors import FatalError
from client.core.events import (
    ErrorEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    PollEvent,
    RevokePartitionsEvent,
    SubscribeEvent,
)
from client.core.futures import complete, fail
from client.core.member.states import IN_GROUP, TRANSITIONS, MemberEvent, MemberState
from client.core.member.steps import Acknowledgement, ApplicationSteps, Continuation, plural
from client.core.member.tokens import FencingTokens
from client.core.member.wants import AssignedPositions, Emit
from client.core.requests import FOREVER, NOTHING, PollResult
from client.core.settings import ConsumerSettings
from client.core.types import TopicIdPartition, TopicPartition
from wire.errors import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""A static member that will return; its partitions wait for it until its session ends."""

UNJOINED_LEAVE_MS: Final = 1_000.0
"""The time that a leave without an epoch waits for its answer. It is sent because only the answer to the join
may be lost; if the leave is lost as well, the session ends the member."""

_S, _E = MemberState, MemberEvent


class MembershipManager:
    """One consumer's membership. It exists for subscribe() only, and handles the events about it."""

    def __init__(
        self, settings: ConsumerSettings, env: Environment, emit: Emit, positions: AssignedPositions
    ) -> None:
        self.group_id = settings.group_id or ""
        self.group_instance_id = settings.group_instance_id
        self.member_id = env.fresh_id()
        """The client chooses it for its whole life. Version 0 replaces it by the coordinator's."""
        self.member_epoch = JOIN_EPOCH
        self.state = MemberState.UNSUBSCRIBED
        self.why = "subscribe() was not called"
        self.since_ms = env.now_ms()
        self.subscription = SubscribeEvent(topics=frozenset())
        self.has_given_id = False
        """Whether the coordinator has chosen the member id, as it does in version 0."""
        self.must_compute = False
        """Whether the coordinator asks this member to compute the group's assignment."""
        self.assignor_data: AssignorData | None = None
        """The data that a client-side assignor sent with the newest assignment."""
        self.owned: dict[TopicIdPartition, TopicPartition] = {}
        """The partitions that the application may use, by id and by name."""
        self.revoking: dict[TopicIdPartition, TopicPartition] = {}
        """The partitions that the application has been told to give up."""
        self.target: frozenset[TopicIdPartition] = frozenset()
        """The partitions that the coordinator assigned last."""
        self.tokens = FencingTokens()
        self._tenures: dict[TopicPartition, int] = {}
        """Since which handing over the application has each partition of `owned` and `revoking`."""
        self._handed_over = 0
        self.steps = ApplicationSteps(emit)
        self.farewell: int | None = None
        """The epoch with which the coordinator must be told that the member leaves."""
        self.is_known = False
        """Whether the coordinator may have heard of the member since it last left or was removed."""
        self.polled_ms = env.now_ms()
        self._settings = settings
        self._emit = emit
        self._positions = positions
        self._leaving: list[LeaveGroupEvent] = []
        """Calls that wait for the end; the last one's deadline counts."""
        self._farewell_end_ms = FOREVER
        """The time until which the answer to a leave without an epoch is waited for."""
        self._joins_again = False
        """Whether subscribe() was called while the member leaves."""

    # Calls of the application.

    def subscribe(self, event: SubscribeEvent, now_ms: float) -> None:
        """Join, or tell the coordinator the new topics with the next heartbeat, which leaves at once."""
        self.subscription = event
        if self.state is _S.UNSUBSCRIBED:
            self._join(_E.SUBSCRIBED, "subscribe() was called", now_ms)
        self._joins_again = self.state in (_S.PREPARE_LEAVING, _S.LEAVING)

    def leave(self, event: LeaveGroupEvent, now_ms: float) -> None:
        """Give up everything, tell the coordinator, and complete the event's future then."""
        self._joins_again = False
        self._leaving.append(event)
        why = "close() was called" if event.closes else "unsubscribe() was called"
        if self.state in (_S.FENCED, _S.STALE):
            self._go(_E.UNSUBSCRIBED, why, now_ms)  # what it had is lost already; that callback may still run
            if self.steps.running is None:
                self._released(None, now_ms)
        elif self.state in IN_GROUP:
            self._go(_E.UNSUBSCRIBED, why, now_ms)
            self._release_all(now_ms)
        self._end_leaving(now_ms)

    def poll_called(self, event: PollEvent, now_ms: float) -> None:
        """Note that the application is alive; a stale member joins again."""
        self.polled_ms = now_ms
        if self.state is _S.STALE and self.steps.running is None:
            self._join(_E.POLLED, "poll() was called again", now_ms)

    def acknowledge(self, event: Acknowledgement, now_ms: float) -> None:
        """Go on after a callback; late acknowledgements change nothing."""
        self.steps.acknowledge(event, now_ms)
        self._end_leaving(now_ms)

    def poll(self, now_ms: float) -> PollResult:
        """Leave when the application did not poll in time, and end a leave that takes too long."""
        if self.state in IN_GROUP:
            left_ms = self.polled_ms + self._settings.max_poll_interval_ms - now_ms
            if left_ms > 0:
                return PollResult((), left_ms)
            self._go(_E.EXPIRED, f"poll() was not called for {now_ms - self.polled_ms:,.0f} ms", now_ms)
            self._say_farewell(stays=self.group_instance_id is not None)
            self._lose_all(now_ms)
        if not self._leaving:
            return NOTHING
        left_ms = self.leave_deadline_ms - now_ms
        if left_ms <= 0:
            self.steps.cancel()
            if self.state is _S.PREPARE_LEAVING:
                self._released(None, now_ms)
                return PollResult((), 0)  # the coordinator is told before the leave ends
            self.left("the deadline passed", now_ms)
            return NOTHING
        return PollResult((), left_ms)

    # News from the heartbeats.

    def heartbeat_sent(self, now_ms: float) -> None:
        self.is_known = True
        acknowledges = self.state is _S.ACKNOWLEDGING
        self._go(_E.HEARTBEAT_SENT, "everything that it owns is acknowledged", now_ms)
        if acknowledges:
            self._compare(now_ms, is_new=False)

    def answered(
        self,
        epoch: int,
        assigned: Iterable[TopicIdPartition] | None,
        now_ms: float,
        data: AssignorData | None = None,
        tokens: Mapping[TopicIdPartition, int] | None = None,
    ) -> None:
        """Take the epoch, and then the assignment, of a heartbeat's answer.

        Other data of a client-side assignor make an assignment of the same partitions a new one."""
        if self.state in IN_GROUP or self.state is _S.PREPARE_LEAVING:
            self.member_epoch = epoch
        if self.state not in IN_GROUP:
            return
        complete(self.subscription.future)
        if tokens is not None:
            fault = self.tokens.answered(tokens, self.held)
            if fault is not None:
                self.fail(FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, fault), now_ms)
                return
        target = self.target if assigned is None else frozenset(assigned)
        is_new, self.target = target != self.target, target
        if assigned is not None and data != self.assignor_data:
            self.assignor_data = data
            self._go(_E.ASSIGNED, "an assignment with other data of the assignor", now_ms)
        elif self.state is _S.JOINING and target == self.owned.keys():
            self._go(_E.ADMITTED, f"joined with epoch {epoch}; nothing is assigned yet", now_ms)
        elif is_new or tokens is not None or self.state is _S.JOINING:
            self._compare(now_ms, is_new=True)

    def fence(self, why: str, now_ms: float, *, is_known: bool) -> None:
        """Lose everything and join again: the coordinator does not know the member, or not at this epoch."""
        self.is_known = is_known
        if self.state in IN_GROUP:
            self._go(_E.FENCED, why, now_ms)
            self._lose_all(now_ms)
        elif self.state is _S.PREPARE_LEAVING:
            self._go(_E.FENCED, why, now_ms)
            self.member_epoch = JOIN_EPOCH

    def fail(self, error: FatalError, now_ms: float) -> None:
        """Lose everything after an error that trying again does not mend; every poll() raises it."""
        if (self.state, _E.FAILED) not in TRANSITIONS:
            return
        was_leaving = self.state is _S.PREPARE_LEAVING
        self._go(_E.FAILED, str(error), now_ms)
        fail(self.subscription.future, error)
        if was_leaving:
            self.member_epoch = JOIN_EPOCH
        else:
            self._lose_all(now_ms)
        self._emit(ErrorEvent(error=error, is_fatal=True))
        self._end_leaving(now_ms)

    def left(self, why: str, now_ms: float) -> None:
        """End the leave: the coordinator was told, or nothing more can be done."""
        if self.state is _S.LEAVING:
            self._go(_E.LEFT, why, now_ms)
            self.member_epoch, self.farewell, self.is_known = JOIN_EPOCH, None, False
            self._farewell_end_ms = FOREVER
        self._end_leaving(now_ms)
        if self.state is _S.UNSUBSCRIBED and self._joins_again:
            self._joins_again = False
            self._join(_E.SUBSCRIBED, "subscribe() was called while it left", now_ms)

    def take_farewell(self) -> int:
        """Return the epoch to leave with, which is sent once."""
        assert self.farewell is not None
        epoch, self.farewell, self.is_known = self.farewell, None, False
        return epoch

    # News from the reconciliation.

    def hand_over(self, partitions: dict[TopicIdPartition, TopicPartition]) -> None:
        """Put partitions into the set."""
        self.owned |= partitions
        self._handed_over += 1
        self._tenures.update(dict.fromkeys(partitions.values(), self._handed_over))

    def begin_revoking(
        self, partitions: dict[TopicIdPartition, TopicPartition], deadline_ms: float, then: Continuation
    ) -> None:
        """Take partitions out of the set, fetch them no more, and let the application give them up."""
        for part in partitions:
            del self.owned[part]
        self.revoking |= partitions
        self._positions.end(partitions.values())
        revoked = frozenset(self.revoking.values())
        self.steps.begin(
            lambda number: RevokePartitionsEvent(partitions=revoked, round=number, deadline_ms=deadline_ms),
            f"the commit and on_revoke of {plural(len(revoked), 'partition')}",
            then,
        )

    def revoked(self) -> None:
        """Name the partitions in heartbeats no more: the callback has ended."""
        for partition in self.revoking.values():
            self._tenures.pop(partition, None)
        self.revoking = {}

    def tenure(self, partition: TopicPartition) -> int | None:
        """The number of the time in which the application has the partition now; None if it has not.

        What was begun in an earlier one, such as a commit, must not be done any more: meanwhile the
        partition may have been another member's."""
        return self._tenures.get(partition)

    def reconciled(self, now_ms: float) -> None:
        self._go(_E.RECONCILED, "the callbacks have ended", now_ms)

    @property
    def is_subscribed(self) -> bool:
        """Whether the consumer is a member or on its way in or out."""
        return self.state is not MemberState.UNSUBSCRIBED

    @property
    def held(self) -> frozenset[TopicIdPartition]:
        """The partitions that the application may still use."""
        return frozenset(self.owned.keys() | self.revoking.keys())

    @property
    def surplus(self) -> dict[TopicIdPartition, TopicPartition]:
        """The partitions that the application has and must give up."""
        return {
            part: name
            for part, name in self.owned.items()
            if part not in self.target or self.tokens.is_outdated(part)
        }

    @property
    def missing(self) -> frozenset[TopicIdPartition]:
        """The partitions to take. A lease needs a token; without one, the partition is revoked again soon."""
        missing = self.target - self.owned.keys()
        return frozenset(filter(self.tokens.has, missing)) if self.subscription.leases else missing

    @property
    def told(self) -> frozenset[TopicIdPartition]:
        """The partitions that heartbeats name as owned."""
        return self.held | self.target

    # Inside.

    def _go(self, event: MemberEvent, why: str, now_ms: float) -> None:
        """Change the state by the table."""
        to = TRANSITIONS[self.state, event]
        if to is not self.state or event is not _E.HEARTBEAT_SENT:
            self.why = why
        if to is not self.state:
            self.state, self.since_ms = to, now_ms

    def _join(self, event: MemberEvent, why: str, now_ms: float) -> None:
        self._go(event, why, now_ms)
        self.member_epoch = JOIN_EPOCH
        self.target = frozenset()
        self.polled_ms = max(self.polled_ms, now_ms) if event is _E.SUBSCRIBED else self.polled_ms

    def _compare(self, now_ms: float, *, is_new: bool) -> None:
        """Reconcile if the assignment is not what the member owns; an equal one changes nothing."""
        held = self.held
        if self.surplus or self.missing or self.revoking or (is_new and self.target != held):
            gained, lost = len(self.target - held), len(held - self.target)
            self._go(_E.ASSIGNED, f"a new assignment: {gained} to take, {lost} to give up", now_ms)

    def _release_all(self, now_ms: float) -> None:
        """Give up everything on the way out, by a revocation if it is still in the group."""
        if self.member_epoch <= JOIN_EPOCH:
            self._lose_all(now_ms)
            return
        self.target = frozenset(self.owned)
        if not self.held:
            self.steps.cancel()
            self._released(None, now_ms)
            return
        self.begin_revoking(dict(self.owned), self.leave_deadline_ms, self._released)

    def _lose_all(self, now_ms: float) -> None:
        """Clear the set without a revocation; on_lost runs for all of it."""
        partitions = frozenset(self.owned.values()) | frozenset(self.revoking.values())
        self._positions.end(partitions)
        self.owned, self.revoking, self.target = {}, {}, frozenset()
        self._tenures.clear()
        self.must_compute, self.assignor_data = False, None
        self.member_epoch = JOIN_EPOCH
        self.steps.cancel()
        if not partitions:
            self._released(None, now_ms)
            return
        self.steps.begin(
            lambda number: LosePartitionsEvent(partitions=partitions, round=number),
            f"on_lost of {plural(len(partitions), 'partition')}",
            self._released,
        )

    def _released(self, event: Acknowledgement | None, now_ms: float) -> None:
        """Go on from the state that waited until the application had given up everything."""
        self.revoked()
        if self.state is _S.FENCED:
            self._join(_E.RELEASED, "it was removed from the group and joins again", now_ms)
        elif self.state is _S.STALE and self.polled_ms + self._settings.max_poll_interval_ms - now_ms > 0:
            self._join(_E.POLLED, "poll() was called again", now_ms)
        elif self.state is _S.PREPARE_LEAVING:
            self._go(_E.RELEASED, "everything is given up", now_ms)
            if self.is_known:
                closes = any(event.closes for event in self._leaving)
                if self.member_epoch <= JOIN_EPOCH:
                    self._farewell_end_ms = now_ms + UNJOINED_LEAVE_MS
                self._say_farewell(stays=closes and self.group_instance_id is not None)
            else:
                self.left("the coordinator does not know the member", now_ms)

    def _say_farewell(self, *, stays: bool) -> None:
        self.farewell = LEAVE_FOR_A_WHILE_EPOCH if stays else LEAVE_EPOCH
        self.member_epoch = self.farewell

    @property
    def leave_deadline_ms(self) -> float:
        """The latest time at which the leave ends."""
        deadlines = [event.deadline_ms for event in self._leaving if event.deadline_ms is not None]
        return min([self._farewell_end_ms, *deadlines[-1:]])

    def _end_leaving(self, now_ms: float) -> None:
        """Complete the calls that wait for the end, if nothing is left to be done."""
        is_over = self.state in (_S.UNSUBSCRIBED, _S.FATAL) and self.steps.running is None
        if not is_over:
            return
        leaving, self._leaving = self._leaving, []
        for event in leaving:
            complete(event.future)
