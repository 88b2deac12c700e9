"""One segment of a log as Arrow batches: reads its bytes, finds its frames, decodes its records.

This runs on an executor and trusts nothing: the file may have moved, and its header, index and lengths may be
wrong. The invariant: a row is what was written, or it is absent and reported as damage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from history.reading.source import LogGap
from pipeline.errors import InputError
from pipeline.schema import DAMAGE, TableColumn, arrow_type
from raftlog.env.errors import RESTORE_HINT, Corrupt, Damaged
from raftlog.env.files import OsFiles
from raftlog.storage.archive import segment_by
from raftlog.storage.frames import HEADER_BYTES
from raftlog.storage.segments import HEADER_BYTES_MAX, NewerFormat, decode_header
from records import RecordsError

from .buffer_pool import pooled_buffer
from .frames import Data, Frames, gap, scan
from .msgarrays import GUARD
from .options import Mode, Rows, Selection
from .plan import Task
from .scalar_decoder import ReadSelection, Row
from .sealed import SealedIndex
from .vector import BYTES_MAX, Wanted, columns_of, stretches

FOREIGN_HINT = "the file was copied here from another node or shard; remove it"

NEWER_HINT = "use a release that knows it"

BATCH_ROWS = 1 << 15
"""Rows per batch: some megabytes, which the JVM holds in memory."""


def segment_batches(task: Task) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a segment; raises `InputError` in fail mode if anything is damaged."""
    index = SealedIndex.of(OsFiles(), task.home, task.bounds, task.selection)
    if index is not None and not index.is_wanted:
        return
    with pooled_buffer() as memory:
        try:
            path, data = segment_by(memory.read, task.home, task.bounds.first)
        except Damaged as damage:
            lost = gap(damage.file, 0, task.bounds.first, damage.what, task.bounds.following)
            yield from damage_rows(task, [lost], damage.hint)
            return
        yield from segment_rows(task, path, data, index)


def segment_rows(task: Task, path: str, data: Data, index: SealedIndex | None) -> Iterator[pa.RecordBatch]:
    """The wanted rows in a segment's bytes; no result refers to ``data``."""
    bounds = task.bounds
    if foreign := _foreign(task, path, data):
        yield from damage_rows(task, [gap(path, 0, bounds.first, foreign, bounds.following)], FOREIGN_HINT)
        return
    frames = None if index is None else index.frames(data, path)
    if frames is None:
        frames, gaps = scan(data, path, bounds)
        yield from damage_rows(task, gaps, RESTORE_HINT)
        frames = _wanted_frames(frames, task.selection)
    if task.rows is Rows.ENTRIES:
        yield from entry_batches(task, frames)
    else:
        yield from record_batches(task, path, data, frames)


def _foreign(task: Task, path: str, data: Data) -> str:
    """The reason why a sound header is of another log, or ""; raises `InputError` for a newer format."""
    try:
        header = decode_header(memoryview(data)[:HEADER_BYTES_MAX], path)
    except NewerFormat as newer:
        raise InputError(f"{path}: byte {newer.offset}: {newer.what}", newer.hint) from None
    except Corrupt:
        return ""  # damage: `scan` reports it and checks each frame
    identity = header.identity
    said = (identity.cluster_id, identity.shard, header.first_index)
    is_ours = said == (task.cluster_id, task.shard, task.bounds.first)
    return "" if is_ours else "belongs to cluster {}, shard {}, from entry {} on".format(*said)


def _wanted_frames(frames: Frames, selection: Selection) -> Frames:
    span = selection.span
    for low, high, field in (
        (span.from_index, span.to_index, "index"),
        (span.from_ms, span.to_ms, "timestamp_ms"),
    ):
        if low is not None:
            frames = frames.of(getattr(frames, field) >= low)
        if high is not None:
            frames = frames.of(getattr(frames, field) <= high)
    return frames


def damage_rows(task: Task, gaps: Sequence[LogGap], hint: str) -> Iterator[pa.RecordBatch]:
    """A row for each wanted range that is lost; raises `InputError` in fail mode."""
    span = task.selection.span
    gaps = [
        one
        for one in gaps
        if (span.to_index is None or one.after_index < span.to_index)
        and (span.from_index is None or one.goes_on_at is None or one.goes_on_at > span.from_index)
    ]
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


def entry_batches(task: Task, frames: Frames) -> Iterator[pa.RecordBatch]:
    """One row per entry."""
    schema = arrow_type(task.columns)
    for start in range(0, len(frames), BATCH_ROWS):
        some = frames.of(slice(start, start + BATCH_ROWS))
        count = len(some)
        known = {
            "raft_index": some.index,
            "term": some.term,
            "timestamp_ms": some.timestamp_ms,
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


def record_batches(task: Task, path: str, data: Data, frames: Frames) -> Iterator[pa.RecordBatch]:
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


def plain_batches(task: Task, path: str, data: Data, frames: Frames) -> Iterator[pa.RecordBatch]:
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
            "timestamp_ms": int(frames.timestamp_ms[place]),
        }
        rows += [{**row, **known} for row in made]
        if len(rows) >= BATCH_ROWS:
            yield batch_of(task.columns, rows)
            rows = []
    if rows:
        yield batch_of(task.columns, rows)
