"""The values of confluent-kafka's consumer, by its names, for `SyncConsumer`.

Messages, partitions and errors have confluent-kafka's methods and attributes, so that programs written for it
run with another import. docs/client.md has what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from client.core import types
from client.core.cluster_view import ClusterView, TopicView
from client.core.errors import (
    ConsumerError,
    FatalError,
    FencedError,
    IllegalState,
    KafkaError,
    NoOffset,
    TimedOut,
    error_name,
)
from client.core.types import ConsumerRecord, OffsetAndMetadata
from wire.errors import ErrorCode

Text: TypeAlias = str
"""`ConfluentError` has a method of that name."""

PARTITION_UA: Final = -1
OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001
TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2


class ConfluentError:
    """An error as a value: confluent_kafka.KafkaError. Brokers' codes are Kafka's, local ones are negative.

    The names of codes are attributes, such as `KafkaError.UNKNOWN_TOPIC_OR_PARTITION`."""

    _PARTITION_EOF: Final = -191
    _TIMED_OUT: Final = -185
    _APPLICATION: Final = -143
    _NO_OFFSET: Final = -168
    _STATE: Final = -172
    _FATAL: Final = -150
    _BAD_MSG: Final = -199
    _FAIL: Final = -196

    def __init__(
        self,
        code: int,
        reason: Text = "",
        fatal: bool = False,
        retriable: bool = False,
        txn_requires_abort: bool = False,
    ) -> None:
        self._code = code
        self._reason = reason
        self._is_fatal = fatal
        self._is_retriable = retriable
        self._requires_abort = txn_requires_abort

    def code(self) -> int:
        return self._code

    def name(self) -> Text:
        """The code's name; librdkafka's for local errors."""
        local = {
            code: name
            for name, code in vars(type(self)).items()
            if name.startswith("_") and code == self._code
        }
        return local.get(self._code) or LIBRDKAFKAS.get(self._code) or error_name(self._code)

    def str(self) -> Text:
        """The sentence."""
        return self._reason

    def fatal(self) -> bool:
        return self._is_fatal

    def retriable(self) -> bool:
        return self._is_retriable

    def txn_requires_abort(self) -> bool:
        return self._requires_abort

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, ConfluentError) else other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __str__(self) -> Text:
        return f'KafkaError{{code={self.name()},val={self._code},str="{self._reason}"}}'

    __repr__ = __str__


LIBRDKAFKAS: Final = {
    -1: "UNKNOWN",
    0: "NO_ERROR",
    2: "INVALID_MSG",
    3: "UNKNOWN_TOPIC_OR_PART",
    4: "INVALID_MSG_SIZE",
    6: "NOT_LEADER_FOR_PARTITION",
    10: "MSG_SIZE_TOO_LARGE",
    11: "STALE_CTRL_EPOCH",
    17: "TOPIC_EXCEPTION",
}
"""librdkafka's names of codes where they are not Kafka's; `ConfluentError` has both as attributes."""

for _code in ErrorCode:
    setattr(ConfluentError, _code.name, int(_code))
for _number, _name in LIBRDKAFKAS.items():
    setattr(ConfluentError, _name, _number)


class KafkaException(ConsumerError):
    """Raised with a `KafkaError` as its first argument."""


_LOCAL: Final = (
    (TimedOut, ConfluentError._TIMED_OUT),
    (FencedError, ConfluentError._STATE),
    (NoOffset, ConfluentError._NO_OFFSET),
    (IllegalState, ConfluentError._STATE),
    (ConsumerError, ConfluentError._FAIL),
)
"""librdkafka's codes of errors that no broker answered; the first that fits."""


def to_error(error: Exception) -> ConfluentError:
    """Return an error of this client as confluent-kafka's value."""
    if isinstance(error, KafkaError):
        return ConfluentError(error.code, str(error), fatal=isinstance(error, FatalError))
    code = next((code for kind, code in _LOCAL if isinstance(error, kind)), ConfluentError._APPLICATION)
    return ConfluentError(code, str(error), retriable=isinstance(error, TimedOut))


class TopicPartition:
    """A partition with what a call needs or answers: an offset, or a time in offsets_for_times()."""

    __slots__ = ("error", "leader_epoch", "metadata", "offset", "partition", "topic")

    def __init__(
        self,
        topic: str,
        partition: int = PARTITION_UA,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.metadata = metadata
        self.leader_epoch = leader_epoch
        self.error: ConfluentError | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPartition):
            return NotImplemented
        return (self.topic, self.partition) == (other.topic, other.partition)

    def __lt__(self, other: TopicPartition) -> bool:
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self.topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self.leader_epoch},error={self.error}}}"
        )


class ConfluentMessage:
    """A record, or an error in a record's place."""

    __slots__ = ("_error", "_record")

    def __init__(self, record: ConsumerRecord | None, error: ConfluentError | None = None) -> None:
        self._record = record
        self._error = error

    def error(self) -> ConfluentError | None:
        return self._error

    def record(self) -> ConsumerRecord:
        """The record itself. Raises ValueError if the message is an error."""
        if self._record is None:
            raise ValueError(f"the message is an error: {self._error}")
        return self._record

    def topic(self) -> str | None:
        return self._record.topic if self._record else None

    def partition(self) -> int | None:
        return self._record.partition if self._record else None

    def offset(self) -> int | None:
        return self._record.offset if self._record else None

    def leader_epoch(self) -> int | None:
        return self._record.leader_epoch if self._record and self._record.leader_epoch >= 0 else None

    def key(self) -> Any:
        return self._record.key if self._record else None

    def value(self) -> Any:
        """The value; the error's sentence if the message is an error, as in confluent-kafka."""
        return self._record.value if self._record else self._error and self._error.str().encode()

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """The headers in their order; None without any."""
        return list(self._record.headers) or None if self._record else None

    def timestamp(self) -> tuple[int, int]:
        """The kind of the time (TIMESTAMP_CREATE_TIME or TIMESTAMP_LOG_APPEND_TIME) and Unix milliseconds."""
        if self._record is None or self._record.timestamp_ms < 0:
            return TIMESTAMP_NOT_AVAILABLE, -1
        return self._record.timestamp_type + TIMESTAMP_CREATE_TIME, self._record.timestamp_ms

    def latency(self) -> None:
        """Always None, as for every message of a consumer."""

    def __len__(self) -> int:
        return len(self.value() or b"")

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Message({self._error or self._record})"


class ConfluentBroker(NamedTuple):
    """A node of the cluster."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.id}"


class ConfluentPartition(NamedTuple):
    """A partition with its leader (-1 if there is none), replicas and in-sync replicas."""

    id: int
    leader: int
    replicas: list[int]
    isrs: list[int]
    error: ConfluentError | None = None

    def __str__(self) -> str:
        return str(self.id)


class ConfluentTopic(NamedTuple):
    """A topic with its partitions by number, or the error with which the cluster answered for it."""

    topic: str
    partitions: dict[int, ConfluentPartition]
    error: ConfluentError | None

    def __str__(self) -> str:
        return self.topic


class ConfluentCluster(NamedTuple):
    """The result of list_topics(): brokers by id, topics by name."""

    cluster_id: str | None
    brokers: dict[int, ConfluentBroker]
    topics: dict[str, ConfluentTopic]

    def __str__(self) -> str:
        return str(self.cluster_id)


def to_cluster(view: ClusterView) -> ConfluentCluster:
    """Return the view of the cluster under confluent-kafka's names."""
    return ConfluentCluster(
        view.cluster_id,
        {node.id: ConfluentBroker(node.id, node.host, node.port) for node in view.nodes.values()},
        {name: _to_topic(topic) for name, topic in view.topics.items()},
    )


def _to_topic(topic: TopicView) -> ConfluentTopic:
    partitions = {
        number: ConfluentPartition(number, one.leader_id, list(one.replicas), list(one.in_sync_replicas))
        for number, one in topic.partitions.items()
    }
    error = ConfluentError(topic.error_code) if topic.error_code else None
    return ConfluentTopic(topic.name, partitions, error)


def plain(partition: TopicPartition) -> types.TopicPartition:
    """Return a partition as the core has it. Raises TypeError if it is none."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"{partition!r} is no TopicPartition")
    return types.TopicPartition(partition.topic, partition.partition)


def chosen_offsets(
    message: ConfluentMessage | None, offsets: list[TopicPartition] | None
) -> dict[types.TopicPartition, OffsetAndMetadata] | None:
    """Return the offsets that a call names, None if it names none."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets exclude each other")
    if message is not None:
        record = message.record()
        at = types.TopicPartition(record.topic, record.partition)
        return {at: OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)}
    if offsets is None:
        return None
    return {
        plain(each): OffsetAndMetadata(
            each.offset, each.metadata or "", -1 if each.leader_epoch is None else each.leader_epoch
        )
        for each in offsets
        if each.offset >= 0
    }


def listed(offsets: Mapping[types.TopicPartition, OffsetAndMetadata | None]) -> list[TopicPartition]:
    """Return offsets as a list of partitions."""
    return [listed_one(at, offset) for at, offset in offsets.items()]


def listed_one(at: types.TopicPartition, offset: OffsetAndMetadata | None) -> TopicPartition:
    """Return a partition with an offset, OFFSET_INVALID if there is none."""
    if offset is None:
        return TopicPartition(*at)
    return TopicPartition(
        *at, offset.offset, offset.metadata, offset.leader_epoch if offset.leader_epoch >= 0 else None
    )
