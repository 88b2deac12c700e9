"""One budget per turn of the loop for all slow work of a node together, so that nobody waits for all of it.

Three kinds of work are handed in: a connection's requests; an answer that may be long, as an iterator that
stops every fraction of a millisecond; and what shards do of themselves, as when they begin to lead or
something is due. What comes while the turn has time left is done at once. What comes later waits in a lane.
That of the shards (`own`) goes first, as clients wait for it: it has the time that a turn else spends on what
comes, a share for each in its turn. Of the other three lanes every turn does one share, a millisecond:

- `soon`: what came just now, and is little;
- `more`: what is not over after its share. Each gets a share in its turn, round and round;
- `long`: answers that have had a slice and are not over. One after the other, so that only one of them is
  more than begun, however many are asked for.

Each lane is the first in some of the turns, and has what the others leave in the rest. So one small request
goes before the two thousandth of another connection, an answer of a few milliseconds does not wait for those
that take a second, and the links between nodes, which are read in every turn, do not wait for more than that.

Nobody begins with the little that is left of a slice or a share: a batch of requests that is cut is answered
in two writes and comes back in two reads, and costs more from then on.

What must stay true: a turn spends a slice on what comes in it and on what is the shards' own, and a share on
what else waits, and beyond that what cannot be divided: one request, one decision, or one step. Work that
nobody waits for any more is let go of; what one work raises keeps no other from being done. How much may wait
is bounded by whoever hands it in: each connection is in one lane once, and makes one answer at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol, TypeVar

from raftlog.host import Host

LOG = logging.getLogger("quorate.runtime")

SLICE_MS: Final = 5.0
"""The time that a turn spends at once on work that comes in it: a tenth of the longest turn allowed."""

SHARE_MS: Final = 1.0
"""The time that one piece of work gets before the next one has its turn, some twenty requests or a part of an
answer; and the time that a turn spends on work that waits. A turn without work takes some hundredths of a
millisecond."""

LONG, MORE, SOON, OWN = range(4)
ORDERS: Final = tuple((first, SOON, MORE, LONG) for first in (SOON, MORE, SOON, LONG))
"""Which lane comes first in the turns, round and round, and which have what it leaves."""

T = TypeVar("T")

_OVER: Final = object()


def finished(work: Generator[None, None, T]) -> T:
    """What the work returns, done at a stroke: for those who have no loop to spare."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def _note(error: Exception) -> None:
    LOG.error("an answer could not be made", exc_info=error)


class Work(Protocol):
    """Slow work that can be stopped and gone on with."""

    @property
    def is_long(self) -> bool:
        """Whether it has had so much that it is done in one go, when its turn comes."""

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Works until about `end_ms`; the time when nothing was left to do, None if something is."""

    def failed(self, error: Exception) -> None:
        """Takes note that `go_on` raised; there is nothing left to do."""


class _Answer:
    __slots__ = ("_host", "_is_wanted", "_steps", "_worked_ms", "is_long")

    def __init__(
        self, steps: Iterator[None], is_wanted: Callable[[], bool], host: Host, worked_ms: float = 0.0
    ) -> None:
        self._steps = steps
        self._is_wanted = is_wanted
        self._host = host
        self._worked_ms = worked_ms
        self.is_long = False

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        if not self._is_wanted():
            return now_ms
        for _ in self._steps:
            later_ms = self._host.monotonic_ms()
            if later_ms >= end_ms:
                self._worked_ms += later_ms - now_ms
                self.is_long = self._worked_ms >= SLICE_MS
                return None
        return self._host.monotonic_ms()

    def failed(self, error: Exception) -> None:
        _note(error)


class Slices:
    """The slow work of one loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lanes: tuple[deque[Work], ...] = (deque(), deque(), deque(), deque())
        self._at_once_ms = 0.0  # spent on what came, since the last turn of the lanes
        self._until_ms: float | None = None  # set while something works: what it hands in has part in it
        self._turns = 0
        self._is_due = False

    def __len__(self) -> int:
        """How much work waits."""
        return sum(map(len, self._lanes))

    def run(self, steps: Iterator[None], is_wanted: Callable[[], bool], lane: int = SOON) -> bool:
        """Makes an answer; whether it is there already. `is_wanted` is asked before each later share."""
        if self._until_ms is None and self._at_once_ms >= SLICE_MS:
            return self.submit(_Answer(steps, is_wanted, self._host), lane)
        before_ms = self._at_once_ms
        if self._is_over_at_once(steps):
            return True
        work = _Answer(steps, is_wanted, self._host, self._at_once_ms - before_ms)
        if self._until_ms is None:
            return self.submit(work, lane)
        is_done = self._does(work, self._host.monotonic_ms(), self._until_ms) is not None
        if not is_done:
            self._wait(work, lane)
        return is_done

    def _is_over_at_once(self, steps: Iterator[None]) -> bool:
        """The first step of an answer, which is nearly always the only one: done before anything is made for
        it to wait with."""
        outer_ms = self._until_ms
        try:
            if outer_ms is not None:
                return next(steps, _OVER) is _OVER
            begun_ms = self._host.monotonic_ms()
            self._until_ms = begun_ms + SLICE_MS - self._at_once_ms
            is_over = next(steps, _OVER) is _OVER
            self._at_once_ms += self._host.monotonic_ms() - begun_ms
            if is_over and self._at_once_ms >= SLICE_MS:
                self._go_on_soon()
            return is_over
        except Exception as error:
            _note(error)
            return True
        finally:
            self._until_ms = outer_ms

    def submit(self, work: Work, lane: int = SOON) -> bool:
        """Does the work in this turn if there is time left, else when its turn comes; whether it is done."""
        is_late = self._at_once_ms > SLICE_MS - SHARE_MS or (self._is_due and lane != SOON)
        if self._until_ms is not None or is_late:
            self._lanes[lane].append(work)
            self._go_on_soon()
            return False
        begun_ms = self._host.monotonic_ms()
        share_ms = SHARE_MS if self._is_due else SLICE_MS - self._at_once_ms
        done_ms = self._does(work, begun_ms, begun_ms + share_ms)
        if done_ms is None:
            self._at_once_ms += max(self._host.monotonic_ms() - begun_ms, SHARE_MS)
            self._wait(work, lane)
            return False
        self._at_once_ms += done_ms - begun_ms
        if self._at_once_ms > SLICE_MS - SHARE_MS:
            self._go_on_soon()
        return True

    def _does(self, work: Work, now_ms: float, end_ms: float) -> float | None:
        """The time when nothing was left of it, None if something is, once it has had its share."""
        outer_ms, self._until_ms = self._until_ms, end_ms
        try:
            return work.go_on(now_ms, end_ms)
        except Exception as error:
            work.failed(error)
            return self._host.monotonic_ms()
        finally:
            self._until_ms = outer_ms

    def _wait(self, work: Work, lane: int) -> None:
        """It has had a share in this lane, and is not over."""
        if lane != OWN:
            lane = LONG if work.is_long else MORE
        self._lanes[lane].append(work)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._host.call_soon(self._go_on)

    def _go_on(self) -> None:
        """A slice of what is the shards' own, of which what comes has the rest, and a share of what waits."""
        self._is_due = False
        self._turns += 1
        self._at_once_ms = self._spend(SLICE_MS, (OWN,)) if self._lanes[OWN] else 0.0
        self._spend(SHARE_MS, ORDERS[self._turns % len(ORDERS)])
        if len(self):
            self._go_on_soon()

    def _spend(self, most_ms: float, order: tuple[int, ...]) -> float:
        """What was spent on the first of these lanes that has something, again and again. Work that is not
        over has had its share, whatever the clock says: it may be bounded in other ways."""
        spent_ms, now_ms = 0.0, self._host.monotonic_ms()
        while spent_ms <= most_ms - SHARE_MS / 2:
            lane = next((lane for lane in order if self._lanes[lane]), None)
            if lane is None:
                break
            work = self._lanes[lane].popleft()
            begun_ms = now_ms
            done_ms = self._does(work, begun_ms, begun_ms + min(SHARE_MS, most_ms - spent_ms))
            if done_ms is not None:
                now_ms = done_ms
                spent_ms += now_ms - begun_ms
                continue
            now_ms = self._host.monotonic_ms()
            spent_ms += max(now_ms - begun_ms, SHARE_MS)
            if lane == LONG:
                self._lanes[LONG].appendleft(work)
            else:
                self._wait(work, lane)
        return spent_ms
