"""Obstacles that keep a node from serving a shard if it led it: one answer for all who choose a leader.

A follower says it with every acknowledgement, so its leader knows whom not to choose: in balancing, in a
hand-over that somebody asked for, when the node stops.  A leader asks itself too, and gives the shard to a
peer without an obstacle.  Operators are shown the words.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Obstacle(IntEnum):
    """Numbers of the format between nodes; `NONE`: it can serve."""

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
    Obstacle.DISK_STALLED: "its disk does not answer",
    Obstacle.DISK_FULL: "its disk is full, free some space",
    Obstacle.CATALOG_BEHIND: "its catalog of topics is older than what the shard's groups rely on",
    Obstacle.CATALOG_STALE: "it has not heard for a while which topics there are",
}


def obstacle_words(number: int | None) -> str | None:
    """In words; None for a node that can serve, or has not said yet.  A later release may know more."""
    return _WORDS.get(number, f"obstacle {number}") if number else None  # type: ignore[call-overload]
