"""Records of batches that are not compressed, found by time; anything else in a batch ends the search."""

from __future__ import annotations

import random

import pytest

from cluster.scratchlog.batches import RecordBatch
from cluster.scratchlog.records import RECORDS_AT_ONCE, RecordSearch
from tests.support.record_batches import NOW_MS, batch, record
from wire.record_batch import header_of


def found(records: bytes, timestamp: int, start: int = 0, base_offset: int = 100) -> tuple[int, int] | None:
    kept = RecordBatch(header_of(records), records, base_offset, 0)
    search = RecordSearch().first_since(kept, timestamp, start)
    while True:
        try:
            next(search)
        except StopIteration as end:
            result: tuple[int, int] | None = end.value
            return result


def test_the_first_record_of_that_time_or_later() -> None:
    body = b"".join(record(number, b"v", delta) for number, delta in enumerate([0, 5, 3, -2, 9]))
    records = batch(*[b"v"] * 5, body=body)
    expected = {-1: (0, 100), 0: (0, 100), 1: (5, 101), 3: (5, 101), 5: (5, 101), 6: (9, 104), 9: (9, 104)}
    for ahead, (delta, offset) in expected.items():
        assert found(records, NOW_MS + ahead) == (NOW_MS + delta, offset)
    assert found(records, NOW_MS + 10) is None
    assert found(records, NOW_MS - 5, start=102) == (NOW_MS + 3, 102)
    assert found(records, NOW_MS + 5, start=102) == (NOW_MS + 9, 104)


def test_long_values_are_stepped_over() -> None:
    assert found(batch(b"x" * 70_000, b"y" * 200, b"z"), NOW_MS + 2) == (NOW_MS + 2, 102)


def test_compressed_records_are_not_read() -> None:
    assert found(batch(b"a", b"b", attributes=1), NOW_MS) is None


def test_what_does_not_parse_ends_the_search() -> None:
    rng = random.Random(4)
    for body in (b"", b"\0" * 40, b"\xff" * 40, b"\x01" * 40, b"\x7e" * 40):
        found(batch(b"a", b"b", body=body), NOW_MS + 1)
    assert found(batch(b"a", body=b"\xff" * 40), 0) is None
    for _ in range(2_000):
        found(batch(b"a", b"b", body=rng.randbytes(rng.randrange(60)), num_records=9), NOW_MS + 1)


def test_many_records_are_read_in_steps() -> None:
    records = batch(*[b""] * (4 * RECORDS_AT_ONCE))
    search = RecordSearch().first_since(RecordBatch(header_of(records), records, 0, 0), NOW_MS + 10**6, 0)
    assert sum(1 for _ in search) == 4


def test_one_request_reads_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.scratchlog.records.RECORDS_READ_MAX", 5)
    records = batch(*[b""] * 4)
    kept, search = RecordBatch(header_of(records), records, 0, 0), RecordSearch()
    for timestamp, found in ((NOW_MS + 3, (NOW_MS + 3, 3)), (NOW_MS + 3, None)):
        with pytest.raises(StopIteration) as end:
            next(search.first_since(kept, timestamp, 0))
        assert end.value.value == found
    assert not search.can_read(kept)
