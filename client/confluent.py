"""The values of confluent-kafka's consumer, by its names, for `SyncConsumer`.

Messages, partitions and errors have confluent-kafka's methods and attributes, so that programs written for it
run with another import. docs/client.md has what differs.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from client.core.errors import (
    ConsumerError,
    FatalError,
    FencedError,
    KafkaError,
    NoOffset,
    TimedOut,
    error_name,
)
from client.core.types import ConsumerRecord
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

    Kafka's names of codes are attributes, such as `KafkaError.UNKNOWN_TOPIC_OR_PARTITION`."""

    _PARTITION_EOF: Final = -191
    _TIMED_OUT: Final = -185
    _APPLICATION: Final = -143
    _NO_OFFSET: Final = -168
    _STATE: Final = -172
    _FATAL: Final = -150
    _BAD_MSG: Final = -199
    _FAIL: Final = -196

    def __init__(self, code: int, reason: Text = "", *, fatal: bool = False) -> None:
        self._code = code
        self._reason = reason
        self._is_fatal = fatal

    def code(self) -> int:
        return self._code

    def name(self) -> Text:
        """The code's name; librdkafka's for local errors."""
        local = {
            code: name
            for name, code in vars(type(self)).items()
            if name.startswith("_") and code == self._code
        }
        return local.get(self._code) or error_name(self._code)

    def str(self) -> Text:
        """The sentence."""
        return self._reason

    def fatal(self) -> bool:
        return self._is_fatal

    def retriable(self) -> bool:
        return self._code == self._TIMED_OUT

    def txn_requires_abort(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return self._code == (other._code if isinstance(other, ConfluentError) else other)

    def __hash__(self) -> int:
        return hash(self._code)

    def __str__(self) -> Text:
        return f"KafkaError{{code={self.name()},val={self._code},str={self._reason!r}}}"

    __repr__ = __str__


for _code in ErrorCode:
    setattr(ConfluentError, _code.name, int(_code))
ConfluentError.UNKNOWN_TOPIC_OR_PART = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # type: ignore[attr-defined]


class KafkaException(ConsumerError):
    """Raised with a `KafkaError` as its first argument."""


_LOCAL: Final = (
    (TimedOut, ConfluentError._TIMED_OUT),
    (FencedError, ConfluentError._STATE),
    (NoOffset, ConfluentError._NO_OFFSET),
    (ConsumerError, ConfluentError._FAIL),
)
"""librdkafka's codes of errors that no broker answered; the first that fits."""


def to_error(error: Exception) -> ConfluentError:
    """Return an error of this client as confluent-kafka's value."""
    if isinstance(error, KafkaError):
        return ConfluentError(error.code, str(error), fatal=isinstance(error, FatalError))
    code = next((code for kind, code in _LOCAL if isinstance(error, kind)), ConfluentError._APPLICATION)
    return ConfluentError(code, str(error))


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
