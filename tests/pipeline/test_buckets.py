"""Parts that are split by group: into how many buckets, and which bucket has a group."""

from __future__ import annotations

from collections import Counter

import pytest

from pipeline.tables import TableFile, buckets, names
from pipeline.tables.buckets import BUCKET_ROWS, BUCKETS_MAX, FILE_BYTES, buckets_for, hash_of, may_hold
from records.ids import shard_of


def file(part: str, *, rows: int = 1, size: int = 0, shard: int = 0, number: int = 0) -> TableFile:
    """Return a file entry; ``size`` is in bytes beyond those of a file with hardly any rows."""
    return TableFile("waits", part, f"waits/{part}-{number}", shard, None, rows, FILE_BYTES + size)


def test_a_part_is_split_by_its_size_and_seldom_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "BUCKET_BYTES", 1_000)
    assert buckets_for([], 1, 1_000, 1) == 1
    assert buckets_for([], 1, 1_001, 1) == 2
    assert buckets_for([], 1, 8_000, 2) == 4
    assert buckets_for([], 1, 10**9, 1) == BUCKETS_MAX
    assert buckets_for([file("open", size=3_900)], 1, 2_000, 1) == 4
    assert buckets_for([file("open", size=2_000)], 1, 1_900, 1) == 1, "twice as much is no reason"
    assert buckets_for([file("open_2of4", size=100)], 1, 100, 1) == 4
    assert buckets_for([file("open_2of4", size=2_000), file("open_1of4", size=7_000)], 1, 100, 1) == 16


def test_rows_that_take_hardly_any_bytes_count_as_well() -> None:
    assert buckets_for([], BUCKET_ROWS, 1, 1) == 1
    assert buckets_for([], BUCKET_ROWS + 1, 1, 1) == 2
    assert buckets_for([file("open", rows=4 * BUCKET_ROWS)], 1, 1, 1) == 4
    assert buckets_for([file("open", rows=4 * BUCKET_ROWS)], 1, 1, 2) == 1


@pytest.mark.parametrize("number", [1, 4, 64])
def test_many_dates_are_no_reason_for_buckets_which_make_more_files(number: int) -> None:
    """A bucket has a file for each date, and most of a small file is its footer."""
    days = [
        file(names.bucket_part("open", number, bucket), rows=3, size=50, number=day)
        for bucket in range(number)
        for day in range(1_000)
    ]
    assert sum(one.size for one in days) > 2 * number * buckets.BUCKET_BYTES
    assert buckets_for(days, 100, 1_000, 1) == number


def test_a_bucket_is_a_part_of_its_part() -> None:
    one = file(names.bucket_part("open", 16, 7))
    assert (one.part, names.bucket_of(one.part)) == ("open_7of16", ("open", 16, 7))
    assert [one.is_of(part) for part in ("open", "open_7of16", "rows")] == [True, True, False]
    assert names.bucket_part("open", 1, 0) == "open"
    assert names.bucket_of("group_states") == ("group_states", 1, 0)
    assert names.bucket_folder("date=2026-05-01/shard=0/bucket=7") == ("date=2026-05-01/shard=0", 7)
    assert names.bucket_folder("shard=0") == ("shard=0", 0)


@pytest.mark.parametrize("number", [1, 2, 16, BUCKETS_MAX])
def test_a_group_is_in_one_bucket_of_its_shard(number: int) -> None:
    files = [
        file(names.bucket_part("open", number, bucket), shard=shard)
        for shard in (0, 1)
        for bucket in range(number)
    ]
    for group_id in map(str, range(100)):
        (found,) = (one for one in files if may_hold(one, {(1, hash_of(group_id))}))
        assert (found.shard, names.bucket_of(found.part)[2]) == (1, hash_of(group_id) % number)
    assert not any(may_hold(one, set()) for one in files)


@pytest.mark.parametrize("num_shards", [1, 3, 4, 16, 64])
def test_groups_of_a_shard_are_in_all_of_its_buckets(num_shards: int) -> None:
    """A hash also decides which shard a group belongs to."""
    mine = [one for one in map(str, range(2_000 * num_shards)) if shard_of(one, num_shards) == 0]
    counts = Counter(map(hash_of, mine))
    assert len(counts) == BUCKETS_MAX
    assert max(counts.values()) < 3 * len(mine) / BUCKETS_MAX


def test_buckets_by_another_hash_may_hold_anything_and_are_split_anew() -> None:
    """Buckets of format 2 used another hash."""
    older = [file(f"open_16_{number}", size=100) for number in range(16)]
    assert all(one.is_of("open") and may_hold(one, {(0, 5)}) for one in older)
    assert not any(may_hold(one, {(1, 5)}) for one in older)
    assert buckets_for(older, 1, 100, 1) == 1
