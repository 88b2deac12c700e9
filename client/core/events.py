"""The two queues between the application side and the background side of a consumer.

An application event carries a call of the user to the background side; a background event carries news to the
application side, where callbacks and deserialisers run. The sides share nothing else. The event types of the
consumer's threading design stand first, under its names; each further one says why it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from client.core.assignors import AssignorOffer, GroupToAssign, MemberPart
from client.core.types import ConsumerAssignment, FetchedData, OffsetAndMetadata, Position, TopicPartition


class ApplicationEventType(Enum):
    """News from the application side. The value says what it asks of the background side."""

    NOOP = "only wakes the background side"
    COMMIT = "commit offsets"
    ACK_PARTITION_REVOKED = "the partitions are given up, and their callback has ended"
    ACK_PARTITION_ASSIGNED = "the partitions' callback has ended, so that they may be fetched"
    UPDATE_METADATA = "ask for the metadata of topics"
    LEAVE_GROUP = "leave the group: unsubscribe() or close()"
    # Further ones.
    SUBSCRIBE = "join with these topics; the subscription is not shared between the sides"
    ASSIGN = "fetch these partitions without a group; the assignment is not shared either"
    SEEK = "fetch from another position; positions are not shared either"
    PAUSE = "stop or resume fetching partitions, whose records would fill the buffer"
    POLL = "the application is alive (max.poll.interval.ms)"
    FETCH_CONSUMED = "these bytes of the fetch buffer are free again"
    FETCH_COMMITTED = "ask for committed offsets"
    LIST_OFFSETS = "ask for offsets by time, or for the first or last ones"
    INSTALL_ASSIGNMENT = "the result of a client-side assignor, which runs on the application side"
    CLOSE = "end all connections"


class BackgroundEventType(Enum):
    """News from the background side. The value says what the application side does about it."""

    ERROR = "the next poll raises it"
    REVOKE_PARTITIONS = "commit under enable.auto.commit, call on_revoke, acknowledge"
    ASSIGN_PARTITIONS = "call the assignor's on_assignment and on_assign, acknowledge"
    FETCH_RESPONSE = "records to hand out"
    # Further ones.
    LOSE_PARTITIONS = "call on_lost without a commit, acknowledge: they are not ours any more"
    POSITIONS = "the positions that partitions begin at; position() and commits need them"
    COMPUTE_ASSIGNMENT = "run a client-side assignor, which is the user's code"
    COMMIT_ENDED = "call the callback of a commit that nobody waits for"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationEvent:
    """A call on its way to the background side.

    If the caller waits, it has a future, which the background side completes at the deadline or before.
    """

    type: ClassVar[ApplicationEventType] = ApplicationEventType.NOOP
    future: Future[Any] | None = None
    deadline_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEvent(ApplicationEvent):
    """Completes with None; fails with `KafkaError`."""

    type = ApplicationEventType.COMMIT
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    retries: bool = True
    """Whether to try again after errors that may pass; the periodic commit does not."""
    releases: bool = False
    """Whether the partitions are given up. An unknown topic is not waited for then: it may be deleted, and
    another of its name would get these offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPartitionRevokedEvent(ApplicationEvent):
    """Acknowledges REVOKE_PARTITIONS and LOSE_PARTITIONS."""

    type = ApplicationEventType.ACK_PARTITION_REVOKED
    round: int
    """The round of the event that is acknowledged; a late acknowledgement matches no running round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AckPartitionAssignedEvent(ApplicationEvent):
    """Acknowledges ASSIGN_PARTITIONS. A callback that raised is acknowledged too; poll() raises its error."""

    type = ApplicationEventType.ACK_PARTITION_ASSIGNED
    round: int
    version: int
    """The version of the new partitions' positions; POSITIONS and FETCH_RESPONSE carry it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEvent(ApplicationEvent):
    """Completes with a `ClusterView`."""

    type = ApplicationEventType.UPDATE_METADATA
    topics: frozenset[str] | None
    """The topics, None for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupEvent(ApplicationEvent):
    """Completes with None when the member has left, or at the deadline."""

    type = ApplicationEventType.LEAVE_GROUP
    closes: bool
    """Whether close() was called: a static member keeps its place then (epoch −2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeEvent(ApplicationEvent):
    type = ApplicationEventType.SUBSCRIBE
    topics: frozenset[str]
    regex: str | None = None
    assignors: tuple[AssignorOffer, ...] = ()
    """The offers of group.local.assignors. To offer other metadata, the application side subscribes again."""
    leases: bool = False
    """Whether partitions are only of use with a fencing token. With a future, which has no deadline, it
    completes when the member has been admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignEvent(ApplicationEvent):
    type = ApplicationEventType.ASSIGN
    partitions: Mapping[TopicPartition, int | None]
    """The offset at which each begins: −2 is the first, −1 the end, None the committed one, or else that of
    auto.offset.reset."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekEvent(ApplicationEvent):
    type = ApplicationEventType.SEEK
    positions: Mapping[TopicPartition, int]
    """The offsets by partition; −2 is the first, −1 the last."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseEvent(ApplicationEvent):
    type = ApplicationEventType.PAUSE
    partitions: frozenset[TopicPartition]
    resumes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PollEvent(ApplicationEvent):
    type = ApplicationEventType.POLL


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConsumedEvent(ApplicationEvent):
    type = ApplicationEventType.FETCH_CONSUMED
    partition: TopicPartition
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCommittedEvent(ApplicationEvent):
    """Completes with a dict of `TopicPartition` to `OffsetAndMetadata` or None."""

    type = ApplicationEventType.FETCH_COMMITTED
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsEvent(ApplicationEvent):
    """Completes with a dict of `TopicPartition` to `OffsetAndTimestamp` or None."""

    type = ApplicationEventType.LIST_OFFSETS
    timestamps: Mapping[TopicPartition, int]
    """The times in Unix milliseconds; −2 is the first offset, −1 the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallAssignmentEvent(ApplicationEvent):
    type = ApplicationEventType.INSTALL_ASSIGNMENT
    round: int
    result: Mapping[str, MemberPart] | Exception
    """Every member's part by member id, or what the assignor raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseEvent(ApplicationEvent):
    """Completes with None when all connections are ended."""

    type = ApplicationEventType.CLOSE


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundEvent:
    """News on its way to the application side."""

    type: ClassVar[BackgroundEventType]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEvent(BackgroundEvent):
    type = BackgroundEventType.ERROR
    error: Exception
    is_fatal: bool = False
    """Whether every later poll raises it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePartitionsEvent(BackgroundEvent):
    type = BackgroundEventType.REVOKE_PARTITIONS
    partitions: frozenset[TopicPartition]
    """The partitions to give up. On leaving they include those of a revocation that is not acknowledged yet;
    the application does not revoke any twice."""
    round: int
    deadline_ms: float
    """The time until which the member waits for the commit and the callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPartitionsEvent(BackgroundEvent):
    type = BackgroundEventType.ASSIGN_PARTITIONS
    partitions: frozenset[TopicPartition]
    """The new partitions; none if the assignment only lost some or is empty."""
    round: int
    tokens: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The fencing token of each, if the subscription asked for them."""
    assignment: ConsumerAssignment | None = None
    """The argument of a client-side assignor's on_assignment, if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LosePartitionsEvent(BackgroundEvent):
    type = BackgroundEventType.LOSE_PARTITIONS
    partitions: frozenset[TopicPartition]
    """All partitions that the member had, also those of a revocation that is not acknowledged yet."""
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEvent(BackgroundEvent):
    type = BackgroundEventType.FETCH_RESPONSE
    data: Sequence[FetchedData]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsEvent(BackgroundEvent):
    type = BackgroundEventType.POSITIONS
    positions: Mapping[TopicPartition, Position]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignmentEvent(BackgroundEvent):
    type = BackgroundEventType.COMPUTE_ASSIGNMENT
    round: int
    assignor: str
    group: GroupToAssign


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEndedEvent(BackgroundEvent):
    type = BackgroundEventType.COMMIT_ENDED
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None
    callback: Callable[[Exception | None, Mapping[TopicPartition, OffsetAndMetadata]], Any] | None
    """The function to call; without one, a failure is logged."""
