"""The state hash: a number that is equal for equal projections.

It is the sum, modulo 2**64, of one number per projected entry. So it does not depend on the order of entries,
and is updated by subtracting the old number and adding the new one. Its purpose is to detect an `apply` that
is not deterministic, not to withstand an attacker. The CRCs of key and value are multiplied, because a sum of
CRCs would not detect two keys that exchanged their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from zlib import crc32

from coordinator.state.freeing import free_incrementally
from records import Key, RawRecord, Value, encode_value

MASK = (1 << 64) - 1
KEY_SALT = 0x9E3779B97F4A7C15
_VALUE_SALT = 0xC2B2AE3D27D4EB4F


def mix(key: bytes, value: bytes) -> int:
    """The number of one entry. Numbers are added up, and the sum is masked."""
    return (crc32(key) + KEY_SALT) * (crc32(value) + _VALUE_SALT)


STALE_MAX = 1024
"""Entries whose part of the hash may be out of date. Bounds the stall of a reader to ~5 ms."""

STALE_IN_ENTRY_MAX = 10_000
"""The same during one entry of the log, so that a large one does not pay for its own records at once. A
reader right after it stalls for up to ~40 ms; the following entries bring the number down."""

REFRESHED_AT_ONCE = 256
"""Number of oldest entries that are updated when more than the maximum are out of date: ~1 ms."""

REFRESHED_BY_ENTRY_MAX = 1_024
"""The same for an entry that finds many more than the maximum out of date: ~4 ms."""

STALE_IN_REPLAY_MAX = 65_536
"""The same during replay, where no request waits. Bounds the memory of these entries to ~30 MB."""


class EntryHashes:
    """State hash over typed entries, computed lazily, so that an entry that changes often is encoded once.

    The hash covers the projected value, encoded again, not the bytes of the record that was applied."""

    def __init__(self, projected: Callable[[Key], Value | None], stale_max: int = STALE_MAX) -> None:
        self._projected = projected
        self._stale_max = stale_max
        self._stale_in_entry_max = max(stale_max, STALE_IN_ENTRY_MAX)
        self._hash = 0
        self._parts: dict[tuple[int, bytes], int] = {}
        self._stale: dict[tuple[int, bytes], Key] = {}
        self._refreshed_at = -1

    def touch(self, raw: RawRecord, key: Key, index: int) -> None:
        """Note that the entry under this key was written, by the log's entry at `index`."""
        stale = self._stale
        stale[raw[0], raw[2]] = key
        excess = len(stale) - self._stale_max
        if excess > 0 and (index != self._refreshed_at or len(stale) > self._stale_in_entry_max):
            self._refreshed_at = index
            number = min(max(REFRESHED_AT_ONCE, excess), REFRESHED_BY_ENTRY_MAX)
            self._refresh(list(islice(stale.items(), number)))

    @property
    def total(self) -> int:
        self._refresh(list(self._stale.items()))
        return self._hash

    def free_incrementally(self) -> Iterator[None]:
        """Free all entries in steps. The object must not be used any more."""
        yield from free_incrementally(self._parts)
        yield from free_incrementally(self._stale)

    def _refresh(self, entries: list[tuple[tuple[int, bytes], Key]]) -> None:
        parts, stale = self._parts, self._stale
        for slot, key in entries:
            del stale[slot]
            self._hash -= parts.pop(slot, 0)
            value = self._projected(key)
            if value is not None:
                type_, key_bytes = slot
                part = mix(type_.to_bytes(2, "big") + key_bytes, encode_value(type_, value))
                parts[slot] = part
                self._hash += part
        self._hash &= MASK
