"""Transactional offsets by Spark against those that plain `history` finds in the same log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from history.facts.transactions import TransactionOutcome, transactions_of
from quorate.spark.analyses.transactions import transactional_offsets
from tests.support.recorded_transactions import RecordedShards, begun
from tests.support.transactions import GROUP, OTHER_GROUP, Producer
from wire.errors import ErrorCode

from .logs import check_columns, interpreted, told
from .rows import records_frame, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS = {TransactionOutcome.COMMITTED: "committed", TransactionOutcome.ABORTED: "dropped"}


def recorded() -> RecordedShards:
    """A commit, an abort, a producer that another one fences, and one that is open at the end."""
    shards = RecordedShards()
    shards.join()
    for is_commit in (True, False):
        producer = begun(shards, "pay", {0: 5, 1: 6})
        shards.sleep(200)
        assert producer.end(commits=is_commit) == ErrorCode.NONE
        shards.settle()
    begun(shards, "pay", {2: 7})
    assert Producer(shards, "pay").init() == ErrorCode.CONCURRENT_TRANSACTIONS
    shards.settle()
    shards.commit(OTHER_GROUP, {0: 9})
    begun(shards, "late", {0: 8})
    return shards


def test_offsets_in_transactions_are_those_of_plain_history(spark: SparkSession) -> None:
    shards = recorded()
    log = shards.node()
    with interpreted(spark):
        frame = transactional_offsets(records_frame(spark, list(rows_of(log, "c"))))
        check_columns(frame, "transactional_offsets")
        found = told(frame)
    expected = [
        (one.producer_id, part.partition, one.from_index, one.to_index, ENDS.get(one.outcome, "open"))
        for one in transactions_of(log, GROUP, shards.log_of(GROUP).number, None, None)
        for part in one.partitions
    ]
    names = ("producer_id", "partition", "from_index", "to_index", "end")
    rows = [tuple(row[name] for name in names) for row in found]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    assert {row["end"] for row in found} == {"committed", "dropped", "open"}
    assert {row["duration_ms"] for row in found if row["partition"] == 1} == {200}
