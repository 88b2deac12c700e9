"""A number that two equal projections share: the state hash.

It is the sum, modulo 2**64, of one number per projected entry, so it does not depend on the order in which
entries came and can be kept up to date by subtracting the old and adding the new. It is there to find an
`apply` that is not deterministic, not to withstand an attacker: the CRCs of key and value are multiplied,
as a sum of CRCs alone would not notice that two keys exchanged their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from zlib import crc32

from coordinator.state.dissolving import emptied
from records import Key, RawRecord, Value, encode_value

MASK = (1 << 64) - 1
KEY_SALT = 0x9E3779B97F4A7C15
_VALUE_SALT = 0xC2B2AE3D27D4EB4F


def mix(key: bytes, value: bytes) -> int:
    """The number of one entry; add them up and mask the sum."""
    return (crc32(key) + KEY_SALT) * (crc32(value) + _VALUE_SALT)


STALE_MAX = 1024
"""Entries whose part of the hash may wait to be computed: bounds the stall of whoever reads it to ~10 ms."""

REFRESHED_AT_ONCE = 256
"""The oldest of them, where there are more than may wait: ~2 ms, for an entry that had to be written."""

STALE_IN_REPLAY_MAX = 65_536
"""The same where nobody is kept waiting: bounds the memory that they take to ~30 MB."""


class EntryHashes:
    """The state hash over typed entries, computed late: an entry that changes often is encoded once.

    What is hashed is the projected value, encoded anew, and not the record that was seen."""

    def __init__(self, projected: Callable[[Key], Value | None], stale_max: int = STALE_MAX) -> None:
        self._projected = projected
        self._stale_max = stale_max
        self._hash = 0
        self._parts: dict[tuple[int, bytes], int] = {}
        self._stale: dict[tuple[int, bytes], Key] = {}

    def touch(self, raw: RawRecord, key: Key) -> None:
        """The entry under this key was written."""
        self._stale[raw[0], raw[2]] = key
        if len(self._stale) > self._stale_max:
            self._refresh(list(islice(self._stale.items(), REFRESHED_AT_ONCE)))

    @property
    def total(self) -> int:
        self._refresh(list(self._stale.items()))
        return self._hash

    def dissolve(self) -> Iterator[None]:
        """Lets go of everything in steps; nothing may be asked any more."""
        yield from emptied(self._parts)
        yield from emptied(self._stale)

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
