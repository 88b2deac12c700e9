"""The records of one snapshot as rows: a shard's state as of the snapshot's last entry."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from history.reading.node import ShardFiles
from quorate.spark.schema import micros
from raftlog.env.errors import Damaged
from raftlog.env.state_machine import SnapshotHeader
from records import RawRecord, RecordsError

from .frames import gap
from .plan import Piece
from .scalar_decoder import ReadSelection, Row
from .segment import BATCH_ROWS, NEWER_HINT, batch_of, damage_rows


def snapshot_batches(task: Piece) -> Iterator[pa.RecordBatch]:
    """The newest sound snapshot within the span, if any.

    A snapshot is a shortcut rather than history, so a damaged one is skipped in favour of the one before it.
    A sound one with a record that cannot be decoded is damage: other snapshots would hold the same record.
    """
    reader = ShardFiles(task.directory, task.shard)
    within = [header for header in reader.snapshots() if _is_within(header, task)]
    for header in reversed(within):
        with contextlib.suppress(Damaged):
            snapshot = reader.snapshot(header.last_index)
            if snapshot is not None:
                yield from _batches(task, snapshot.header, snapshot.records)
                return


def _is_within(header: SnapshotHeader, task: Piece) -> bool:
    span = task.selection.span
    return (
        (span.to_index is None or header.last_index <= span.to_index)
        and (span.to_ms is None or header.last_timestamp_ms <= span.to_ms)
        and header.last_index <= (task.bounds.decided or 0)
    )


def _batches(task: Piece, header: SnapshotHeader, raws: Sequence[RawRecord]) -> Iterator[pa.RecordBatch]:
    known: Row = {
        "cluster_id": task.cluster_id,
        "shard": task.shard,
        "raft_index": header.last_index,
        "term": header.last_term,
        "timestamp": micros(header.last_timestamp_ms),
    }
    rows = ReadSelection.of(task.columns, task.selection).records(raws)
    try:
        while some := list(islice(rows, BATCH_ROWS)):
            yield batch_of(task.columns, [{**row, **known} for row in some])
    except RecordsError as error:
        index = header.last_index
        what = f"a record of the snapshot of entry {index} cannot be decoded: {error}"
        yield from damage_rows(task, [gap(task.home, 0, index, what, index + 1)], NEWER_HINT)
