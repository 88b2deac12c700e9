"""Offset commits as rows, one entry at a time. A commit needs no context, so only decoded keys are kept."""

from __future__ import annotations

from collections.abc import Container, Iterator

from raftlog.storage.frames import Frame
from records import (
    OffsetCommitKey,
    OffsetCommitValue,
    PendingOffsetKey,
    RawRecord,
    RecordsError,
    RecordType,
    decode_cause,
    decode_key,
    decode_value,
    iter_records,
)

from .rows import CommitRow, TopicPartition

CommitKey = tuple[str, TopicPartition]
"""Group id and partition."""


class CommitKeys:
    """Decodes each key of a shard's commits once; there is one per partition with committed offsets."""

    def __init__(self, only: Container[str] | None = None) -> None:
        self._only = only
        self._known: dict[bytes, CommitKey | None] = {}
        self.pending: list[tuple[CommitKey, RawRecord]] = []
        """The pending offsets that the entry read last has, and those that are not pending any more."""

    @property
    def groups(self) -> set[str]:
        """The groups whose commits were seen."""
        return {key[0] for key in self._known.values() if key is not None}

    def of(self, frame: Frame) -> Iterator[tuple[CommitKey, int, RawRecord]]:
        """Yield the commits of an entry and their removals, each with its position among the entry's records.

        With ``only``, other groups are skipped. Raises `RecordsError` if the entry cannot be decoded.
        """
        self.pending = []
        for sequence, raw in enumerate(iter_records(frame.body)):
            if raw.type == RecordType.OFFSET_COMMIT:
                key = self._key(raw)
                if key is not None:
                    yield key, sequence, raw
            elif raw.type == RecordType.PENDING_OFFSET:
                key = self._key(raw)
                if key is not None:
                    self.pending.append((key, raw))

    def _key(self, raw: RawRecord) -> CommitKey | None:
        if raw.key not in self._known:
            decoded = decode_key(raw)
            if not isinstance(decoded, OffsetCommitKey | PendingOffsetKey):
                raise RecordsError(f"a record of type {raw.type} with the key {raw.key.hex()}")
            is_wanted = self._only is None or decoded.group_id in self._only
            partition = TopicPartition(topic=decoded.topic, partition=decoded.partition)
            self._known[raw.key] = (decoded.group_id, partition) if is_wanted else None
        return self._known[raw.key]


def commit_rows(shard: int, frame: Frame, keys: CommitKeys) -> Iterator[CommitRow]:
    """The rows of one entry; raises `RecordsError` if it cannot be decoded."""
    cause = None
    for (group_id, partition), sequence, raw in keys.of(frame):
        cause = cause or decode_cause(frame.body)
        value = None if raw.value is None else decode_value(raw)
        known = value if isinstance(value, OffsetCommitValue) else None
        yield CommitRow(
            group_id=group_id,
            shard=shard,
            partition=partition,
            index=frame.index,
            sequence=sequence,
            timestamp_ms=frame.timestamp_ms,
            offset=None if known is None else known.offset,
            leader_epoch=-1 if known is None else known.leader_epoch,
            metadata="" if known is None else known.metadata,
            member_id=cause.member_id,
            member_epoch=cause.member_epoch,
        )
