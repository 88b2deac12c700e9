"""Facts as a Spark plan: the same rows as group by group, for records in any order and partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import functions as F

from pipeline.facts.batches import FACT_TABLES, STORED_ORIGINS, derive_batches
from pipeline.facts.derive import derive
from pipeline.facts.group import STATE
from pipeline.facts.shared import ShardShared, Shared
from pipeline.runs.derived import Derived, spark_of
from pipeline.schema import TABLES
from tests.pipeline.world_logs import node_of, world_log
from tests.support.lineage_logs import SHARD, node, push_story, rewrite_story

from . import factruns
from .factruns import CLUSTER, Rows, Runs, ShardLog, exported, in_order
from .rows import records_frame, row, rows_of_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def told_by(derived: DataFrame, kinds: str) -> Rows:
    """Return the rows of the tables, of the kinds that match."""
    found: Rows = {table: [] for table in FACT_TABLES}
    for one in derived.where(F.col("kind").rlike(kinds)).collect():
        table = one["kind"].rpartition(":")[2]
        found[table].append(tuple(one[table][name] for name in TABLES[table].names))
    return found


def test_two_runs_of_spark_have_the_rows_of_an_export(spark: SparkSession, tmp_path: Path) -> None:
    log = node_of(world_log(0), lost=range(1, 31), snapshot=40)
    shard = ShardLog.of(log, 0)
    middle = shard.end // 2

    def run(stored: DataFrame | None, begin: int, end: int, *, is_first: bool) -> DataFrame:
        frames = [one for one in shard.frames if begin < one.index <= end]
        records = records_frame(spark, (one for frame in frames for one in rows_of_frame(frame, 0, CLUSTER)))
        (bridge, raws), bridges = shard.bridges[0], None
        if is_first:
            place = {"cluster_id": CLUSTER, "shard": 0, "raft_index": bridge.index, "timestamp_ms": bridge.ms}
            bridged = (row(raw, sequence=number, term=1, **place) for number, raw in enumerate(raws))
            bridges = records_frame(spark, bridged)
        shared = Shared(cluster_id=CLUSTER, shards={0: shard.shared(begin, end)}, names=log.catalog().names)
        path = str(tmp_path / f"derived-{begin}")
        derive(records, stored, shared, bridges).write.parquet(path)
        return spark.read.parquet(path)

    first = run(None, 0, middle, is_first=True)
    stored = first.where(F.col("kind").isin(list(STORED_ORIGINS)))
    second = run(stored, middle, shard.end, is_first=False)
    assert second.where(F.col("kind") == STATE).count() == 2
    concluded, rest = told_by(first, "^rows:"), told_by(second, "^(rows:|open:|findings$)")
    assert in_order({table: concluded[table] + rest[table] for table in FACT_TABLES}) == exported(log)
    nothing = ShardShared(from_index=shard.end + 1, to_index=shard.end, to_ms=shard.ms(shard.end))
    shared = Shared(cluster_id=CLUSTER, shards={0: nothing})
    assert derive(records_frame(spark, []), second.where(F.col("kind") == STATE), shared).count() == 0


def test_groups_of_older_protocols_have_the_rows_of_an_export(spark: SparkSession) -> None:
    for tape in (push_story(), rewrite_story()):
        log = node(tape)
        shard = ShardLog.of(log, SHARD)
        rows = (one for frame in shard.frames for one in rows_of_frame(frame, SHARD, CLUSTER))
        catalog = log.catalog()
        shared = Shared(
            cluster_id=CLUSTER,
            shards={SHARD: shard.shared(0, shard.end)},
            names=catalog.names,
            shapes=catalog.shapes,
        )
        derived = derive(records_frame(spark, rows), None, shared)
        assert in_order(told_by(derived, "^(rows:|open:|findings$)")) == exported(log)


def test_what_is_derived_here_is_the_same_as_a_frame(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes these rows if the table's other rows are not few."""
    batches: list[pa.RecordBatch] = []

    def kept(shared: Shared, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batches.extend(derive_batches(shared, rows))
        return iter(batches)

    monkeypatch.setattr(factruns, "derive_batches", kept)
    Runs(node_of(world_log(0))).run()
    made = Derived.here(spark, batches)
    for kind in ("open:group_epochs", "open:ownership", STATE, "rows:waits"):
        frame = made.frame(kind)
        assert frame.schema == spark_of(kind)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        assert sorted(rows, key=repr) == sorted(made.table(kind).to_pylist(), key=repr)
        assert len(rows) == made.count(kind)
    assert made.count("open:ownership") > 1
    assert {row["group_id"] for row in made.groups_frame().collect()} == {"g", "h"}
