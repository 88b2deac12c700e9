"""Transactions of offsets, with pure shards: what producers are answered, what becomes of pending offsets,
and what a failure between any two entries may not change (E.4 of the specification, features 47 to 49)."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from random import Random

import pytest

from coordinator.catalog.transactions import EPOCH_LAST
from coordinator.limits import Limits
from coordinator.offsets import commits as commits_module
from coordinator.state.pendingoffsets import PendingOffsets, superseded
from records import PendingOffsetKey, PendingOffsetValue, TransactionState, decode_key
from tests.support.transactions import GROUP, OTHER_GROUP, TOPIC, Died, LedShard, Producer, Shards
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic

NONE = ErrorCode.NONE
UNSTABLE = -ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def shards() -> Shards:
    return Shards()


@pytest.fixture
def producer(shards: Shards) -> Producer:
    producer = Producer(shards)
    assert producer.init() == NONE
    shards.see()
    return producer


def pend(producer: Producer, offsets: dict[int, int], group_id: str = GROUP) -> None:
    assert producer.add_group(group_id) == NONE
    assert producer.commit_offsets(offsets, group_id) == NONE


# Commit and abort.


def test_offsets_count_when_the_transaction_commits(shards: Shards, producer: Producer) -> None:
    shards.commit(GROUP, {0: 5})
    pend(producer, {0: 10, 1: 20})
    assert shards.fetch(GROUP, 0, 1) == {0: 5, 1: -1}
    assert shards.fetch(GROUP, 0, 1, 2, is_stable=True) == {0: UNSTABLE, 1: UNSTABLE, 2: -1}
    assert producer.end() == NONE
    assert shards.state() is TransactionState.PREPARE_COMMIT
    assert shards.fetch(GROUP, 0, is_stable=True) == {0: UNSTABLE}, "decided, but not followed yet"
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT
    assert shards.fetch(GROUP, is_stable=True) == {0: 10, 1: 20}
    shards.check()


def test_an_aborted_transaction_leaves_nothing(shards: Shards, producer: Producer) -> None:
    shards.commit(GROUP, {0: 5})
    pend(producer, {0: 10, 1: 20})
    assert producer.end(commits=False) == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_ABORT
    assert shards.fetch(GROUP, is_stable=True) == {0: 5}
    assert not shards.pending()
    shards.check()


def test_one_transaction_commits_offsets_of_groups_on_several_shards(
    shards: Shards, producer: Producer
) -> None:
    pend(producer, {0: 10})
    pend(producer, {3: 30}, OTHER_GROUP)
    assert producer.end() == NONE
    shards.see()
    first = shards.log_of(GROUP)
    while shards.work(first):
        pass
    shards._tell_metadata()
    assert shards.state() is TransactionState.PREPARE_COMMIT, "the other shard has not followed yet"
    shards.settle()
    assert (shards.fetch(GROUP), shards.fetch(OTHER_GROUP)) == ({0: 10}, {3: 30})
    assert shards.state() is TransactionState.COMPLETE_COMMIT
    shards.check()


def test_a_transaction_of_partitions_alone_completes_at_once(shards: Shards, producer: Producer) -> None:
    assert producer.add(0, 1) == NONE
    assert producer.end() == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT
    assert not any(log.entries for log in shards.groups)


def test_a_group_without_offsets_does_not_keep_a_transaction(shards: Shards, producer: Producer) -> None:
    assert producer.add_group() == NONE
    assert producer.end() == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT


def test_many_offsets_are_resolved_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.offsets.resolving.RECORDS_AT_ONCE", 3)
    monkeypatch.setattr("coordinator.offsets.transactional.PARTITIONS_AT_ONCE", 3)
    for dying in range(1, 4):
        shards = Shards()
        producer = Producer(shards)
        producer.init()
        pend(producer, {number: number + 1 for number in range(8)})
        producer.end()
        log = shards.log_of(GROUP)
        countdown = itertools.count(1)
        shards.dies = lambda one, log=log, c=countdown, d=dying: (  # type: ignore[misc]
            True if one is log and next(c) == d else None
        )
        shards.settle()
        assert shards.fetch(GROUP, is_stable=True) == {number: number + 1 for number in range(8)}
        assert shards.state() is TransactionState.COMPLETE_COMMIT
        shards.check()


def test_offsets_with_long_metadata_are_resolved_in_entries_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once they and what they supersede would be too much for one entry."""
    shards = Shards()
    producers = [Producer(shards, f"t{number}") for number in range(4)]
    for producer in producers:
        producer.init()
        pend(producer, {number: number + 1 for number in range(8)})
    monkeypatch.setattr("coordinator.steps.DECISION_BYTES_MAX", 1_500)
    monkeypatch.setattr("coordinator.offsets.resolving.BYTES_AT_ONCE", 500)
    producers[-1].end()
    shards.settle()
    assert shards.fetch(GROUP) == {number: number + 1 for number in range(8)}
    assert shards.state("t3") is TransactionState.COMPLETE_COMMIT
    shards.check()


def test_what_a_transaction_supersedes_is_marked_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.offsets.resolving.RECORDS_AT_ONCE", 3)
    for dying, kept in itertools.product(range(1, 12), (True, False)):
        shards = Shards()
        producers = [Producer(shards, f"t{number}") for number in range(10)]
        for number, producer in enumerate(producers):
            producer.init()
            pend(producer, {0: number, 1: number})
        producers[-1].end()
        log = shards.log_of(GROUP)
        first, countdown = log.next_index, itertools.count(1)
        shards.dies = lambda one, log=log, c=countdown, d=dying, k=kept: (  # type: ignore[misc]
            k if one is log and next(c) == d else None
        )
        shards.settle()
        assert max(len(raws) for index, raws in log.entries if index >= first) <= 5
        for producer in producers[:-1]:
            producer.until_done(producer.end)
        shards.settle()
        assert shards.fetch(GROUP, is_stable=True) == {0: 9, 1: 9}
        shards.check()


# The newer commit wins.


@pytest.mark.parametrize("commits", [True, False])
def test_a_newer_plain_commit_wins(shards: Shards, producer: Producer, commits: bool) -> None:
    pend(producer, {0: 10, 1: 11})
    assert shards.commit(GROUP, {0: 7}) == NONE
    assert shards.fetch(GROUP, 0, is_stable=True) == {0: UNSTABLE}, "as in Kafka: it is still pending"
    producer.end(commits=commits)
    shards.settle()
    assert shards.fetch(GROUP) == ({0: 7, 1: 11} if commits else {0: 7})
    shards.check()


def test_an_offset_pending_after_the_plain_commit_wins(shards: Shards, producer: Producer) -> None:
    pend(producer, {0: 10})
    shards.commit(GROUP, {0: 7})
    assert producer.commit_offsets({0: 12}) == NONE
    producer.end()
    shards.settle()
    assert shards.fetch(GROUP) == {0: 12}


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_producers_the_later_offset_wins_in_either_order(shards: Shards, first: int) -> None:
    producers = [Producer(shards, "a"), Producer(shards, "b")]
    for number, producer in enumerate(producers):
        producer.init()
        pend(producer, {0: 100 + number})
    for number in (first, 1 - first):
        assert producers[number].end() == NONE
        shards.settle()
        assert shards.fetch(GROUP, 0, is_stable=True)[0] in (UNSTABLE, 101)
    assert shards.fetch(GROUP, is_stable=True) == {0: 101}
    shards.check()


# Very many pending offsets.


def crowd(shards: Shards, number: int, offsets: dict[int, int]) -> list[Producer]:
    """Producers with open transactions that have these offsets pending."""
    producers = [Producer(shards, f"t{place}") for place in range(number)]
    for producer in producers:
        assert producer.init() == NONE
        pend(producer, offsets)
    return producers


def longest_since(shards: Shards, first: int) -> int:
    return max(len(raws) for index, raws in shards.log_of(GROUP).entries if index >= first)


def test_a_plain_commit_supersedes_many_offsets_in_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition and what it supersedes are one entry, so nothing is lost if the leader dies in between."""
    monkeypatch.setattr("coordinator.offsets.commits.PARTITIONS_AT_ONCE", 9)
    for dying in range(1, 4):
        shards = Shards()
        producers = crowd(shards, 4, {number: 100 + number for number in range(3)})
        log = shards.log_of(GROUP)
        first, countdown = log.next_index, itertools.count(1)
        shards.dies = lambda _, c=countdown, d=dying: next(c) == d or None  # type: ignore[misc]
        with pytest.raises(Died):
            shards.commit(GROUP, {0: 7, 1: 8, 2: 9})
        shards.dies = lambda log: None
        assert longest_since(shards, first) == 5
        for producer in producers:
            producer.until_done(producer.end)
        shards.settle()
        plain = {0: 7, 1: 8, 2: 9}
        assert shards.fetch(GROUP, is_stable=True) == {
            number: plain[number] if number < dying else 100 + number for number in range(3)
        }
        shards.check()


def test_a_transaction_that_commits_between_two_entries_of_a_plain_commit_is_older(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.offsets.commits.PARTITIONS_AT_ONCE", 4)
    (producer,) = crowd(shards, 1, {0: 100, 1: 101})
    log = shards.log_of(GROUP)

    def commits(entry_of: LedShard) -> None:
        shards.dies = lambda log: None
        assert producer.end() == NONE
        shards.see()
        while shards.work(entry_of):
            pass
        assert shards.fetch(GROUP) == {0: 7, 1: 101}

    shards.dies = lambda one: commits(one) if one is log else None
    assert shards.commit(GROUP, {0: 7, 1: 8}) == NONE
    assert shards.fetch(GROUP, is_stable=True) == {0: 7, 1: 8}
    shards.check()


def test_topics_without_partitions_are_taken_many_at_once(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision for each of them, which looks at all that are left, would stall the node."""
    monkeypatch.setattr("coordinator.offsets.commits.PARTITIONS_AT_ONCE", 100)
    crowd(shards, 1, {0: 100})
    decisions = itertools.count()
    number_at_once = commits_module._number_at_once
    monkeypatch.setattr(
        commits_module, "_number_at_once", lambda *asked: (next(decisions), number_at_once(*asked))[1]
    )
    empty = [OffsetCommitRequestTopic(name=TOPIC) for _ in range(1_000)]
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=empty)
    answer = shards.ask(shards.log_of(GROUP), ApiKey.OFFSET_COMMIT, 9, request)
    assert len(answer.topics) == 1_000
    assert next(decisions) == 10


def test_another_plain_commit_marks_nothing_again(shards: Shards) -> None:
    crowd(shards, 3, {0: 1})
    shards.commit(GROUP, {0: 7})
    first = shards.log_of(GROUP).next_index
    shards.commit(GROUP, {0: 8})
    assert longest_since(shards, first) == 1
    assert shards.fetch(GROUP, 0, is_stable=True) == {0: UNSTABLE}


def test_many_pending_offsets_are_deleted_in_several_entries() -> None:
    shards = Shards(Limits(removal_bytes_max=10_000))
    offsets = dict.fromkeys(range(8), 1)
    producers = crowd(shards, 20, offsets)
    shards.commit(GROUP, {0: 1})
    first = shards.log_of(GROUP).next_index
    assert shards.delete_offsets(GROUP, *range(7), 8) == {
        **dict.fromkeys(range(7), 0), 8: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip
    assert {key.partition for key, _ in shards.log_of(GROUP).machine.projection.pending.of_group(GROUP)} == {
        7
    }
    assert longest_since(shards, first) <= 21
    assert shards.delete_group(GROUP) == NONE
    assert not shards.pending()
    assert longest_since(shards, first) <= 21
    for producer in producers:
        producer.until_done(producer.end)
    assert shards.fetch(GROUP) == {}
    shards.check()


def test_the_last_offset_of_a_group_may_be_deleted_before_the_last_partition() -> None:
    shards = Shards(Limits(removal_bytes_max=700))
    crowd(shards, 3, {0: 1})
    assert shards.delete_offsets(GROUP, 0, 1, 2) == {0: 0, 1: 0, 2: 0}
    assert GROUP not in shards.listed()


def test_the_transactions_of_a_partition_are_bounded() -> None:
    """The error makes clients try again, and there is room when one of the transactions has ended."""
    shards = Shards(Limits(pending_of_partition_max=2))
    first, _ = crowd(shards, 2, {0: 1})
    third = Producer(shards, "third")
    third.init()
    third.add_group()
    assert third.commit_offsets({0: 2}) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert third.commit_offsets({1: 2}) == NONE
    assert first.commit_offsets({0: 3}) == NONE, "it has one of the places"
    first.end()
    shards.settle()
    assert third.commit_offsets({0: 2}) == NONE
    shards.check()


@pytest.mark.parametrize("seed", range(5))
def test_what_a_commit_supersedes_does_not_depend_on_the_order_of_the_records(seed: int) -> None:
    order = list(range(8))
    Random(seed).shuffle(order)
    pending = PendingOffsets()
    for number in order:
        value = PendingOffsetValue(
            offset=1,
            commit_timestamp_ms=0,
            producer_epoch=0,
            transaction=1,
            index=number,
            superseded=number == 3,
        )
        pending.apply(pending_key(number), value)
    marked = [decode_key(raw).producer_id for raw in superseded(pending, GROUP, TOPIC, 0, 6)]
    assert marked == [0, 1, 2, 4, 5]
    for number in order:
        pending.apply(pending_key(number), None)
    assert not pending.has_group(GROUP)
    assert not pending.has(GROUP, TOPIC, 0)


def pending_key(producer_id: int) -> PendingOffsetKey:
    return PendingOffsetKey(group_id=GROUP, topic=TOPIC, partition=0, producer_id=producer_id)


# What producers are answered.


def test_a_group_must_be_added_before_its_offsets(shards: Shards, producer: Producer) -> None:
    assert producer.commit_offsets({0: 1}) == ErrorCode.INVALID_TXN_STATE
    assert producer.commit_offsets({0: 1}, version=4) == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add_group(OTHER_GROUP) == NONE
    assert producer.commit_offsets({0: 1}) == ErrorCode.INVALID_TXN_STATE
    assert producer.add_group() == NONE
    assert producer.commit_offsets({0: 1}) == NONE


def test_commits_in_a_foreign_transaction_are_refused(shards: Shards, producer: Producer) -> None:
    producer.add_group()
    stranger = Producer(shards, "t")
    stranger.producer_id, stranger.epoch = producer.producer_id + 1, 0
    assert stranger.commit_offsets({0: 1}) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    stranger.producer_id, stranger.epoch = producer.producer_id, producer.epoch + 1
    assert stranger.commit_offsets({0: 1}) == ErrorCode.INVALID_PRODUCER_EPOCH
    stranger.transactional_id = "other"
    assert stranger.commit_offsets({0: 1}) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    for error in (stranger.add_group(), stranger.add(0), stranger.end()):
        assert error == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not shards.pending()


def test_a_late_commit_of_offsets_is_refused_after_the_end(shards: Shards, producer: Producer) -> None:
    pend(producer, {0: 1})
    producer.end()
    shards.see()
    assert producer.commit_offsets({0: 2}) == ErrorCode.CONCURRENT_TRANSACTIONS
    shards.settle()
    assert producer.commit_offsets({0: 2}) == ErrorCode.INVALID_TXN_STATE
    shards.fail_over(shards.log_of(GROUP))
    assert producer.commit_offsets({0: 2}) == ErrorCode.INVALID_TXN_STATE
    shards.check()


def test_offsets_that_a_node_accepts_before_it_learns_of_the_end_share_its_outcome(
    shards: Shards, producer: Producer
) -> None:
    pend(producer, {0: 1})
    assert producer.end(commits=False) == NONE
    assert producer.commit_offsets({1: 2}) == NONE, "the decision has not reached this node"
    shards.settle()
    assert not shards.pending()
    assert shards.fetch(GROUP) == {}


def test_requests_while_the_transaction_is_being_completed(shards: Shards, producer: Producer) -> None:
    pend(producer, {0: 1})
    assert producer.end() == NONE
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert (producer.add(0), producer.add_group(), producer.end()) == (concurrent,) * 3
    assert producer.end(commits=False) == ErrorCode.INVALID_TXN_STATE
    assert Producer(shards).init() == concurrent
    shards.settle()
    assert producer.end() == NONE, "a repeated request has the same answer"
    assert producer.end(commits=False) == ErrorCode.INVALID_TXN_STATE
    pend(producer, {0: 2})
    assert producer.end(commits=False) == NONE
    shards.settle()
    assert shards.fetch(GROUP) == {0: 1}


def test_nothing_can_be_ended_that_has_not_begun(producer: Producer) -> None:
    assert producer.end() == ErrorCode.INVALID_TXN_STATE
    assert producer.end(commits=False) == ErrorCode.INVALID_TXN_STATE


def test_unknown_partitions_are_not_added(shards: Shards, producer: Producer) -> None:
    assert producer.add(0, topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add(99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add(0, 99) == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert shards.state() is TransactionState.EMPTY


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, NONE),
    ],
)
def test_the_timeout_has_bounds(shards: Shards, fields: dict[str, int], error: ErrorCode) -> None:
    assert Producer(shards).init(**fields) == error  # type: ignore[arg-type]


def test_empty_ids_and_half_a_producer_are_refused(shards: Shards) -> None:
    producer = Producer(shards, "")
    assert producer.init() == ErrorCode.INVALID_REQUEST
    assert (producer.add(0), producer.add_group(), producer.end()) == (ErrorCode.INVALID_REQUEST,) * 3
    half = Producer(shards)
    half.producer_id = 5
    assert half.init(named=True) == ErrorCode.INVALID_REQUEST
    assert Producer(shards).commit_offsets({0: 1}, group_id="") == ErrorCode.INVALID_GROUP_ID


def test_the_number_of_transactional_ids_is_bounded() -> None:
    shards = Shards(Limits(transactional_ids_max=1))
    assert Producer(shards, "a").init() == NONE
    assert Producer(shards, "b").init() == ErrorCode.POLICY_VIOLATION
    assert Producer(shards, "a").init() == NONE


def test_a_transaction_has_a_bound() -> None:
    shards = Shards(Limits(transaction_partitions_max=3, transaction_bytes_max=400))
    producer = Producer(shards)
    producer.init()
    assert producer.add(0, 1, 2, 3) == ErrorCode.INVALID_REQUEST
    assert producer.add(0, 1, 2) == NONE
    errors = [producer.add_group("g" * number) for number in (100, 101, 102, 103)]
    assert errors[0] == NONE
    assert errors[-1] == ErrorCode.INVALID_REQUEST
    assert producer.end() == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT


def test_a_transaction_has_a_bounded_number_of_groups() -> None:
    shards = Shards(Limits(transaction_groups_max=2))
    producer = Producer(shards)
    producer.init()
    errors = [producer.add_group(group_id) for group_id in ("a", "b", "c", "b")]
    assert errors == [NONE, NONE, ErrorCode.INVALID_REQUEST, NONE]
    assert producer.end() == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT


def test_a_request_that_names_a_topic_many_times_is_short_work() -> None:
    shards = Shards()
    topics = [CreatableTopic(name="large", num_partitions=10_000, replication_factor=1)]
    shards.ask(shards.metadata, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    producer = Producer(shards)
    producer.init()
    assert producer.add(*range(5_000), topic="large") == NONE
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name="large", partitions=[number]) for number in range(10_000)
        ],
    )
    began = time.process_time()
    shards.ask(shards.metadata, ApiKey.ADD_PARTITIONS_TO_TXN, 3, request)
    assert time.process_time() - began < 0.5  # it is 0.03 s; with work for each name anew, 2 s
    (topic,) = shards.transaction().topics
    assert topic.partitions == tuple(range(10_000))


# Fencing.


def test_a_second_producer_fences_the_first(shards: Shards, producer: Producer) -> None:
    second = Producer(shards)
    assert second.init() == NONE
    assert (second.producer_id, second.epoch) == (producer.producer_id, producer.epoch + 1)
    for version, error in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)):
        assert producer.add(0, version=version) == error
        assert producer.add_group(version=version) == error
        assert producer.end(version=version) == error
    assert producer.init(named=True, version=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.init(named=True, version=4) == ErrorCode.PRODUCER_FENCED
    assert second.add(0) == NONE


def test_a_second_producer_ends_the_transaction_of_the_first(shards: Shards, producer: Producer) -> None:
    pend(producer, {0: 10})
    second = Producer(shards)
    assert second.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert producer.end() == ErrorCode.PRODUCER_FENCED
    second.until_done(second.init)
    assert second.epoch == producer.epoch + 2
    assert producer.init(named=True) == ErrorCode.PRODUCER_FENCED
    assert shards.fetch(GROUP, is_stable=True) == {}
    assert not shards.pending()
    shards.check()


def test_a_producer_that_was_replaced_does_not_end_the_transaction_of_the_next(
    shards: Shards, producer: Producer
) -> None:
    second = Producer(shards)
    second.init()
    pend(second, {0: 10})
    assert producer.init(named=True) == ErrorCode.PRODUCER_FENCED
    assert shards.state() is TransactionState.ONGOING
    assert second.end() == NONE
    shards.settle()
    assert shards.fetch(GROUP) == {0: 10}


def test_a_repeated_init_gets_the_same_epoch(shards: Shards, producer: Producer) -> None:
    named = producer.producer_id, producer.epoch
    assert producer.init(named=True) == NONE
    first = producer.producer_id, producer.epoch
    producer.producer_id, producer.epoch = named
    assert producer.init(named=True) == NONE
    assert (producer.producer_id, producer.epoch) == first == (named[0], named[1] + 1)


def test_after_the_last_epoch_there_is_a_new_producer_id(shards: Shards, producer: Producer) -> None:
    first = producer.producer_id
    last = producer.epoch = EPOCH_LAST
    value = replace(shards.transaction(), producer_epoch=last)
    shards.metadata.machine.view.transactions.put("t", value)
    pend_before = producer.producer_id, producer.epoch
    assert producer.init(named=True) == NONE
    assert producer.producer_id != first
    assert producer.epoch == 0
    renewed = producer.producer_id, 0
    producer.producer_id, producer.epoch = pend_before
    assert producer.init(named=True) == NONE, "a repeated request"
    assert (producer.producer_id, producer.epoch) == renewed
    old = Producer(shards)
    old.producer_id, old.epoch = first, last
    assert old.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_that_was_fenced_at_its_last_epoch_recovers_with_a_new_id(shards: Shards) -> None:
    producer = Producer(shards, timeout_ms=1_000)
    producer.init()
    first, producer.epoch = producer.producer_id, EPOCH_LAST
    value = replace(shards.transaction(), producer_epoch=EPOCH_LAST)
    shards.metadata.machine.view.transactions.put("t", value)
    assert producer.add(0) == NONE
    shards.sleep(1_000)
    assert shards.transaction().producer_epoch == EPOCH_LAST + 1
    assert producer.init(named=True) == NONE
    assert producer.producer_id != first
    assert producer.epoch == 0
    assert producer.add(0) == NONE
    shards.sleep(1_000)
    assert shards.state() is TransactionState.COMPLETE_ABORT


# Time.


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_transaction_times_out(shards: Shards, fails_over: bool) -> None:
    producer = Producer(shards, timeout_ms=10_000)
    producer.init()
    shards.sleep(60_000)
    pend(producer, {0: 10})
    shards.sleep(6_000)
    assert producer.commit_offsets({1: 11}) == NONE
    if fails_over:
        shards.fail_over(shards.metadata)
    shards.sleep(3_999)
    assert shards.state() is TransactionState.ONGOING
    shards.sleep(1)
    assert shards.state() is TransactionState.COMPLETE_ABORT
    assert not shards.pending()
    assert producer.end() == ErrorCode.PRODUCER_FENCED
    assert producer.add(0) == ErrorCode.PRODUCER_FENCED
    assert producer.commit_offsets({0: 10}) == ErrorCode.INVALID_PRODUCER_EPOCH
    epoch = producer.epoch
    assert producer.init(named=True) == NONE, "it recovers, as nobody took its place (KIP-588)"
    assert producer.epoch == epoch + 1
    assert producer.end() == ErrorCode.INVALID_TXN_STATE
    pend(producer, {0: 12})
    assert producer.end() == NONE
    shards.settle()
    assert shards.fetch(GROUP) == {0: 12}
    shards.check()


def test_a_leader_whose_clock_is_ahead_ends_no_transaction_early(shards: Shards, producer: Producer) -> None:
    producer.add_group()
    began = shards.ctx(shards.metadata)
    ahead = replace(began, wall_ms=began.wall_ms + 3_600_000, settled_ms=lambda: began.wall_ms)
    machine = shards.metadata.machine
    for _ in machine.becoming_ready(lambda: ahead):
        pass
    assert machine.next_deadline_ms() == began.monotonic_ms + producer.timeout_ms


def test_an_unused_transactional_id_expires() -> None:
    shards = Shards(Limits(transactional_id_expiration_ms=60_000))
    idle, busy = Producer(shards, "idle"), Producer(shards, "busy")
    for producer in (idle, busy):
        producer.init()
    shards.sleep(30_000)
    busy.add(0)
    shards.sleep(29_999)
    assert len(shards.metadata.machine.view.transactions) == 2
    shards.sleep(1)
    assert shards.metadata.machine.view.transactions.ids() == ["busy"], "an ongoing one is kept"
    assert idle.add(0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    busy.end()
    shards.settle()
    shards.sleep(59_000)
    shards.fail_over(shards.metadata)
    shards.sleep(1_500)
    assert not len(shards.metadata.machine.view.transactions)
    shards.check()


def test_offsets_and_groups_with_pending_offsets_do_not_expire() -> None:
    shards = Shards(Limits())
    retention_ms = shards.settings.settings.offsets_retention_ms
    producer = Producer(shards, timeout_ms=900_000)
    producer.init()
    shards.commit(GROUP, {0: 1, 1: 1})
    shards.sleep(retention_ms - 100_000)
    pend(producer, {0: 5})
    shards.sleep(200_000)
    for _ in range(3):
        shards.sleep(60_000)
    assert shards.state() is TransactionState.ONGOING
    assert shards.fetch(GROUP) in ({0: 1}, {0: 1, 1: 1})
    producer.end(commits=False)
    shards.settle()
    for _ in range(3):
        shards.sleep(600_000)
    assert shards.fetch(GROUP) == {}
    shards.check()


# Removal.


def test_deleted_offsets_are_not_pending_any_more(shards: Shards, producer: Producer) -> None:
    shards.commit(GROUP, {0: 1})
    pend(producer, {0: 10, 1: 11, 2: 12})
    assert shards.delete_offsets(GROUP, 0, 1, 3) == {0: 0, 1: 0, 3: 0}
    assert shards.fetch(GROUP, 0, 1, 2, is_stable=True) == {0: -1, 1: -1, 2: UNSTABLE}
    assert producer.end() == NONE
    shards.settle()
    assert shards.fetch(GROUP) == {2: 12}
    shards.check()


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_deleted_group_leaves_nothing_pending(
    shards: Shards, producer: Producer, is_committed: bool
) -> None:
    if is_committed:
        shards.commit(GROUP, {5: 1})
    pend(producer, {0: 10, 1: 11})
    assert shards.listed() == {GROUP}
    assert shards.delete_group(GROUP) == NONE
    assert not shards.pending()
    assert shards.listed() == set()
    assert shards.delete_group(GROUP) == ErrorCode.GROUP_ID_NOT_FOUND
    assert producer.end() == NONE
    shards.settle()
    assert shards.state() is TransactionState.COMPLETE_COMMIT
    assert shards.fetch(GROUP) == {}
    shards.check()


def test_offsets_of_a_deleted_topic_are_not_pending_any_more(shards: Shards, producer: Producer) -> None:
    pend(producer, {0: 10})
    shards.delete_topic()
    assert not shards.pending()
    assert producer.end() == NONE
    shards.settle()
    assert shards.fetch(GROUP) == {}
    shards.check()


# Failures.


def test_every_crash_point() -> None:
    """Whichever entry is the last of its leader, kept or lost: every transaction counts exactly once."""

    def run(dies_at: int, kept: bool) -> int:
        shards = Shards()
        count = itertools.count(1)
        shards.dies = lambda log: kept if next(count) == dies_at else None
        start = shards.num_entries
        producer = Producer(shards)
        producer.until_done(producer.init)
        for number, commits in enumerate((True, False, True), 1):
            offsets = {0: number * 10, number: number}
            producer.until_done(lambda: producer.add(0, 1))
            for group_id in (GROUP, OTHER_GROUP):
                producer.until_done(lambda group_id=group_id: producer.add_group(group_id))  # type: ignore[misc]
                producer.until_done(
                    lambda group_id=group_id, offsets=offsets: producer.commit_offsets(offsets, group_id)  # type: ignore[misc]
                )
            producer.until_done(lambda commits=commits: producer.end(commits=commits))  # type: ignore[misc]
        shards.settle()
        for group_id in (GROUP, OTHER_GROUP):
            assert shards.fetch(group_id, is_stable=True) == {0: 30, 1: 1, 3: 3}, (dies_at, kept)
        assert shards.state() is TransactionState.COMPLETE_COMMIT
        assert not shards.pending()
        shards.check()
        return shards.num_entries - start

    num_entries = run(-1, True)
    for dies_at in range(1, num_entries + 1):
        for kept in (True, False):
            run(dies_at, kept)


@pytest.mark.parametrize("seed", range(40))
def test_producers_that_fail_over_all_the_time(seed: int) -> None:
    """Each has a partition of two groups; leaders die after every sixth entry or so."""
    random = Random(seed)
    shards = Shards()
    producers = [Producer(shards, f"t{number}") for number in range(3)]
    expected = [0] * len(producers)
    shards.dies = lambda log: random.choice([None] * 10 + [True, False])
    for producer in producers:
        producer.until_done(producer.init)
    for round_ in range(1, 8):
        for number in random.sample(range(3), 3):
            producer, commits = producers[number], random.random() < 0.7
            offsets = {number: round_}
            for group_id in random.sample((GROUP, OTHER_GROUP), 2):
                producer.until_done(lambda p=producer, g=group_id: p.add_group(g))  # type: ignore[misc]
                producer.until_done(
                    lambda p=producer, g=group_id, o=offsets: p.commit_offsets(o, g)  # type: ignore[misc]
                )
            producer.until_done(lambda p=producer, c=commits: p.end(commits=c))  # type: ignore[misc]
            if commits:
                expected[number] = round_
            if random.random() < 0.3:
                shards.settle()
    shards.settle()
    committed = {number: offset for number, offset in enumerate(expected) if offset}
    shards.dies = lambda log: None
    assert shards.fetch(GROUP, is_stable=True) == shards.fetch(OTHER_GROUP, is_stable=True) == committed
    assert not shards.pending()
    shards.check()
