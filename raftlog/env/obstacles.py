"""Obstacles that keep a node from serving a shard if it led it, as every choice of a leader considers them.

A follower reports its obstacle with every acknowledgement, so its leader knows which peers not to choose: in
balancing, in a hand-over on request, when the node stops.  A leader checks itself too, and hands the shard to
a peer without an obstacle.  Operators see the obstacle in words.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Obstacle(IntEnum):
    """The obstacles, with their numbers in the protocol between nodes; `NONE`: it can serve."""

    NONE = 0
    JOINING = 1
    REBUILDING = 2
    DISK_STALLED = 3
    DISK_FULL = 4
    CATALOG_BEHIND = 5
    CATALOG_STALE = 6


_WORDS: Final = {
    Obstacle.JOINING: "its disk was replaced and is still joining",
    Obstacle.REBUILDING: "its state is being built from the log",
    Obstacle.DISK_STALLED: "its disk does not respond",
    Obstacle.DISK_FULL: "its disk is full: free some space",
    Obstacle.CATALOG_BEHIND: "its topic catalog is older than the one that the shard's groups use",
    Obstacle.CATALOG_STALE: "it has not received news of the topic catalog for a while",
}


def obstacle_words(number: int | None) -> str | None:
    """An obstacle in words; None if there is none or none is known yet.  Later releases may send others."""
    return _WORDS.get(number, f"obstacle {number}") if number else None  # type: ignore[call-overload]
