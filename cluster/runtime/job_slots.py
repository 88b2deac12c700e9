"""The node's child processes for groups: a few of each kind run at once, the others are queued.

Regular expressions and the assignments of large groups are computed beside the loop. Each child takes a core
while it runs, and a rebalance of many groups at once needs many of them. So their number is bounded; they
start in order of arrival. Each kind has its own slots: users' assignors that hang until their deadlines do
not delay regular expressions. A deadline counts from the start of the child, not from the time it was queued.

Jobs are queued in lanes, one for each assignor, so that an assignor that hangs in a hundred groups does not
delay groups that use another one. Within a lane, groups whose last job failed never get the last slot: groups
for which the assignor works do not wait for those for which it hangs.

Invariants: `done` is called once for each job that was not cancelled, and never for a cancelled one;
the queue of a kind holds at most one job for each group that the node leads, as the coordinator starts no
second one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from raftlog.env.host import ChildProcess, Done, Host

JOBS_AT_ONCE: Final = 2
"""Children that one lane runs at once. Two leave the loop its core on a machine with three, and share it
fairly on smaller ones. More run only if several assignors are in use."""

RETRIES_AT_ONCE: Final = JOBS_AT_ONCE - 1
"""Children of a lane for groups whose last job failed: the next one will probably take its whole time too."""


@dataclass(slots=True, eq=False)
class Slot:
    """A job that is queued or runs."""

    slots: JobSlots
    lane: Lane
    module: str
    request: object
    done: Done
    deadline_ms: int
    is_retry: bool
    job: ChildProcess | None = None
    is_over: bool = False

    def cancel(self) -> None:
        """Cancel the job; `done` is not called any more. Harmless after the end."""
        self.slots.cancel(self)


@dataclass(slots=True, eq=False)
class Lane:
    """Jobs of one kind that share slots and are queued together."""

    waiting: deque[Slot] = field(default_factory=deque)
    retries: deque[Slot] = field(default_factory=deque)
    num_running: int = 0
    num_retries_running: int = 0

    def forget(self, slot: Slot) -> None:
        """Remove a cancelled slot from its queue, which frees its request; that may be large."""
        queue = self.retries if slot.is_retry else self.waiting
        if slot in queue:
            queue.remove(slot)

    def next(self) -> Slot | None:
        """Return the slot to start now, or None if there is none or no room for it."""
        for queue, has_room in (
            (self.waiting, True),
            (self.retries, self.num_retries_running < RETRIES_AT_ONCE),
        ):
            if queue and has_room and self.num_running < JOBS_AT_ONCE:
                return queue.popleft()
        return None


class JobSlots:
    """Starts the child processes of one kind on one node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lanes: defaultdict[str, Lane] = defaultdict(Lane)

    @property
    def num_running(self) -> int:
        return sum(lane.num_running for lane in self._lanes.values())

    @property
    def num_waiting(self) -> int:
        lanes = self._lanes.values()
        return sum(len(lane.waiting) + len(lane.retries) for lane in lanes)

    def submit(
        self,
        module: str,
        request: object,
        done: Done,
        *,
        deadline_ms: int,
        lane: str = "",
        is_retry: bool = False,
    ) -> Slot:
        """Run `module` (see `Host.spawn_job`) as soon as there is room; `done` is called in a later turn."""
        own = self._lanes[lane]
        slot = Slot(self, own, module, request, done, deadline_ms, is_retry)
        (own.retries if is_retry else own.waiting).append(slot)
        self._fill(own)
        return slot

    def cancel(self, slot: Slot) -> None:
        if slot.is_over:
            return
        slot.is_over = True
        if slot.job is not None:
            slot.job.cancel()  # its end makes room for the next
        else:
            slot.lane.forget(slot)

    def _fill(self, lane: Lane) -> None:
        while (slot := lane.next()) is not None:
            lane.num_running += 1
            lane.num_retries_running += slot.is_retry
            slot.job = self._host.spawn_job(
                slot.module,
                slot.request,
                partial(self._ended, slot),
                low_priority=True,
                deadline_ms=slot.deadline_ms,
            )

    def _ended(self, slot: Slot, result: object | None, error: BaseException | None) -> None:
        slot.lane.num_running -= 1
        slot.lane.num_retries_running -= slot.is_retry
        self._fill(slot.lane)
        if not slot.is_over:
            slot.is_over = True
            slot.done(result, error)
