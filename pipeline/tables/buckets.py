"""Buckets: a part of which runs need some groups only is split by a hash of the group.

Each bucket is a part by itself (`names.bucket_part`), so that a run reads and replaces those of the groups
that it is told of. What must stay true: numbers of buckets are powers of two up to `BUCKETS_MAX`, so that one
hash tells a group's bucket among any number; and Spark (`layout.bucket_of_group`) puts a group where it is
looked for here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from zlib import crc32

from . import names
from .manifest import TableFile

BUCKETS_MAX = 64
"""Of a part in a shard."""
BUCKET_BYTES = 1 << 20
"""A bucket is about as large: written in some ten milliseconds, and most outputs need but one."""
BUCKET_ROWS = 50_000
"""Or has so many rows: two of them are few (`few.FEW_ROWS`)."""
FILE_BYTES = 8 << 10
"""What a file takes for hardly any rows. It does not count: each date has a file in each bucket, so that
many buckets would be a reason for more."""
BUCKETS_GROW = 4
"""A part gets more buckets when it needs so many times more; all of it is written anew then."""
HASHED_BITS = 16
"""Of a group's checksum: its lowest bits say which shard it is of, and are the same for all groups of one."""
Hashed = Set[tuple[int, int]]
"""Groups, of each its shard and hash."""


def hash_of(group_id: str) -> int:
    """The bucket among `BUCKETS_MAX`; among fewer the rest of a division by their number."""
    return (crc32(group_id.encode()) >> HASHED_BITS) % BUCKETS_MAX


def may_hold(file: TableFile, groups: Hashed) -> bool:
    """Whether rows of any of these groups may be in a file."""
    _, buckets, mine = names.bucket_of(file.part)
    return any((file.shard, at) in groups for at in range(mine, BUCKETS_MAX, buckets))


def buckets_for(there: Collection[TableFile], rows: int, size: int, shards: int) -> int:
    """Into how many a part is split, by its rows and bytes in a shard: as it is, until it has grown well.

    ``rows`` and ``size`` are those of what is new, which may be more than there is.
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
