"""Commits to Delta tables by delta-rs: the times below which a run of the pipeline cannot go.

    python -m benchmarks lake
    python -m benchmarks.lake_bench --times 20 --batches 300

The tables are like `ownership`, and the work is that of a run: it writes Parquet itself and commits what it
wrote. `batch` is a batch of 300 log entries, nine tables and `progress`; `replace` writes the open rows of
some groups anew; `many files` commits what 200 tasks wrote; `older version` is what a reader does beside a
run. `batch again` and `older version again` follow `--batches` batches, so that they meet a long log. Times
are the median of `--times`, after one that does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from benchmarks.figures import peak_mib, report

ROWS_OF_A_BATCH = (3_000, 400, 300, 200, 100, 100, 50, 30, 30)
"""Rows that a batch adds to each of nine tables."""
OPEN_ROWS = 10_000
GROUPS = 500
GROUPS_PROCESSED = 20
OPEN_FILE_ROWS = 500
FILES = 200
FILE_ROWS = 5_000
STATISTICS = ("group_id", "shard", "from_index", "from_time")
CHECKPOINT_INTERVAL = 10
"""Commits between two checkpoints of a table: a reader reads the last one and the commits since."""

SCHEMA = pa.schema(
    [
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("shard", pa.int32(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("topic_id", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("member_id", pa.string()),
        pa.field("epoch", pa.int32()),
        pa.field("from_index", pa.int64(), nullable=False),
        pa.field("from_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("to_index", pa.int64()),
        pa.field("to_time", pa.timestamp("us", tz="UTC")),
        pa.field("duration_ms", pa.int64()),
    ]
)


def rows_of(count: int, first: int = 0) -> pa.Table:
    """Return `count` rows sorted by group; `first` is the index of the first."""
    groups = sorted(f"group-{(first + place) % GROUPS:03}" for place in range(count))
    indexes = list(range(first, first + count))
    moments = [1_772_334_240_000_000 + index * 10_000 for index in indexes]
    columns = [
        ["cluster"] * count,
        groups,
        [index % 5 for index in indexes],
        ["orders"] * count,
        ["AAECAwQFBgcICQoLDA0ODw"] * count,
        [index % 12 for index in indexes],
        ["owned"] * count,
        [f"member-{index % 50:016}" for index in indexes],
        [index // 20 for index in indexes],
        indexes,
        moments,
        [None] * count,
        [None] * count,
        [None] * count,
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write_file(table: Path, name: str, rows: pa.Table) -> AddAction:
    """Write one Parquet file; return the action that adds it."""
    path = table / name
    pq.write_table(rows, path, compression="zstd")
    ends = {column: pc.min_max(rows[column]).as_py() for column in STATISTICS}
    statistics_ = {
        "numRecords": rows.num_rows,
        "minValues": {column: _plain(end["min"]) for column, end in ends.items()},
        "maxValues": {column: _plain(end["max"]) for column, end in ends.items()},
        "nullCount": {column: rows[column].null_count for column in STATISTICS},
    }
    now_ms = round(time.time() * 1000)
    return AddAction(name, path.stat().st_size, {}, now_ms, True, json.dumps(statistics_))


def _plain(value: object) -> object:
    return value.isoformat(timespec="milliseconds") if hasattr(value, "isoformat") else value


def create(path: Path) -> None:
    settings = {"delta.checkpointInterval": str(CHECKPOINT_INTERVAL)}
    DeltaTable.create(str(path), deltalake.Schema.from_arrow(SCHEMA), configuration=settings)


def commit(path: Path, run: int, actions: Sequence[AddAction | RemoveAction]) -> None:
    """Open the table and commit with an application transaction, as each run does."""
    said = CommitProperties(app_transactions=[Transaction("quorate", run)])
    schema = deltalake.Schema.from_arrow(SCHEMA)
    DeltaTable(str(path)).create_write_transaction(list(actions), "append", schema, commit_properties=said)


class Lake:
    """Nine tables and `progress` in a folder."""

    def __init__(self, home: Path) -> None:
        self.tables = [home / f"table-{place}" for place in range(len(ROWS_OF_A_BATCH))]
        self.progress = home / "progress"
        self.run = 0
        for path in (*self.tables, self.progress):
            create(path)

    def batch(self) -> None:
        """Nine appends, then `progress`."""
        self.run += 1
        sizes = dict(zip((*self.tables, self.progress), (*ROWS_OF_A_BATCH, 1), strict=True))
        for path, count in sizes.items():
            rows = rows_of(count, self.run * max(ROWS_OF_A_BATCH))
            commit(path, self.run, [write_file(path, f"rows-{self.run}.parquet", rows)])


class OpenRows:
    """A table of open rows, in small files sorted by group."""

    def __init__(self, path: Path) -> None:
        self.path, self.run = path, 0
        create(path)
        rows = rows_of(OPEN_ROWS)
        starts = range(0, OPEN_ROWS, OPEN_FILE_ROWS)
        commit(
            path,
            0,
            [write_file(path, f"open-0-{at}.parquet", rows.slice(at, OPEN_FILE_ROWS)) for at in starts],
        )

    def replace(self) -> None:
        """Replace the rows of some neighbouring groups: read the files that hold them, write and commit."""
        self.run += 1
        wanted = [
            f"group-{(self.run * GROUPS_PROCESSED + place) % GROUPS:03}" for place in range(GROUPS_PROCESSED)
        ]
        table = DeltaTable(str(self.path))
        files = table.get_add_actions(flatten=True)
        held = pa.table(files).to_pylist()
        touched = [
            one for one in held if any(one["min.group_id"] <= name <= one["max.group_id"] for name in wanted)
        ]
        actions: list[AddAction | RemoveAction] = []
        for place, one in enumerate(touched):
            rows = pq.read_table(self.path / one["path"], schema=SCHEMA)
            actions.append(write_file(self.path, f"open-{self.run}-{place}.parquet", rows))
            now_ms = round(time.time() * 1000)
            actions.append(RemoveAction(one["path"], True, now_ms, size=one["size_bytes"]))
        commit(self.path, self.run, actions)


def median_ms(work: Callable[[], object], times: int) -> float:
    """Milliseconds that one call takes: the median, after one call that does not count."""
    taken = []
    for _ in range(times + 1):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken[1:])


def many_files(home: Path, times: int) -> tuple[float, float]:
    """Milliseconds of writing the files, once, and of committing them."""
    written = home / "written"
    written.mkdir()
    began = time.perf_counter()
    actions = [
        write_file(written, f"rows-{place}.parquet", rows_of(FILE_ROWS, place * FILE_ROWS))
        for place in range(FILES)
    ]
    wrote_ms = (time.perf_counter() - began) * 1000
    tables = [home / f"many-{place}" for place in range(times + 1)]
    for table in tables:
        create(table)
        for action in actions:
            (table / action.path).hardlink_to(written / action.path)
    left = iter(tables)
    return wrote_ms, median_ms(lambda: commit(next(left), 1, actions), times)


def read(path: Path, version: int) -> int:
    """Read a table at a version; return its number of rows."""
    return len(DeltaTable(str(path), version=version).to_pyarrow_dataset().to_table())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--batches", type=int, default=300, help="batches before those that meet a long log")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        lake, open_rows = Lake(home), OpenRows(home / "open")

        def say(what: str, ms: float) -> None:
            report(what, f"{ms:,.0f} ms")

        say(
            f"batch: {sum(ROWS_OF_A_BATCH):,} rows in 9 tables, progress", median_ms(lake.batch, chosen.times)
        )
        say(
            f"replace: {GROUPS_PROCESSED} groups of {OPEN_ROWS:,} open rows",
            median_ms(open_rows.replace, chosen.times),
        )
        wrote_ms, committed_ms = many_files(home, chosen.times)
        say(f"many files: {FILES} files of {FILE_ROWS:,} rows written, once", wrote_ms)
        say("many files: committed", committed_ms)
        say("older version: the first batch", median_ms(lambda: read(lake.tables[0], 1), chosen.times))
        for _ in range(chosen.batches):
            lake.batch()
        say(f"batch again: after {lake.run:,} batches", median_ms(lake.batch, chosen.times))
        again = median_ms(lambda: read(lake.tables[0], 1), chosen.times)
        say(f"older version again: after {lake.run:,} batches", again)
        report("memory", f"{peak_mib():,.0f} MiB")


if __name__ == "__main__":
    main()
