"""Commits and failovers out of rows of `records`, as `quorate log export` has them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.runs import local_records, losses, projections
from pipeline.schema import RECORD_COLUMNS, TABLES, arrow_type, spark_type
from records import Record, RecordType, TermStartKey, TermStartValue, TermWhy, encode_record

NAMES = [column.name for column in RECORD_COLUMNS]


def rows(*given: dict[str, Any]) -> pa.Table:
    """Return rows of `records`; missing columns are null."""
    plain = {"cluster_id": "c", "shard": 0, "sequence": 0}
    return pa.Table.from_pylist([{**plain, **one} for one in given], arrow_type(RECORD_COLUMNS))


def failovers(spark: SparkSession, records: pa.Table, places: dict[tuple[int, int], int]) -> pa.Table:
    """Return the failovers, after checking that Spark and plain Python agree."""
    frame = spark.createDataFrame(records, spark_type(RECORD_COLUMNS))
    starts, few = projections.starts(frame), local_records.starts_of(records)
    assert sorted(starts, key=repr) == sorted(few, key=repr)
    before = projections.before(starts)
    times = projections.times(frame, before)
    assert times == local_records.times_of(records, before)
    return projections.failovers(few, {**places, **times})


def term(index: int, ms: int, term: int, *, before: int = -1, why: int = TermWhy.START) -> dict[str, Any]:
    value = TermStartValue(
        term=term, node_id=1 + term % 3, previous_leader=before, why=why, incarnation="i", boot_id="b"
    )
    raw = encode_record(Record(TermStartKey(), value))
    return {
        "raft_index": index,
        "timestamp_ms": ms,
        "term": term,
        "type": int(raw.type),
        "version": raw.version,
        "value_bytes": raw.value,
    }


def commit(index: int, **given: Any) -> dict[str, Any]:
    plain = {"type": int(RecordType.OFFSET_COMMIT), "group_id": "g", "topic": "t", "partition": 0}
    return {"raft_index": index, "timestamp_ms": 1_000 + index, **plain, **given}


def test_a_commit_says_null_where_nothing_is_said(spark: SparkSession) -> None:
    records = rows(
        commit(1, offset=7, leader_epoch=-1, metadata="", cause_member_id="", cause_member_epoch=-1),
        commit(
            2, sequence=2, offset=8, leader_epoch=3, metadata="m", cause_member_id="ann", cause_member_epoch=4
        ),
        commit(3, is_tombstone=True, cause_member_id="ann", cause_member_epoch=4),
        commit(4, shard=-1, offset=9),
        {"raft_index": 5, "type": int(RecordType.CONSUMER_GROUP_METADATA), "group_id": "g", "offset": 1},
    )
    made = projections.commits(spark.createDataFrame(records, spark_type(RECORD_COLUMNS)))
    assert made.columns == TABLES["commits"].names
    found = sorted((tuple(row) for row in made.collect()), key=lambda row: row[5])
    assert found == [tuple(row.values()) for row in local_records.commits_of(records).to_pylist()]
    assert [row[5:] for row in found] == [
        (1, 1_001, 7, None, None, None, None, 0),
        (2, 1_002, 8, 3, "m", "ann", 4, 2),
        (3, 1_003, None, None, None, "ann", 4, 0),
    ]


def test_a_terms_gap_is_since_the_entry_before_it_wherever_that_is(spark: SparkSession) -> None:
    records = rows(
        term(1, 1_000, 1),
        commit(2, timestamp_ms=1_100),
        {**commit(2, timestamp_ms=1_100), "sequence": 1},
        term(3, 1_600, 2, before=2, why=TermWhy.EXPIRY),
        {**term(2, 1_150, 1), "shard": 1},
        {**term(9, 9_000, 5, before=1, why=TermWhy.TRANSFER), "shard": 2},
        {**term(9, 9_000, 5), "shard": 3},
    )
    made = failovers(spark, records, {(2, 8): 8_900, (3, 7): 8_900})
    assert made.column_names == TABLES["failovers"].names
    found = {(row["shard"], row["raft_index"]): row for row in made.to_pylist()}
    assert {at: row["gap_ms"] for at, row in found.items()} == {
        (0, 1): None,
        (0, 3): 500,
        (1, 2): None,
        (2, 9): 100,
        (3, 9): None,
    }
    took_over, first = found[0, 3], found[0, 1]
    assert (took_over["term"], took_over["node_id"], took_over["previous_leader"]) == (2, 3, 2)
    assert (took_over["why"], took_over["is_takeover"]) == ("EXPIRY", True)
    assert (first["previous_leader"], first["why"], first["is_takeover"]) == (None, "START", False)


def test_a_term_of_a_newer_release_is_passed_over(spark: SparkSession) -> None:
    newer = {**term(1, 1_000, 1), "version": 99}
    made = failovers(spark, rows(newer, term(2, 2_000, 2)), {})
    assert made.column("raft_index").to_pylist() == [2]


def test_few_records_reach_as_far_as_any(spark: SparkSession) -> None:
    records = rows(
        commit(3),
        commit(1),
        {**commit(3), "sequence": 1},
        {**commit(9, timestamp_ms=4), "shard": 1},
        commit(2),
    )
    found = local_records.reached_of(records)
    assert found == losses.reached(spark.createDataFrame(records, spark_type(RECORD_COLUMNS)))
    assert found[0] == losses.WrittenEntries(entries=3, first_ms=1_001, last_index=3, last_ms=1_003)
