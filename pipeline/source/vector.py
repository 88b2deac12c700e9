"""Records as Arrow columns, many at once: nothing here loops over records in Python.

A stretch of frames is a batch. Keys, causes and sets of partitions repeat, so each distinct one is decoded
once and rows refer to it; numbers are read where they stand. What must stay true: the rows are those of
`plain`, which decodes record by record. A frame with anything that is not as the newest writer writes it is
odd, and is handed to `plain` whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from history.words import type_name
from pipeline.schema import Column, arrow_type
from records import Cause
from records.layouts import layout_of
from records.schemas import SCHEMAS

from .bodies import Bodies, Records, walk
from .frames import Flags, Frames, Ints
from .msgarrays import GUARD
from .options import Selection
from .plain import CAUSE_COLUMNS, KEY_COLUMNS, VALUE_COLUMNS
from .shown import CAUSES, KEYS, VALUES, Columns
from .slices import distinct, edges_of, gather, refer

BATCH_RECORDS = 1 << 17
"""Records and frames of one batch, about: some thirty megabytes, which the JVM takes into memory. With
half as many, and with twice as many, each takes a tenth longer."""

RECORD_BYTES_MIN = 12
"""A record's header: bounds what a frame may announce."""

BYTES_MAX = (1 << 31) - 64
"""Of one stretch: Arrow counts the bytes of short arrays with 32 bits."""

_CAUSE_LAYOUT = layout_of(Cause)


def stretches(frames: Frames) -> Iterator[Frames]:
    """Frames with about `BATCH_RECORDS` records each."""
    ends = np.cumsum(np.minimum(frames.count, frames.length // RECORD_BYTES_MIN) + 1)
    at = 0
    while at < len(frames):
        before = int(ends[at - 1]) if at else 0
        upto = max(at + 1, int(np.searchsorted(ends, before + BATCH_RECORDS)))
        yield frames.of(slice(at, upto))
        at = upto


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What of the records is wanted: the same of every stretch of a segment."""

    cluster_id: str
    shard: int
    columns: tuple[Column, ...]
    selection: Selection

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)


def columns_of(data: bytes, frames: Frames, wanted: Wanted) -> tuple[pa.RecordBatch | None, Flags]:
    """The wanted records of frames, and which frames are odd: only without those is the batch right.

    ``data`` has `GUARD` behind the last frame, and is no longer than `BYTES_MAX`.
    """
    return _Stretch(data, frames, wanted).batch()


class _Stretch:
    """A stretch of frames on its way to a batch."""

    def __init__(self, data: bytes, frames: Frames, wanted: Wanted) -> None:
        self._data = data
        self._frames = frames
        self._wanted = wanted
        self._names = wanted.names
        self._bodies: Bodies = walk(data, frames)
        self._odd = self._bodies.odd
        self._records: Records = self._bodies.records

    def batch(self) -> tuple[pa.RecordBatch | None, Flags]:
        self._choose_types()
        keys, key_of = self._keys()
        values = self._values()
        causes, cause_bytes, cause_of = self._causes()
        if not len(self._records) or self._odd.any():
            return None, self._odd
        schema = arrow_type(self._wanted.columns)
        arrays = []
        for field in schema:
            name = field.name
            if name in KEY_COLUMNS:
                arrays.append(keys.column(name, key_of))
            elif name in VALUE_COLUMNS:
                arrays.append(values.column(name))
            elif name in CAUSE_COLUMNS:
                arrays.append(causes.column(name, cause_of))
            elif name == "cause_bytes":
                arrays.append(refer(cause_bytes, cause_of))
            else:
                arrays.append(self._own(name, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema), self._odd

    def _choose_types(self) -> None:
        types = self._wanted.selection.types
        if types is not None:
            self._records = self._records.of(np.isin(self._records.type, list(types)))

    def _keys(self) -> tuple[Columns, Ints]:
        """The keys' columns by distinct type and key, and which is each record's; chooses the groups."""
        groups = self._wanted.selection.groups
        names = self._names & set(KEY_COLUMNS) | ({"group_id"} if groups is not None else set())
        if not names or not len(self._records):
            return Columns(0, ()), np.zeros(0, np.int64)
        codes, pieces = distinct(self._data, self._records.key, self._records.value)
        types, type_codes = _numbered(self._records.type)
        pairs, of_record = _numbered(
            codes.astype(np.int64) * len(types) + type_codes, len(pieces) * len(types)
        )
        buffer, begin, end = edges_of(pieces, GUARD)
        made, odd = Columns(len(pairs), names), np.zeros(len(pairs), np.bool_)
        for place, type_ in enumerate(types.tolist()):
            if type_ in SCHEMAS:
                rows = np.flatnonzero(pairs % len(types) == place)
                of = pairs[rows] // len(types)
                odd[rows] = made.fill(SCHEMAS[type_].key, KEYS, rows, buffer, begin[of], end[of])
        self._odd[self._records.frame[odd[of_record]]] = True
        if groups is not None:
            is_in = pa.compute.is_in(made.column("group_id"), value_set=pa.array(sorted(groups), pa.string()))
            chosen = is_in.to_numpy(zero_copy_only=False)[of_record]
            self._records, of_record = self._records.of(chosen), of_record[chosen]
        return made, of_record

    def _values(self) -> Columns:
        records = self._records
        made = Columns(len(records), self._names)
        if self._names.isdisjoint(VALUE_COLUMNS):
            return made
        for type_, shown in VALUES.items():
            rows = np.flatnonzero((records.type == type_) & ~records.is_tombstone)
            if not len(rows):
                continue
            schema = SCHEMAS[type_].value
            is_other = records.version[rows] != schema.version
            if is_other.any():
                self._odd[records.frame[rows[is_other]]] = True
                rows = rows[~is_other]
            odd = made.fill(schema.layout, shown, rows, self._data, records.value[rows], records.end[rows])
            self._odd[records.frame[rows[odd]]] = True
        return made

    def _causes(self) -> tuple[Columns, pa.Array, Ints]:
        """The causes' columns and bytes by distinct cause, and which is each record's."""
        names = self._names & set(CAUSE_COLUMNS)
        if not (names or "cause_bytes" in self._names) or not len(self._records):
            return Columns(0, ()), pa.nulls(0, pa.binary()), np.zeros(0, np.int64)
        used = np.flatnonzero(np.bincount(self._records.frame, minlength=len(self._frames)))
        codes, pieces = distinct(self._data, self._bodies.cause[used], self._bodies.cause_end[used])
        of_frame = np.zeros(len(self._frames), np.int64)
        of_frame[used] = codes
        made = Columns(len(pieces), names)
        if names:
            buffer, begin, end = edges_of(pieces, GUARD)
            rows = np.arange(len(pieces))
            odd = made.fill(_CAUSE_LAYOUT, CAUSES, rows, buffer, begin, end, lead=1)
            self._odd[used[odd[codes]]] = True
        return made, pieces, of_frame[self._records.frame]

    def _own(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column that says nothing of what a record holds."""
        records, frames = self._records, self._frames
        if name in ("raft_index", "term", "timestamp_ms"):
            of = {"raft_index": frames.index, "term": frames.term, "timestamp_ms": frames.timestamp_ms}[name]
            return pa.array(of[records.frame], kind)
        if name in ("sequence", "type", "version"):
            return pa.array(getattr(records, name).astype(np.int32), kind)
        if name == "is_tombstone":
            return pa.array(records.is_tombstone)
        if name == "type_name":
            types, codes = _numbered(records.type)
            return refer(pa.array([type_name(one) for one in types.tolist()], kind), codes)
        if name == "key_bytes":
            return gather(self._data, records.key, records.value)
        if name == "value_bytes":
            return gather(self._data, records.value, records.end, records.is_tombstone)
        same = {"cluster_id": self._wanted.cluster_id, "shard": self._wanted.shard}
        return pa.repeat(pa.scalar(same.get(name), kind), len(records))


def _numbered(keys: Ints, limit: int = 1 << 16) -> tuple[Ints, Ints]:
    """The distinct of small numbers, rising, and the place of each among them; of record types by default,
    which may be below 0."""
    is_there = np.zeros(limit, np.bool_)
    slots = keys % limit
    is_there[slots] = True
    found = np.flatnonzero(is_there)
    place = np.zeros(limit, np.int64)
    place[found] = np.arange(len(found))
    if limit == 1 << 16:
        found = found.astype(np.uint16).view(np.int16).astype(np.int64)
    return found, place[slots]
