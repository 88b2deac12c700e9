"""Records as Arrow columns, many at once: nothing here loops over records in Python.

A stretch of frames becomes a batch. Numbers and texts are read in place; causes and sets of partitions
repeat, so each distinct one is decoded once and rows refer to it. The invariant: the rows equal those of
`scalar_decoder`, which decodes record by record. A frame with anything that the newest writer would not write
is irregular, and is handed to `scalar_decoder` as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from history.words import type_name
from quorate.spark.schema import TableColumn, arrow_type, times
from records import Cause
from records.layouts import layout_of
from records.schemas import SCHEMAS

from .bodies import Bodies, Records, walk
from .columns import Columns
from .fields import CAUSE_COLUMNS, CAUSES, KEY_COLUMNS, KEYS, VALUE_COLUMNS, VALUES
from .frames import Data, Flags, Frames, Ints
from .msgarrays import GUARD
from .options import Selection
from .slices import distinct, edges_of, gather, numbered, refer, spread

BATCH_RECORDS = 3 << 15
"""Records and frames in one batch, about twenty megabytes of the JVM's memory.

Half as many are 6 % slower, a third more 5 %, and 9 % with raw bytes: above 32 MiB every malloc is a system
call.
"""

RECORD_BYTES_MIN = 12
"""The size of a record's header; bounds how many records a frame may announce."""

BYTES_MAX = (1 << 31) - 64
"""Limit on one stretch, since Arrow's ordinary arrays have 32-bit offsets."""

_CAUSE_FIELDS = tuple(column for column in layout_of(Cause).columns if column.since == 0)
"""Causes of version 0. Newer ones are irregular: only generations of classic groups have them."""


def stretches(frames: Frames) -> Iterator[Frames]:
    """Split frames into stretches of about `BATCH_RECORDS` records."""
    ends = np.cumsum(np.minimum(frames.count, frames.length // RECORD_BYTES_MIN) + 1)
    at = 0
    while at < len(frames):
        before = int(ends[at - 1]) if at else 0
        upto = max(at + 1, int(np.searchsorted(ends, before + BATCH_RECORDS)))
        yield frames.of(slice(at, upto))
        at = upto


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wanted records and columns; the same for every stretch of a segment."""

    cluster_id: str
    shard: int
    columns: tuple[TableColumn, ...]
    selection: Selection

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)


def columns_of(data: Data, frames: Frames, wanted: Wanted) -> tuple[pa.RecordBatch | None, Flags]:
    """The wanted records of frames, and which frames are irregular; the batch is only valid if there are
    none.

    ``data`` has `GUARD` after the last frame, and is no longer than `BYTES_MAX`.
    """
    return _Stretch(data, frames, wanted).batch()


@dataclass(frozen=True, slots=True)
class _Causes:
    """The distinct causes of some records: few, as most entries resemble others."""

    columns: Columns
    pieces: pa.Array
    frames: Ints
    """The frames that have records."""
    of_frame: Ints
    """The distinct cause of each of these frames."""
    of_record: Ints


class _Stretch:
    """A stretch of frames being made into a batch."""

    def __init__(self, data: Data, frames: Frames, wanted: Wanted) -> None:
        self._data = data
        self._frames = frames
        self._wanted = wanted
        self._names = wanted.names
        bodies: Bodies = walk(data, frames)
        self._cause, self._cause_end, self._irregular = bodies.cause, bodies.cause_end, bodies.irregular
        self._records: Records = bodies.records

    def batch(self) -> tuple[pa.RecordBatch | None, Flags]:
        self._choose_types()
        self._choose_groups()
        if not len(self._records):
            return None, self._irregular
        columns, causes = self._columns(self._names), self._causes()
        schema = arrow_type(self._wanted.columns)
        arrays = []
        for field in schema:
            name = field.name
            if name in CAUSE_COLUMNS:
                array, irregular = causes.columns.column(name, causes.of_record)
                self._irregular[causes.frames[np.isin(causes.of_frame, irregular)]] = True
            elif name == "cause_bytes":
                array = refer(causes.pieces, causes.of_record)
            elif name in KEY_COLUMNS or name in VALUE_COLUMNS:
                array, irregular = columns.column(name)
                self._irregular[self._records.frame[irregular]] = True
            else:
                array = self._own(name, field.type)
            arrays.append(array)
        return None if self._irregular.any() else pa.RecordBatch.from_arrays(
            arrays, schema=schema
        ), self._irregular

    def _choose_types(self) -> None:
        types = self._wanted.selection.types
        if types is not None:
            self._records = self._records.of(np.isin(self._records.type, list(types)))

    def _choose_groups(self) -> None:
        groups = self._wanted.selection.groups
        if groups is not None:
            of_records, irregular = self._columns(frozenset({"group_id"})).column("group_id")
            self._irregular[self._records.frame[irregular]] = True
            is_in = pa.compute.is_in(of_records, value_set=pa.array(sorted(groups), pa.string()))
            self._records = self._records.of(is_in.to_numpy(zero_copy_only=False))

    def _columns(self, names: frozenset[str]) -> Columns:
        """The columns from keys and values of the records."""
        records = self._records
        made = Columns(self._data, len(records), names)
        for type_ in {*numbered(records.type)[0].tolist()} & SCHEMAS.keys():
            rows = np.flatnonzero(records.type == type_)
            if not names.isdisjoint(KEY_COLUMNS):
                irregular = made.fill(
                    SCHEMAS[type_].key.columns, KEYS, rows, records.key[rows], records.value[rows]
                )
                self._irregular[records.frame[rows[irregular]]] = True
            if type_ in VALUES and not names.isdisjoint(VALUE_COLUMNS):
                self._fill_values(made, type_, rows[~records.is_tombstone[rows]])
        return made

    def _fill_values(self, made: Columns, type_: int, rows: Ints) -> None:
        records, schema = self._records, SCHEMAS[type_].value
        is_other = records.version[rows] != schema.version
        if is_other.any():
            self._irregular[records.frame[rows[is_other]]] = True
            rows = rows[~is_other]
        irregular = made.fill(
            schema.layout.columns, VALUES[type_], rows, records.value[rows], records.end[rows]
        )
        self._irregular[records.frame[rows[irregular]]] = True

    def _causes(self) -> _Causes:
        names = self._names & CAUSE_COLUMNS
        if not names and "cause_bytes" not in self._names:
            none = np.zeros(0, np.int64)
            return _Causes(Columns(b"", 0, names), pa.nulls(0, pa.binary()), none, none, none)
        used = np.flatnonzero(np.bincount(self._records.frame, minlength=len(self._frames)))
        codes, pieces = distinct(self._data, self._cause[used], self._cause_end[used])
        of_frame = np.zeros(len(self._frames), np.int64)
        of_frame[used] = codes
        buffer, begin, end = edges_of(pieces, GUARD)
        made = Columns(buffer, len(pieces), names)
        if names:
            irregular = made.fill(_CAUSE_FIELDS, CAUSES, np.arange(len(pieces)), begin, end, lead=1)
            self._irregular[used[irregular[codes]]] = True
        return _Causes(made, pieces, used, codes, of_frame[self._records.frame])

    def _own(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column that does not depend on a record's contents."""
        records, frames = self._records, self._frames
        if name == "timestamp":
            return times(frames.timestamp_ms[records.frame])
        if name in ("raft_index", "term"):
            of = {"raft_index": frames.index, "term": frames.term}[name]
            return pa.array(of[records.frame], kind)
        if name in ("sequence", "type", "version"):
            return pa.array(getattr(records, name).astype(np.int32), kind)
        if name == "is_tombstone":
            return pa.array(records.is_tombstone)
        if name == "type_name":
            types, places = numbered(records.type)
            return refer(pa.array([type_name(one) for one in types.tolist()], kind), places)
        if name == "key_bytes":
            return gather(self._data, records.key, records.value)
        if name == "value_bytes":
            rows = np.flatnonzero(~records.is_tombstone)
            return spread(gather(self._data, records.value[rows], records.end[rows]), rows, len(records))
        same = {"cluster_id": self._wanted.cluster_id, "shard": self._wanted.shard}
        return pa.repeat(pa.scalar(same.get(name), kind), len(records))
