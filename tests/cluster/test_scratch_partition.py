"""The log of a partition: offsets, reading, times, deletion of the oldest."""

from __future__ import annotations

import random

import pytest
from aiokafka.record.default_records import DefaultRecordBatch

from cluster.scratchlog.batches import checked_header, is_commit_marker, marker_batch
from cluster.scratchlog.partition import (
    BATCH_COST_BYTES,
    READ_BATCHES_MAX,
    TRIM_AFTER,
    OffsetOutOfRange,
    PartitionLog,
)
from tests.support.record_batches import NOW_MS, batch, headers, offsets
from wire.record_batch import header_of

FIRST = 3 << 40


def put(log: PartitionLog, *values: bytes, time_ms: int = NOW_MS) -> int:
    records = batch(*values, time_ms=time_ms)
    return log.append(checked_header(records, 9, 1 << 20), records)


def read_bytes(log: PartitionLog, offset: int, bytes_max: int = 1 << 20, **how: bool) -> bytes:
    records, end = log.read(offset, bytes_max, **({"at_least_one": True} | how))
    read = offsets(records)
    assert end == (read[-1] + 1 if read else max(offset, log.first))
    return records


def read(log: PartitionLog, offset: int, bytes_max: int = 1 << 20, **how: bool) -> list[int]:
    return offsets(read_bytes(log, offset, bytes_max, **how))


def since(log: PartitionLog, timestamp: int) -> list[int]:
    return [batch.base_offset for batch in log.batches_since(timestamp)]


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
    assert {header.partition_leader_epoch for header, _ in headers(read_bytes(log, FIRST, 999))} == {-1}


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
    ((header, _),) = headers(read_bytes(empty, offset, 100))
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
    assert len(read_bytes(log, FIRST, 3 * size, at_least_one=False)) == 3 * size
    assert len(read_bytes(log, FIRST, 3 * size - 1, at_least_one=False)) == 2 * size
    assert read_bytes(log, FIRST, size - 1, at_least_one=False) == b""
    assert len(read_bytes(log, FIRST, 0)) == size
    assert len(read_bytes(log, FIRST, -5)) == size
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
    log = filled(3)
    assert since(log, 0) == since(log, NOW_MS + 1) == [FIRST, FIRST + 2, FIRST + 4]
    assert since(log, NOW_MS + 2) == since(log, NOW_MS + 11) == [FIRST + 2, FIRST + 4]
    assert since(log, NOW_MS + 22) == []
    newest = log.newest()
    assert newest is not None
    assert (newest.base_offset, newest.header.max_timestamp) == (FIRST + 4, NOW_MS + 21)


def test_times_out_of_order() -> None:
    log = PartitionLog(0)

    def newest() -> int | None:
        batch = log.newest()
        return None if batch is None else batch.base_offset

    for number, time_ms in enumerate([50, 10, 70, 20, 70]):
        assert put(log, b"x", time_ms=time_ms) == number
    assert (since(log, 60), since(log, 15), newest()) == ([2, 4], [0, 2, 3, 4], 2)
    log.drop_oldest()
    assert since(log, 40) == [2, 4]
    assert since(log, 5) == [1, 2, 3, 4]
    log.drop_oldest()
    log.drop_oldest()
    assert (since(log, 30), newest()) == ([4], 4)
    log.delete_before(5)
    assert (since(log, 0), newest()) == ([], None)


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
                found = [batch for batch in kept if batch.header.max_timestamp >= time_ms]
                assert list(log.batches_since(time_ms)) == found
            assert log.newest() is kept[times.index(max(times))]
            assert log.num_bytes == sum(len(batch.records) + BATCH_COST_BYTES for batch in kept)
            assert log.start == kept[0].base_offset


def test_one_answer_has_a_bounded_number_of_batches() -> None:
    log = PartitionLog(0)
    for _ in range(READ_BATCHES_MAX + 5):
        put(log, b"x")
    got = read(log, 3, 2**31)
    assert (got[0], len(got)) == (3, READ_BATCHES_MAX)


def test_a_long_life_leaves_no_traces() -> None:
    log = PartitionLog(0)
    for number in range(5 * TRIM_AFTER):
        put(log, b"x", time_ms=number)
        if len(log) > 10:
            log.drop_oldest()
    assert len(log._batches) <= 2 * TRIM_AFTER
    assert read(log, log.start) == list(range(log.end - 10, log.end))
    assert since(log, log.end - 3) == [log.end - 3, log.end - 2, log.end - 1]


# Transactions


def put_part(log: PartitionLog, producer_id: int, *values: bytes) -> int:
    """Append a transactional batch."""
    records = batch(*values, attributes=0x10, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return log.append(checked_header(records, 9, 1 << 20), records)


def end(log: PartitionLog, producer_id: int, *, is_commit: bool) -> int:
    records = marker_batch(producer_id, 0, 1, NOW_MS, is_commit=is_commit)
    return log.append(header_of(records), records)


def aborted(log: PartitionLog, begin: int, before: int) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in log.transactions.aborted_in(begin, before)]


def test_the_last_stable_offset_is_where_the_oldest_open_transaction_begins() -> None:
    log = PartitionLog(0)
    assert put(log, b"a", b"b") == 0
    assert log.stable == 2
    assert (put_part(log, 7, b"c", b"d"), put_part(log, 8, b"e"), put_part(log, 7, b"f")) == (2, 4, 5)
    assert (log.stable, log.end) == (2, 6)
    assert end(log, 7, is_commit=True) == 6
    assert log.stable == 4
    assert put(log, b"g") == 7
    assert end(log, 8, is_commit=False) == 8
    assert (log.stable, log.end) == (9, 9)
    assert aborted(log, 0, 9) == [(8, 4)]


def test_committed_reads_end_before_open_transactions() -> None:
    log = filled(2, first=0)
    size = len(batch(b"a", b"b"))
    put_part(log, 7, b"x")
    put(log, b"behind")
    assert read(log, 0, is_committed=True) == [0, 1, 2, 3]
    assert read(log, 4, is_committed=True) == read(log, 5, is_committed=True) == []
    assert [log.bytes_from(offset, is_committed=True) for offset in (0, 3, 4, 5, 6)] == [
        2 * size,
        size,
        0,
        0,
        0,
    ]
    assert read(log, 0) == [0, 1, 2, 3, 4, 5]
    end(log, 7, is_commit=False)
    assert read(log, 0, is_committed=True) == [0, 1, 2, 3, 4, 5, 6]
    assert log.bytes_from(0, is_committed=True) == log.bytes_from(0)


def test_a_producers_marker_is_one_that_stock_clients_read() -> None:
    log = PartitionLog(0)
    for is_commit in (False, True):
        at = end(log, 7, is_commit=is_commit)
        read_back = DefaultRecordBatch(bytearray(read_bytes(log, at)))
        assert read_back.validate_crc()
        assert (read_back.is_transactional, read_back.is_control_batch, read_back.producer_id) == (
            True,
            True,
            7,
        )
        (marker,) = read_back
        assert (marker.offset, marker.timestamp) == (at, NOW_MS)
        assert (marker.key, marker.value) == (bytes([0, 0, 0, is_commit]), bytes([0, 0, 0, 0, 0, 1]))


def test_an_answer_names_the_aborted_transactions_of_its_range() -> None:
    log = PartitionLog(0)
    assert [put_part(log, 7, b"x"), put_part(log, 8, b"y"), end(log, 7, is_commit=False)] == [0, 1, 2]
    assert [put_part(log, 7, b"x"), put_part(log, 8, b"y"), end(log, 7, is_commit=False)] == [3, 4, 5]
    assert [end(log, 8, is_commit=True), put(log, b"plain")] == [6, 7]
    assert log.stable == log.end == 8
    assert aborted(log, 0, 8) == [(7, 0), (7, 3)]
    assert aborted(log, 0, 3) == aborted(log, 1, 3) == [(7, 0)]
    assert aborted(log, 3, 8) == aborted(log, 5, 6) == [(7, 3)]
    assert aborted(log, 6, 8) == []


def test_the_oldest_are_dropped_although_their_transaction_is_open() -> None:
    log = PartitionLog(0)
    put_part(log, 7, b"x")
    for _ in range(3):
        put(log, b"y")
    log.drop_oldest()
    assert (log.start, log.stable, log.end) == (1, 1, 4)
    assert read(log, 1, is_committed=True) == []
    log.delete_before(3)
    assert (log.stable, log.bytes_from(3, is_committed=True)) == (3, 0)
    end(log, 7, is_commit=False)
    assert (log.stable, log.end) == (5, 5)
    assert aborted(log, 3, 5) == [(7, 0)]


def test_aborted_transactions_are_forgotten_with_their_records() -> None:
    log = PartitionLog(0)
    for _ in range(2 * TRIM_AFTER):
        put_part(log, 7, b"x")
        end(log, 7, is_commit=False)
        while len(log) > 20:
            log.drop_oldest()
    assert len(log.transactions._aborted) <= 2 * TRIM_AFTER
    assert len(aborted(log, log.start, log.end)) == 10
    log.delete_before(log.end)
    assert log.transactions._aborted == []


@pytest.mark.parametrize("seed", range(4))
def test_transactions_as_by_looking_at_every_batch(seed: int) -> None:
    """The last stable offset and the aborted transactions are those found in a list of everything."""
    rng, log = random.Random(seed), PartitionLog(0)
    open_at: dict[int, int] = {}
    done: list[tuple[int, int, int]] = []  # producer, first and last offset of what was aborted
    for _ in range(2_000):
        producer_id = rng.randrange(5)
        what = rng.choice(["part", "part", "part", "plain", "commit", "abort", "drop", "delete"])
        if what == "part":
            open_at.setdefault(producer_id, put_part(log, producer_id, b"x", b"y"))
        elif what == "plain":
            put(log, b"x")
        elif what in ("commit", "abort"):
            at = end(log, producer_id, is_commit=what == "commit")
            first = open_at.pop(producer_id, None)
            if first is not None and what == "abort":
                done.append((producer_id, first, at))
        elif what == "drop" and len(log) > 200:
            log.drop_oldest()
        elif what == "delete" and rng.random() < 0.05:
            log.delete_before(rng.randrange(log.start, log.end + 1))
        assert log.stable == max(log.start, min(open_at.values(), default=log.end))
        if rng.random() < 0.1:
            begin = rng.randrange(log.start, log.end + 1)
            before = rng.randrange(begin, log.stable + 1) if begin <= log.stable else begin
            expected = [(one, first) for one, first, last in done if last >= begin and first < before]
            assert aborted(log, begin, before) == expected


def consumed(log: PartitionLog, offset: int, bytes_max: int) -> tuple[list[int], int]:
    """Return the offsets that a consumer of committed records gets from one answer, and where it goes on.

    It leaves out what Kafka's Java consumer does: all of a producer from the first offset of an aborted
    transaction of its answer up to that transaction's marker.
    """
    records, end = log.read(offset, bytes_max, at_least_one=True, is_committed=True)
    begins = sorted((one.first_offset, one.producer_id) for one in log.transactions.aborted_in(offset, end))
    skipped: set[int] = set()
    kept = []
    for header, whole in headers(records):
        while begins and begins[0][0] <= header.base_offset + header.last_offset_delta:
            skipped.add(begins.pop(0)[1])
        if header.is_control:
            if not is_commit_marker(whole):
                skipped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in skipped:
            kept += [header.base_offset + number for number in range(header.num_records)]
    return [one for one in kept if one >= offset], end


@pytest.mark.parametrize("seed", range(6))
def test_a_consumer_gets_every_committed_record_and_no_other(seed: int) -> None:
    """In answers of any size, from any offset, while records are written and dropped."""
    rng, log = random.Random(seed), PartitionLog(0)
    parts: dict[int, list[int]] = {}  # offsets in open transactions, by producer
    committed: set[int] = set()
    got: set[int] = set()
    position = skipped_to = 0
    for _ in range(1_500):
        producer_id = rng.randrange(4)
        what = rng.choice(["part", "part", "part", "plain", "commit", "abort", "read", "read", "drop"])
        if what == "part":
            first = put_part(log, producer_id, b"x", b"y")
            parts.setdefault(producer_id, []).extend((first, first + 1))
        elif what == "plain":
            committed.add(put(log, b"x"))
        elif what in ("commit", "abort"):
            end(log, producer_id, is_commit=what == "commit")
            offsets_of = parts.pop(producer_id, [])
            committed.update(offsets_of if what == "commit" else ())
        elif what == "drop" and len(log) > 100:
            log.drop_oldest()
        elif what == "read":
            position = max(position, log.start)
            skipped_to = max(skipped_to, log.start)
            some, position = consumed(log, position, rng.choice([0, 100, 300, 10_000]))
            got.update(some)
            again = rng.randrange(log.start, position + 1)
            some, stop = consumed(log, again, 300)
            assert set(some) == {one for one in committed if again <= one < stop}
    while position < log.stable:
        some, position = consumed(log, max(position, log.start), 1_000)
        got.update(some)
    open_offsets = {one for offsets_of in parts.values() for one in offsets_of}
    assert got <= committed
    assert not {one for one in committed - got - open_offsets if skipped_to <= one < log.stable}
