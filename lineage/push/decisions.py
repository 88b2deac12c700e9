"""Input and output of the coordinator of a push group: settings, events, decisions.

Invariant: a decision has at most one entry, and an entry always has a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from lineage.push.messages import Command, RegisterRequest, check_coordinator_id
from lineage.push.rounds import topics_of
from lineage.shard import NO_TOPIC, OtherGroups, Topic
from records import (
    Cause,
    Expiry,
    OffsetCommitKey,
    OffsetCommitValue,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushTopic,
    Reason,
    ReasonKind,
    Record,
    Trigger,
    decode_record,
)
from wire.errors import ErrorCode

TOPICS_MAX = 1_000
"""Topics of one group: its record names each, with as many consumers as own partitions of it."""


class Failover(Enum):
    """A new coordinator waits for all to register again, as in the seed, or it reads the log."""

    WAIT = "wait"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of one group. `topics` are its topics, because Register names none.

    Of their partitions, in the order of the topics, those beyond `partitions_max` have no owner.
    `reregister_wait_ms` is how long `Failover.WAIT` waits. Without `offset_commit`, consumers without
    auto_commit cannot commit. All bounds together keep the group's record well below the size of an entry.
    Raises ValueError for a broker id that is no i16, and for more topics than `TOPICS_MAX`."""

    topics: tuple[str, ...]
    broker_id: int = 0
    failover: Failover = Failover.LOG
    reregister_wait_ms: int = 6_000
    offset_commit: bool = True
    consumers_max: int = 1_000
    partitions_max: int = 200_000

    def __post_init__(self) -> None:
        if len(self.topics) > TOPICS_MAX:
            raise ValueError(f"a push group has {TOPICS_MAX} topics at most, not {len(self.topics)}")
        check_coordinator_id(self.broker_id)


class PushGroupView(Protocol):
    """The part of the projection and of the catalog that the coordinator reads."""

    def value(self) -> PushGroupValue | None:
        """The group's record 1011 as of the newest decision; None if there is none."""

    def committed(self, topic: str, topic_id: bytes, partition: int) -> int:
        """The group's committed offset; -1 if there is none, or only one of another topic of that name."""

    def topic(self, name: str) -> Topic | None:
        """The topic's id and its number of partitions; None if there is no such topic."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The first frame of a connection is Register. `connection` is a number that is never used again."""

    connection: int
    request: RegisterRequest


@dataclass(frozen=True, slots=True)
class FrameReceived:
    """A later frame of a registered connection, without its size."""

    connection: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The consumer closed the connection, or it broke."""

    connection: int


class OfferedOffset(NamedTuple):
    """An offset to be committed. `timestamp_ms` is the base of its retention (-1: when it is written)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetsOffered:
    """An OffsetCommit, on a connection of its own, of a consumer without auto_commit."""

    consumer_id: str
    offsets: Sequence[OfferedOffset]


class PushMoment(Enum):
    """Events without content."""

    TIME_PASSED = "PushGroup.next_ms has come"
    TOPICS_CHANGED = "the catalog changed"
    LOADED = "this node leads the group's shard, and has its state"


Event = Registered | FrameReceived | ConnectionClosed | OffsetsOffered | PushMoment


@dataclass(slots=True, kw_only=True)
class PushDecision:
    """`records` with their `cause` are one entry (no records: no cause, no entry), to be applied at once.

    `closes` (connection, why) and then `sends` (connection, command) follow once the entry is committed: who
    was removed is cut off before its partitions start elsewhere.
    `error` answers `OffsetsOffered`."""

    cause: Cause | None = None
    records: list[Record] = field(default_factory=list)
    closes: list[tuple[int, str]] = field(default_factory=list)
    sends: list[tuple[int, Command]] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class PushDecisionBuilder:
    """A decision under construction: consumers and divided topics as they will be, and the cause."""

    consumers: dict[str, PushConsumer]
    topics: dict[str, Topic]
    now_ms: int
    wall_ms: int
    decision: PushDecision = field(default_factory=PushDecision)
    trigger: Trigger | None = None
    member_id: str = ""
    detail: str = ""
    reasons: list[Reason] = field(default_factory=list)
    expiries: list[Expiry] = field(default_factory=list)
    offsets: list[OfferedOffset] = field(default_factory=list)

    @classmethod
    def of(cls, before: PushGroupValue | None, now_ms: int, wall_ms: int) -> PushDecisionBuilder:
        """Begin a decision about a group with this record."""
        if before is None:
            return cls({}, {}, now_ms, wall_ms)
        consumers = {one.consumer_id: one for one in before.consumers}
        return cls(consumers, topics_of(before), now_ms, wall_ms)

    def because(self, trigger: Trigger, member_id: str = "", detail: str = "") -> None:
        """Set the trigger, if none is set: the first thing that a decision does is what caused the rest."""
        if self.trigger is None:
            self.trigger, self.member_id, self.detail = trigger, member_id, detail

    def add_reason(self, kind: ReasonKind, member_id: str = "", topic: str = "", detail: str = "") -> None:
        self.reasons.append(Reason(kind=kind, member_id=member_id, topic=topic, detail=detail))

    def build(self, group_id: str, before: PushGroupValue | None, others: OtherGroups) -> PushDecision:
        """The decision. Its entry has the group's record if that changes, and the committed offsets.

        Whatever there is a reason for begins a round, which overtakes the one that is under way."""
        decision = self.decision
        consumers = tuple(self.consumers[one] for one in sorted(self.consumers))
        topics = tuple(
            PushTopic(topic_id=topic_id, num_partitions=number, name=name)
            for name, (topic_id, number) in sorted(self.topics.items())
        )
        newest = (0 if before is None else before.round) + bool(self.reasons)
        value = PushGroupValue(consumers=consumers, topics=topics, round=newest) if consumers else None
        if before is None and value is not None:
            for raw in others.records_that_make_way(group_id):
                record = decode_record(raw)
                assert isinstance(record, Record)
                decision.records.append(record)
        if value != before:
            decision.records.append(Record(PushGroupKey(group_id=group_id), value))
        for one in self.offsets:
            key = OffsetCommitKey(group_id=group_id, topic=one.topic, partition=one.partition)
            topic_id, _ = self.topics.get(one.topic, NO_TOPIC)
            offset = OffsetCommitValue(
                offset=one.offset,
                commit_timestamp_ms=one.timestamp_ms if one.timestamp_ms >= 0 else self.wall_ms,
                metadata=one.metadata,
                topic_id=topic_id,
            )
            decision.records.append(Record(key, offset))
        if decision.records:
            assert self.trigger is not None, "a change without a cause"
            decision.cause = Cause(
                trigger=self.trigger,
                member_id=self.member_id,
                detail=self.detail,
                reasons=tuple(self.reasons),
                expiries=tuple(self.expiries),
            )
        return decision
