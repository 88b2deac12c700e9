"""The node's child processes for groups: a few of each kind at once, the rest waits its turn.

Regular expressions and assignments of large groups are worked out beside the loop. Each child takes a core
while it runs, and a rebalance of many groups at once asks for as many; so a named number runs at a time,
first come, first served. Each kind has slots of its own: users' assignors that hang until their deadlines
delay no regular expression. A deadline counts from the start of the child, not from the wait before it.

What must stay true: `done` is called once for each job that was not cancelled, and never for one that was;
the queue of a kind holds at most one job for each group that the node leads, as the coordinator starts no
second one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from raftlog.host import Done, Host, Job

JOBS_AT_ONCE: Final = 2
"""Of one kind. Two children leave the loop its core on a machine with three, and share politely on smaller
ones."""


@dataclass(slots=True, eq=False)
class Slot:
    """A job that waits or runs."""

    slots: JobSlots
    module: str
    request: object
    done: Done
    deadline_ms: int
    job: Job | None = None
    is_over: bool = False

    def cancel(self) -> None:
        """Ends it; `done` is not called any more. Harmless after the end."""
        self.slots.cancel(self)


class JobSlots:
    """Starts the child processes of one kind on one node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[Slot] = deque()
        self._num_running = 0

    @property
    def num_running(self) -> int:
        return self._num_running

    @property
    def num_waiting(self) -> int:
        return sum(not slot.is_over for slot in self._waiting)

    def submit(self, module: str, request: object, done: Done, *, deadline_ms: int) -> Slot:
        """Runs `module` (see `Host.spawn_job`) as soon as there is room; `done` comes in a later turn."""
        slot = Slot(self, module, request, done, deadline_ms)
        self._waiting.append(slot)
        self._fill()
        return slot

    def cancel(self, slot: Slot) -> None:
        if slot.is_over:
            return
        slot.is_over = True
        if slot.job is not None:
            slot.job.cancel()  # its end makes room for the next

    def _fill(self) -> None:
        while self._waiting and self._num_running < JOBS_AT_ONCE:
            slot = self._waiting.popleft()
            if slot.is_over:
                continue
            self._num_running += 1

            def ended(result: object | None, error: BaseException | None, slot: Slot = slot) -> None:
                self._ended(slot, result, error)

            slot.job = self._host.spawn_job(
                slot.module, slot.request, ended, low_priority=True, deadline_ms=slot.deadline_ms
            )

    def _ended(self, slot: Slot, result: object | None, error: BaseException | None) -> None:
        self._num_running -= 1
        self._fill()
        if not slot.is_over:
            slot.is_over = True
            slot.done(result, error)
