"""The child processes of one shard's groups: started by decisions, their results decided as requests are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from cluster.runtime.job_slots import Slot
from cluster.runtime.requests import NO_ROOM_PAUSE_MS
from cluster.runtime.shard_runtime import ShardRuntime
from coordinator.api import Job, JobKind
from coordinator.shard import GroupShard

CHILDREN: Final = {JobKind.ASSIGN: "cluster.children.assign", JobKind.RESOLVE: "cluster.children.resolve"}
"""The module that a child process runs for each kind of job."""


class GroupJobs:
    """The jobs of one shard. `decided` is called after a decision on a result: deadlines may have moved."""

    def __init__(self, shard: ShardRuntime[GroupShard, Any], decided: Callable[[], None]) -> None:
        self._shard = shard
        self._host = shard.host
        self._decided = decided
        self._children: dict[tuple[JobKind, str], Slot] = {}

    def start(self, jobs: Iterable[Job]) -> None:
        """Start the jobs of a decision whose records are appended."""
        for job in jobs:
            if (former := self._children.get(job.key)) is not None:
                former.cancel()  # of a group that was deleted and created again
            self._children[job.key] = self._shard.node.job_slots[job.kind].submit(
                CHILDREN[job.kind],
                job.request,
                partial(self._ended, job),
                deadline_ms=job.deadline_ms,
                lane=job.lane,
                is_retry=job.is_retry,
            )

    def cancel(self) -> None:
        """Cancel all jobs: another node leads."""
        for slot in self._children.values():
            slot.cancel()
        self._children.clear()

    def _ended(self, job: Job, result: object, error: BaseException | None) -> None:
        self._children.pop(job.key, None)
        self._decide(job, result, None if error is None else str(error))

    def _decide(self, job: Job, result: object, error: str | None) -> None:
        """Decide on a job's result; it waits while there is no room for what it may write."""
        shard, requests = self._shard, self._shard.requests
        if not shard.is_ready:
            return
        now_ms = self._host.monotonic_ms()
        shard.node.observe_clock(now_ms)
        requests.observe_room(now_ms)
        if not requests.has_room:
            self._host.call_later(NO_ROOM_PAUSE_MS, self._decide, job, result, error)
            return
        decision = requests.decide(now_ms, partial(shard.machine.job_ended, job, result, error))
        if decision is not None:
            self.start(decision.jobs)
            self._decided()
