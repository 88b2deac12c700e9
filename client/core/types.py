"""The values that both sides of a consumer share: partitions, offsets and records."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

FIRST_OFFSET: Final = -2
LAST_OFFSET: Final = -1
"""Kafka's timestamps for the first offset of a partition and for its end, also taken by seek(). The end is
after the last record, or under read_committed before the first open transaction."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


def partition_names(*partitions: TopicPartition, most: int = 5) -> str:
    """Name partitions for people, such as `orders-0, orders-1`; of more than `most`, the number."""
    names = ", ".join(f"{topic}-{number}" for topic, number in partitions[:most])
    more = len(partitions) - most
    return f"{names} and {more} more" if more > 0 else names


class Lease(NamedTuple):
    """A partition with the fencing token that its holder has as long as it keeps it (docs/leases.md)."""

    topic: str
    partition: int
    token: int
    """Every later holder's is higher."""


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id (16 bytes), as the group protocol names it."""

    topic_id: bytes
    partition: int


class OffsetAndMetadata(NamedTuple):
    """An offset to commit or committed: the offset of the next record to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first offset whose record has at least the time that was asked for, and that record's own time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple):
    """One message. The deserialisers have made its key and its value of the bytes."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """0: set by the producer (CreateTime). 1: set by the broker (LogAppendTime)."""
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


class Position(NamedTuple):
    """The offset of the next record to read, and the version that it belongs to.

    The version changes with each assignment and each seek, so that what was fetched for an earlier position
    is recognised and dropped."""

    offset: int
    leader_epoch: int
    version: int


class FetchedData(NamedTuple):
    """The records of one partition in one Fetch response, still encoded."""

    partition: TopicPartition
    position: Position
    """The position at which the fetch began."""
    records: bytes
    aborted: tuple[tuple[int, int], ...]
    """Aborted transactions as (producer id, first offset); empty unless isolation.level is read_committed."""
    high_watermark: int
    last_stable_offset: int


class ConsumerAssignment(NamedTuple):
    """The assignment that a client-side assignor gave this member."""

    assignor: str
    partitions: frozenset[TopicPartition]
    error: int
    version: int
    data: bytes
