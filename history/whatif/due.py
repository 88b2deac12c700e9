"""Who could get on by a heartbeat, and since when.

A member of the consumer protocol moves on by its own heartbeats only. After each decision some members have
a heartbeat *due*: one that would change something, because the target is another one or because somebody
gave up what they wait for. And who was told to give something up has an *acknowledgement* due. How long a
member takes from there is its own; the rest is the coordinator's.

The same object watches the recorded course and the one that is replayed. So a replay that has come to the
same state at the same moment finds the same members due, which is why a replay under the recorded settings
is the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from coordinator.state.model import Group, Member, told_by
from coordinator.state.reconcile import Target, reconcile
from coordinator.targets.target import subscribed_ids, topic_ids_by_name
from records import Cause, MemberState, RawRecord, RecordType, Trigger, decode_key

MOVES_ALL = frozenset(
    {
        RecordType.CONSUMER_GROUP_PARTITION_METADATA,
        RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        RecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
    }
)
"""Records after which any member may have something to do."""


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
"""Decisions on a member's heartbeat."""


class DueKind(StrEnum):
    HEARTBEAT = "heartbeat"
    """Any heartbeat would do."""
    ACKNOWLEDGEMENT = "acknowledgement"
    """The member was told to give up partitions and has to say that it did."""


@dataclass(frozen=True, slots=True)
class Due:
    """What a member has due, and since when (epoch ms)."""

    kind: DueKind
    since_ms: int


class Watch:
    """What each member of one group has due."""

    def __init__(self) -> None:
        self.due: dict[str, Due] = {}

    def look(
        self, group: Group | None, records: Iterable[RawRecord], at_ms: int, cause: Cause | None = None
    ) -> dict[str, Due]:
        """After a decision that wrote ``records``. Returns what became due by it, by member; for the member
        whose heartbeat it was that is all that it has due."""
        heard_of = cause.member_id if cause is not None and cause.trigger in HEARD_BY else None
        if group is None or not group.is_consumer:
            self.due.clear()
            return {}
        types = {raw.type for raw in records}
        if types.isdisjoint(MOVES_ALL):
            members = self._touched(group, records)
        else:
            members = list(group.joined())
            for member_id in self.due.keys() - group.members.keys():
                del self.due[member_id]
        ids = topic_ids_by_name(group) if members else {}
        fresh: dict[str, Due] = {}
        for member in members:
            kind = _kind(group, member, ids)
            known = self.due.get(member.member_id)
            if kind is None:
                self.due.pop(member.member_id, None)
            elif known is None or known.kind is not kind or member.member_id == heard_of:
                fresh[member.member_id] = self.due[member.member_id] = Due(kind, at_ms)
        return fresh

    def _touched(self, group: Group, records: Iterable[RawRecord]) -> list[Member]:
        """Whom records without a new target concern: those whose records they are, and those who wait."""
        named: set[str] = set()
        for raw in records:
            member_id = getattr(decode_key(raw), "member_id", None)
            if member_id is not None:
                named.add(member_id)
        for member_id in named & self.due.keys():
            if group.member(member_id) is None:
                del self.due[member_id]
        return [
            member
            for member in group.joined()
            if member.member_id in named or member.current.state is MemberState.UNRELEASED_PARTITIONS
        ]


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
        told_by(group.target.get(member.member_id)),
    )
    after = reconcile(member.member_id, current, target, None, group.owners)
    return None if after is current else DueKind.HEARTBEAT
