"""Spark, DuckDB and pandas read the tables while a stream writes them: every read is one whole run."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")
pytest.importorskip("duckdb", reason="needs duckdb")

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from quorate.spark.errors import OutputError
from quorate.spark.runs.run import advance, open_output
from quorate.spark.source.inputs import open_input
from quorate.spark.tables import arrow_table, read_progress, read_table
from quorate.spark.tables.names import schema_of
from quorate.spark.tables.reading import TablesOfRun
from tests.pipeline.grown import Story
from tests.pipeline.no_spark import no_session
from tests.support.table_sets import rows_counted
from tests.support.waiting import wait_for

pytestmark = pytest.mark.spark

TABLES = ("records", "ownership", "member_sessions", "findings")
SAMPLES = 4
"""Runs whose rows are made again from the log alone."""
STEP_S = 0.02
EVERY = "500ms"
READS_MIN = 4
"""Reads of each table by each reader, also on a machine that is slow."""
Ask = Callable[[str, str, int], pa.Table]


@dataclass
class Reads:
    """The sights of the readers: the rows by run and table, as the first of them saw them."""

    seen: dict[tuple[int, str], Counter[tuple[Any, ...]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def note(self, who: str, run: int, table: str, rows: pa.Table) -> None:
        found = rows_counted(rows)
        first = self.seen.setdefault((run, table), found)
        if found != first:
            differ = [*(found - first)][:3], [*(first - found)][:3]
            self.failures.append(f"{who} sees others of {table} as of run {run}: {differ}")
        self.counts[who] += 1


def by_pandas(output: str, table: str, run: int) -> pa.Table:
    frame = arrow_table(output, table, run=run).to_pandas()
    return pa.Table.from_pandas(frame, schema_of(table), preserve_index=False)


def by_duckdb(output: str, table: str, run: int) -> pa.Table:
    """A file list at the named version, which is all that DuckDB needs."""
    files = [f"{output}/{table}/{file.path}" for file in TablesOfRun.at(output, run=run).files(table)]
    if not files:
        return schema_of(table).empty_table()
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        found = database.sql("SELECT * FROM read_parquet($1)", params=[files]).to_arrow_table()
    return found.select(schema_of(table).names).cast(schema_of(table))


@contextmanager
def streaming(log: str, output: str, scratch: Path) -> Iterator[None]:
    """A stream in a process of its own; it must end well."""
    command = [sys.executable, "-m", "quorate", "pipeline", "stream", "--every", EVERY]
    with (scratch / "said").open("w+") as said:
        process = subprocess.Popen([*command, "-i", log, "-o", output], stdout=said, stderr=said)
        try:
            yield
            process.send_signal(signal.SIGTERM)
            code = process.wait(120)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        assert code == 0, said.read()


def grow(story: Story, done: threading.Event) -> None:
    while not done.wait(STEP_S):
        story._step()
        if story.rng.random() < 0.005:
            story.restart()


def has_run(output: str) -> bool:
    try:
        return read_progress(output).run > 0
    except OutputError:
        return False  # its table `progress` does not exist yet


def look(who: str, output: str, ask: Ask, reads: Reads, until: float) -> None:
    """Read all tables as of the last run, again and again; an error of the reader is noted."""
    while time.monotonic() < until or reads.counts[who] < READS_MIN * len(TABLES):
        try:
            run = read_progress(output).run
            for table in TABLES:
                reads.note(who, run, table, ask(output, table, run))
        except Exception as error:
            reads.failures.append(f"{who}: {error!r}")
            return


@pytest.mark.parametrize(
    "seconds",
    [20, pytest.param(600, marks=[pytest.mark.slow, pytest.mark.timeout(1_200)])],
)
def test_readers_beside_a_stream_see_whole_runs(spark: SparkSession, seconds: float, tmp_path: Path) -> None:
    story, output, reads = Story(str(tmp_path / "node")), str(tmp_path / "tables"), Reads()
    story.chapter()
    done = threading.Event()

    def by_spark(output: str, table: str, run: int) -> pa.Table:
        return read_table(spark, output, table, run=run).toArrow().cast(schema_of(table))

    with streaming(story.path, output, tmp_path):
        wait_for(lambda: has_run(output), "a batch")
        early = {table: read_table(spark, output, table) for table in TABLES}
        rows_before = {
            table: rows_counted(frame.toArrow().cast(schema_of(table))) for table, frame in early.items()
        }
        until = time.monotonic() + seconds
        readers: dict[str, Ask] = {"Spark": by_spark, "DuckDB": by_duckdb, "pandas": by_pandas}
        with ExitStack() as stack:
            growing = threading.Thread(target=grow, args=(story, done))
            growing.start()
            stack.callback(growing.join)
            stack.callback(done.set)
            working = [
                threading.Thread(target=look, args=(who, output, ask, reads, until))
                for who, ask in readers.items()
            ]
            for one in working:
                one.start()
            for one in working:
                one.join()
        for table, frame in early.items():  # its files are still there, whatever has replaced them
            assert rows_counted(frame.toArrow().cast(schema_of(table))) == rows_before[table], table
    story.node.stop()
    assert not reads.failures, "\n".join(reads.failures)
    runs = sorted({run for run, _ in reads.seen})
    assert len(runs) >= READS_MIN
    for run in random.Random(0).sample(runs, min(SAMPLES, len(runs))):
        once = str(tmp_path / f"once-{run}")
        made_again(story.path, once, TablesOfRun.at(output, run=run))
        for table in TABLES:
            assert rows_counted(arrow_table(once, table)) == reads.seen[run, table], (run, table)
    print(f"{runs[-1]} runs; {dict(reads.counts)} tables read")


def made_again(path: str, output: str, tables: TablesOfRun) -> None:
    """One run over the entries that the tables of a run have."""
    log = open_input(path)
    ranges = {shard: (1, one.records_to) for shard, one in tables.progress.shards.items()}
    with open_output(output, log) as opened:
        advance(no_session, opened, log, ranges=ranges)
