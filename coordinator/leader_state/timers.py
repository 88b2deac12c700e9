"""Deadlines of members: volatile, keyed, and cheap to move.

Each heartbeat moves a member's deadline, and it almost never fires, so moving it only writes one attribute.
The heap holds one entry per armed timer. The entry's deadline may be too early; when it comes, the entry is
put back with the true deadline, or discarded if the timer was cancelled or replaced. So a member costs one
heap operation per timeout, however often it sends heartbeats. Members that join and leave cause obsolete
entries; when these outnumber the timers, the heap is rebuilt. Nothing here is in the log: after a failover
every deadline starts again, in full.

No timer runs here. The runtime asks for the next deadline and calls `GroupShard.next_work` when it has come;
that takes what is due (`GroupContext.collect_expired`) and ends the members (`members.leaving.expire`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, count

from coordinator.state.freeing import free_incrementally
from records import Expiry

MemberKey = tuple[str, str]
"""Group id and member id."""

MOVED_MAX = 1_000
"""Entries of restarted timers that are repositioned in one call: about two milliseconds. All sessions start
at the same time when a term begins, so there may be as many such entries as members."""

HEAP_SPARE = 64
"""Obsolete entries that even a small heap may hold."""


@dataclass(slots=True)
class Deadline:
    """One armed timer. Times are in ms.

    `*_wall_ms` are only evidence for the log; `last_heartbeat_wall_ms` is −1 if there was none since this
    node leads the shard. `member_epoch` is the epoch for which a rebalance timer was armed."""

    deadline_ms: float
    timeout_ms: int
    armed_ms: float
    armed_wall_ms: int
    last_heartbeat_wall_ms: int
    member_epoch: int

    def restart(self, now_ms: float, wall_ms: int) -> None:
        """Restart the full timeout after a heartbeat."""
        self.deadline_ms = now_ms + self.timeout_ms
        self.armed_ms = now_ms
        self.armed_wall_ms = self.last_heartbeat_wall_ms = wall_ms

    def left_ms(self, now_ms: float) -> float:
        """Time until it is due; 0 if it is."""
        return max(self.deadline_ms - now_ms, 0.0)

    def evidence(self, member_id: str) -> Expiry:
        """The evidence that an expiry's cause records, in wall-clock times."""
        return Expiry(
            member_id=member_id,
            timeout_ms=self.timeout_ms,
            armed_ms=self.armed_wall_ms,
            last_heartbeat_ms=self.last_heartbeat_wall_ms,
            deadline_ms=self.armed_wall_ms + round(self.deadline_ms - self.armed_ms),
        )


class Deadlines:
    """The timers of one kind (session or rebalance) of all members of a shard."""

    def __init__(self) -> None:
        self._table: dict[MemberKey, Deadline] = {}
        self._heap: list[tuple[float, int, MemberKey, Deadline]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[MemberKey]:
        """Iterate over the keys of all running timers."""
        return iter(self._table)

    @property
    def heap_size(self) -> int:
        """Entries of the heap, including obsolete ones."""
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
        """Start or restart the timer, possibly with a different timeout."""
        due_ms = now_ms + timeout_ms
        self.put_back(
            key, Deadline(due_ms, timeout_ms, now_ms, wall_ms, last_heartbeat_wall_ms, member_epoch)
        )

    def put_back(self, key: MemberKey, deadline: Deadline) -> None:
        """Set the key's timer, for example to one that turned out not to be due."""
        self._table[key] = deadline
        if len(self._heap) > HEAP_SPARE + 2 * len(self._table):
            self._make_heap()
        else:
            heappush(self._heap, (deadline.deadline_ms, next(self._numbers), key, deadline))

    def cancel(self, key: MemberKey) -> None:
        self._table.pop(key, None)

    def clear(self) -> Iterator[None]:
        """Remove all timers. Iterating the result frees the memory in steps."""
        table, heap = self._table, self._heap
        self._table, self._heap = {}, []
        return chain(free_incrementally(heap), free_incrementally(table))

    def next_ms(self) -> float | None:
        """Lower bound for the next deadline; None without timers.

        Restarts do not move heap entries, so nothing may be due yet."""
        heap, table = self._heap, self._table
        while heap and table.get(heap[0][2]) is not heap[0][3]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: float) -> Iterator[tuple[MemberKey, Deadline]]:
        """Remove and yield the timers whose deadline has passed, earliest first.

        After repositioning `MOVED_MAX` restarted timers it stops, and `next_ms` stays in the past: the rest
        is left for another call."""
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
        """Move every deadline: the node did not run for that long, and members must not expire for it."""
        for timer in self._table.values():
            timer.deadline_ms += gap_ms
        self._make_heap()

    def _make_heap(self) -> None:
        self._heap = [
            (timer.deadline_ms, next(self._numbers), key, timer) for key, timer in self._table.items()
        ]
        heapify(self._heap)
