"""Progress of commits by partition: counted by hand, and compared with a walk through the log."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from coordinator.state.projection import Projection
from history.reading.node import NodeLog
from history.reading.source import Walk
from history.state.replay import ShardReplay
from quorate.spark.analyses.commits import lagging_commits
from records import Cause, Record, Trigger
from tests.support.memory_log import GROUP, Writer, commit

from .logs import check_columns, table, told
from .rows import table_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.thorough

Row = dict[str, Any]


def frame_of(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return table_frame(spark, "commits", rows)


def test_lag_speed_and_steps_back_of_commits(spark: SparkSession) -> None:
    history = {  # (ms, offset) by partition; null is a removal
        0: [(1_000, 10), (2_000, 20), (5_000, 15), (9_000, 90)],
        1: [(1_000, 50), (2_000, None), (3_000, 5), (4_000, 4)],
        2: [(1_000, 7)],
        3: [(1_000, 7), (2_000, None)],
    }
    rows = []
    for partition, commits in history.items():
        for index, (at_ms, offset) in enumerate(commits, 1):
            row: Row = {}
            place = {"shard": 0, "topic": "orders", "partition": partition, "raft_index": index}
            rows.append(
                {**row, **place, "cluster_id": "c", "group_id": "g", "timestamp_ms": at_ms, "offset": offset}
            )
    ends = spark.createDataFrame(
        [("orders", 0, 100), ("orders", 1, 4)], "topic string, partition int, end_offset long"
    )
    frame = frame_of(spark, rows)
    lagging = lagging_commits(frame, ends)
    check_columns(lagging, "lagging_commits")
    found = {row["partition"]: row for row in told(lagging)}
    names = ("commits", "last_offset", "regressions", "largest_regression", "lag")
    assert {number: tuple(row[name] for name in names) for number, row in found.items()} == {
        0: (4, 90, 1, 5, 10),
        1: (3, 4, 1, 1, 0),
        2: (1, 7, 0, None, None),
        3: (1, None, 0, None, None),
    }
    assert found[0]["commits_per_s"] == pytest.approx(3 / 8)
    assert found[0]["offsets_per_s"] == pytest.approx(10)
    assert found[2]["commits_per_s"] is None
    assert all(row["lag"] is None for row in told(lagging_commits(frame)))


def test_of_one_entry_the_later_record_counts(spark: SparkSession) -> None:
    """A request may name a partition twice: the committed offset is the one that a replay ends with."""
    chance, log = random.Random(5), Writer()
    for _ in range(40):
        entry = [
            commit(one, chance.randrange(100)) for one in chance.choices(range(4), k=chance.randint(1, 6))
        ]
        entry = [Record(one.key, None) if chance.random() < 0.1 else one for one in entry]
        log.after(100).append(Cause(trigger=Trigger.OFFSETS_COMMITTED), *entry)
    rows = table(NodeLog("ties", {0: log.log}, 1), "commits", "c")
    assert len({(row["partition"], row["raft_index"]) for row in rows}) < len(rows)
    chance.shuffle(rows)
    found = {row["partition"]: row for row in told(lagging_commits(frame_of(spark, rows)))}
    replayed = ShardReplay(0).run(Walk(0, log.log)).projection
    assert isinstance(replayed, Projection)
    committed = {one.partition: one.value.offset for one in replayed.offsets.of_group(GROUP)}
    assert {number: row["last_offset"] for number, row in found.items()} == {
        number: committed.get(number) for number in range(4)
    }
    in_order = sorted(rows, key=lambda row: (row["raft_index"], row["sequence"]))
    for number, row in found.items():
        offsets = [one["offset"] for one in in_order if one["partition"] == number]
        steps = [b - a for a, b in pairwise(offsets) if None not in (a, b)]
        assert row["regressions"] == sum(step < 0 for step in steps)
        assert row["largest_regression"] == -min(steps)
