"""The vocabulary of the log: record types, and the shapes in which a record travels.

A `RawRecord` is what the journal stores and what every projection applies, live and at replay: the bytes, not
yet decoded, so that a projection decodes only what it reads.  `Record` is the same thing typed.  A record
type that this release does not know stays an `UnknownRecord`, byte for byte: a downgrade must not destroy
what a newer release wrote.

Numbers 0 to 24 belong to Kafka's offsets topic (16 = KIP-848's regular expressions); ours start at 1000, far
from anything Kafka may add.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from records.values import Key, Value

LATEST_FORMAT_LEVEL = 6  # the highest format level whose records this release writes and reads
RACKS_SINCE = 2  # the format level that introduced TOPIC_RACKS
TRANSACTIONS_SINCE = 3  # the format level that introduced TRANSACTION, PENDING_OFFSET, TRANSACTIONS_RESOLVED
LEASES_SINCE = 4  # the format level that introduced MEMBER_LEASES
OLD_GROUPS_SINCE = 5  # the format level that introduced the groups of older protocols: 1010 and 1011
NUMBERS_SINCE = 6  # the format level that introduced MEMBER_NUMBER
LEADERSHIP_SINCE = 6  # the format level that introduced LEADERSHIP


class RecordType(IntEnum):
    """The type of a record; decides the layout of its key and, with the value version, of its value."""

    OFFSET_COMMIT_LEGACY = 0
    OFFSET_COMMIT = 1
    GROUP_METADATA = 2
    CONSUMER_GROUP_METADATA = 3
    CONSUMER_GROUP_PARTITION_METADATA = 4
    CONSUMER_GROUP_MEMBER_METADATA = 5
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = 6
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = 7
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = 8
    CONSUMER_GROUP_REGULAR_EXPRESSION = 16
    TERM_START = 1000
    TOPIC = 1001
    GROUP_CONFIG = 1002
    FORMAT_LEVEL = 1003
    TOPIC_RACKS = 1004
    TRANSACTION = 1005
    PENDING_OFFSET = 1006
    TRANSACTIONS_RESOLVED = 1007
    MEMBER_LEASES = 1008
    MEMBER_NUMBER = 1009
    REWRITE_GROUP = 1010
    PUSH_GROUP = 1011
    LEADERSHIP = 1012


class RawRecord(NamedTuple):
    """One record as bytes: `type` i16, value `version` i16, `key`, and `value`.

    A `value` of None is a tombstone; an empty value is not.
    """

    type: int
    version: int
    key: bytes
    value: bytes | None


class DecodedRecord(RawRecord):
    """The same with the key and value that its bytes hold, decoded ahead of their use."""

    decoded: tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """One record, typed; a `value` of None is a tombstone: the key is deleted."""

    key: Key
    value: Value | None


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record of a type that this release does not know, kept byte for byte."""

    type: int
    version: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Stamped:
    """A record with the Raft index and the timestamp (ms, the log's own clock) of its entry."""

    index: int
    timestamp_ms: int
    record: RawRecord
