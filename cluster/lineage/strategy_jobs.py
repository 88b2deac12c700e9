"""Users' strategies of seed 000: assignors (docs/assignors.md) in the child processes that compute targets.

A strategy knows topics by name, an assignor by id; both directions are translated here. The jobs share the
slots, the deadline and the memory of users' assignors, and the lane of the assignor's name.

Invariants: `ended` is called once, in a later turn, for each job that was not cancelled, and never for a
cancelled one; a group has one job at most.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from cluster.runtime.group_jobs import CHILDREN
from cluster.runtime.job_slots import JobSlots, Slot
from cluster.settings import Settings
from coordinator.api import JobKind
from coordinator.assignors import AssignmentMemberSpec, AssignmentSpec, AssignmentTopicMetadata
from coordinator.assignors.assigning import parts_of, question
from lineage.rewrite.strategies import Assignment, StrategyJob

FAILED_GROUPS_MAX: Final = 10_000
"""Groups of which it is known that their last job failed; beyond that the oldest ones are forgotten."""

Ended = Callable[[StrategyJob, Assignment | None, str | None], None]
"""Is told a job's answer or its error."""


class StrategyJobs:
    """The jobs of one shard's groups. `topic_id` is asked in the turn of `start`: the topics exist then."""

    def __init__(
        self, slots: JobSlots, settings: Settings, topic_id: Callable[[str], bytes], ended: Ended
    ) -> None:
        self._slots, self._topic_id, self._tell = slots, topic_id, ended
        self._deadline_ms = settings.group_consumer_assignor_timeout_ms
        self._memory_bytes_max = settings.group_consumer_assignor_memory_max_bytes
        self._running: dict[str, Slot] = {}
        self._failed: dict[str, None] = {}

    def start(self, job: StrategyJob) -> None:
        """Run the job as soon as there is room."""
        if (former := self._running.get(job.group_id)) is not None:
            former.cancel()  # of a group that was deleted and created again
        spec = _spec_of(job, self._topic_id)
        asked = question(spec, job.strategy)
        asked["memory_bytes_max"] = self._memory_bytes_max
        self._running[job.group_id] = self._slots.submit(
            CHILDREN[JobKind.ASSIGN],
            asked,
            partial(self._ended, job, spec),
            deadline_ms=min(self._deadline_ms, job.deadline_ms),
            lane=job.strategy,
            is_retry=job.group_id in self._failed,
        )

    def cancel(self) -> None:
        """Cancel all jobs: another node leads."""
        for slot in self._running.values():
            slot.cancel()
        self._running.clear()
        self._failed.clear()

    def _ended(
        self, job: StrategyJob, spec: AssignmentSpec, result: object, error: BaseException | None
    ) -> None:
        del self._running[job.group_id]
        self._failed.pop(job.group_id, None)
        try:
            if error is not None:
                raise error
            answer = _answer_of(spec, result)
        except Exception as failure:  # it may be third-party code
            self._failed[job.group_id] = None
            if len(self._failed) > FAILED_GROUPS_MAX:
                del self._failed[next(iter(self._failed))]
            self._tell(job, None, " | ".join(str(failure).splitlines()))
        else:
            self._tell(job, answer, None)


def _spec_of(job: StrategyJob, topic_id: Callable[[str], bytes]) -> AssignmentSpec:
    """The input of an assignor: the former partitions of the topics that are assigned."""
    ids = {name: topic_id(name) for name in job.counts}
    subscriptions: dict[tuple[str, ...], frozenset[bytes]] = {}
    members: dict[str, AssignmentMemberSpec] = {}
    for consumer_id, one in job.consumers.items():
        if one.topics not in subscriptions:
            subscriptions[one.topics] = frozenset([ids[name] for name in one.topics])
        before = {ids[name]: numbers for name, numbers in one.owned.items() if name in ids}
        members[consumer_id] = AssignmentMemberSpec(subscriptions[one.topics], before)
    topics = {ids[name]: AssignmentTopicMetadata(name, count) for name, count in job.counts.items()}
    return AssignmentSpec(members, topics)


def _answer_of(spec: AssignmentSpec, result: object) -> Assignment:
    """Decode the child's answer. Raises `PartitionAssignorError`."""
    return {
        consumer_id: [
            (spec.topics[topic_id].topic_name, number)
            for topic_id, numbers in part.target_partitions.items()
            for number in numbers
        ]
        for consumer_id, part in parts_of(spec, result).items()
    }
