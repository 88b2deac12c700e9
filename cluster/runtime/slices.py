"""Work that is too long for one turn of the loop, done in slices: the one mechanism for long answers.

Whoever has such work hands it in as an iterator that stops every fraction of a millisecond. What is short is
over at once, in the turn in which it was handed in. What is longer than a slice goes on in later turns, one
slice a turn, in the order of arrival: one long answer after the other, so that only one is half built, while
short ones pass it by.

What must stay true: all long work of a queue together takes one slice of a turn; work that nobody waits for
any more is let go of. How much may be queued is bounded by whoever hands it in (requests in flight).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, TypeVar

from raftlog.host import Host

SLICE_MS: Final = 5.0
"""A tenth of the longest turn that is allowed: one queue is not alone in a turn."""

T = TypeVar("T")


def finished(work: Generator[None, None, T]) -> T:
    """What the work returns, done at a stroke: for those who have no loop to spare."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


class Slices:
    """One queue of long work on one loop. What the work raises is its own business: it must not."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._queue: deque[tuple[Iterator[None], Callable[[], bool]]] = deque()

    def __len__(self) -> int:
        """How much work is not done yet."""
        return len(self._queue)

    def run(self, steps: Iterator[None], is_wanted: Callable[[], bool]) -> None:
        """Does the work: at once if it is short, and nothing long is under way. `is_wanted` is asked before
        each later slice."""
        end_ms = self._host.monotonic_ms() + SLICE_MS
        for _ in steps:
            if self._queue or self._host.monotonic_ms() >= end_ms:
                self._queue.append((steps, is_wanted))
                if len(self._queue) == 1:
                    self._host.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        """One slice of the work that came first, and of the next if that ends within it."""
        end_ms = self._host.monotonic_ms() + SLICE_MS
        while self._queue:
            steps, is_wanted = self._queue[0]
            if is_wanted():
                for _ in steps:
                    if self._host.monotonic_ms() >= end_ms:
                        self._host.call_soon(self._go_on)
                        return
            self._queue.popleft()
