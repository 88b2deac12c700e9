"""Log lines that a peer can cause at the speed of the network: one of a kind in a while."""

from __future__ import annotations

REPEAT_MS = 10_000
"""Often enough to be found, seldom enough not to fill a disk."""
KINDS_MAX = 64
"""A few kinds per peer; beyond that something is so wrong that fewer lines do."""


class Seldom:
    """Remembers when a line of each kind was last written."""

    def __init__(self) -> None:
        self._written_ms: dict[object, float] = {}

    def may(self, kind: object, now_ms: float) -> bool:
        """Whether a line of this kind is due; it counts as written."""
        last_ms = self._written_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < REPEAT_MS:
            return False
        if last_ms is None and len(self._written_ms) >= KINDS_MAX:
            return False
        self._written_ms[kind] = now_ms
        return True
