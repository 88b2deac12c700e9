"""One task of the facts of a run: groups out of rows, and their rows into files.

Runs on an executor or in the driver's process. Concluded rows are appended to their tables. Rows that are
still open, and the states from which the next run goes on, replace those that earlier runs left for the same
groups: a task writes the new ones, and the driver sees to the rows of other groups in the files concerned.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from quorate.spark.facts.batches import (
    BRIDGE_ORIGIN,
    FACT_TABLES,
    IN_COLUMNS,
    RAW,
    RECORD_ORIGIN,
    STORED,
    derive_batches,
)
from quorate.spark.facts.group import RESTLESS, STATE
from quorate.spark.facts.inputs import of_groups, record_rows, stored_rows
from quorate.spark.facts.shared import Shared
from quorate.spark.tables.files import FileWriter, WrittenFile, iter_batches
from quorate.spark.tables.merging import OPEN_ROWS
from quorate.spark.tables.names import ROWS, schema_of, sort_keys
from quorate.spark.tables.store import Store

STATES, BRIDGES = "group_states", "fact_bridges"
SETTLED_PART, RESTLESS_PART = "settled", "restless"
"""Parts of the states: the mere passing of time may produce a finding for a restless group."""
ROW_GROUP_ROWS = 50_000
"""Rows of one table that a task holds before it writes them: some ten megabytes."""
_OF_RECORDS = [RAW.get(name, name) for name, _ in IN_COLUMNS if name != "origin"]
"""The columns of `records` that facts need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactJob:
    """The part of the facts of a run that all its tasks share."""

    store: Store
    staging: Store
    shared: Shared
    from_index: Mapping[int, int]
    """Shard -> the first entry that facts have not taken in; records of other shards are left out."""
    due: frozenset[tuple[int, str]] | None
    """The groups whose stored states are needed; ``None``: of all."""
    are_open_staged: bool
    """Whether open rows and states go to the staging folder, from where the driver joins them with others."""


@dataclass(frozen=True, slots=True)
class FactInput:
    """A file to read: records of this run, of the table `records`, of bridges, or stored states."""

    kind: str
    """`staged`, `records`, `bridges` or `states`."""
    path: str

    def packed(self) -> bytes:
        return bytes(msgpack.packb([self.kind, self.path]))


@dataclass(slots=True)
class FactResult:
    """The result of one task, or of all of them."""

    files: list[WrittenFile] = field(default_factory=list)
    staged: list[WrittenFile] = field(default_factory=list)
    """Open rows and states for the driver to join with others (`FactJob.are_open_staged`)."""
    groups: set[tuple[int, str]] = field(default_factory=set)
    """Shard and id of every group that was processed."""

    def packed(self) -> bytes:
        files, staged = ([asdict(one) for one in of] for of in (self.files, self.staged))
        return bytes(msgpack.packb([files, staged, list(self.groups)]))

    def take(self, packed: bytes) -> None:
        """Add the result of a task."""
        files, staged, groups = msgpack.unpackb(packed)
        self.files += [WrittenFile(**one) for one in files]
        self.staged += [WrittenFile(**one) for one in staged]
        self.groups |= {(shard, group_id) for shard, group_id in groups}


def read_input(job: FactJob, packed: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of one input file, as `IN_SCHEMA`."""
    one = FactInput(*msgpack.unpackb(packed))
    if one.kind == "states":
        for batch in iter_batches(job.store, STATES, one.path):
            yield from stored_rows(_due(job, pa.Table.from_batches([batch]))).to_batches()
        return
    if one.kind == "staged":
        for batch in iter_batches(job.staging, "", one.path):
            yield from _new(job, pa.Table.from_batches([batch])).to_batches()
        return
    is_bridge = one.kind == "bridges"
    table, origin = (BRIDGES, BRIDGE_ORIGIN) if is_bridge else ("records", RECORD_ORIGIN)
    for batch in iter_batches(job.store, table, one.path, None if is_bridge else _OF_RECORDS):
        rows = record_rows(of_groups(pa.Table.from_batches([batch])), origin)
        yield from (_crossed(job, rows) if origin == BRIDGE_ORIGIN else _new(job, rows)).to_batches()


def derive_and_write(job: FactJob, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Process the groups in these rows, sorted by group, and write what comes of them."""
    found = FactResult()
    with _without_collections(), ExitStack() as open_files:
        outs: dict[tuple[str, str], _Out] = {}
        for batch in derive_batches(job.shared, batches):
            kind = batch.column("kind")[0].as_py()  # a batch has one kind
            if kind == STATE:
                pairs = zip(
                    batch.column("shard").to_pylist(), batch.column("group_id").to_pylist(), strict=True
                )
                found.groups |= set(pairs)
            for table, part, rows in _by_part(kind, batch):
                if (table, part) not in outs:
                    is_staged = job.are_open_staged and part != ROWS
                    outs[table, part] = _Out(job.staging if is_staged else job.store, table, part, open_files)
                outs[table, part].add(rows)
        for out in outs.values():
            (found.files if out.store == job.store else found.staged).extend(out.close())
    yield found.packed()


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage meanwhile.

    A group's state is millions of objects without cycles, which are freed when the last reference goes.
    Collections that looked at them took a quarter of a task's time, and freed nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def write_small(store: Store, table: str, part: str, rows: pa.Table) -> list[WrittenFile]:
    """Write rows that later runs replace: sorted, in files of few rows each."""
    files: list[WrittenFile] = []
    in_order = rows.sort_by([(name, "ascending") for name in sort_keys(rows.column_names)])
    for start in range(0, in_order.num_rows, OPEN_ROWS):
        with FileWriter(store, table, part, schema_of(table)) as writer:
            writer.write(in_order.slice(start, OPEN_ROWS))
            files += writer.close()
    return files


class _Out:
    """Rows of one part on their way to files, in the order of the groups."""

    def __init__(self, store: Store, table: str, part: str, open_files: ExitStack) -> None:
        self.store = store
        self._table, self._part = table, part
        self._writer: FileWriter | None = None
        if part == ROWS:
            writer = FileWriter(store, table, part, schema_of(table))
            self._writer = open_files.enter_context(writer)
        self._rows_max = ROW_GROUP_ROWS if part == ROWS else OPEN_ROWS
        self._held: list[pa.Table] = []
        self._count = 0
        self._files: list[WrittenFile] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._count += rows.num_rows
        if self._count >= self._rows_max:
            self._flush()

    def close(self) -> list[WrittenFile]:
        self._flush()
        return self._files if self._writer is None else self._writer.close()

    def _flush(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            if self._writer is None:
                self._files += write_small(self.store, self._table, self._part, rows)
            else:
                self._writer.write(rows)
        self._held, self._count = [], 0


def _by_part(kind: str, batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.Table]]:
    """The rows of a batch of `derive_batches` by table and part."""
    word, _, table = kind.rpartition(":")
    if table in FACT_TABLES:
        one = batch.column(table)
        rows = pa.Table.from_arrays(one.flatten(), names=[field.name for field in one.type])
        yield table, word, rows.cast(schema_of(table))
        return
    stored = pa.Table.from_batches([batch.select(STORED.names)])
    is_restless = pc.equal(stored.column("sequence"), RESTLESS)
    for part, mine in ((RESTLESS_PART, is_restless), (SETTLED_PART, pc.invert(is_restless))):
        if (rows := stored.filter(mine)).num_rows:
            yield STATES, part, rows


def without(rows: pa.Table, groups: Mapping[int, pa.Array]) -> pa.Table:
    """The rows of all groups except these (shard -> ids)."""
    for shard, ids in groups.items():
        is_theirs = pc.and_(pc.equal(rows.column("shard"), shard), pc.is_in(rows.column("group_id"), ids))
        rows = rows.filter(pc.invert(is_theirs))
    return rows


def _due(job: FactJob, stored: pa.Table) -> pa.Table:
    """The stored rows of groups that are due, in shards that facts process."""
    shards = pa.array(sorted(job.shared.shards), pa.int32())
    mine = stored.filter(pc.is_in(stored.column("shard"), shards))
    if job.due is None:
        return mine
    ids = pa.array(sorted({group_id for _, group_id in job.due}), pa.string())
    return mine.filter(pc.is_in(mine.column("group_id"), ids))


def _new(job: FactJob, rows: pa.Table) -> pa.Table:
    """The records that facts have not taken in."""
    some = [rows.slice(0, 0)]
    for shard, index in job.from_index.items():
        mine = rows.filter(pc.equal(rows.column("shard"), shard))
        some.append(mine.filter(pc.greater_equal(mine.column("raft_index"), index)))
    return pa.concat_tables(some)


def _crossed(job: FactJob, rows: pa.Table) -> pa.Table:
    """The records of snapshots that replace entries in this run; others are no longer needed."""
    some = [rows.slice(0, 0)]
    for shard, span in job.shared.shards.items():
        ends = pa.array([one.index for one in span.bridges], pa.int64())
        is_mine = pc.and_(pc.equal(rows.column("shard"), shard), pc.is_in(rows.column("raft_index"), ends))
        some.append(rows.filter(is_mine))
    return pa.concat_tables(some)
