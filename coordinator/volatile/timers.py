"""Deadlines of members: volatile, keyed, cheap to move.

A member's deadline is moved by each of its heartbeats and almost never fires, so moving one writes a single
attribute. The heap holds one entry per armed timer with a deadline that may be too early; when the time of
such an entry comes it is put back at the true one, or thrown away if its timer was cancelled or replaced: so
a member costs the heap one step per timeout, however often it is heard.
Members that come and go leave such entries behind; when they outnumber the timers the heap is made anew.
Nothing here is in the log: after a failover every deadline starts anew, in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, count

from coordinator.state.dissolving import emptied
from records import Expiry

MemberKey = tuple[str, str]
"""Group id and member id."""

MOVED_MAX = 1_000
"""Entries of restarted timers that are put where they belong at once: it takes about two milliseconds. A term
begins with all sessions at one moment, so there may be as many as members."""

HEAP_SPARE = 64
"""Entries of timers that are gone which a small heap may hold."""


@dataclass(slots=True)
class Deadline:
    """One armed timer. Times in ms; `*_wall_ms` are for evidence only, `last_heartbeat_wall_ms` −1 = none
    since this node leads the shard. `member_epoch` is the epoch for which a rebalance timer was armed."""

    deadline_ms: float
    timeout_ms: int
    armed_ms: float
    armed_wall_ms: int
    last_heartbeat_wall_ms: int
    member_epoch: int

    def restart(self, now_ms: float, wall_ms: int) -> None:
        """A heartbeat came: the full timeout again."""
        self.deadline_ms = now_ms + self.timeout_ms
        self.armed_ms = now_ms
        self.armed_wall_ms = self.last_heartbeat_wall_ms = wall_ms

    def left_ms(self, now_ms: float) -> float:
        """Until it is due; 0 when it is."""
        return max(self.deadline_ms - now_ms, 0.0)

    def evidence(self, member_id: str) -> Expiry:
        """What an expiry's cause records, as wall-clock times."""
        return Expiry(
            member_id=member_id,
            timeout_ms=self.timeout_ms,
            armed_ms=self.armed_wall_ms,
            last_heartbeat_ms=self.last_heartbeat_wall_ms,
            deadline_ms=self.armed_wall_ms + round(self.deadline_ms - self.armed_ms),
        )


class Deadlines:
    """The timers of one kind (session, or rebalance) of all members of a shard."""

    def __init__(self) -> None:
        self._table: dict[MemberKey, Deadline] = {}
        self._heap: list[tuple[float, int, MemberKey, Deadline]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[MemberKey]:
        """Whose timers run."""
        return iter(self._table)

    @property
    def heap_size(self) -> int:
        """Entries of the heap, those of timers that are gone included."""
        return len(self._heap)

    def get(self, key: MemberKey) -> Deadline | None:
        return self._table.get(key)

    def arm(
        self,
        key: MemberKey,
        now_ms: float,
        wall_ms: int,
        timeout_ms: int,
        *,
        last_heartbeat_wall_ms: int = -1,
        member_epoch: int = -1,
    ) -> None:
        """Starts the timer, or starts it anew with a possibly different timeout."""
        due_ms = now_ms + timeout_ms
        self.put_back(
            key, Deadline(due_ms, timeout_ms, now_ms, wall_ms, last_heartbeat_wall_ms, member_epoch)
        )

    def put_back(self, key: MemberKey, deadline: Deadline) -> None:
        """The key's timer is this one from now on, such as one that turned out not to be due."""
        self._table[key] = deadline
        if len(self._heap) > HEAP_SPARE + 2 * len(self._table):
            self._make_heap()
        else:
            heappush(self._heap, (deadline.deadline_ms, next(self._numbers), key, deadline))

    def cancel(self, key: MemberKey) -> None:
        self._table.pop(key, None)

    def clear(self) -> Iterator[None]:
        """There are no timers from now on; the steps let go of those that there were."""
        table, heap = self._table, self._heap
        self._table, self._heap = {}, []
        return chain(emptied(heap), emptied(table))

    def next_ms(self) -> float | None:
        """Nothing is due before this moment; perhaps nothing at it either, as a restart moves no entry."""
        heap, table = self._heap, self._table
        while heap and table.get(heap[0][2]) is not heap[0][3]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: float) -> Iterator[tuple[MemberKey, Deadline]]:
        """Takes out the timers whose deadline has come, earliest first. If many were restarted it stops after
        some of them, and `next_ms` stays in the past: the rest is for another call."""
        heap, table, moved = self._heap, self._table, 0
        while heap and heap[0][0] <= now_ms and moved < MOVED_MAX:
            due_ms, number, key, timer = heap[0]
            if table.get(key) is not timer:
                heappop(heap)
            elif timer.deadline_ms > due_ms:
                heapreplace(heap, (timer.deadline_ms, number, key, timer))
                moved += 1
            else:
                heappop(heap)
                yield key, table.pop(key)

    def shift(self, gap_ms: float) -> None:
        """Moves every deadline: the node was not running for that long, so nobody can be blamed."""
        for timer in self._table.values():
            timer.deadline_ms += gap_ms
        self._make_heap()

    def _make_heap(self) -> None:
        self._heap = [
            (timer.deadline_ms, next(self._numbers), key, timer) for key, timer in self._table.items()
        ]
        heapify(self._heap)
