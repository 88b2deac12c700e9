"""What a coordinator keeps of a group in memory only: sessions, and the rebalance under way.

A failover discards it. In particular nothing here says in the log that a consumer was found dead before the
generation without it is written, so that a consumer that is back in time costs no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lineage.rewrite.machines import RewriteState
from lineage.rewrite.messages import JoinGroupRequest, TopicNumbers
from lineage.rewrite.strategies import Partition
from lineage.shard import NO_TOPIC, Topics, is_another_topic
from records import Cause, Expiry, RawRecord, Reason, ReasonKind, RewriteGroupValue, RewritePartitions
from wire.protocol import RequestHeader
from wire.schema import Message


class Now(NamedTuple):
    """The time of a decision, in ms: `monotonic` for timers, `wall` (since the epoch) for records."""

    monotonic: float
    wall: int


NEVER = Now(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class RewriteOrigin:
    """Where a request came from, and so where its answer goes; the caller knows what `connection` is."""

    connection: object
    header: RequestHeader
    host: str = ""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A result about one group: an entry for the log, or none, and the answers that wait for it.

    The answers of a result without an entry wait for the entries before it. `closes` are connections of
    consumers that were found dead; they are closed at once."""

    group_id: str
    cause: Cause | None = None
    records: tuple[RawRecord, ...] = ()
    answers: tuple[tuple[RewriteOrigin, Message], ...] = ()
    closes: tuple[object, ...] = ()


@dataclass(slots=True)
class RewriteSession:
    """The failure detection of a known consumer, in monotonic ms; no deadline while its JoinGroup waits."""

    timeout_ms: int
    armed: Now
    heard: Now
    deadline_ms: float | None
    connection: object = None
    queued_ms: float | None = None
    """When the coordinator looks at the deadline next."""

    def expiry(self, consumer_id: str) -> Expiry:
        """The times that prove that the session has ended."""
        armed_ms = self.armed.wall
        return Expiry(consumer_id, self.timeout_ms, armed_ms, self.heard.wall, armed_ms + self.timeout_ms)


@dataclass(slots=True)
class Waiting:
    """A JoinGroup that waits for its answer."""

    origin: RewriteOrigin
    request: JoinGroupRequest
    at: Now


@dataclass(slots=True)
class LiveGroup:
    """A group as its coordinator sees it, beside its record."""

    state: RewriteState = RewriteState.READY
    sessions: dict[str, RewriteSession] = field(default_factory=dict)
    began: Now = NEVER
    reasons: dict[Reason, None] = field(default_factory=dict)
    expiries: list[Expiry] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    """Consumers that know of the rebalance."""
    dead: set[str] = field(default_factory=set)
    """Consumers of the record that are not waited for."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Known consumers whose JoinGroup has come."""
    newcomers: list[Waiting] = field(default_factory=list)
    """JoinGroups without an id."""

    @property
    def alive(self) -> set[str]:
        return self.sessions.keys() - self.dead

    @property
    def has_all_joined(self) -> bool:
        return self.alive <= self.waiting.keys()

    @property
    def can_recover(self) -> bool:
        """Whether nobody was told yet, and the only reason is that consumers were found dead."""
        only_dead = all(reason.kind == ReasonKind.SESSION_EXPIRED for reason in self.reasons)
        return only_dead and not (self.told or self.waiting or self.newcomers)

    def end_round(self) -> None:
        """Forget the rebalance that was under way."""
        for part in (self.reasons, self.expiries, self.told, self.dead, self.waiting, self.newcomers):
            part.clear()


def by_topic(partitions: Iterable[Partition]) -> tuple[RewritePartitions, ...]:
    """Partitions as a record has them."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(RewritePartitions(topic=topic, partitions=tuple(each)) for topic, each in numbers.items())


def partitions_of(topics: Iterable[RewritePartitions | TopicNumbers]) -> set[Partition]:
    """The same as pairs."""
    return {(one.topic, number) for one in topics for number in one.partitions}


def differences(value: RewriteGroupValue, topics: Topics) -> list[Reason]:
    """Why the group's topics demand another generation: each whose partitions are not those shared out."""
    found = []
    for topic in value.topics:
        topic_id, now = topics.get(topic.name, NO_TOPIC)
        if now and is_another_topic(topic.topic_id, topic_id):
            found.append(Reason(ReasonKind.TOPIC_RECREATED, topic=topic.name))
        elif now != topic.num_partitions:
            created = ReasonKind.TOPIC_CREATED if topic.num_partitions == 0 else ReasonKind.TOPIC_GROWN
            found.append(Reason(created if now else ReasonKind.TOPIC_DELETED, topic=topic.name))
    return found
