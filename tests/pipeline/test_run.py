"""Runs of the pipeline: their tables equal the export of plain history, however often a run is cut short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import SparkSession

from quorate.spark.errors import OptionError
from quorate.spark.runs.run import RunResult, advance, open_output, run
from quorate.spark.schema import TABLES
from quorate.spark.source.inputs import open_input
from quorate.spark.tables.reading import read_progress
from raftlog.storage.archive import ARCHIVE
from raftlog.storage.segments import log_name
from tests.pipeline.grown import Story
from tests.pipeline.no_spark import no_session
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import exported, held

BY_SPARK = [pytest.param(name, marks=pytest.mark.spark) for name in ("by Spark", "in turn")]


@contextmanager
def all_by_spark() -> Iterator[None]:
    """Let Spark do the work that this process would do itself, as it does for large logs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("quorate.spark.runs.ingest.LITTLE_ENTRIES", -1)
        patched.setattr("quorate.spark.runs.facts.LITTLE_RECORDS", -1)
        yield


def assert_same(output: Path, log: Path | str, table: str) -> None:
    assert held(output, table)[table] == exported(log, table)[table]


@pytest.fixture(scope="module", params=["here", pytest.param("by Spark", marks=pytest.mark.spark)])
def of_incident(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, RunResult]:
    output = tmp_path_factory.mktemp("incident") / "tables [1] {a,b}* é"  # neither a glob nor a URL
    if request.param == "here":
        return output, run(no_session, str(INCIDENT), str(output))
    with all_by_spark():
        return output, run(request.getfixturevalue("spark"), str(INCIDENT), str(output))


@pytest.mark.parametrize("table", TABLES)
def test_a_recorded_cluster_is_as_history_exports_it(of_incident: tuple[Path, RunResult], table: str) -> None:
    output, done = of_incident
    assert_same(output, INCIDENT, table)
    assert done.rows.get(table, 0) == len(exported(INCIDENT, table)[table])
    assert done.rewritten.get(table, 0) == 0


def test_a_run_says_what_it_did(of_incident: tuple[Path, RunResult]) -> None:
    output, done = of_incident
    log = open_input(str(INCIDENT))
    assert not done.is_empty
    assert (done.output, done.cluster_id, done.lost) == (str(output), log.cluster_id, ())
    assert [(one.shard, one.from_index, one.to_index, one.to_ms) for one in done.shards] == [
        (shard, 1, there.decided_index, there.last_ms) for shard, there in log.shards.items()
    ]


def test_nothing_new_is_said_without_spark_and_changes_nothing(of_incident: tuple[Path, RunResult]) -> None:
    output, _ = of_incident
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    assert run(no_session, str(INCIDENT), str(output)).is_empty
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module", params=["here", *BY_SPARK])
def in_parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A log that grew between four runs, of which the third took in only part of the new entries."""
    folder = tmp_path_factory.mktemp("grown")
    path, output = str(folder / "node-1"), folder / "tables"
    spark = no_session if request.param == "here" else request.getfixturevalue("spark")
    story = Story(path)
    story.chapter()
    with all_by_spark() if request.param == "by Spark" else _here():
        run(spark, path, str(output))
    story.restart()
    story.chapter()
    there = open_input(path)
    with all_by_spark() if request.param != "here" else _here(), open_output(str(output), there) as opened:
        advance(spark, opened, there, ranges={0: (1, there.shards[0].decided_index - 17)})
        assert advance(no_session, opened, there, ranges={0: (1, 5), 1: (1, 1)}).is_empty
    story.chapter()
    archived = [
        one
        for one in open_input(path).shards[0].segments
        if Path(one.home, ARCHIVE, log_name(one.first_index)).exists()
    ]
    assert archived, "no segment was sealed and archived between runs"
    with all_by_spark() if request.param == "by Spark" else _here():
        done = run(spark, path, str(output))
    assert {one.shard: one.from_index for one in done.shards}[0] == there.shards[0].decided_index - 16
    return output, path


@contextmanager
def _here() -> Iterator[None]:
    yield


@pytest.mark.parametrize("table", TABLES)
def test_several_runs_are_one(in_parts: tuple[Path, str], table: str) -> None:
    output, path = in_parts
    assert_same(output, path, table)


def test_progress_says_how_far_the_log_is_read(in_parts: tuple[Path, str]) -> None:
    output, path = in_parts
    there = open_input(path).shards
    progress = read_progress(str(output))
    assert progress.run == 3
    assert {shard: (one.records_to, one.facts_to, one.last_ms) for shard, one in progress.shards.items()} == {
        shard: (one.decided_index, one.decided_index, one.last_ms) for shard, one in there.items()
    }


def test_an_older_copy_adds_nothing_and_is_told(in_parts: tuple[Path, str], tmp_path: Path) -> None:
    output, _path = in_parts
    older = Story(str(tmp_path / "node-1"))
    older.chapter()
    done = run(no_session, older.path, str(output))
    assert done.is_empty
    assert any("older copy" in remark for remark in done.remarks)


def test_the_starter_of_spark_learns_how_much_there_is_to_read(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    told = []

    def start(size: int) -> SparkSession:
        told.append(size)
        raise Enough

    with pytest.raises(Enough), all_by_spark():
        run(start, str(INCIDENT), str(tmp_path / "out"))
    shards = open_input(str(INCIDENT)).shards.values()
    assert told == [sum(segment.size for shard in shards for segment in shard.segments)]


def test_a_mode_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give fail or permissive"):
        run(no_session, str(INCIDENT), str(tmp_path / "out"), mode="lenient")
    assert not list(tmp_path.iterdir())
