"""Which entries a run adds to the tables, and which of them are lost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Entries of one shard, both ends included."""

    from_index: int
    to_index: int

    @property
    def count(self) -> int:
        return self.to_index - self.from_index + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Entries of one shard that cannot be had, both ends included."""

    shard: int
    first_index: int
    last_index: int
    what: str
    """Why, in words."""
    is_damage: bool
    """False: they are not kept any more, which is as it should be."""
    before_ms: int
    """The time of the last entry before them; of the first one behind them where there is none."""
    bridged_by: int | None
    """The first snapshot that stands in for them; ``None``: facts go no further until there is one."""
