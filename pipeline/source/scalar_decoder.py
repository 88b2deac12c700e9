"""Decodes one record at a time with the decoders of `records`, for all data that `vector` cannot handle.

The invariant: if anything requested in an entry cannot be decoded, none of the entry's rows are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from history.words import reason_names, state_name, trigger_name, type_name
from pipeline.schema import TableColumn
from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    MalformedEntry,
    OffsetCommitValue,
    RawRecord,
    RecordType,
    TopicPartitions,
    UnknownType,
    UnsupportedVersion,
    decode_key,
    decode_value,
    group_id_of,
    iter_records,
    topic_id_text,
)
from records.entry import cause_bytes, load_cause

from .options import Selection

KEY_COLUMNS = ("group_id", "member_id", "topic", "partition")
CAUSE_COLUMNS = ("trigger", "reasons", "cause_member_id", "cause_member_epoch", "principal", "address")
VALUE_COLUMNS = (
    "epoch",
    "previous_epoch",
    "member_state",
    "assigned",
    "pending",
    "offset",
    "leader_epoch",
    "metadata",
    "client_id",
    "client_host",
    "instance_id",
)

CAUSES_MAX = 4096
"""Decoded causes that are cached; consecutive entries of one kind share a few."""

Row = dict[str, Any]


def key_row(raw: RawRecord) -> Row:
    """The columns of a key, none for a type unknown to this release; raises `RecordsError`."""
    try:
        key = decode_key(raw)
    except UnknownType:
        return {}
    return {
        "group_id": group_id_of(raw),
        "member_id": getattr(key, "member_id", None),
        "topic": getattr(key, "topic", None) or getattr(key, "name", None),
        "partition": getattr(key, "partition", None),
    }


def value_row(raw: RawRecord) -> Row:
    """The columns of a value, none for a tombstone or a later version; raises `RecordsError`."""
    read = _READERS.get(raw.type)
    if read is None or raw.value is None:
        return {}
    try:
        return read(decode_value(raw))
    except UnsupportedVersion:
        return {}


@lru_cache(maxsize=CAUSES_MAX)
def cause_row(data: bytes) -> Row:
    """The columns of an entry's cause; raises `RecordsError`."""
    cause: Cause = load_cause(data)
    return {
        "trigger": trigger_name(cause.trigger),
        "reasons": reason_names(cause),
        "cause_member_id": cause.member_id or None,
        "cause_member_epoch": None if cause.member_epoch == -1 else cause.member_epoch,
        "principal": cause.principal or None,
        "address": cause.address or None,
    }


def type_row(raw: RawRecord) -> Row:
    return {
        "type": int(raw.type),
        "type_name": type_name(raw.type),
        "version": raw.version,
        "is_tombstone": raw.value is None,
        "key_bytes": raw.key,
        "value_bytes": raw.value,
    }


def partitions(of: tuple[TopicPartitions, ...]) -> list[Row]:
    return [{"topic_id": topic_id_text(one.topic_id), "partitions": list(one.partitions)} for one in of]


def _commit(value: OffsetCommitValue) -> Row:
    return {
        "offset": value.offset,
        "leader_epoch": None if value.leader_epoch == -1 else value.leader_epoch,
        "metadata": value.metadata or None,
    }


def _group(value: ConsumerGroupMetadataValue) -> Row:
    return {"epoch": value.epoch}


def _target(value: ConsumerGroupTargetAssignmentMetadataValue) -> Row:
    return {"epoch": value.assignment_epoch}


def _target_member(value: ConsumerGroupTargetAssignmentMemberValue) -> Row:
    epoch = None if value.assignment_epoch == -1 else value.assignment_epoch
    return {"epoch": epoch, "assigned": partitions(value.topic_partitions)}


def _current(value: ConsumerGroupCurrentMemberAssignmentValue) -> Row:
    return {
        "epoch": value.member_epoch,
        "previous_epoch": value.previous_member_epoch,
        "member_state": state_name(value.state),
        "assigned": partitions(value.assigned_partitions),
        "pending": partitions(value.partitions_pending_revocation),
    }


def _member(value: ConsumerGroupMemberMetadataValue) -> Row:
    return {"client_id": value.client_id, "client_host": value.client_host, "instance_id": value.instance_id}


_READERS: Mapping[int, Callable[[Any], Row]] = {
    RecordType.OFFSET_COMMIT: _commit,
    RecordType.CONSUMER_GROUP_METADATA: _group,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target,
    RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_member,
    RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _current,
    RecordType.CONSUMER_GROUP_MEMBER_METADATA: _member,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSelection:
    """Which records are wanted, and which parts of them must be decoded."""

    selection: Selection
    with_key: bool
    with_value: bool
    with_cause: bool

    @classmethod
    def of(cls, columns: tuple[TableColumn, ...], selection: Selection) -> ReadSelection:
        names = {column.name for column in columns}
        return cls(
            selection=selection,
            with_key=selection.groups is not None or not names.isdisjoint(KEY_COLUMNS),
            with_value=not names.isdisjoint(VALUE_COLUMNS),
            with_cause=not names.isdisjoint(CAUSE_COLUMNS),
        )

    def entry(self, body: bytes, count: int) -> list[Row]:
        """The rows of an entry with ``count`` records; raises `RecordsError` if any is unreadable."""
        raws = iter_records(body)
        if len(raws) != count:
            raise MalformedEntry(f"{count} records are announced, there are {len(raws)}")
        data = cause_bytes(body)
        cause = {"cause_bytes": data, **(cause_row(data) if self.with_cause else {})}
        return [{**row, **cause} for row in self.records(raws)]

    def records(self, raws: Iterable[RawRecord]) -> Iterator[Row]:
        """Rows of the wanted records, without the entry's columns; raises `RecordsError` at a bad one."""
        types, groups = self.selection.types, self.selection.groups
        for sequence, raw in enumerate(raws):
            if types is not None and raw.type not in types:
                continue
            key = key_row(raw) if self.with_key else {}
            if groups is not None and key.get("group_id") not in groups:
                continue
            value = value_row(raw) if self.with_value else {}
            yield {"sequence": sequence, **type_row(raw), **key, **value}
