"""When to look at a group for offsets that have outlived their use, or for its own end (E.5).

Kafka reads every offset of a shard at each check. Here a group has one *look*: the earliest moment at which
anything of it can expire, in a heap. Commits move nothing, as a newer offset only expires later; so a look
may come too early, then it reads the group's offsets and knows the next moment. Offsets that a subscription
keeps are not read again before the subscription has changed.

What must stay true: every group that has offsets, and every group without members, has a look or is being
read; a group is read at most once per check interval. Moments are wall-clock times, as those of offsets are,
and are over when that much time has certainly passed (`Context.past_ms`), which is asked again after a minute
at the latest. Volatile: a new leader looks at every group once, one check interval after it began.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import chain

from coordinator.api import Context
from coordinator.state.dissolving import emptied

CLOCK_LOOK_MS = 60_000
"""The clock is compared with the earliest look at least so often, in case it is corrected."""

HEAP_SPARE = 64
"""Entries of looks that were moved or forgotten which a small heap may hold."""


@dataclass(slots=True)
class Look:
    """No offset of the group expires before `free_ms`, except those of topics in `held`: they were subscribed
    to when they were read, and do not expire before `held_ms` even if they no longer are."""

    due_ms: int
    free_ms: int
    held: frozenset[str] = frozenset()
    held_ms: int = 0

    def has_nothing(self, subscribed: Container[str], now_ms: int) -> bool:
        """Whether reading the offsets would find nothing that is over."""
        if now_ms >= self.free_ms:
            return False
        return now_ms < self.held_ms or all(topic in subscribed for topic in self.held)

    def next_due_ms(self, not_before_ms: int) -> int:
        due_ms = min(self.free_ms, self.held_ms) if self.held else self.free_ms
        return max(due_ms, not_before_ms)


@dataclass(slots=True)
class Reading:
    """A group whose offsets are being read: the keys that it had, how far it has come, and what it knows."""

    group_id: str
    keys: list[bytes]
    free_ms: int
    position: int = 0
    held: set[str] = field(default_factory=set)
    held_ms: int = 0


class ExpiryTable:
    """The looks of a shard's groups. `next_ms` is when the next one may be due, on the monotonic clock."""

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
        """Entries of the heap, those of looks that are gone included."""
        return len(self._heap)

    def expect(self, group_id: str, at_ms: int, ctx: Context) -> None:
        """Something of the group may be over at `at_ms`, but none of the rest sooner than was known."""
        look = self._looks.get(group_id)
        if look is None:
            self.put(group_id, Look(at_ms, at_ms), ctx)
            return
        look.free_ms = min(look.free_ms, at_ms)
        if at_ms < look.due_ms:
            look.due_ms = at_ms
            self._push(group_id, look, ctx)

    def put(self, group_id: str, look: Look, ctx: Context) -> None:
        """The group's look from now on."""
        self._looks[group_id] = look
        self._push(group_id, look, ctx)

    def merge(self, group_id: str, look: Look, ctx: Context) -> None:
        """The look that a reading came to; what was expected of the group meanwhile holds too."""
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
        """The group whose look is due for longest, which has none from now on; None if none is due."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > ctx.past_ms:
            return None
        _, group_id = heappop(self._heap)
        return group_id, self._looks.pop(group_id)

    def forget(self, group_id: str) -> None:
        """The group is no more."""
        self._looks.pop(group_id, None)

    def clear(self) -> Iterator[None]:
        """There are no looks from now on; the steps let go of those that there were."""
        looks, heap = self._looks, self._heap
        self._looks, self._heap, self.reading, self.next_ms = {}, [], None, None
        return chain(emptied(heap), emptied(looks))

    def aim(self, ctx: Context, pause_ms: float = 0.0) -> None:
        """Sets `next_ms`; while a group is being read, to `pause_ms` from now."""
        self._drop_stale()
        if self.reading is not None:
            self.next_ms = ctx.monotonic_ms + pause_ms
        elif not self._heap:
            self.next_ms = None
        else:
            wait_ms = min(max(self._heap[0][0] - ctx.past_ms, pause_ms), CLOCK_LOOK_MS)
            self.next_ms = ctx.monotonic_ms + wait_ms

    def _drop_stale(self) -> None:
        heap, looks = self._heap, self._looks
        while heap and ((look := looks.get(heap[0][1])) is None or look.due_ms != heap[0][0]):
            heappop(heap)
