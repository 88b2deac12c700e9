"""One task of an ingest: reads entries, writes their tables, and says what it read.

Runs on an executor or in the driver's process. A row of `records` is a record as the source reads it;
`commits` derives from it; the records of groups are also written to the staging folder, from where facts
take them. Everything else that the driver needs is small and part of the result: ranges of entries that were
read, starts of terms, damage, and the groups that have new records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quorate.spark.errors import InputError
from quorate.spark.facts.batches import RECORD_ORIGIN
from quorate.spark.facts.inputs import IN_SCHEMA, of_groups, record_rows
from quorate.spark.schema import DAMAGE, RECORD_COLUMNS, TABLES, arrow_type
from quorate.spark.source.loading import RepairNote
from quorate.spark.source.plan import Task
from quorate.spark.source.reading import read_bundle
from quorate.spark.source.verifying import verify
from quorate.spark.tables.files import FileWriter, WrittenFile
from quorate.spark.tables.names import ROWS, schema_of
from quorate.spark.tables.store import Store
from records import RecordType
from records.ids import METADATA_SHARD

CHUNK_ROWS = 100_000
"""Records that are sorted together and become one row group: some 100 MB with their bytes."""
HOLES_MAX = 10_000
"""Limit on gaps in the log: the driver handles them, and each is a finding."""

_NOBODY = -1
"""The value in the log for "no epoch" and "no leader"."""
_SAID_NOTHING: dict[str, tuple[str, int | str]] = {
    "leader_epoch": ("leader_epoch", _NOBODY),
    "metadata": ("metadata", ""),
    "member_id": ("cause_member_id", ""),
    "member_epoch": ("cause_member_epoch", _NOBODY),
}
"""Column of `commits` -> its column in `records`, and the value that becomes null."""


@dataclass(frozen=True, slots=True)
class IngestJob:
    """The part of an ingest that all its tasks share."""

    store: Store
    staging: Store


@dataclass(slots=True)
class Run:
    """Consecutive entries that were read, both ends included, with their timestamps."""

    first: int
    last: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class IngestResult:
    """The result of one task, or of all of them."""

    files: list[WrittenFile] = field(default_factory=list)
    staged: list[WrittenFile] = field(default_factory=list)
    runs: dict[int, list[Run]] = field(default_factory=dict)
    """Shard -> what was read of it, in the order of the log."""
    starts: list[dict[str, Any]] = field(default_factory=list)
    """Records that start a term: their place, time in ms, type, version and value."""
    damage: list[tuple[int, int, str]] = field(default_factory=list)
    """Shard, the first entry lost, and the reason."""
    repairs: list[RepairNote] = field(default_factory=list)
    groups: set[tuple[int, str]] = field(default_factory=set)
    """Shard and id of every group with a record here."""

    def packed(self) -> bytes:
        return bytes(
            msgpack.packb(
                [
                    [asdict(one) for one in self.files],
                    [asdict(one) for one in self.staged],
                    [
                        [shard, [[r.first, r.last, r.first_ms, r.last_ms] for r in of]]
                        for shard, of in self.runs.items()
                    ],
                    self.starts,
                    self.damage,
                    [asdict(one) for one in self.repairs],
                    list(self.groups),
                ]
            )
        )

    def take(self, packed: bytes) -> None:
        """Add the result of a task."""
        files, staged, runs, starts, damage, repairs, groups = msgpack.unpackb(packed, strict_map_key=False)
        self.files += [WrittenFile(**one) for one in files]
        self.staged += [WrittenFile(**one) for one in staged]
        for shard, found in runs:
            self.runs.setdefault(shard, []).extend(Run(*one) for one in found)
        self.starts += starts
        self.damage += [(shard, index, what) for shard, index, what in damage]
        self.repairs += [RepairNote(**one) for one in repairs]
        self.groups |= {(shard, group_id) for shard, group_id in groups}


def verify_bundle(packed: bytes) -> Iterator[bytes]:
    """Say in words what no node's copy has of a bundle; raises `InputError` for another cluster's files."""
    for lost in verify(Task.of(packed)).lost:
        yield f"{lost.words}; {lost.hint}".encode()


def ingest_bundle(job: IngestJob, packed: bytes) -> Iterator[bytes]:
    """Read a bundle of segments and write its tables; raises `InputError` and `OutputError`."""
    found = IngestResult()
    with ExitStack() as open_files:
        records, commits = (
            open_files.enter_context(FileWriter(job.store, name, ROWS, schema_of(name)))
            for name in ("records", "commits")
        )
        staged = open_files.enter_context(FileWriter(job.staging, "", ROWS, IN_SCHEMA, ()))
        for rows in _chunks(read_bundle(Task.of(packed), found.repairs.append), found):
            note_entries(found, rows)
            records.write(rows)
            commits.write(commits_of(rows))
            mine = of_groups(rows)
            found.groups |= _groups_in(mine)
            staged.write(record_rows(mine, RECORD_ORIGIN))
        found.files = [*records.close(), *commits.close()]
        found.staged = staged.close()
    yield found.packed()


def commits_of(records: pa.Table) -> pa.Table:
    """The rows of table `commits`."""
    is_commit = pc.equal(records.column("type"), int(RecordType.OFFSET_COMMIT))
    is_mine = pc.and_(is_commit, pc.not_equal(records.column("shard"), METADATA_SHARD))
    schema, columns = arrow_type(TABLES["commits"].columns), []
    for one in schema:
        known = _SAID_NOTHING.get(one.name)
        column = records.column(one.name if known is None else known[0]).filter(is_mine)
        if known is not None:
            column = pc.if_else(pc.not_equal(column, known[1]), column, pa.scalar(None, column.type))
        columns.append(column.cast(one.type))
    return pa.Table.from_arrays(columns, schema=schema)


def joined(runs: list[Run]) -> list[Run]:
    """Runs in the order of the log, neighbours made one."""
    made: list[Run] = []
    for one in sorted(runs, key=lambda run: run.first):
        if made and one.first == made[-1].last + 1:
            made[-1] = Run(made[-1].first, one.last, made[-1].first_ms, one.last_ms)
        else:
            made.append(one)
    return made


def _chunks(batches: Iterable[pa.RecordBatch], found: IngestResult) -> Iterator[pa.Table]:
    """The rows in chunks; rows of damage are noted instead."""
    schema, held, count = arrow_type(RECORD_COLUMNS), [], 0
    for batch in batches:
        damage = batch.column(DAMAGE.name)
        if damage.null_count < len(damage):
            lost = batch.filter(damage.is_valid())
            places = (lost.column(name).to_pylist() for name in ("shard", "raft_index", DAMAGE.name))
            found.damage += zip(*places, strict=True)
            batch = batch.filter(damage.is_null())
        held.append(batch.select(schema.names))
        count += batch.num_rows
        if count >= CHUNK_ROWS:
            yield pa.Table.from_batches(held).cast(schema)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held).cast(schema)


def note_entries(found: IngestResult, rows: pa.Table) -> None:
    """Note the entries in these rows, and the terms that start with them; sequence 0 stands for an entry."""
    is_entry = pc.equal(rows.column("sequence"), 0)
    entries = rows.select(["shard", "raft_index", "timestamp"]).filter(is_entry)
    is_start = pc.and_(is_entry, pc.equal(rows.column("type"), int(RecordType.TERM_START)))
    starts = (
        rows.select(["shard", "raft_index", "type", "version", "value_bytes"]).filter(is_start).to_pylist()
    )
    for shard in pc.unique(entries.column("shard")).to_pylist():
        mine = entries.filter(pc.equal(entries.column("shard"), shard)).sort_by("raft_index")
        index = mine.column("raft_index").to_numpy()
        at_ms = mine.column("timestamp").cast(pa.int64()).to_numpy() // 1_000
        begins = np.append(0, np.flatnonzero(np.diff(index) != 1) + 1)
        ends = np.append(begins[1:], len(index)) - 1
        before = found.runs.get(shard, [])
        _note_starts(found, [one for one in starts if one["shard"] == shard], index, at_ms, before[-1:])
        edges = (column[at].tolist() for column in (index, at_ms) for at in (begins, ends))
        runs = zip(*edges, strict=True)
        found.runs[shard] = joined([*before, *(Run(*one) for one in runs)])
        if len(found.runs[shard]) > HOLES_MAX:
            raise InputError(
                f"entries are missing in more than {HOLES_MAX:,} places", "read another node's log"
            )


def _note_starts(
    found: IngestResult,
    starts: Sequence[dict[str, Any]],
    index: np.ndarray,
    at_ms: np.ndarray,
    before: Sequence[Run],
) -> None:
    """``index`` and ``at_ms`` are those of all entries, ``before`` the run that ends before them, if any."""
    ends = {run.last: run.last_ms for run in before}
    for row in starts:
        place = int(np.searchsorted(index, row["raft_index"]))
        is_after = place > 0 and index[place - 1] == index[place] - 1
        before_ms = int(at_ms[place - 1]) if is_after else ends.get(row["raft_index"] - 1)
        found.starts.append({**row, "timestamp_ms": int(at_ms[place]), "before_ms": before_ms})


def _groups_in(records: pa.Table) -> set[tuple[int, str]]:
    pairs = records.group_by(["shard", "group_id"]).aggregate([])
    return set(zip(pairs.column("shard").to_pylist(), pairs.column("group_id").to_pylist(), strict=True))
