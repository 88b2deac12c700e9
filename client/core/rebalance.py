"""The application side of a rebalance: the partitions that the user has, and callbacks around their change.

Each event of the member is one round, and rounds run in their order, within calls of the consumer:

    REVOKE_PARTITIONS  out of the set, commit under enable.auto.commit, on_revoke, acknowledge
    ASSIGN_PARTITIONS  into the set, the assignor's on_assignment, on_assign, acknowledge
    LOSE_PARTITIONS    out of the set, on_lost (or on_revoke), acknowledge

A callback that raises is acknowledged as well, and the call that ran it raises its error. Partitions that
were taken back before the user got them are never shown: neither on_assign nor on_lost has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from client.core.consumed import ConsumedRecords
from client.core.effects import Steps, UserCall
from client.core.errors import FencedError
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    ComputeAssignmentEvent,
    InstallAssignmentEvent,
    LosePartitionsEvent,
    RevokePartitionsEvent,
)
from client.core.offset_commits import OffsetCommits
from client.core.settings import ConsumerSettings
from client.core.types import TopicPartition, partition_names

IN_CALLBACK: ContextVar[bool] = ContextVar("in_callback", default=False)
"""Whether a rebalance callback is what calls the consumer."""

RoundEvent = RevokePartitionsEvent | AssignPartitionsEvent | LosePartitionsEvent | ComputeAssignmentEvent


RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]
"""A user's function, or coroutine function, of the consumer and partitions."""


class RebalanceCallbacks(NamedTuple):
    """The user's callbacks, bound to the consumer."""

    on_assign: Callable[[list[TopicPartition]], Any] | None = None
    on_revoke: Callable[[list[TopicPartition]], Any] | None = None
    on_lost: Callable[[list[TopicPartition]], Any] | None = None


def bound_callbacks(
    consumer: Any,
    settings: ConsumerSettings,
    on_assign: RebalanceCallback | None = None,
    on_revoke: RebalanceCallback | None = None,
    on_lost: RebalanceCallback | None = None,
) -> RebalanceCallbacks:
    """Bind callbacks to their consumer; those that are not given are the settings'."""

    def bound(given: RebalanceCallback | None, default: RebalanceCallback | None) -> Any:
        callback = given or default
        return None if callback is None else partial(callback, consumer)

    return RebalanceCallbacks(
        bound(on_assign, settings.on_assign),
        bound(on_revoke, settings.on_revoke),
        bound(on_lost, settings.on_lost),
    )


class ApplicationRounds:
    """Runs the rounds of one consumer."""

    def __init__(
        self,
        settings: ConsumerSettings,
        records: ConsumedRecords,
        commits: OffsetCommits,
        offer_assignors: Callable[[], None],
        send: Callable[[ApplicationEvent], None],
    ) -> None:
        self.assignment: set[TopicPartition] = set()
        """The partitions whose records are handed out."""
        self.callbacks = RebalanceCallbacks()
        self.deadline_ms: float | None = None
        """The time limit of callbacks, while the consumer leaves its group."""
        self._assignors = {assignor.name: assignor for assignor in settings.group_local_assignors}
        self._records = records
        self._commits = commits
        self._offer_assignors = offer_assignors
        self._send = send
        self._events: deque[RoundEvent] = deque()
        self._is_running = False
        self._shown: set[TopicPartition] = set()
        """The partitions that on_assign had, and neither on_revoke nor on_lost since."""
        self._begins: frozenset[TopicPartition] = frozenset()
        """Partitions that are not fetched yet, because their on_assign runs."""
        self._after_begin: list[ApplicationEvent] = []

    def add(self, event: RoundEvent) -> None:
        """Take an event. Partitions that it takes away are not handed out from here on."""
        if isinstance(event, RevokePartitionsEvent):
            self._commits.releasing.update(self._records.positions(event.partitions & self.assignment))
        if isinstance(event, RevokePartitionsEvent | LosePartitionsEvent):
            self._take_out(event.partitions)
        self._events.append(event)

    def send(self, event: ApplicationEvent, partitions: Collection[TopicPartition]) -> None:
        """Send an event about partitions, when they have begun to be fetched."""
        if self._begins.isdisjoint(partitions):
            self._send(event)
        else:
            self._after_begin.append(event)

    def check_not_lost(self) -> None:
        """Raise FencedError if partitions were lost and the user was not told yet, so that a commit would
        leave them out in silence."""
        lost = [event.partitions for event in self._events if isinstance(event, LosePartitionsEvent)]
        if names := sorted(frozenset().union(*lost) & self._shown):
            raise FencedError(
                f"{partition_names(*names)} were lost, and are not committed: another consumer may have them."
                " poll() calls on_lost and joins again"
            )

    def begins(self, partition: TopicPartition) -> bool:
        """Whether a partition's on_assign has not ended, so that it has no position yet."""
        return partition in self._begins

    def run(self) -> Steps[None]:
        """Run the rounds that wait. Raises what a callback raises; a later call goes on after it."""
        while self._events and not self._is_running:
            self._is_running = True
            try:
                yield from self._run_one(self._events[0])
            finally:
                self._is_running = False

    def _run_one(self, event: RoundEvent) -> Steps[None]:
        match event:
            case RevokePartitionsEvent():
                return self._revoke(event)
            case LosePartitionsEvent():
                return self._lose(event)
            case AssignPartitionsEvent():
                return self._assign(event)
            case ComputeAssignmentEvent():
                return self._compute(event)

    def _revoke(self, event: RevokePartitionsEvent) -> Steps[None]:
        """Give partitions up. If the commit is cancelled, the round begins again with the next call."""
        partitions = sorted(event.partitions & self._shown)
        yield from self._commits.commit_before_release(partitions, event.deadline_ms)
        self._shown.difference_update(partitions)
        try:
            if partitions:
                yield from self._call(self.callbacks.on_revoke, partitions)
        finally:
            self._commits.forget(event.partitions)
            self._end(AckPartitionRevokedEvent(round=event.round))

    def _lose(self, event: LosePartitionsEvent) -> Steps[None]:
        partitions = sorted(event.partitions & self._shown)
        self._shown.difference_update(partitions)
        self._commits.forget(event.partitions)
        try:
            if partitions:
                yield from self._call(self.callbacks.on_lost or self.callbacks.on_revoke, partitions)
        finally:
            self._end(AckPartitionRevokedEvent(round=event.round))

    def _assign(self, event: AssignPartitionsEvent) -> Steps[None]:
        partitions = sorted(event.partitions - self._taken_back())
        self.assignment.update(partitions)
        self._shown.update(partitions)
        self._begins = event.partitions
        version = self._records.new_version(partitions)
        try:
            told = event.assignment
            if told is not None and told.assignor in self._assignors:
                on_assignment = getattr(self._assignors[told.assignor], "on_assignment", None)
                arguments = sorted(told.partitions), told.error, told.version, told.data
                yield from self._call(on_assignment, *arguments)
                self._offer_assignors()  # an assignment may change their metadata
            if partitions or not event.partitions:
                yield from self._call(self.callbacks.on_assign, partitions)
        finally:
            self._begins = frozenset()
            self._end(AckPartitionAssignedEvent(round=event.round, version=version))
            for later in self._after_begin:
                self._send(later)
            self._after_begin.clear()

    def _compute(self, event: ComputeAssignmentEvent) -> Steps[None]:
        """Run a client-side assignor for the group. What it raises goes to the coordinator as its error.

        If the call is cancelled meanwhile, the assignor runs again with the next one."""
        result: Any
        try:
            result = yield UserCall(self._assignors[event.assignor].assign, (event.group,))
        except Exception as error:
            result = error
        self._end(InstallAssignmentEvent(round=event.round, result=result))

    def _taken_back(self) -> frozenset[TopicPartition]:
        """Return the partitions that later rounds take away."""
        return frozenset().union(
            *(
                later.partitions
                for later in self._events
                if isinstance(later, RevokePartitionsEvent | LosePartitionsEvent)
            )
        )

    def _take_out(self, partitions: Collection[TopicPartition]) -> None:
        self.assignment.difference_update(partitions)
        self._records.end(partitions)

    def _call(self, function: Callable[..., Any] | None, *arguments: Any) -> Steps[None]:
        if function is None:
            return
        token = IN_CALLBACK.set(True)
        try:
            yield UserCall(function, arguments, self.deadline_ms)
        finally:
            IN_CALLBACK.reset(token)

    def _end(self, acknowledgement: ApplicationEvent) -> None:
        self._events.popleft()
        self._send(acknowledgement)
