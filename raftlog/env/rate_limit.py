"""Rate limit for log lines that a peer can cause at the speed of the network."""

from __future__ import annotations

REPEAT_MS = 10_000
"""Milliseconds between two lines of a kind: often enough to be noticed, too seldom to fill a disk."""
KINDS_MAX = 64
"""At most this many kinds: a few per peer; beyond it new kinds are not logged."""


class Seldom:
    """Remembers when a line of each kind was last written."""

    def __init__(self) -> None:
        self._written_ms: dict[object, float] = {}

    def may(self, kind: object, now_ms: float) -> bool:
        """Whether a line of this kind is due; it counts as written then."""
        last_ms = self._written_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < REPEAT_MS:
            return False
        if last_ms is None and len(self._written_ms) >= KINDS_MAX:
            return False
        self._written_ms[kind] = now_ms
        return True
