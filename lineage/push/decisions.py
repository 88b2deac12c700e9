"""What goes into and comes out of the coordinator of a push group: settings, events, decisions.

Invariant: a decision has at most one entry, and an entry always has a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from lineage.push.messages import Command, PartitionOffset, RegisterRequest, check_coordinator_id
from records import (
    Cause,
    Expiry,
    OffsetCommitKey,
    OffsetCommitValue,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    Reason,
    ReasonKind,
    Record,
    Trigger,
)
from wire.errors import ErrorCode


class Failover(Enum):
    """What a new coordinator does: wait for all to register again (the seed), or read the log."""

    WAIT = "wait"
    LOG = "log"


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of one group. `topics` are its topics, because Register names none.

    `reregister_wait_ms` is how long `Failover.WAIT` waits. Without `offset_commit`, consumers without
    auto_commit cannot commit. `consumers_max` bounds the group's record. Raises ValueError for a broker id
    that is no i16."""

    topics: tuple[str, ...]
    broker_id: int = 0
    failover: Failover = Failover.LOG
    reregister_wait_ms: int = 6_000
    offset_commit: bool = True
    consumers_max: int = 1_000

    def __post_init__(self) -> None:
        check_coordinator_id(self.broker_id)


class PushGroupView(Protocol):
    """What the coordinator reads of the projection and of the catalog."""

    def value(self) -> PushGroupValue | None:
        """The group's record 1011 as of the newest decision; None if there is none."""

    def committed(self, topic: str, partition: int) -> int:
        """The group's committed offset; -1 if there is none."""

    def num_partitions(self, topic: str) -> int:
        """The topic's number of partitions; 0 if there is no such topic."""


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


@dataclass(frozen=True, slots=True)
class OffsetsOffered:
    """An OffsetCommit, on a connection of its own, of a consumer without auto_commit."""

    consumer_id: str
    offsets: Sequence[PartitionOffset]


class PushMoment(Enum):
    """Events without content."""

    TIME_PASSED = "PushGroup.next_ms has come"
    TOPICS_CHANGED = "the catalog changed"
    LOADED = "this node leads the group's shard, and has its state"


Event = Registered | FrameReceived | ConnectionClosed | OffsetsOffered | PushMoment


@dataclass(slots=True, kw_only=True)
class PushDecision:
    """`records` with their `cause` are one entry (no records: no cause, no entry), to be applied at once.

    `sends` (connection, command) and then `closes` (connection, why) follow once the entry is committed.
    `error` answers `OffsetsOffered`."""

    cause: Cause | None = None
    records: list[Record] = field(default_factory=list)
    sends: list[tuple[int, Command]] = field(default_factory=list)
    closes: list[tuple[int, str]] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True)
class PushDecisionBuilder:
    """A decision under construction: the consumers as they will be, and the cause."""

    consumers: dict[str, PushConsumer]
    now_ms: int
    wall_ms: int
    decision: PushDecision = field(default_factory=PushDecision)
    trigger: Trigger | None = None
    member_id: str = ""
    detail: str = ""
    reasons: list[Reason] = field(default_factory=list)
    expiries: list[Expiry] = field(default_factory=list)
    offsets: list[tuple[str, int, int]] = field(default_factory=list)

    def because(self, trigger: Trigger, member_id: str = "", detail: str = "") -> None:
        """Set the trigger, if none is set: the first thing that a decision does is what caused the rest."""
        if self.trigger is None:
            self.trigger, self.member_id, self.detail = trigger, member_id, detail

    def add_reason(self, kind: ReasonKind, member_id: str = "", topic: str = "", detail: str = "") -> None:
        self.reasons.append(Reason(kind=kind, member_id=member_id, topic=topic, detail=detail))

    def build(self, group_id: str, before: PushGroupValue | None) -> PushDecision:
        """The decision. Its entry has the group's record if that changes, and the committed offsets.

        Whatever there is a reason for begins a round, which overtakes the one that is under way."""
        decision = self.decision
        consumers = tuple(self.consumers[one] for one in sorted(self.consumers))
        number = (0 if before is None else before.round) + bool(self.reasons)
        value = PushGroupValue(consumers=consumers, round=number) if consumers else None
        if value != before:
            decision.records.append(Record(PushGroupKey(group_id=group_id), value))
        for topic, partition, offset in self.offsets:
            key = OffsetCommitKey(group_id=group_id, topic=topic, partition=partition)
            decision.records.append(
                Record(key, OffsetCommitValue(offset=offset, commit_timestamp_ms=self.wall_ms))
            )
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
