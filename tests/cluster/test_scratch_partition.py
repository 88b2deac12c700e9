"""The log of a partition: offsets, reading, times, deletion of the oldest."""

from __future__ import annotations

import random

import pytest

from cluster.scratchlog.batches import checked_header
from cluster.scratchlog.partition import (
    BATCH_COST_BYTES,
    READ_BATCHES_MAX,
    TRIM_AFTER,
    OffsetOutOfRange,
    PartitionLog,
)
from tests.support.record_batches import NOW_MS, batch, headers, offsets

FIRST = 3 << 40


def put(log: PartitionLog, *values: bytes, time_ms: int = NOW_MS) -> int:
    records = batch(*values, time_ms=time_ms)
    return log.append(checked_header(records, 9, 1 << 20), records)


def read(log: PartitionLog, offset: int, bytes_max: int = 1 << 20) -> list[int]:
    return offsets(log.read(offset, bytes_max, at_least_one=True))


def filled(num_batches: int = 5, first: int = FIRST) -> PartitionLog:
    log = PartitionLog(first)
    for number in range(num_batches):
        assert put(log, b"a", b"b", time_ms=NOW_MS + 10 * number) == first + 2 * number
    return log


def test_offsets_follow_each_other_from_the_first() -> None:
    log = filled(3)
    assert (log.start, log.end) == (FIRST, FIRST + 6)
    assert read(log, FIRST) == [FIRST + number for number in range(6)]
    assert read(log, FIRST + 3) == [FIRST + number for number in range(2, 6)]  # whole batches
    assert read(log, FIRST + 6) == []
    assert {
        header.partition_leader_epoch for header, _ in headers(log.read(FIRST, 999, at_least_one=True))
    } == {-1}


@pytest.mark.parametrize("offset", [-1, -(2**63), FIRST + 11, 2**63 - 1])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    log = filled()
    with pytest.raises(OffsetOutOfRange):
        log.read(offset, 1, at_least_one=True)
    with pytest.raises(OffsetOutOfRange):
        log.bytes_from(offset)


@pytest.mark.parametrize("offset", [0, 7, FIRST - 1])
def test_an_offset_of_an_earlier_leader_reads_on_behind_an_empty_batch(offset: int) -> None:
    empty = PartitionLog(FIRST)
    ((header, _),) = headers(empty.read(offset, 100, at_least_one=True))
    assert (header.base_offset + header.last_offset_delta + 1, header.num_records) == (FIRST, 0)
    assert empty.bytes_from(offset) == 0
    assert read(filled(2), offset) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]


def test_it_does_so_only_while_the_first_record_is_there() -> None:
    log = filled()
    log.drop_oldest()
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100, at_least_one=True)


def test_at_most_that_many_bytes_but_one_batch_if_asked() -> None:
    log = filled()
    size = len(batch(b"a", b"b"))
    assert len(log.read(FIRST, 3 * size, at_least_one=False)) == 3 * size
    assert len(log.read(FIRST, 3 * size - 1, at_least_one=False)) == 2 * size
    assert log.read(FIRST, size - 1, at_least_one=False) == b""
    assert len(log.read(FIRST, 0, at_least_one=True)) == size
    assert len(log.read(FIRST, -5, at_least_one=True)) == size
    assert [log.bytes_from(FIRST + number) for number in (0, 1, 2, 9, 10)] == [
        5 * size,
        5 * size,
        4 * size,
        size,
        0,
    ]


def test_the_oldest_batch_goes_first_and_its_memory_with_it() -> None:
    log = filled()
    before = log.num_bytes
    assert log.drop_oldest() * 5 == before
    assert (log.start, log.end, len(log)) == (FIRST + 2, FIRST + 10, 4)
    with pytest.raises(OffsetOutOfRange):
        read(log, FIRST + 1)
    for _ in range(4):
        log.drop_oldest()
    assert (log.start, log.end, len(log), log.num_bytes) == (FIRST + 10, FIRST + 10, 0, 0)
    assert read(log, FIRST + 10) == []
    assert put(log, b"next") == FIRST + 10


def test_deletion_moves_the_start_into_a_batch() -> None:
    log = filled()
    log.delete_before(FIRST + 3)
    assert (log.start, len(log)) == (FIRST + 3, 4)
    assert read(log, FIRST + 3)[0] == FIRST + 2
    with pytest.raises(OffsetOutOfRange):
        read(log, FIRST + 2)
    log.delete_before(FIRST + 1)
    assert log.start == FIRST + 3
    log.delete_before(log.end)
    assert (log.start, log.num_bytes, len(log)) == (FIRST + 10, 0, 0)


def test_times_are_found_to_the_batch() -> None:
    log = filled()
    assert log.since(0) == (NOW_MS, FIRST)
    assert log.since(NOW_MS + 1) == (NOW_MS, FIRST)
    assert log.since(NOW_MS + 2) == (NOW_MS + 10, FIRST + 2)
    assert log.since(NOW_MS + 41) == (NOW_MS + 40, FIRST + 8)
    assert log.since(NOW_MS + 42) is None
    assert log.newest() == (NOW_MS + 41, FIRST + 9)
    log.delete_before(FIRST + 3)
    assert log.since(0) == (NOW_MS + 10, FIRST + 3)


def test_times_out_of_order() -> None:
    log = PartitionLog(0)
    for number, time_ms in enumerate([50, 10, 70, 20, 70]):
        assert put(log, b"x", time_ms=time_ms) == number
    assert (log.since(60), log.since(15), log.newest()) == ((70, 2), (50, 0), (70, 2))
    log.drop_oldest()
    assert log.since(40) == (70, 2)
    assert log.since(5) == (10, 1)
    log.drop_oldest()
    log.drop_oldest()
    assert (log.since(30), log.newest()) == ((70, 4), (70, 4))
    log.delete_before(5)
    assert (log.since(0), log.newest()) == (None, None)


@pytest.mark.parametrize("seed", range(4))
def test_times_are_found_as_by_looking_at_every_batch(seed: int) -> None:
    rng, log = random.Random(seed), PartitionLog(0)
    for _ in range(3_000):
        what = rng.random()
        if what < 0.9 or not len(log):
            put(log, b"x", time_ms=rng.randrange(50) if rng.random() < 0.99 else rng.randrange(9_999))
        elif what < 0.99:
            log.drop_oldest()
        else:
            log.delete_before(rng.randrange(log.start, log.start + (log.end - log.start) // 3 + 1))
        if rng.random() < 0.05 and len(log):
            kept = list(log)
            times = [batch.header.max_timestamp for batch in kept]
            for time_ms in (0, 25, 49, 50, 5_000, max(times), max(times) + 1):
                first = next((batch for batch in kept if batch.header.max_timestamp >= time_ms), None)
                found = first and (first.header.base_timestamp, max(log.start, first.base_offset))
                assert log.since(time_ms) == found
            assert log.newest() == (max(times), kept[times.index(max(times))].last_offset)
            assert log.num_bytes == sum(len(batch.records) + BATCH_COST_BYTES for batch in kept)
            assert log.start == kept[0].base_offset


def test_one_answer_has_a_bounded_number_of_batches() -> None:
    log = PartitionLog(0)
    for _ in range(READ_BATCHES_MAX + 5):
        put(log, b"x")
    got = offsets(log.read(3, 2**31, at_least_one=True))
    assert (got[0], len(got)) == (3, READ_BATCHES_MAX)


def test_a_long_life_leaves_no_traces() -> None:
    log = PartitionLog(0)
    for number in range(5 * TRIM_AFTER):
        put(log, b"x", time_ms=number)
        if len(log) > 10:
            log.drop_oldest()
    assert len(log._batches) <= 2 * TRIM_AFTER
    assert read(log, log.start) == list(range(log.end - 10, log.end))
    assert log.since(log.end - 3) == (log.end - 3, log.end - 3)
