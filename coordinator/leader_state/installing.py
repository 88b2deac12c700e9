"""Installation of a computed target into a group.

Only the difference is written: one record 7 for each member whose part changed, completed by a record 6
(KIP-848, "Target Assignment"). Volatile: a leader that finds a half-written target computes another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.assignors.spi import AssignmentSpec, MemberAssignment
from coordinator.state import writes
from coordinator.state.model import Group
from records import RawRecord

NO_PART = MemberAssignment({})

TOPICS_AT_ONCE = 5_000
"""Topics in the records 7 of one decision, counted per member: about 20 ms."""


class Installation:
    """A target being installed.

    It is written against the group as it is at each part, not as it was when the assignor was asked
    (KAFKA-20292). Members that have left since get nothing, a static member that was replaced passes its part
    on to its successor, and members that joined since must wait. A large target takes several decisions,
    because each record costs every node about 20 µs. A half-written target is not in force: it takes effect
    with record 6. Until then, partitions are handed over according to current ownership alone."""

    def __init__(self, spec: AssignmentSpec, answer: Mapping[str, MemberAssignment], epoch: int) -> None:
        self.epoch = epoch
        self.is_done = False
        self._spec = spec
        self._answer = answer
        self._left = iter(spec.members)

    def records(self, group: Group, wall_ms: int, records_max: int) -> list[RawRecord]:
        """The next records 7, or the last ones and record 6.

        Empty if the group already has a target of that epoch.

        A `records_max` of -1 returns all records at once."""
        changed: list[RawRecord] = []
        num_topics = 0
        if self.epoch <= group.assignment_epoch:
            self.is_done = True
            return changed
        heirs = _heirs(group, self._spec)
        for member_id in self._left:
            present_id = member_id if group.member(member_id) is not None else heirs.get(member_id)
            if present_id is None:
                continue
            part = self._answer.get(member_id, NO_PART)
            if _differs(group, present_id, part):
                changed.append(writes.target_member(group.group_id, present_id, part, self.epoch))
                num_topics += len(part.target_partitions)
                if len(changed) == records_max or (num_topics >= TOPICS_AT_ONCE and records_max > 0):
                    return changed
        covered = set(heirs.values())
        changed += [
            writes.target_member(group.group_id, member_id, NO_PART, self.epoch)
            for member_id in group.target  # otherwise its partitions could be in the parts of two members
            if member_id not in self._spec.members
            and member_id not in covered
            and group.member(member_id) is not None
            and _differs(group, member_id, NO_PART)
        ]
        self.is_done = True
        return [*changed, writes.target_epoch(group.group_id, self.epoch, wall_ms)]


@dataclass(frozen=True, slots=True)
class Computation:
    """The question to a child process: the group's state and epoch, and where that epoch began in the log."""

    spec: AssignmentSpec
    epoch: int
    assignor: str
    bumped_at: int | None
    cost_ms: float


@dataclass(slots=True)
class TargetInstall:
    """An answer that is being installed. `cost_ms` is the event-loop time spent on it so far."""

    computation: Computation
    installation: Installation
    cost_ms: float


def _heirs(group: Group, spec: AssignmentSpec) -> dict[str, str]:
    """Static members replaced since the spec was taken: old member id → new member id."""
    gone = {
        member.instance_id: member_id
        for member_id, member in spec.members.items()
        if member.instance_id is not None and group.member(member_id) is None
    }
    if not gone:
        return {}
    return {
        gone[instance_id]: member.member_id
        for member in group.joined()
        if (instance_id := member.metadata and member.metadata.instance_id) in gone
        and member.member_id not in spec.members
    }


def _differs(group: Group, member_id: str, part: MemberAssignment) -> bool:
    """Whether the part differs from the member's record 7. A missing record counts as an empty part."""
    present = group.target_of(member_id)
    if part.target_partitions is not present and part.target_partitions != present:
        return True
    value = group.target.get(member_id)
    if value is None:
        return part[1:] != NO_PART[1:]
    return (part.error, part.metadata_version, part.metadata_bytes) != (
        value.error,
        value.metadata_version,
        value.metadata_bytes,
    )
