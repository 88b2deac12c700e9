"""The extent of a log, and notes about a window or a moment that lies outside of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from history.render import TimeStyle

from .node import NodeLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The time that the entries of a log cover, in epoch ms; -1 if it has none."""

    first_ms: int
    last_ms: int
    cuts: tuple[tuple[int, int], ...] = ()
    """Damage after which nothing of a shard can be read: time and index of the last entry before it."""

    def damage(self, at_ms: int, style: TimeStyle) -> tuple[str, ...]:
        """The damage, in words, that hides what happened at a time."""
        return tuple(
            f"damage cuts the log at {style.full(cut_ms)} (index {index}): what happened later is unknown"
            for cut_ms, index in self.cuts
            if at_ms > cut_ms
        )

    def is_outside(self, begin_ms: int | None, end_ms: int | None) -> bool:
        """Whether no entry of the log can be in a window."""
        return (begin_ms is not None and begin_ms > self.last_ms) or (
            end_ms is not None and end_ms < self.first_ms
        )

    def outside(self, begin_ms: int | None, end_ms: int | None, style: TimeStyle) -> Iterator[str]:
        """The parts of a window that lie outside of the log, in words."""
        if self.last_ms < 0:
            return
        first, last = style.full(self.first_ms), style.full(self.last_ms)
        cuts = self.damage(max(begin_ms or -1, end_ms or -1), style)
        if cuts:
            yield from cuts
        elif begin_ms is not None and begin_ms > self.last_ms:
            yield (
                f"the log that was read ends at {last}, before the window begins: nothing was written since, "
                "or not on this node"
            )
        elif end_ms is not None and end_ms > self.last_ms:
            yield f"the log that was read ends at {last}, before the window does ({style.full(end_ms)})"
        if begin_ms is not None and begin_ms < self.first_ms:
            begin = style.full(begin_ms)
            yield f"the log, as far as it is kept, begins at {first}, after the window does ({begin})"
        elif begin_ms is None and end_ms is not None and end_ms < self.first_ms:
            yield f"the log, as far as it is kept, begins at {first}, after the window ends"


def extent_of(log: NodeLog, shard: int | None = None) -> Extent:
    """The extent of a shard, or of all shards together."""
    ends = [log.end_of(number) for number in (log.shards if shard is None else (shard,))]
    return Extent(
        first_ms=log.first_ms(shard),
        last_ms=max((at_ms for at_ms, _ in ends), default=-1),
        cuts=tuple((at_ms, cut.after_index) for at_ms, cut in ends if cut is not None),
    )
