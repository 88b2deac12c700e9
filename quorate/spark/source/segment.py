"""One segment of a log as Arrow batches: finds its frames and decodes its records.

The invariant: a row is what was written, or it is absent and reported as damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from history.reading.source import LogGap
from quorate.spark.errors import InputError
from quorate.spark.schema import DAMAGE, TableColumn, arrow_type, micros, times
from raftlog.env.files import Files
from raftlog.storage.frames import HEADER_BYTES
from records import RecordsError

from .buffer_pool import pooled_buffer
from .frames import Data, Frames, gap
from .loading import LoadedSegment, OnNote, load
from .msgarrays import GUARD
from .options import Mode, Rows
from .plan import Piece
from .scalar_decoder import ReadSelection, Row
from .sealed import SealedIndex
from .vector import BYTES_MAX, Wanted, columns_of, stretches

NEWER_HINT = "use a release that knows it"

BATCH_ROWS = 1 << 15
"""Rows per batch: some megabytes, which the JVM holds in memory."""


def segment_batches(task: Piece, files: Files, on_note: OnNote) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a segment; raises `InputError` in fail mode if no node can read one of its entries.

    Every repair from another node's copy is reported to ``on_note``.
    """
    index = SealedIndex.of(files, task.home, task.bounds, task.selection)
    if index is not None and not index.is_wanted:
        return
    with pooled_buffer(files) as memory:
        found = load(files, memory.read, task, index)
        for note in found.notes:
            on_note(note)
        yield from segment_rows(task, found)


def segment_rows(task: Piece, found: LoadedSegment) -> Iterator[pa.RecordBatch]:
    """The wanted rows in a segment's bytes; no result refers to these."""
    yield from damage_rows(task, found.lost, found.hint)
    if task.rows is Rows.ENTRIES:
        yield from entry_batches(task, found.frames)
    else:
        yield from record_batches(task, found.path, found.data, found.frames)


def damage_rows(task: Piece, gaps: Sequence[LogGap], hint: str) -> Iterator[pa.RecordBatch]:
    """A row for each range that is lost; raises `InputError` in fail mode."""
    if gaps and task.mode is Mode.FAIL:
        first = gaps[0]
        raise InputError(
            f"{first.file}: byte {first.offset}: {first.what}", f"{hint}; mode=permissive skips it"
        )
    if gaps:
        known = {"cluster_id": task.cluster_id, "node_id": task.node_id, "shard": task.shard}
        rows = [{**known, "raft_index": one.after_index + 1, DAMAGE.name: one.words()} for one in gaps]
        yield batch_of(task.columns, rows)


def batch_of(columns: tuple[TableColumn, ...], rows: Sequence[Row]) -> pa.RecordBatch:
    """A batch of rows given by column name; missing columns are null."""
    schema = arrow_type(columns)
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def entry_batches(task: Piece, frames: Frames) -> Iterator[pa.RecordBatch]:
    """One row per entry."""
    schema = arrow_type(task.columns)
    for start in range(0, len(frames), BATCH_ROWS):
        some = frames.of(slice(start, start + BATCH_ROWS))
        count = len(some)
        known = {
            "raft_index": some.index,
            "term": some.term,
            "timestamp": times(some.timestamp_ms),
            "commit_index": some.commit_index,
            "num_records": some.count,
            "size": some.length + HEADER_BYTES,
            "crc": some.crc,
        }
        same = {"cluster_id": task.cluster_id, "node_id": task.node_id, "shard": task.shard}
        arrays = [
            pa.array(known[field.name]).cast(field.type)
            if field.name in known
            else pa.repeat(pa.scalar(same.get(field.name), field.type), count)
            for field in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def record_batches(task: Piece, path: str, data: Data, frames: Frames) -> Iterator[pa.RecordBatch]:
    """One row per wanted record: most are decoded many at once, irregular ones individually."""
    wanted = Wanted(
        cluster_id=task.cluster_id, shard=task.shard, columns=task.columns, selection=task.selection
    )
    view = memoryview(data)
    for stretch in stretches(frames):
        begin, end = int(stretch.offset[0]), int(stretch.end[-1])
        if end - begin > BYTES_MAX:
            yield from plain_batches(task, path, data, stretch)
            continue
        if end + len(GUARD) <= len(data) <= BYTES_MAX:
            part, moved = data, stretch  # the following bytes serve as guard
        else:
            part, moved = b"".join((view[begin:end], GUARD)), stretch.moved(begin)
        batch, irregular = columns_of(part, moved, wanted)
        if irregular.any():
            yield from plain_batches(task, path, data, stretch.of(irregular))
            batch, _ = columns_of(part, moved.of(~irregular), wanted)
        if batch is not None:
            yield batch


def plain_batches(task: Piece, path: str, data: Data, frames: Frames) -> Iterator[pa.RecordBatch]:
    """The same record by record; an entry that cannot be decoded is damage."""
    reading = ReadSelection.of(task.columns, task.selection)
    rows: list[Row] = []
    for place in range(len(frames)):
        offset, index = int(frames.offset[place]), int(frames.index[place])
        body = bytes(data[offset + HEADER_BYTES : offset + HEADER_BYTES + int(frames.length[place])])
        try:
            made = reading.entry(body, int(frames.count[place]))
        except RecordsError as error:
            what = f"entry {index} cannot be decoded: {error}"
            yield from damage_rows(task, [gap(path, offset, index, what, index + 1)], NEWER_HINT)
            continue
        known = {
            "cluster_id": task.cluster_id,
            "shard": task.shard,
            "raft_index": index,
            "term": int(frames.term[place]),
            "timestamp": micros(int(frames.timestamp_ms[place])),
        }
        rows += [{**row, **known} for row in made]
        if len(rows) >= BATCH_ROWS:
            yield batch_of(task.columns, rows)
            rows = []
    if rows:
        yield batch_of(task.columns, rows)
