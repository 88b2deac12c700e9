"""All logs of a leader: terms, bounds, idempotent producers, and who waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster.scratchlog import RefusedBatch, ScratchBounds, ScratchLog
from cluster.scratchlog.partition import BATCH_COST_BYTES
from cluster.scratchlog.producers import Producers
from cluster.scratchlog.table import FREED_AT_ONCE
from coordinator.topics import new_topic_id
from records import SCRATCH_TERM_BITS
from tests.support.record_batches import NOW_MS, batch, offsets
from wire.errors import ErrorCode

OLD = new_topic_id(b"o" * 16, 7)
NEW = new_topic_id(b"n" * 16, 12)
TERM, TERM_START, VERSION = 3, 10, 20
SIZE = len(batch(b"x" * 100)) + BATCH_COST_BYTES


def scratch_log(**bounds: int) -> ScratchLog:
    sizes = {"bytes_max": 1 << 20, "partition_bytes_max": 1 << 20, "batch_bytes_max": 1 << 20} | bounds
    log = ScratchLog(ScratchBounds(**sizes))
    log.lead(TERM, TERM_START, VERSION)
    return log


def put(log: ScratchLog, topic_id: bytes = NEW, partition: int = 0, **fields: Any) -> int:
    return log.append((topic_id, partition), batch(b"x" * 100, **fields), 9)[0]


def refused(log: ScratchLog, **fields: Any) -> ErrorCode:
    with pytest.raises(RefusedBatch) as error:
        put(log, **fields)
    return error.value.code


class Waiting:
    def __init__(self, *, is_committed: bool = False) -> None:
        self.is_committed = is_committed
        self.sizes: list[int] = []
        self.has_ended = False

    def arrived(self, num_bytes: int) -> None:
        self.sizes.append(num_bytes)

    def ended(self) -> None:
        self.has_ended = True


# Terms


def test_a_topic_of_this_term_begins_at_0_and_an_older_one_at_the_terms_offsets() -> None:
    log = scratch_log()
    assert [put(log), put(log), put(log, OLD), put(log, OLD), put(log, b"entirely random!")] == [
        0,
        1,
        TERM << SCRATCH_TERM_BITS,
        (TERM << SCRATCH_TERM_BITS) + 1,
        TERM << SCRATCH_TERM_BITS,
    ]
    assert log.log((OLD, 5)).end == TERM << SCRATCH_TERM_BITS


def test_a_new_term_begins_empty_behind_all_earlier_offsets() -> None:
    log = scratch_log()
    last = max(put(log), put(log, OLD))
    log.lead(TERM, TERM_START, VERSION)
    assert log.log((NEW, 0)).end == 1
    log.lead(TERM + 1, 30, VERSION + 10)
    assert (len(log), log.num_bytes) == (0, 0)
    assert put(log) == put(log, OLD) == (TERM + 1) << SCRATCH_TERM_BITS > last


def test_the_offsets_of_a_term_are_never_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scratchlog.table.SCRATCH_TERM_BITS", 2)
    log = scratch_log()
    assert [put(log, OLD) for _ in range(4)] == [12, 13, 14, 15]
    assert refused(log, topic_id=OLD) == ErrorCode.KAFKA_STORAGE_ERROR
    log.lead(TERM + 1, 30, 30)
    assert put(log, OLD) == 16


def test_a_node_that_leads_no_longer_keeps_nothing_and_ends_the_waits() -> None:
    log, waiter = scratch_log(), Waiting()
    put(log)
    log.wait(waiter, [(NEW, 0), (NEW, 1)])
    log.resign()
    assert (len(log), log.num_bytes, waiter.has_ended) == (0, 0, True)


def test_a_deleted_topic_is_dropped() -> None:
    log = scratch_log()
    put(log)
    put(log, OLD)
    log.keep_only(lambda topic_id: topic_id == NEW)
    assert (len(log), log.num_bytes) == (1, SIZE)
    log.keep_only(lambda topic_id: True)
    assert len(log) == 1


# ScratchBounds


def test_a_partition_keeps_what_its_bound_allows_and_its_newest_batch() -> None:
    log = scratch_log(partition_bytes_max=3 * SIZE)
    for _ in range(10):
        put(log)
    put(log, partition=1)
    assert log.num_bytes == 4 * SIZE
    kept = log.log((NEW, 0))
    assert (kept.start, kept.end) == (7, 10)
    small = scratch_log(partition_bytes_max=10)
    assert [put(small), put(small)] == [0, 1]
    assert offsets(small.log((NEW, 0)).read(1, 999, at_least_one=True)[0]) == [1]


def test_all_together_keep_what_the_bound_allows_and_the_oldest_go() -> None:
    log = scratch_log(bytes_max=4 * SIZE)
    for number in range(12):
        put(log, partition=number % 3)
        assert log.num_bytes <= 4 * SIZE
    assert [(log.log((NEW, n)).start, log.log((NEW, n)).end) for n in range(3)] == [(3, 4), (3, 4), (2, 4)]
    for _ in range(6):
        put(log, partition=1)
    assert [len(log.log((NEW, n))) for n in range(3)] == [0, 4, 0]
    assert log.log((NEW, 0)).end == 4


def test_the_order_of_batches_takes_a_place_for_each_log() -> None:
    log = scratch_log(partition_bytes_max=SIZE)
    for number in range(3_000):
        put(log, partition=number % 3)
    assert len(log._oldest_first) == 3
    for _ in range(100):
        put(log)
        log.delete_before((NEW, 0), log.log((NEW, 0)).end)
    assert (len(log._oldest_first), log.num_bytes) == (3, 2 * SIZE)
    log.keep_only(lambda topic_id: False)
    assert (log._oldest_first, log.num_bytes) == ([], 0)
    put(log)
    assert len(log._oldest_first) == 1


def drop_all(log: ScratchLog, how: str) -> None:
    if how == "deleted records":
        log.delete_before((NEW, 0), log.log((NEW, 0)).end)
    elif how == "deleted topic":
        log.keep_only(lambda topic_id: False)
    else:
        log.resign()


@pytest.mark.parametrize("how", ["deleted records", "deleted topic", "another leader"])
def test_many_batches_are_freed_in_slices(how: str) -> None:
    begun: list[Iterator[None]] = []
    sizes = {"bytes_max": 1 << 30, "partition_bytes_max": 1 << 30, "batch_bytes_max": 1 << 20}
    log = ScratchLog(ScratchBounds(**sizes), begun.append)
    log.lead(TERM, TERM_START, VERSION)
    for _ in range(5 * FREED_AT_ONCE):
        put(log)
    drop_all(log, how)
    assert log.num_bytes == 0
    (work,) = begun
    assert sum(1 for _ in work) >= 5


def test_too_many_partitions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scratchlog.table.LOGS_MAX", 2)
    log = scratch_log()
    put(log, partition=0)
    put(log, partition=1)
    assert refused(log, partition=2) == ErrorCode.POLICY_VIOLATION
    put(log, partition=1)


# Producers


def numbered(sequence: int, epoch: int = 0, producer_id: int = 7) -> dict[str, int]:
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}


def test_a_repeated_batch_gets_its_first_offset_and_is_kept_once() -> None:
    log = scratch_log()
    assert [put(log, **numbered(sequence)) for sequence in range(5)] == [0, 1, 2, 3, 4]
    assert [put(log, **numbered(sequence)) for sequence in range(5)] == [0, 1, 2, 3, 4]
    assert log.log((NEW, 0)).end == 5
    assert put(log, **numbered(5)) == 5
    assert refused(log, **numbered(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # five are remembered


def test_a_gap_is_refused_and_leaves_no_trace() -> None:
    log = scratch_log()
    put(log, **numbered(0))
    assert refused(log, **numbered(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [put(log, **numbered(1)), put(log, **numbered(2))] == [1, 2]


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_0() -> None:
    log = scratch_log()
    put(log, **numbered(0, epoch=1))
    assert refused(log, **numbered(1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, **numbered(1, epoch=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(log, **numbered(0, epoch=2)) == 1
    assert refused(log, **numbered(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_in_mid_stream_goes_on_with_a_new_leader() -> None:
    log = scratch_log()
    put(log, **numbered(0))
    log.lead(TERM + 1, 30, 30)
    first = (TERM + 1) << SCRATCH_TERM_BITS
    assert [put(log, **numbered(41)), put(log, **numbered(42))] == [first, first + 1]
    assert refused(log, **numbered(44)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_the_greatest_number_comes_0() -> None:
    log = scratch_log()
    put(log, **numbered(2**31 - 1))
    assert put(log, **numbered(0)) == 1
    assert put(log, **numbered(2**31 - 1)) == 0


def test_partitions_and_producers_do_not_mix() -> None:
    log = scratch_log()
    put(log, **numbered(0))
    assert put(log, partition=1, **numbered(3)) == 0
    assert put(log, **numbered(9, producer_id=8)) == 1
    assert put(log) == 2
    assert put(log, **numbered(1)) == 3


def test_the_producer_longest_silent_is_forgotten() -> None:
    log = scratch_log()
    log._producers = Producers(most=2)
    for producer_id in (1, 2, 1, 3):
        put(log, **numbered(5 if producer_id != 1 else len(log.log((NEW, 0))) // 2, producer_id=producer_id))
    assert len(log._producers) == 2
    assert put(log, **numbered(77, producer_id=2)) == 4


# Transactions


def put_part(log: ScratchLog, sequence: int, code: ErrorCode = ErrorCode.NONE, **who: int) -> int:
    """Append a transactional batch, to which the coordinator says `code`."""
    records = batch(b"x" * 100, attributes=0x10, **numbered(sequence, **who))
    return log.append((NEW, 0), records, 9, NOW_MS, lambda producer_id, epoch: code)[0]


def end(log: ScratchLog, *, committed: bool = True, epoch: int = 0, term: int = TERM, **fields: Any) -> None:
    log.end_transaction((NEW, 0), 7, epoch, term, committed=committed, now_ms=NOW_MS, **fields)


def test_a_batch_is_part_of_a_transaction_only_if_the_coordinator_says_so() -> None:
    log = scratch_log()
    for code, answer in {
        ErrorCode.INVALID_TXN_STATE: ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    }.items():
        with pytest.raises(RefusedBatch) as error:
            put_part(log, 0, code)
        assert error.value.code == answer
    assert len(log) == 0
    assert refused(log, attributes=0x10, **numbered(0)) == ErrorCode.INVALID_TXN_STATE
    assert [put_part(log, 0), put_part(log, 1)] == [0, 1]
    with pytest.raises(RefusedBatch):
        put_part(log, 2, ErrorCode.INVALID_TXN_STATE)
    assert log.log((NEW, 0)).stable == 0


def test_a_batch_outside_of_its_producers_transaction_is_refused() -> None:
    log = scratch_log()
    put_part(log, 0)
    assert refused(log, **numbered(1)) == ErrorCode.INVALID_TXN_STATE
    assert put(log, **numbered(5, producer_id=8)) == 1
    end(log)
    assert put(log, **numbered(1)) == 3


def test_sequence_numbers_go_on_over_the_end_of_a_transaction() -> None:
    log = scratch_log()
    assert [put_part(log, 0), put_part(log, 1)] == [0, 1]
    end(log)
    assert put_part(log, 1) == 1  # a repeated batch
    assert put_part(log, 2) == 3
    with pytest.raises(RefusedBatch) as error:
        put_part(log, 4)
    assert error.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_end_with_a_newer_epoch_fences_the_producer() -> None:
    log = scratch_log()
    put_part(log, 0)
    end(log, committed=False, epoch=1)
    with pytest.raises(RefusedBatch) as error:
        put_part(log, 1)
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, **numbered(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(RefusedBatch):
        put_part(log, 1, epoch=1)
    assert put_part(log, 0, epoch=1) == 2


def test_an_end_of_an_older_epoch_or_coordinator_is_refused() -> None:
    log = scratch_log()
    put_part(log, 0, epoch=3)
    for fields, code in (
        ({"epoch": 2}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 3, "term": TERM - 1}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            end(log, epoch=3)
        before = log.log((NEW, 0)).end
        with pytest.raises(RefusedBatch) as error:
            end(log, **fields)
        assert (error.value.code, log.log((NEW, 0)).end) == (code, before)


def test_an_end_without_records_fences_and_lets_the_producer_go_on() -> None:
    """After a failover the records of a transaction are gone, and its end comes to the new leader."""
    log = scratch_log()
    end(log, epoch=4)
    assert log.log((NEW, 0)).end == log.log((NEW, 0)).stable == 1
    with pytest.raises(RefusedBatch):
        put_part(log, 41, epoch=3)
    assert put_part(log, 41, epoch=4) == 1


def test_open_transactions_end_with_a_term_or_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scratchlog.table.OPEN_TRANSACTIONS_MAX", 2)
    log = scratch_log()

    def fill(first_id: int) -> None:
        put_part(log, 0, producer_id=first_id)
        put_part(log, 0, producer_id=first_id + 1)
        with pytest.raises(RefusedBatch) as error:
            put_part(log, 0, producer_id=first_id + 2)
        assert error.value.code == ErrorCode.POLICY_VIOLATION
        put_part(log, 1, producer_id=first_id)
        put(log, partition=1)

    fill(10)
    log.keep_only(lambda topic_id: False)
    fill(20)
    log.lead(TERM + 1, 30, 30)
    fill(30)
    log.end_transaction((NEW, 0), 30, 0, TERM + 1, committed=False, now_ms=NOW_MS)
    assert put_part(log, 0, producer_id=32) > 0


def test_an_end_finds_room_where_no_other_log_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scratchlog.table.LOGS_MAX", 1)
    log = scratch_log()
    put(log, partition=1)
    end(log, epoch=2)
    assert (len(log), log.log((NEW, 0)).end) == (1, 0)
    assert refused(log, **numbered(0, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_waiters_for_committed_records_are_told_when_they_may_read() -> None:
    log, any_waiter, committed = scratch_log(), Waiting(), Waiting(is_committed=True)
    for waiter in (any_waiter, committed):
        log.wait(waiter, [(NEW, 0)])
    size = SIZE - BATCH_COST_BYTES
    put(log)
    put_part(log, 0)
    put(log)
    assert (any_waiter.sizes, committed.sizes) == ([size] * 3, [size])
    end(log, committed=False)
    marker = any_waiter.sizes[-1]
    assert committed.sizes == [size, 2 * size + marker]


# Waiting


def test_waiters_are_told_of_batches_of_their_partitions() -> None:
    log, waiter = scratch_log(), Waiting()
    partitions = [(NEW, 0), (NEW, 1)]
    log.wait(waiter, partitions)
    put(log, partition=1)
    put(log, partition=2)
    assert waiter.sizes == [SIZE - BATCH_COST_BYTES]
    log.stop_waiting(waiter, partitions)
    put(log, partition=0)
    assert len(waiter.sizes) == 1
    assert log._waiters == {}
