"""`owner_at` at random moments against the state that plain history replays up to the same moment."""

from __future__ import annotations

import random
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from quorate.spark import owner_at

from .logs import all_logs, interpreted, table
from .replayed_state import replayed
from .rows import table_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from history.reading.node import NodeLog

pytestmark = pytest.mark.thorough

LOGS = ("world-0", "world-3", "incident", "mixed")
MOMENTS = 4
"""Random moments of each log, besides its end."""
SEED = 19
Owner = tuple[str, int, str, str, int, str]
"""Log, moment, group, topic id, partition and member."""


def test_the_owners_at_random_moments_are_those_of_a_replay(spark: SparkSession, tmp_path: Path) -> None:
    logs = {name: log for name, log in all_logs(tmp_path).items() if name in LOGS}
    rows = [row for name, log in logs.items() for row in table(log, "ownership", name)]
    ownership = table_frame(spark, "ownership", rows)
    chance = random.Random(SEED)
    asked, expected = [], set()
    for name, log in logs.items():
        times = {frame.index: frame.timestamp_ms for frame in log.reader(0).frames()}
        ends = sorted(times.values())
        for at in (ends[-1], *(chance.randint(ends[0], ends[-1]) for _ in range(MOMENTS))):
            last = max(index for index, ms in times.items() if ms <= at)
            expected |= set(owners(log, name, at, last))
            owners_then = owner_at(ownership.where(f.col("cluster_id") == name), at)
            asked.append(owners_then.withColumn("at", f.lit(at)))
    with interpreted(spark):
        found = reduce(DataFrame.union, asked).where("member_id IS NOT NULL").collect()
    told = [
        (row.cluster_id, row["at"], row.group_id, row.topic_id, row.partition, row.member_id) for row in found
    ]
    assert set(told) == expected
    assert len(told) == len(expected)
    assert {name for name, *_ in told} == set(LOGS)


def owners(log: NodeLog, name: str, at: int, index: int) -> list[Owner]:
    """Return who had which partition after an entry, also those that were told to give it up."""
    return [
        (name, at, row["group_id"], topic_id, partition, row["member_id"])
        for row in replayed(log, 0, index)
        if row["kind"] == "member"
        for topic_id, partitions in {*row["assigned"], *row["pending"]}
        for partition in partitions
    ]
