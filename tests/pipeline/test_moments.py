"""Moments are TIMESTAMPs: no time zone changes them, and the bigints of release 0.1 can be had back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import numpy as np

import quorate.spark
from quorate.spark import in_milliseconds, owner_at, register
from quorate.spark.errors import OptionError
from quorate.spark.schema import MS_MAX, MS_MIN, micros, times

from .rows import ms_of, table_frame
from .source_rows import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(params=["UTC", "Pacific/Chatham", "America/St_Johns"])
def zone(spark: SparkSession, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """A time zone of the session and of this process."""
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", request.param)
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_no_time_zone_changes_a_moment(spark: SparkSession, mixed_log: str) -> None:
    register(spark)
    read = spark.read.format("quorate").option("columns", "shard,raft_index,timestamp").load(mixed_log)
    expected = {(row["shard"], row["raft_index"], ms_of(row["timestamp"])) for row in rows_of(mixed_log)}
    assert {tuple(row) for row in in_milliseconds(read).collect()} == expected
    frame = read.toPandas()
    assert {ms_of(one.to_pydatetime()) for one in frame["timestamp"]} == {ms for _, _, ms in expected}
    assert {row.timestamp.timestamp() * 1000 for row in read.select("timestamp").collect()} == {
        ms for _, _, ms in expected
    }


def test_moments_outside_the_years_of_sql_become_the_nearest() -> None:
    given = [-(1 << 63), MS_MIN, -1, 0, 1_700_000_000_123, MS_MAX, (1 << 63) - 1]
    shown = [MS_MIN, MS_MIN, -1, 0, 1_700_000_000_123, MS_MAX, MS_MAX]
    assert [micros(ms) for ms in given] == [ms * 1000 for ms in shown]
    assert times(np.array(given, np.int64)).cast("int64").to_pylist() == [ms * 1000 for ms in shown]
    assert [one.year for one in times(np.array([given[0], given[-1]])).to_pylist()] == [1, 9999]


@pytest.fixture
def ownership(spark: SparkSession) -> DataFrame:
    """Ann owns partition 0 for months, then nobody, then ben; the clock went back as ben got partition 1."""
    known = {"cluster_id": "c", "shard": 0, "group_id": "g", "topic": "t", "topic_id": "T", "epoch": 1}
    spans = [
        (0, "owned", "ann", 1, 1_000, 9_000_000_000),
        (0, "unowned", None, 2, 9_000_000_000, 9_000_000_100),
        (0, "owned", "ben", 3, 9_000_000_100, None),
        (1, "owned", "ann", 1, 1_000, 5_000),
        (1, "owned", "ben", 2, 4_000, None),
    ]
    names = ("partition", "kind", "member_id", "from_index", "from_ms", "to_ms")
    return table_frame(spark, "ownership", [{**known, **dict(zip(names, one, strict=True))} for one in spans])


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("at", "owners"),
    [
        (None, {0: "ben", 1: "ben"}),
        (999, {}),
        (1_000, {0: "ann", 1: "ann"}),
        ("1970-01-01T00:00:04.500", {0: "ann", 1: "ben"}),
        ("1970-04-01T00:00:00+02:00", {0: "ann", 1: "ben"}),
        (9_000_000_000, {0: None, 1: "ben"}),
        (9_000_000_100, {0: "ben", 1: "ben"}),
    ],
)
def test_the_owner_at_a_moment(
    ownership: DataFrame, at: int | str | None, owners: dict[int, str | None]
) -> None:
    found = owner_at(ownership, at).collect()
    assert {row.partition: row.member_id for row in found} == owners
    assert len(found) == len(owners)


def test_what_is_not_a_moment_is_refused(ownership: DataFrame) -> None:
    with pytest.raises(OptionError, match="yesterday"):
        owner_at(ownership, "yesterday")


def test_columns_of_other_names_and_types_stay(spark: SparkSession) -> None:
    query = (
        "SELECT timestamp_millis(5) AS timestamp, timestamp_millis(6) AS to_time, timestamp_millis(7) AS t"
    )
    frame = in_milliseconds(spark.sql(query + ", 'x' AS up_time"))
    assert frame.columns == ["timestamp_ms", "to_ms", "t", "up_time"]
    assert [*frame.collect()[0]][:2] == [5, 6]


def test_each_public_name_is_there() -> None:
    assert all(getattr(quorate.spark, name).__name__ == name for name in quorate.spark.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = quorate.spark.nothing
