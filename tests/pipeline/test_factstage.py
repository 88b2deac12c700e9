"""Facts in the tables of an output: the rows of an export, run after run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import SparkSession

from benchmarks.mixedlog import write_life
from pipeline.runs import factinputs, factstage
from pipeline.runs.factstage import OF_GROUPS
from pipeline.runs.run import advance
from pipeline.source.inputs import InputLog, open_input
from pipeline.tables import Output
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import OF_FACTS, exported, held


def assert_same(output: Path, log: Path | str) -> None:
    """Compare the tables with the export, which has no findings of the log itself."""
    wanted = exported(log, *OF_FACTS)
    for table in OF_FACTS:
        part = OF_GROUPS if table == "findings" else None
        assert held(output, table, part=part)[table] == wanted[table], table


def open_output(path: Path, log: InputLog) -> Output:
    return Output.open(str(path), cluster_id=log.cluster_id, num_shards=log.num_shards)


@pytest.mark.spark
def test_runs_over_a_recorded_cluster_have_the_rows_of_an_export(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs give all rows, a third nothing new; another release starts over from the records."""
    log, path = open_input(str(INCIDENT)), tmp_path / "tables"
    ends = {shard: there.decided_index for shard, there in log.shards.items()}
    with open_output(path, log) as output:
        advance(spark, output, log, ranges={shard: (1, end // 2) for shard, end in ends.items()})
        advance(spark, output, log)
        assert {shard: one.facts_to for shard, one in output.manifest.progress.items()} == ends
        assert_same(path, INCIDENT)
        assert not factstage.is_due(output, log)
        with monkeypatch.context() as noted:
            noted.setattr(factstage, "notes_of", lambda _: {(0, "billing"): ("{}",)})
            assert factstage.is_due(output, log)
        for module in (factinputs, factstage):
            monkeypatch.setattr(module, "STATE_VERSION", "0.9")
        assert factstage.is_due(output, log)
        done = advance(spark, output, log)
        assert not done.is_empty
        assert not factstage.is_due(output, log)
        assert advance(spark, output, log).is_empty
    assert_same(path, INCIDENT)


@pytest.mark.spark
def test_a_snapshot_stands_in_for_what_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    log_path, path = str(tmp_path / "node"), tmp_path / "tables"
    write_life(log_path, 3_000, shards=1, days=1, seed=3, segment_bytes=60_000, snapshot_records=1_000)
    log = open_input(log_path)
    segment = log.shards[0].segments[1]
    damaged = Path(segment.path_live if Path(segment.path_live).exists() else segment.path_archived)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with open_output(path, log) as output:
        advance(spark, output, open_input(log_path), mode="permissive")
        assert output.manifest.of(factinputs.BRIDGES)
    assert_same(path, log_path)
