"""Logs replayed and compacted."""

from __future__ import annotations

from coordinator.shard import GroupShard
from records import (
    Key,
    RawRecord,
    Record,
    Stamped,
    Value,
    encode_record,
)
from records.compaction import compact

RETENTION_MS = 0
"""Tombstones go at the first compaction: the hardest case."""


def load(raws: list[RawRecord]) -> GroupShard:
    shard = GroupShard(0)
    for index, raw in enumerate(raws, 1):
        shard.apply(raw, index)
    return shard


def raw(key: Key, value: Value | None) -> RawRecord:
    return encode_record(Record(key, value))


def compacted(stamped: list[Stamped], *, drop_tombstones: bool) -> list[RawRecord]:
    now_ms = stamped[-1].timestamp_ms if stamped else 0
    retention_ms = RETENTION_MS if drop_tombstones else 1 << 40
    return [one.record for one in compact(stamped, now_ms=now_ms, delete_retention_ms=retention_ms)]


def every_prefix(stamped: list[Stamped]) -> list[list[RawRecord]]:
    """The log with every prefix of it compacted, its tombstones dropped."""
    plain = [one.record for one in stamped]
    ends = range(len(stamped) + 1)
    return [compacted(stamped[:end], drop_tombstones=True) + plain[end:] for end in ends]


def every_window(stamped: list[Stamped]) -> list[list[RawRecord]]:
    """The log as it is; every prefix compacted with tombstones dropped; every middle window without."""
    plain = [one.record for one in stamped]
    windows = [plain]
    for end in range(len(stamped) + 1):
        windows.append(compacted(stamped[:end], drop_tombstones=True) + plain[end:])
        windows += [
            plain[:start] + compacted(stamped[start:end], drop_tombstones=False) + plain[end:]
            for start in range(1, end, 2)
        ]
    return windows
