"""Work that is too long for one turn of the loop, done in slices: the one mechanism for long answers.

Whoever has such work hands it in as an iterator that stops every fraction of a millisecond. What is short is
over at once, in the turn in which it was handed in. What is longer goes on in later turns, one slice a turn.
Each work has its first slice before long: these are given in the order of arrival, in every other turn. What
is not over with it is long, and is done in the other turns, one after the other, so that only one is more
than begun. So an answer of a few milliseconds does not wait for those that take a second, however many.

What must stay true: all long work of a queue together takes one slice of a turn; work that nobody waits for
any more is let go of; what one work raises keeps no other from being done. How much may be queued is bounded
by whoever hands it in (requests in flight).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeVar

from raftlog.host import Host

LOG = logging.getLogger("quorate.runtime")

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


class _Work(NamedTuple):
    steps: Iterator[None]
    is_wanted: Callable[[], bool]


class Slices:
    """One queue of long work on one loop. What work raises is its own business: it should not."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._begun: deque[_Work] = deque()
        """Has not had a whole slice yet."""
        self._long: deque[_Work] = deque()
        self._is_turn_of_long = False

    def __len__(self) -> int:
        """How much work is not done yet."""
        return len(self._begun) + len(self._long)

    def run(self, steps: Iterator[None], is_wanted: Callable[[], bool]) -> None:
        """Does the work: at once if it is short, and nothing long is under way. `is_wanted` is asked before
        each later slice."""
        is_busy = len(self) > 0
        end_ms = self._host.monotonic_ms() + SLICE_MS
        for _ in steps:
            is_over = self._host.monotonic_ms() >= end_ms
            if is_over or is_busy:
                (self._long if is_over else self._begun).append(_Work(steps, is_wanted))
                if not is_busy:
                    self._host.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        """One slice: of the work that came first among those whose turn it is, and of the next if that ends
        within it."""
        end_ms = self._host.monotonic_ms() + SLICE_MS
        self._is_turn_of_long = not self._is_turn_of_long
        is_whole = True
        while len(self):
            queue = self._long if self._long and (self._is_turn_of_long or not self._begun) else self._begun
            work = queue.popleft()
            if not self._is_done(work, end_ms):
                if is_whole and queue is self._begun:
                    self._long.append(work)
                else:
                    queue.appendleft(work)
                break
            is_whole = False
        if len(self):
            self._host.call_soon(self._go_on)

    def _is_done(self, work: _Work, end_ms: float) -> bool:
        """Whether nothing is left of it, once it has had the rest of a slice."""
        try:
            if work.is_wanted():
                for _ in work.steps:
                    if self._host.monotonic_ms() >= end_ms:
                        return False
        except Exception:
            LOG.exception("work in slices failed")
        return True
