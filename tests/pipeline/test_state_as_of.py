"""Compaction and the state of groups at many indexes, against compaction and replay of a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from history.reading.node import NodeLog
from history.reading.source import Walk
from quorate.spark.analyses.compaction import compacted
from quorate.spark.analyses.keys import until
from quorate.spark.analyses.state import state_as_of
from quorate.spark.errors import OptionError
from raftlog.storage.frames import Frame
from records import Cause, RawRecord, Stamped, Trigger, iter_records
from records.compaction import compact
from tests.pipeline.replayed_state import in_order, replayed
from tests.support.memory_log import Writer, commit

from .logs import READ, all_logs, check_columns, columns_of, interpreted, read_by_the_source, told
from .randomlogs import UNKNOWN_TYPE, random_log
from .rows import Row, records_frame, rows_of_shard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

LOOKS = 4
"""Number of indexes that are checked in each shard, the last one among them."""


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def logs(scratch: Path) -> dict[str, NodeLog]:
    random = {f"random-{seed}": NodeLog("random", {0: random_log(seed)}, 1) for seed in range(8)}
    return {**all_logs(scratch), **random}


@pytest.fixture(autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield


def looks(log: NodeLog, shard: int, cluster_id: str) -> Iterator[tuple[int, str, list[Row]]]:
    """Yield some indexes of a shard, each with the rows up to it as a cluster of their own."""
    rows = list(rows_of_shard(log.reader(shard), shard, cluster_id))
    last = rows[-1]["raft_index"]
    for number in range(1, LOOKS + 1):
        index = last * number // LOOKS
        name = f"{cluster_id}@{index}"
        yield index, name, [{**row, "cluster_id": name} for row in rows if row["raft_index"] <= index]


def kept_of(log: NodeLog, shard: int) -> list[Stamped]:
    frames = [item for item in Walk(shard, log.reader(shard)) if isinstance(item, Frame)]
    stamped = [
        Stamped(frame.index, frame.timestamp_ms, RawRecord(raw.type, raw.version, bytes(raw.key), raw.value))
        for frame in frames
        for raw in iter_records(frame.body)
    ]
    return compact(stamped, now_ms=frames[-1].timestamp_ms, delete_retention_ms=0)


def test_compaction_keeps_what_a_snapshot_keeps(
    spark: SparkSession, scratch: Path, logs: dict[str, NodeLog]
) -> None:
    rows = [
        row
        for cluster_id, log in logs.items()
        for shard in log.shards
        for row in rows_of_shard(log.reader(shard), shard, cluster_id)
    ]
    frame = compacted(records_frame(spark, rows).unionByName(read_by_the_source(spark, scratch)))
    check_columns(frame, "compacted")
    places = ["cluster_id", "shard", "raft_index", "type", "key_bytes", "value_bytes"]
    expected = [
        (cluster_id, shard, one.index, one.record.type, one.record.key, one.record.value)
        for cluster_id, log in {**logs, **{name + READ: logs[name] for name in ("incident", "mixed")}}.items()
        for shard in log.shards
        for one in kept_of(log, shard)
    ]
    found = [tuple(row) for row in frame.select(*places).collect()]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert {0, 1, UNKNOWN_TYPE} <= {row[3] for row in found}


def test_the_state_is_that_of_a_replay(spark: SparkSession, scratch: Path, logs: dict[str, NodeLog]) -> None:
    rows: list[Row] = []
    expected: list[Row] = []
    for cluster_id, log in logs.items():
        for shard in log.shards:
            if shard >= 0:
                for index, name, until_then in looks(log, shard, cluster_id):
                    rows += until_then
                    expected += [
                        {"cluster_id": name, "shard": shard, **row} for row in replayed(log, shard, index)
                    ]
    for name in ("incident", "mixed"):
        for shard in [shard for shard in logs[name].shards if shard >= 0]:
            last = max(row["raft_index"] for row in rows if row["cluster_id"].startswith(f"{name}@"))
            at_end = {"cluster_id": name + READ, "shard": shard}
            expected += [{**at_end, **row} for row in replayed(logs[name], shard, last)]
    frame = state_as_of(records_frame(spark, rows).unionByName(read_by_the_source(spark, scratch)))
    check_columns(frame, "state_as_of")
    names = list(expected[0])
    found = [in_order(row) for row in told(frame)]
    assert columns_of(found, names) == columns_of(expected, names)
    assert {row["protocol"] for row in found} == {None, "consumer", "classic", "simple"}
    assert {row["state"] for row in found} == {None, "Empty", "Assigning", "Reconciling", "Stable"}


def test_an_index_and_a_moment_end_what_counts(spark: SparkSession) -> None:
    log = Writer()
    for number in range(9):  # each entry has its own offset, every two the same timestamp
        log.after(number % 2).append(Cause(trigger=Trigger.OFFSETS_COMMITTED), commit(number, 5))
    rows = list(rows_of_shard(log.log, 0)) + list(rows_of_shard(log.log, 1))
    frame = records_frame(spark, rows)
    at_ms = log.log.written[4].timestamp_ms
    ways = {
        "index": until(frame, at_index=6),
        "moment": until(frame, at=at_ms),
        "both": until(frame, at_index=3, at=at_ms),
        "by shard": until(frame, at_index={0: 7}),
    }
    together = reduce(DataFrame.unionAll, [one.withColumn("way", f.lit(way)) for way, one in ways.items()])
    newest = together.groupBy("way", "shard").agg(f.max("raft_index").alias("newest")).collect()
    assert {(row["way"], row["shard"]): row["newest"] for row in newest} == {
        ("index", 0): 6,
        ("index", 1): 6,
        ("moment", 0): 5,
        ("moment", 1): 5,
        ("both", 0): 3,
        ("both", 1): 3,
        ("by shard", 0): 7,
    }
    assert state_as_of(frame, at_index=6, at=at_ms).where("kind = 'offset'").count() == 10
    with pytest.raises(OptionError, match="at_index"):
        state_as_of(frame, at_index={})


def test_what_lacks_a_column_is_refused(spark: SparkSession) -> None:
    frame = records_frame(spark, rows_of_shard(random_log(1), 0)).drop("key_bytes", "pending")
    with pytest.raises(OptionError, match="key_bytes"):
        compacted(frame)
    with pytest.raises(OptionError, match="pending"):
        state_as_of(frame)
