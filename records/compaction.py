"""Compaction keeps the newest record of each key: the content of a snapshot.

It is pure, and uses the log's own clock: `now_ms` is the timestamp of the last entry read, or less where that
time may not have passed yet, never a wall clock.  Records keep the order of their last writes, and with it
every order that replay relies on between records of different keys (a member's tombstones before its
group's).

A tombstone outlives its key for `delete_retention_ms`, so that a follower of the log which still holds the
key learns that it was deleted.  Unknown types are compacted like the others: a key is a type and bytes,
whatever they mean.
"""

from collections.abc import Iterable

from records.types import RecordType, Stamped

_OFFSET_COMMIT = int(RecordType.OFFSET_COMMIT)


def compact(stamped: Iterable[Stamped], *, now_ms: int, delete_retention_ms: int) -> list[Stamped]:
    """The newest record of each (type, key), in the order of those last writes.

    `stamped` is in log order.  A tombstone is dropped once `delete_retention_ms` has passed from its entry to
    `now_ms` (both ms, the log's own clock).  Compacting the result again at the same time changes nothing.
    """
    newest: dict[tuple[int, bytes], Stamped] = {}
    for one in stamped:
        # Types 0 and 1 are the same offsets: else a type 0 would return when the type 1 tombstone after it is
        # dropped.
        identity = (one.record.type or _OFFSET_COMMIT, one.record.key)
        newest.pop(identity, None)  # so that the key moves to the place of its last write
        newest[identity] = one
    dropped_until_ms = now_ms - delete_retention_ms
    return [
        one for one in newest.values() if one.record.value is not None or one.timestamp_ms > dropped_until_ms
    ]
