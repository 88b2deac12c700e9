"""The errors that a consumer raises. Each names Kafka's code, what was wrong, and what to do."""

from __future__ import annotations

from wire.errors import ErrorCode


def error_name(code: int) -> str:
    """Kafka's name of an error code; codes that this release does not know get a name that says so."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return "UNKNOWN_ERROR_CODE"


class ConsumerError(Exception):
    """Base class of all errors of this client."""


class ConfigError(ConsumerError):
    """A setting that is unknown, refused or invalid; names the nearest right one."""


class IllegalState(ConsumerError, RuntimeError):
    """A call that the consumer's state does not allow, such as poll() after close()."""


class TimedOut(ConsumerError, TimeoutError):
    """A call that did not end within its time limit; says what it waited for."""


class BackgroundFailed(ConsumerError):
    """The background side has ended by a bug of this client. Every call that needs it raises this."""


class AuthenticationError(ConsumerError):
    """A node refused the client, or did not prove who it is, by SASL or TLS. The consumer goes on trying."""


class KafkaError(ConsumerError):
    """An error that a broker answered."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        self.name = error_name(code)
        super().__init__(f"{words} ({self.name}, {code})")


class FatalError(KafkaError):
    """An error after which the member cannot go on. Every later poll() raises it again."""


class FencedError(ConsumerError):
    """A commit of a member that is not part of the group any more."""


class NoOffset(ConsumerError):
    """A partition has no committed offset, and auto.offset.reset is none."""


class PositionOutOfRange(ConsumerError):
    """A position that the log does not have, and auto.offset.reset is none."""


class RecordError(ConsumerError):
    """A record that cannot be handed out.

    The position stays at `offset`. poll() raises it again until the consumer seeks or closes."""

    def __init__(self, words: str, topic: str, partition: int, offset: int) -> None:
        super().__init__(words)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class CorruptRecord(RecordError):
    """A record batch that is damaged, or larger than the limit when decompressed."""


class DeserializationError(RecordError):
    """A deserialiser raised; its error is the cause. seek() to `offset` + 1 leaves the record out."""
