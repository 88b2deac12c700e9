"""The application side of leases: what a member holds, with its tokens, and what changed.

Work that is not messages needs a member that fetches nothing. A change of what it holds goes three ways:

    ASSIGN_PARTITIONS  held from now on, acknowledged at once: there is nothing to wait for
    REVOKE_PARTITIONS  held no more, told as a change, and acknowledged when its work has ended
    LOSE_PARTITIONS    the same; others may have the partitions already, and the tokens keep late writes out

Invariants: the coordinator gives a partition to nobody else before the change that takes it away is
acknowledged, unless it was lost. A lease that was taken away before the user was told of it is never told
of. Three changes wait at most, because the member does nothing more before the last one is acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Final, NamedTuple

from client.core.env import Environment
from client.core.errors import ConfigError, IllegalState
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    CloseEvent,
    ErrorEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    RevokePartitionsEvent,
    SubscribeEvent,
)
from client.core.settings import ConsumerSettings, table
from client.core.subscription import check_topics
from client.core.types import Lease, TopicPartition
from client.core.unraised import UnraisedErrors

_OF_CONSUMERS: Final = frozenset({"fetching", "commits", "positions", "callbacks"})
"""The parts of a consumer that leases do not have; their settings are refused."""

_OTHERS_OF_CONSUMERS: Final = ("key.deserializer", "value.deserializer", "max.poll.records",
                               "group.local.assignors", "group.protocol")  # fmt: skip

NO_ROUND: Final = 0
"""The number of a loss of which the background side does not know; its rounds begin with 1."""


class LeaseChange(NamedTuple):
    """A change of what is held. Either there is something new, or something has ended."""

    gained: tuple[Lease, ...] = ()
    """The leases whose work may begin."""
    ended: tuple[Lease, ...] = ()
    """The leases whose work must end before the change is acknowledged."""
    is_lost: bool = False
    """Whether they were lost: others may hold the partitions already."""
    number: int = 0
    """The number with which the change is acknowledged."""


def check_lease_settings(settings: ConsumerSettings) -> None:
    """Raise `ConfigError` for settings that have no meaning without messages, or without a group."""
    if settings.group_id is None:
        raise ConfigError("a lease needs a group: lease(group, topic, …)")
    for name, default, row in table():
        is_of_consumers = row.used_in in _OF_CONSUMERS or name in _OTHERS_OF_CONSUMERS
        if is_of_consumers and getattr(settings, name.replace(".", "_")) != default:
            raise ConfigError(
                f"{name} is a setting of consumers; a lease reads no messages and commits nothing"
            )


class HeldLeases:
    """The leases of one member, as the application sees them. Nothing here waits."""

    def __init__(
        self,
        env: Environment,
        events: deque[BackgroundEvent],
        send: Callable[[ApplicationEvent], None],
    ) -> None:
        self.held: dict[TopicPartition, Lease] = {}
        """The leases that are held now. A partition is out as soon as its revocation begins."""
        self.is_closed = False
        self._leaves = False
        """Whether the work of everything has ended, so that what is taken away is acknowledged at once."""
        self._env = env
        self._events = events
        self._send = send
        self._changes: deque[LeaseChange] = deque()
        self._told: set[Lease] = set()
        """The leases that the user was told of, and whose end is not acknowledged."""
        self._open: set[int] = set()
        """The numbers of the changes that are not acknowledged."""
        self._errors = UnraisedErrors()

    def open(self, topics: Collection[str]) -> Future[None]:
        """Join the group. The future completes when the coordinator has admitted the member."""
        check_topics(topics)
        admitted: Future[None] = Future()
        self._send(SubscribeEvent(topics=frozenset(topics), leases=True, future=admitted))
        return admitted

    def ask(self, event: ApplicationEvent) -> None:
        """Send an inquiry, which has a future."""
        self._send(event)

    def receive(self) -> None:
        """Take the background side's news: `held` is up to date afterwards."""
        while self._events:
            match self._events.popleft():
                case AssignPartitionsEvent() as event:
                    self._gain(event)
                case RevokePartitionsEvent() as event:
                    self._end(event, is_lost=False)
                case LosePartitionsEvent() as event:
                    self._end(event, is_lost=True)
                case ErrorEvent() as event:
                    self._errors.add(event)
                    if event.is_fatal:
                        held = frozenset(self.held)
                        self._end(LosePartitionsEvent(partitions=held, round=NO_ROUND), is_lost=True)

    def take(self) -> LeaseChange | None:
        """Return the next change that the user has not been told of.

        When there is none, raises the error after which the member cannot go on, if it met one. Other errors
        go to the log `quorate.consumer`: work goes on while a node refuses the client."""
        self.receive()
        while self._changes:
            change = self._changes.popleft()
            if change.gained:
                gained = tuple(lease for lease in change.gained if self.is_held(lease))
                self._told.update(gained)
                if gained:
                    return change._replace(gained=gained)
            else:
                ended = tuple(lease for lease in change.ended if lease in self._told)
                if ended:
                    return change._replace(ended=ended)
                self.acknowledge(change)
        self._errors.raise_fatal()
        if self.is_closed:
            raise IllegalState("the lease is closed")
        return None

    def raise_errors(self) -> None:
        """Raise what the background side met while the member joins; a fatal error again and again."""
        self._errors.raise_next()

    def acknowledge(self, change: LeaseChange) -> None:
        """Say that the work of what has ended in a change is over; the coordinator may give it to others."""
        self._told.difference_update(change.ended)
        if change.number in self._open:
            self._open.discard(change.number)
            self._send(AckPartitionRevokedEvent(round=change.number))

    def is_held(self, lease: Lease) -> bool:
        """Whether a lease is held: its partition, with its token."""
        return self.held.get(TopicPartition(lease.topic, lease.partition)) == lease

    def told(self) -> list[Lease]:
        """Return the leases that are held and that the user was told of, by topic and partition."""
        return [lease for lease in sorted(self.held.values()) if lease in self._told]

    # The end.

    def end(self) -> None:
        """Hold nothing any more, and take no change."""
        self.is_closed = True
        self.receive()
        self.held.clear()
        self._changes.clear()

    def leave(self, timeout_ms: float, *, stays: bool) -> Future[None]:
        """Give up everything, whose work is over. A static member that `stays` may find it again."""
        self._leaves = True
        self.end()
        left: Future[None] = Future()
        deadline_ms = self._env.now_ms() + timeout_ms
        self._send(LeaveGroupEvent(closes=stays, future=left, deadline_ms=deadline_ms))
        for number in sorted(self._open):
            self._send(AckPartitionRevokedEvent(round=number))
        return left

    def release(self, timeout_ms: float) -> Future[None]:
        """Leave when the work of everything has ended: a change names all, and its acknowledgement leaves.

        The future completes when the member has left."""
        left: Future[None] = Future()
        self._send(LeaveGroupEvent(closes=True, future=left, deadline_ms=self._env.now_ms() + timeout_ms))
        return left

    def disconnect(self) -> Future[None]:
        """End all connections."""
        ended: Future[None] = Future()
        self._send(CloseEvent(future=ended))
        return ended

    # Inside.

    def _gain(self, event: AssignPartitionsEvent) -> None:
        leases = [Lease(*partition, event.tokens[partition]) for partition in sorted(event.partitions)]
        self._send(AckPartitionAssignedEvent(round=event.round, version=0))
        if leases and not self.is_closed:
            self.held |= {TopicPartition(lease.topic, lease.partition): lease for lease in leases}
            self._changes.append(LeaseChange(gained=tuple(leases)))

    def _end(self, event: RevokePartitionsEvent | LosePartitionsEvent, *, is_lost: bool) -> None:
        known = self._told.union(self.held.values())
        ended = [lease for lease in known if TopicPartition(*lease[:2]) in event.partitions]
        for partition in event.partitions:
            self.held.pop(partition, None)
        change = LeaseChange((), tuple(sorted(ended)), is_lost, event.round)
        self._open.add(event.round)
        if self._leaves or not ended:
            self.acknowledge(change)
        elif not self.is_closed:
            self._changes.append(change)
