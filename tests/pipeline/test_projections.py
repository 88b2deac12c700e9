"""Commits and failovers out of rows of `records`, as `quorate log export` has them."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs quorate[spark]")

from pyspark.sql import DataFrame, SparkSession

from pipeline.runs.projections import commits, failovers
from pipeline.schema import RECORD_COLUMNS, TABLES, columns_named, spark_type
from records import Record, RecordType, TermStartKey, TermStartValue, TermWhy, encode_record

NAMES = [column.name for column in RECORD_COLUMNS]
PLACES = spark_type(columns_named(RECORD_COLUMNS, ["shard", "raft_index", "timestamp_ms"]))


def rows(spark: SparkSession, *given: dict[str, Any]) -> DataFrame:
    """Rows of `records`: what is not given is null."""
    plain = {"cluster_id": "c", "shard": 0, "sequence": 0}
    values = [tuple({**plain, **one}.get(name) for name in NAMES) for one in given]
    return spark.createDataFrame(values, spark_type(RECORD_COLUMNS))


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
    made = commits(
        rows(
            spark,
            commit(1, offset=7, leader_epoch=-1, metadata="", cause_member_id="", cause_member_epoch=-1),
            commit(2, offset=8, leader_epoch=3, metadata="m", cause_member_id="ann", cause_member_epoch=4),
            commit(3, is_tombstone=True, cause_member_id="ann", cause_member_epoch=4),
            commit(4, shard=-1, offset=9),
            {"raft_index": 5, "type": int(RecordType.CONSUMER_GROUP_METADATA), "group_id": "g", "offset": 1},
        )
    )
    assert made.columns == TABLES["commits"].names
    found = [tuple(row)[5:] for row in sorted(made.collect(), key=lambda row: row.raft_index)]
    assert found == [
        (1, 1_001, 7, None, None, None, None),
        (2, 1_002, 8, 3, "m", "ann", 4),
        (3, 1_003, None, None, None, "ann", 4),
    ]


def test_a_terms_gap_is_since_the_entry_before_it_wherever_that_is(spark: SparkSession) -> None:
    records = rows(
        spark,
        term(1, 1_000, 1),
        commit(2, timestamp_ms=1_100),
        {**commit(2, timestamp_ms=1_100), "sequence": 1},
        term(3, 1_600, 2, before=2, why=TermWhy.EXPIRY),
        {**term(2, 1_150, 1), "shard": 1},
        {**term(9, 9_000, 5, before=1, why=TermWhy.TRANSFER), "shard": 2},
        {**term(9, 9_000, 5), "shard": 3},
    )
    known = spark.createDataFrame([(2, 8, 8_900), (3, 7, 8_900)], PLACES)
    made = failovers(records, known)
    assert made.columns == TABLES["failovers"].names
    found = {(row.shard, row.raft_index): row for row in made.collect()}
    assert {at: row.gap_ms for at, row in found.items()} == {
        (0, 1): None,
        (0, 3): 500,
        (1, 2): None,
        (2, 9): 100,
        (3, 9): None,
    }
    took_over = found[0, 3]
    assert (took_over.term, took_over.node_id, took_over.previous_leader) == (2, 3, 2)
    assert (took_over.why, took_over.is_takeover) == ("EXPIRY", True)
    assert (found[0, 1].previous_leader, found[0, 1].why, found[0, 1].is_takeover) == (None, "START", False)


def test_a_term_of_a_newer_release_is_passed_over(spark: SparkSession) -> None:
    newer = {**term(1, 1_000, 1), "version": 99}
    known = spark.createDataFrame([], PLACES)
    made = failovers(rows(spark, newer, term(2, 2_000, 2)), known)
    assert [row.raft_index for row in made.collect()] == [2]
