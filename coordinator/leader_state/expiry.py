"""Schedule of checks for expired offsets, and for groups that have become obsolete (E.5).

Kafka reads every offset of a shard at each check. Here, a group has one scheduled check, its *look*: the
earliest time at which anything of it can expire, in a heap. A commit does not move it, because a newer offset
only expires later. So a look may come too early; it then reads the group's offsets and determines the next
time. Offsets that a subscription protects are not read again before the subscription changes.

Invariants: every group that has offsets, and every group without members, has a look or is being read; a
group is read at most once per check interval. Times are wall-clock times, as those of offsets are. A time has
passed only when it has certainly passed (`Context.past_ms`), which is checked again after a minute at the
latest. Volatile: a new leader checks every group once, one check interval after its term began.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain

from coordinator.api import Context
from coordinator.state.freeing import free_incrementally

CLOCK_LOOK_MS = 60_000
"""Longest time between two comparisons of the clock with the earliest look, in case the clock is
corrected."""

HEAP_SPARE = 64
"""Obsolete entries that even a small heap may hold, from looks that were moved or removed."""


@dataclass(slots=True)
class Look:
    """A scheduled check of one group.

    No offset of the group expires before `free_ms`, except those of topics in `held`. These topics were
    subscribed to when their offsets were read; the offsets do not expire before `held_ms` even if the
    subscription has ended."""

    due_ms: int
    free_ms: int
    held: frozenset[str] = frozenset()
    held_ms: int = 0

    def has_nothing(self, subscribed: Container[str], now_ms: int) -> bool:
        """Whether reading the offsets would find nothing that has expired."""
        if now_ms >= self.free_ms:
            return False
        return now_ms < self.held_ms or all(topic in subscribed for topic in self.held)

    def next_due_ms(self, not_before_ms: int) -> int:
        due_ms = min(self.free_ms, self.held_ms) if self.held else self.free_ms
        return max(due_ms, not_before_ms)


@dataclass(slots=True)
class Reading:
    """A group whose offsets are being read: its keys at the beginning, progress, and findings so far."""

    group_id: str
    keys: list[bytes]
    free_ms: int
    position: int = 0
    held: set[str] = field(default_factory=set)
    held_ms: int = 0


class ExpiryTable:
    """The looks of a shard's groups. `next_ms` is the monotonic time at which the next one may be due."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}
        self._heap: list[tuple[int, str]] = []
        self.reading: Reading | None = None
        self.next_ms: float | None = None

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._looks

    def __len__(self) -> int:
        return len(self._looks)

    @property
    def heap_size(self) -> int:
        """Entries of the heap, including obsolete ones."""
        return len(self._heap)

    def expect(self, group_id: str, at_ms: int, ctx: Context) -> None:
        """Note that something of the group may expire at `at_ms`; the look never moves to a later time."""
        look = self._looks.get(group_id)
        if look is None:
            self.put(group_id, Look(at_ms, at_ms), ctx)
            return
        look.free_ms = min(look.free_ms, at_ms)
        if at_ms < look.due_ms:
            look.due_ms = at_ms
            self._push(group_id, look, ctx)

    def put(self, group_id: str, look: Look, ctx: Context) -> None:
        """Set the group's look."""
        self._looks[group_id] = look
        self._push(group_id, look, ctx)

    def merge(self, group_id: str, look: Look, ctx: Context) -> None:
        """Set the look that results from a reading, unless events in the meantime require an earlier one."""
        expected = self._looks.get(group_id)
        if expected is not None:
            look.free_ms = min(look.free_ms, expected.free_ms)
            look.due_ms = min(look.due_ms, expected.due_ms)
        self.put(group_id, look, ctx)

    def _push(self, group_id: str, look: Look, ctx: Context) -> None:
        if len(self._heap) > HEAP_SPARE + 2 * len(self._looks):
            self._heap = [(each.due_ms, each_id) for each_id, each in self._looks.items()]
            heapify(self._heap)
        else:
            heappush(self._heap, (look.due_ms, group_id))
        if self._heap[0][1] == group_id or self.next_ms is None:
            self.aim(ctx)

    def take_due(self, ctx: Context) -> tuple[str, Look] | None:
        """Remove and return the group whose look has been due for longest; None if none is due."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > ctx.past_ms:
            return None
        _, group_id = heappop(self._heap)
        return group_id, self._looks.pop(group_id)

    def forget(self, group_id: str) -> None:
        """Remove the group."""
        self._looks.pop(group_id, None)

    def clear(self) -> Iterator[None]:
        """Remove all looks. Iterating the result frees the memory in steps."""
        looks, heap = self._looks, self._heap
        self._looks, self._heap, self.reading, self.next_ms = {}, [], None, None
        return chain(free_incrementally(heap), free_incrementally(looks))

    def aim(self, ctx: Context, pause_ms: float = 0.0) -> None:
        """Set `next_ms`: `pause_ms` from now if a group is being read, else when the first look is due."""
        self._drop_stale()
        if self.reading is not None:
            self.next_ms = ctx.monotonic_ms + pause_ms
        elif not self._heap:
            self.next_ms = None
        else:
            wait_ms = min(max(self._heap[0][0] - ctx.past_ms, pause_ms), CLOCK_LOOK_MS)
            self.next_ms = ctx.monotonic_ms + wait_ms

    def look_sooner(self, ms: float) -> None:
        """Expect the next look by so much sooner, since the clock of the looks was advanced."""
        if self.next_ms is not None:
            self.next_ms -= ms

    def _drop_stale(self) -> None:
        heap, looks = self._heap, self._looks
        while heap and ((look := looks.get(heap[0][1])) is None or look.due_ms != heap[0][0]):
            heappop(heap)
