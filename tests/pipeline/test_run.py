"""Runs of the pipeline: their tables equal the export of plain history, however often a run is cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import SparkSession

from pipeline.errors import OptionError
from pipeline.runs.run import RunResult, advance, run
from pipeline.runs.step import Lost, RunStep
from pipeline.schema import TABLES
from pipeline.source.inputs import open_input
from pipeline.tables.output import Output
from pipeline.tables.reading import read_manifest
from pipeline.tables.transaction import Transaction
from tests.pipeline.grown import Story
from tests.pipeline.no_spark import no_session
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import exported, held


def assert_same(output: Path, log: Path | str, table: str) -> None:
    assert held(output, table)[table] == exported(log, table)[table]


@pytest.fixture(scope="module")
def of_incident(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    output = tmp_path_factory.mktemp("incident") / "tables [1] {a,b}*"  # must not be a glob for Spark
    return output, run(spark, str(INCIDENT), str(output))


@pytest.mark.parametrize("table", TABLES)
def test_a_recorded_cluster_is_as_history_exports_it(of_incident: tuple[Path, RunResult], table: str) -> None:
    output, done = of_incident
    assert_same(output, INCIDENT, table)
    assert done.rows.get(table, 0) == len(exported(INCIDENT, table)[table])


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
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet")}
    assert run(no_session, str(INCIDENT), str(output)).is_empty
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet")} == before


def test_what_is_still_lost_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment is still incomplete: the run checks it again, and commits nothing."""
    log = open_input(str(INCIDENT))
    torn = Lost(shard=0, first_index=1, last_index=9, what="torn", is_damage=True, from_ms=0, to_ms=None)

    def found_nothing(spark: Any, output: Output, tx: Transaction, *_: object, **__: object) -> RunStep:
        tx.rows.update({("records", "rows"): 0, ("commits", "rows"): 0})
        return RunStep(spark=spark, output=output, tx=tx, log=log, ranges={}, lost=(torn,))

    monkeypatch.setattr("pipeline.runs.run.ingest", found_nothing)
    monkeypatch.setattr("pipeline.runs.run.register", lambda _: None)
    with Output.open(tmp_path / "tables", cluster_id=log.cluster_id) as output:
        done = advance(cast(SparkSession, object()), output, log, mode="permissive")
        assert (done.is_empty, done.lost) == (True, ("torn",))
        assert output.manifest.version == 0


@pytest.fixture(scope="module")
def in_parts(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A log that grew between four runs, of which the third took in only part of the new entries."""
    folder = tmp_path_factory.mktemp("grown")
    path, output = str(folder / "node-1"), folder / "tables"
    story = Story(path)
    story.chapter()
    run(spark, path, str(output))
    story.restart()
    story.chapter()
    there = open_input(path)
    with Output.open(output, cluster_id=there.cluster_id, num_shards=there.num_shards) as opened:
        advance(spark, opened, there, ranges={0: (1, there.shards[0].decided_index - 17)})
        assert advance(no_session, opened, there, ranges={0: (1, 5), 1: (1, 1)}).is_empty
    story.chapter()
    archived = [one for one in open_input(path).shards[0].segments if Path(one.path_archived).exists()]
    assert archived, "no segment was sealed and archived between runs"
    done = run(spark, path, str(output))
    assert {one.shard: one.from_index for one in done.shards}[0] == there.shards[0].decided_index - 16
    return output, path


@pytest.mark.parametrize("table", TABLES)
def test_several_runs_are_one(in_parts: tuple[Path, str], table: str) -> None:
    output, path = in_parts
    assert_same(output, path, table)


def test_the_manifest_says_how_far_the_log_is_read(in_parts: tuple[Path, str]) -> None:
    output, path = in_parts
    there = open_input(path).shards
    progress = read_manifest(output).progress
    assert {shard: (one.records_to, one.facts_to, one.last_ms) for shard, one in progress.items()} == {
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

    with pytest.raises(Enough):
        run(start, str(INCIDENT), str(tmp_path / "out"))
    shards = open_input(str(INCIDENT)).shards.values()
    assert told == [sum(segment.size for shard in shards for segment in shard.segments)]


def test_a_mode_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give fail or permissive"):
        run(no_session, str(INCIDENT), str(tmp_path / "out"), mode="lenient")
    assert not list(tmp_path.iterdir())
