"""Buckets: parts of which runs need only some groups are split by a hash of the group.

Each bucket is itself a part (`names.bucket_part`), so that a run only reads and replaces the buckets of its
groups. Invariants: the number of buckets is a power of two up to `BUCKETS_MAX`, so that one hash gives a
group's bucket for any number; and Spark (`layout.bucket_of_group`) chooses the same bucket as this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from zlib import crc32

from . import names
from .manifest import TableFile

BUCKETS_MAX = 64
"""Limit on the buckets of a part within a shard."""
BUCKET_BYTES = 1 << 20
"""Target size of a bucket, written in some ten milliseconds; most outputs need only one."""
BUCKET_ROWS = 50_000
"""Target rows of a bucket; two buckets are still few (`local.FEW_ROWS`)."""
FILE_BYTES = 8 << 10
"""Size of a file with hardly any rows, which is deducted.

Each date has a file in each bucket, so that many buckets would otherwise call for even more.
"""
BUCKETS_GROW = 4
"""The number of buckets changes once this many times as many are needed; the whole part is then rewritten."""
HASHED_BITS = 16
"""Low bits of a group's checksum to skip: they select its shard, so all its groups share them."""
Hashed = Set[tuple[int, int]]
"""Groups, each as its shard and hash."""


def hash_of(group_id: str) -> int:
    """The bucket among `BUCKETS_MAX`; among fewer, take it modulo their number."""
    return (crc32(group_id.encode()) >> HASHED_BITS) % BUCKETS_MAX


def may_hold(file: TableFile, groups: Hashed) -> bool:
    """Whether a file may hold rows of any of these groups."""
    _, buckets, mine = names.bucket_of(file.part)
    return any((file.shard, at) in groups for at in range(mine, BUCKETS_MAX, buckets))


def buckets_for(there: Collection[TableFile], rows: int, size: int, shards: int) -> int:
    """The number of buckets for a part, by rows and bytes per shard; changed only after much growth.

    ``rows`` and ``size`` are those of the new rows, which may exceed what is there.
    """
    most_rows = max(sum(file.rows for file in there), rows) / max(shards, 1)
    most_bytes = max(_bytes(there), size) / max(shards, 1)
    wanted = 1
    while wanted < BUCKETS_MAX and (wanted * BUCKET_ROWS < most_rows or wanted * BUCKET_BYTES < most_bytes):
        wanted *= 2
    now = max((names.bucket_of(file.part)[1] for file in there), default=wanted)
    return wanted if wanted >= BUCKETS_GROW * now else now


def _bytes(files: Iterable[TableFile]) -> int:
    return sum(max(file.size - FILE_BYTES, 0) for file in files)
