"""Replies that a client reads in part: what the transport keeps of them is counted."""

from __future__ import annotations

import random
from collections import deque

from cluster.kafka.written import WrittenReplies


def test_a_reply_counts_until_its_last_byte_is_sent() -> None:
    written = WrittenReplies()
    assert written.num_kept(0) == 0
    written.wrote(100_000)
    written.wrote(50_000)
    assert [written.num_kept(unread) for unread in (150_000, 149_999, 50_001)] == [150_000] * 3
    assert [written.num_kept(unread) for unread in (50_000, 1)] == [50_000] * 2
    written.wrote(20_000)
    assert written.num_kept(20_001) == 70_000
    assert written.num_kept(20_000) == 20_000
    assert written.num_kept(0) == 0


def test_short_replies_count_with_their_unread_bytes() -> None:
    written = WrittenReplies()
    assert written.num_kept(700) == 700
    written.wrote(100_000)
    assert written.num_kept(100_700) == 100_700
    assert written.num_kept(99_999) == 100_000


def test_it_is_never_less_than_what_is_kept() -> None:
    """A transport that keeps long and short writes whole, as uvloop's does."""
    rng = random.Random(7)
    written, kept, unread = WrittenReplies(), deque[int](), 0
    for _ in range(5_000):
        if rng.random() < 0.5:
            size = rng.choice([50, 16_384, 100_000])
            kept.append(size)
            unread += size
            if size >= 16_384:
                written.wrote(size)
        else:
            unread -= rng.randrange(min(unread, 150_000) + 1)
            while kept and sum(kept) - kept[0] >= unread:
                kept.popleft()
        short = sum(size for size in kept if size == 50)
        assert unread <= written.num_kept(unread)
        assert written.num_kept(unread) >= sum(kept) - short - 50
