"""The records that both sides wrote for a group, in order: each with its type and the member it is about.

Kafka's records are read from the segments of its offsets topic (one partition here), ours from the node's
journal. Types are Kafka's numbers on both sides, so a record is a word: `8`, or `~8` for its tombstone.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from coordinator.state.reconcile import NOT_REPORTED
from history.reading.opening import open_node
from history.reading.source import Walk
from raftlog.storage.frames import Frame
from records import ConsumerGroupCurrentMemberAssignmentKey as AssignmentKey
from records import ConsumerGroupCurrentMemberAssignmentValue as Assignment
from records import RawRecord, RecordType, Trigger, decode_entry, decode_key, decode_value
from wire.decoding import decoder
from wire.schema import Message, array_of, int8, int32, message, nested, uuid

MEMBERS_TYPES: Final = frozenset(
    {
        RecordType.CONSUMER_GROUP_MEMBER_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    }
)
BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CONTROL_BATCH: Final = 0x20
COMPRESSED: Final = 0x07
NO_TARGET: Final = b"\0\0\1\0"
"""Version 0, no topics, no tagged fields."""
OURS_FROM: Final = 1_000
"""Record types from this number on have no counterpart in Kafka."""


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """One record; `whose` is the member id in its key, or empty."""

    number: int
    is_tombstone: bool
    whose: str
    at_ms: int
    is_first_report: bool = False
    """See `is_first_report`."""

    @property
    def word(self) -> str:
        return f"~{self.number}" if self.is_tombstone else str(self.number)

    def __str__(self) -> str:
        return f"{self.word}({self.whose})" if self.whose else self.word


@dataclass(frozen=True, slots=True)
class Decision:
    """One entry of our log."""

    trigger: Trigger
    records: tuple[WrittenLog, ...]

    @property
    def words(self) -> str:
        return " ".join(record.word for record in self.records)


def decisions_of_ours(data: Path) -> dict[str, list[Decision]]:
    """Return our decisions by group; records that belong to no group are left out."""
    log = open_node(str(data))
    found: dict[str, list[Decision]] = defaultdict(list)
    assignments: dict[AssignmentKey, Assignment] = {}
    for shard in log.shards:
        for item in Walk(shard, log.reader(shard)):
            if not isinstance(item, Frame):
                continue
            entry = decode_entry(item.body)
            by_group: dict[str, list[WrittenLog]] = defaultdict(list)
            for record in entry.records:
                if record.type < OURS_FROM:
                    group_id, written = _ours(record, item.timestamp_ms, assignments)
                    by_group[group_id].append(written)
            for group_id, records in by_group.items():
                found[group_id].append(Decision(Trigger(entry.cause.trigger), tuple(records)))
    return found


def _ours(raw: RawRecord, at_ms: int, assignments: dict[AssignmentKey, Assignment]) -> tuple[str, WrittenLog]:
    key = decode_key(raw)
    whose = key.member_id if raw.type in MEMBERS_TYPES else ""
    is_first = False
    if isinstance(key, AssignmentKey) and raw.value is not None:
        value = decode_value(raw)
        is_first = key in assignments and is_first_report(assignments[key], value)
        assignments[key] = value
    return key.group_id, WrittenLog(raw.type, raw.value is None, whose, at_ms, is_first)


def is_first_report(before: Assignment, after: Assignment) -> bool:
    """Return whether a current assignment only notes that the member has reported what it must revoke.

    Its previous epoch is −1 until then. Kafka makes no such note, as it accepts every report.
    """
    noted = replace(before, previous_member_epoch=after.previous_member_epoch)
    return before.previous_member_epoch == NOT_REPORTED and after == noted != before


def records_of_kafka(data_dir: Path) -> dict[str, list[WrittenLog]]:
    """Return the records by group, from every segment of the offsets topic's single partition.

    Records that we do not write are left out: a current assignment in which only the previous epoch changed,
    and the empty target of a member that had none, with its tombstone.
    """
    found: dict[str, list[WrittenLog]] = defaultdict(list)
    states: dict[bytes, object] = {}
    for segment in sorted((data_dir / "__consumer_offsets-0").glob("*.log")):
        for at_ms, key, value in records_in(segment.read_bytes()):
            number, length = struct.unpack_from(">hh", key)
            group_id = key[4 : 4 + length].decode()
            if number in MEMBERS_TYPES:
                state = _state(number, value)
                if _says_nothing(number, state, states.get(key)):
                    continue
                states[key] = state
            whose = key[6 + length :].decode() if number in MEMBERS_TYPES else ""
            found[group_id].append(WrittenLog(number, value is None, whose, at_ms))
    return found


@nested
class HeldTopic(Message):
    topic_id: bytes = uuid("0")
    partitions: list[int] = array_of(int32, "0")
    assignment_epochs: list[int] = array_of(int32, "0", tag=0, tagged="0")


@message(versions="0", flexible="0")
class KafkaCurrentAssignment(Message):
    """What follows the version in the value of a current assignment."""

    member_epoch: int = int32("0")
    previous_member_epoch: int = int32("0")
    state: int = int8("0")
    assigned_partitions: list[HeldTopic] = array_of(HeldTopic, "0")
    partitions_pending_revocation: list[HeldTopic] = array_of(HeldTopic, "0")


def _state(number: int, value: bytes | None) -> object:
    """Return a current assignment without its previous epoch and without order, other values as they are.

    Kafka writes the topics, and the partitions of each, in a different order each time.
    """
    if number != RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT or value is None:
        return value
    held = decoder(KafkaCurrentAssignment, 0)(value, 2)
    assigned, pending = (
        {
            (topic.topic_id, *place)
            for topic in topics
            for place in zip(topic.partitions, topic.assignment_epochs, strict=True)
        }
        for topics in (held.assigned_partitions, held.partitions_pending_revocation)
    )
    return held.member_epoch, held.state, assigned, pending


def _says_nothing(number: int, state: object, before: object) -> bool:
    if number == RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT:
        return state == before
    is_target = number == RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
    return is_target and before is None and state in (None, NO_TARGET)


def records_in(data: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield time, key and value of each record (batches of magic 2, uncompressed).

    Reading stops at bytes that are no batch: the segment is preallocated or still being written.
    """
    at = 0
    while at + BATCH_HEADER.size <= len(data):
        _, length, _, magic, _, attributes, _, at_ms, *_, count = BATCH_HEADER.unpack_from(data, at)
        end = at + 12 + length
        if magic != 2 or end > len(data):
            return
        assert not attributes & COMPRESSED, "the offsets topic is not compressed"
        if not attributes & CONTROL_BATCH:
            for key, value in _keys_and_values(data, at + BATCH_HEADER.size, count):
                yield at_ms, key, value
        at = end


def _keys_and_values(data: bytes, at: int, count: int) -> Iterator[tuple[bytes, bytes | None]]:
    for _ in range(count):
        length, start = _varint(data, at)
        at = start + length
        _, place = _varint(data, start + 1)  # attributes, then the time
        _, place = _varint(data, place)
        key_length, place = _varint(data, place)
        value_length, value_at = _varint(data, place + key_length)
        value = data[value_at : value_at + value_length] if value_length >= 0 else None
        yield data[place : place + key_length], value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag number and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
