"""Transactions with offsets of a group, in `explain`: pending, committed, aborted, and who fenced whom."""

from __future__ import annotations

from typing import Any

import pytest

from history.answers.stats import stats
from history.answers.statstext import stats_text
from history.facts.rows import TopicPartition
from history.facts.transactions import GroupTransaction, TransactionOutcome, transactions_of
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.filters import Filters
from records import METADATA_SHARD
from tests.support.recorded_transactions import RecordedShards, begun
from tests.support.transactions import GROUP, Producer
from wire.errors import ErrorCode


@pytest.fixture
def shards() -> RecordedShards:
    shards = RecordedShards()
    shards.join()
    return shards


def told(shards: RecordedShards, **how: Any) -> list[str]:
    steps = explain(shards.node(), GROUP, style=UTC_STYLE, **how).steps
    return [step.text for step in steps if step.kind == "note" and "transaction" in step.text]


def rows(shards: RecordedShards) -> tuple[GroupTransaction, ...]:
    return transactions_of(shards.node(), GROUP, shards.log_of(GROUP).number, None, None)


def test_what_goes_as_it_should_is_a_row_and_not_told(shards: RecordedShards) -> None:
    for is_commit, offsets in ((True, {0: 5, 1: 6}), (False, {0: 7})):
        producer = begun(shards, "pay", offsets)
        assert producer.end(commits=is_commit) == ErrorCode.NONE
        shards.sleep(100)
    assert [(one.outcome, one.partitions, one.producer_epoch) for one in rows(shards)] == [
        (TransactionOutcome.COMMITTED, tuple(TopicPartition(topic="orders", partition=n) for n in (0, 1)), 0),
        (TransactionOutcome.ABORTED, (TopicPartition(topic="orders", partition=0),), 1),
    ]
    assert told(shards) == []


def test_a_long_transaction_is_told(shards: RecordedShards) -> None:
    producer = begun(shards, "pay", {0: 5})
    shards.sleep(12_000)
    assert producer.end() == ErrorCode.NONE
    shards.settle()
    said = "offsets of orders 0 in the transaction of pay, pending since index 2, count after 12.0 s"
    assert told(shards) == [f"{said}: its producer committed"]
    assert told(shards, filters=Filters(partition="orders-3")) == []


def test_a_producer_that_another_one_fenced_is_told(shards: RecordedShards) -> None:
    begun(shards, "pay", {0: 5})
    assert Producer(shards, "pay").init() == ErrorCode.CONCURRENT_TRANSACTIONS
    shards.settle()
    (said,) = told(shards)
    assert said.endswith(
        "were dropped after 0 ms: a new producer of pay fenced the one at epoch 0, which had not ended it"
    )


def test_a_transaction_that_times_out_is_told(shards: RecordedShards) -> None:
    begun(shards, "pay", {0: 5}, timeout_ms=30_000)
    assert "it had not ended" in told(shards)[0]
    shards.sleep(31_000)
    (said,) = told(shards)
    assert "it was not ended within 30.0 s, and its producer (epoch 0) was fenced" in said


def test_without_the_metadata_shard_the_outcome_is_known_and_the_reason_is_not(
    shards: RecordedShards,
) -> None:
    begun(shards, "pay", {0: 5}, timeout_ms=30_000)
    shards.sleep(31_000)
    log = shards.node()
    readers: Any = log.readers
    del readers[METADATA_SHARD]
    (row,) = transactions_of(log, GROUP, shards.log_of(GROUP).number, None, None)
    assert (row.outcome, row.decision) == (TransactionOutcome.ABORTED, None)


def test_statistics_count_what_became_of_offsets(shards: RecordedShards) -> None:
    for is_commit, offsets in ((True, {0: 5, 1: 6}), (False, {0: 7})):
        assert begun(shards, "pay", offsets).end(commits=is_commit) == ErrorCode.NONE
        shards.settle()
    begun(shards, "late", {2: 1})
    found = stats(shards.node())
    assert found.total.transactional == {"pending": 4, "committed": 2, "dropped": 1}
    assert found.total.commits == 2
    assert "transactions 4 × pending, 2 × committed, 1 × dropped" in "\n".join(stats_text(found))
