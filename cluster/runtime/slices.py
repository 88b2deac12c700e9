"""One budget per turn of the loop for all slow work of a node, so that no request waits for all of it.

There are three kinds of work: the requests of a connection; an answer that may be long, as an iterator that
yields every fraction of a millisecond; and the shards' own work, such as beginning to lead, handling what is
due, or the rest of a request that takes several decisions. Work that arrives while the turn has time left is
done at once. Later work is queued in a lane. The shards' lane (`own`) goes first, because clients wait for
it: it may use the time that a turn otherwise spends on arriving work, in shares, round-robin. The other three
lanes together get one share (a millisecond) per turn:

- `soon`: work that has just arrived and is small;
- `more`: work that was not finished after its share. These get shares round-robin;
- `long`: answers that have used a slice and are not finished. They are done one after the other, so that only
  one of them at a time is further than its beginning, however many are requested.

The lanes take turns in being first; the others get what it leaves. So one small request goes before the two
thousandth of another connection, an answer of a few milliseconds does not wait for those that take a second,
and the links between nodes, which are read in every turn, do not wait for more than that.

No work begins in a small remainder of a slice or share: a batch of requests that is cut is answered in two
writes, comes back in two reads, and costs more from then on.

Invariants: a turn spends a slice on arriving work and the shards' own, and a share on queued work;
it exceeds that only by what cannot be divided: one request, one decision, or one step. Work whose result is
no longer wanted is dropped, and an exception in one piece of work does not keep others from being done. The
callers bound the queue: each connection is in one lane once, and makes one answer at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Final, Protocol, TypeVar

from raftlog.env.host import Host

LOG = logging.getLogger("quorate.runtime")

SLICE_MS: Final = 5.0
"""Time that a turn spends at once on arriving work: a tenth of the longest turn allowed."""

SHARE_MS: Final = 1.0
"""Time that one piece of work gets before the next one, some twenty requests or a part of an answer; and the
time that a turn spends on queued work. A turn without work takes some hundredths of a millisecond."""

LONG, MORE, SOON, OWN = range(4)
ORDERS: Final = tuple((first, SOON, MORE, LONG) for first in (SOON, MORE, SOON, LONG))
"""The order of the lanes in successive turns, round-robin; each lane gets what those before it leave."""

T = TypeVar("T")

_OVER: Final = object()


class Timed:
    """Tells how long work takes, in units of `clock`, without the time between its steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.spent = 0.0

    def run(self, work: Generator[None, None, T]) -> Generator[None, None, T]:
        """Do the work, and count it."""
        while True:
            began = self._clock()
            try:
                next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.spent += self._clock() - began
            yield


def finished(work: Generator[None, None, T]) -> T:
    """Run the work to its end and return its result, for callers that have no loop to share."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def _note(error: Exception) -> None:
    LOG.error("a response could not be built", exc_info=error)


class Work(Protocol):
    """Slow work that can be interrupted and resumed."""

    @property
    def is_long(self) -> bool:
        """Whether the work has used so much time that it belongs in the lane `long`, one after the other."""

    def go_on(self, now_ms: float, end_ms: float) -> float | None:
        """Work until about `end_ms`; return the time at which the work was finished, or None if it is not."""

    def failed(self, error: Exception) -> None:
        """Handle an exception of `go_on`; the work is not resumed."""


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
        self._at_once_ms = 0.0  # spent on arriving work since the last turn of the lanes
        self._until_ms: float | None = None  # set while something works; what it submits shares its time
        self._turns = 0
        self._is_due = False

    def __len__(self) -> int:
        """The number of queued pieces of work."""
        return sum(map(len, self._lanes))

    def run(self, steps: Iterator[None], is_wanted: Callable[[], bool], lane: int = SOON) -> bool:
        """Make an answer; return whether it is finished. `is_wanted` is checked before each later share."""
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

    def at_once(self, call: Callable[[T], None], value: T) -> bool:
        """Make a call that takes microseconds if the turn has time left; return whether it was made.

        It spares a short answer the generator and the object of a longer one.
        """
        if self._until_ms is not None:
            call(value)
            return True
        if self._at_once_ms >= SLICE_MS:
            return False
        begun_ms = self._host.monotonic_ms()
        call(value)
        self._at_once_ms += self._host.monotonic_ms() - begun_ms
        if self._at_once_ms >= SLICE_MS:
            self._go_on_soon()
        return True

    def _is_over_at_once(self, steps: Iterator[None]) -> bool:
        """Run the first step of an answer and return whether it was the last, as it nearly always is.

        It runs before any object is created for queuing the rest.
        """
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
        """Do the work in this turn if there is time left, otherwise queue it; return whether it is done."""
        is_late = self._at_once_ms > SLICE_MS - SHARE_MS or (self._is_due and lane != SOON)
        if self._until_ms is not None or is_late:
            self.queue(work, lane)
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

    def queue(self, work: Work, lane: int) -> None:
        """Do the work in a later turn."""
        self._lanes[lane].append(work)
        self._go_on_soon()

    def _does(self, work: Work, now_ms: float, end_ms: float) -> float | None:
        """Give the work its time; return when it was finished, or None if it is not."""
        outer_ms, self._until_ms = self._until_ms, end_ms
        try:
            return work.go_on(now_ms, end_ms)
        except Exception as error:
            work.failed(error)
            return self._host.monotonic_ms()
        finally:
            self._until_ms = outer_ms

    def _wait(self, work: Work, lane: int) -> None:
        """Queue work that has had a share and is not finished."""
        if lane != OWN:
            lane = LONG if work.is_long else MORE
        self.queue(work, lane)

    def _go_on_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._host.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Spend a slice on the shards' own work and then on arriving work, and a share on queued work."""
        self._is_due = False
        self._turns += 1
        self._at_once_ms = self._spend(SLICE_MS, (OWN,)) if self._lanes[OWN] else 0.0
        self._spend(SHARE_MS, ORDERS[self._turns % len(ORDERS)])
        if len(self):
            self._go_on_soon()

    def _spend(self, most_ms: float, order: tuple[int, ...]) -> float:
        """Work on the first of these lanes that has something, repeatedly, and return the time spent.

        Unfinished work counts as a full share, whatever the clock says, because it may be bounded in other
        ways.
        """
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
