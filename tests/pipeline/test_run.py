"""Runs of the pipeline: their tables are what plain history exports, however often a run is cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs quorate[spark]")

from pyspark.sql import SparkSession

from pipeline.runs.run import RunResult, run
from pipeline.source.inputs import open_input
from tests.pipeline.conftest import INCIDENT
from tests.pipeline.truth import exported, held

WITHOUT_FACTS = ("records", "commits", "failovers")


def no_session() -> SparkSession:
    raise AssertionError("there is nothing to start Spark for")


def assert_same(output: Path, log: Path | str, *tables: str) -> None:
    """A table at a time, so that a difference is readable."""
    wanted, found = exported(log, *tables), held(output, *tables)
    for table, rows in wanted.items():
        assert found[table] == rows, table


@pytest.fixture(scope="module")
def of_incident(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    output = tmp_path_factory.mktemp("incident") / "tables"
    return output, run(spark, str(INCIDENT), str(output))


@pytest.mark.parametrize("table", WITHOUT_FACTS)
def test_a_recorded_cluster_is_as_history_exports_it(of_incident: tuple[Path, RunResult], table: str) -> None:
    output, done = of_incident
    assert_same(output, INCIDENT, table)
    assert done.rows[table] == len(exported(INCIDENT, table)[table])


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
    done = run(no_session, str(INCIDENT), str(output))
    assert done.is_empty
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet")} == before
