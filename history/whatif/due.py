"""Members that could progress by a heartbeat, and since when.

A member of the consumer protocol progresses only by its own heartbeats. After each decision some members have
a heartbeat *due*: one that would change something, because the target changed or another member gave up
partitions that they wait for. A member that was asked to revoke partitions has an *acknowledgement* due. How
long a member then takes is its own behaviour; everything else is the coordinator's.

The same object watches the recorded course and the replay. A replay that reaches the same state at the same
time therefore finds the same members due, which is why a replay under the recorded settings reproduces the
record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from coordinator.state.model import Group, Member, assignor_metadata_of
from coordinator.state.reconcile import NOTHING_SAID, Target, reconcile
from coordinator.targets.target import subscribed_ids, topic_ids_by_name
from records import Cause, MemberState, RawRecord, RecordType, Trigger, decode_key

MOVES_ALL = frozenset(
    {
        RecordType.CONSUMER_GROUP_PARTITION_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    }
)
"""Records after which any member may have something due."""


HEARD_BY = frozenset(
    {
        Trigger.MEMBER_JOINED,
        Trigger.MEMBER_REJOINED,
        Trigger.MEMBER_REPLACED,
        Trigger.MEMBER_UPDATED,
        Trigger.MEMBER_ACKED,
        Trigger.HEARTBEAT,
    }
)
"""Triggers of decisions on a member's heartbeat."""


class DueKind(StrEnum):
    HEARTBEAT = "heartbeat"
    """Any heartbeat suffices."""
    ACKNOWLEDGEMENT = "acknowledgement"
    """The member was asked to revoke partitions and must acknowledge it."""


@dataclass(frozen=True, slots=True)
class DueAction:
    """Something that a member has due, and since when (epoch ms)."""

    kind: DueKind
    since_ms: int


class Watch:
    """Tracks what each member of one group has due."""

    def __init__(self) -> None:
        self.due: dict[str, DueAction] = {}
        self._waiting: set[str] = set()
        """Members that wait for partitions; those that another member gives up may be theirs."""

    def look(
        self, group: Group | None, records: Iterable[RawRecord], at_ms: int, cause: Cause | None = None
    ) -> tuple[dict[str, DueAction], dict[str, DueAction]]:
        """Update after a decision that wrote ``records``; return what became due and what ended, by member.

        If the decision was on a member's own heartbeat, what the member had due ends and may become due anew.
        """
        fresh: dict[str, DueAction] = {}
        closed: dict[str, DueAction] = {}
        if group is None or not group.is_consumer:
            closed, self.due = self.due, {}
            self._waiting.clear()
            return fresh, closed
        heard_of = cause.member_id if cause is not None and cause.trigger in HEARD_BY else None
        looked_at = self._looked_at(group, records)
        ids = topic_ids_by_name(group) if looked_at else {}
        for member_id in looked_at:
            member = group.member(member_id)
            kind = None if member is None else _kind(group, member, ids)
            known = self.due.get(member_id)
            if known is not None and (kind is not known.kind or member_id == heard_of):
                closed[member_id] = self.due.pop(member_id)
            if kind is not None and member_id not in self.due:
                fresh[member_id] = self.due[member_id] = DueAction(kind, at_ms)
            if member is not None and member.current.state is MemberState.UNRELEASED_PARTITIONS:
                self._waiting.add(member_id)
            else:
                self._waiting.discard(member_id)
        return fresh, closed

    def _looked_at(self, group: Group, records: Iterable[RawRecord]) -> Iterable[str]:
        """The members that the records may concern, in a deterministic order.

        These are all members if the target changed; otherwise those that the records name and those that
        wait.
        """
        if not MOVES_ALL.isdisjoint(raw.type for raw in records):
            return [*group.members, *sorted(self.due.keys() - group.members.keys())]
        named = {getattr(decode_key(raw), "member_id", "") for raw in records}
        return sorted(named.union(self._waiting) - {""})


def _kind(group: Group, member: Member, ids: dict[str, bytes]) -> DueKind | None:
    current = member.current
    if member.metadata is None or member.is_away or current.state is MemberState.UNKNOWN:
        return None
    if current.state is MemberState.UNREVOKED_PARTITIONS:
        return DueKind.ACKNOWLEDGEMENT
    if current.state is MemberState.STABLE and current.epoch != group.assignment_epoch:
        return DueKind.HEARTBEAT
    target = Target(
        group.assignment_epoch,
        group.target_of(member.member_id),
        subscribed_ids(group, member.metadata, ids),
        ids.values(),
        assignor_metadata_of(group.target.get(member.member_id)),
    )
    after = reconcile(member.member_id, current, target, NOTHING_SAID, group.owners)
    return None if after is current else DueKind.HEARTBEAT
