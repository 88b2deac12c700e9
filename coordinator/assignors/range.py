"""The range assignor: each topic is split into contiguous ranges, one per subscriber.

Members that subscribe to the same topics get the same range of each, so topics with equal numbers of
partitions are co-partitioned. The present target is not used. The result is stable because the order of
members is: static members by instance id, then dynamic ones by member id. O(members × topics).
"""

from __future__ import annotations

from coordinator.assignors.spi import (
    AssignmentSpec,
    GroupAssignment,
    MemberAssignment,
    Partitions,
    require_known_topics,
)


class RangeAssignor:
    name = "range"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        require_known_topics(spec)
        order = sorted(
            spec.members,
            key=lambda member_id: (
                spec.members[member_id].instance_id is None,
                spec.members[member_id].instance_id or member_id,
                member_id,
            ),
        )
        parts: dict[str, dict[bytes, tuple[int, ...]]] = {member_id: {} for member_id in spec.members}
        subscribers: dict[bytes, list[str]] = {}
        for member_id in order:
            for topic_id in spec.members[member_id].subscribed_topics:
                subscribers.setdefault(topic_id, []).append(member_id)
        for topic_id in sorted(subscribers):
            member_ids = subscribers[topic_id]
            quota, extras = divmod(spec.topics[topic_id].num_partitions, len(member_ids))
            start = 0
            for position, member_id in enumerate(member_ids):
                end = start + quota + (position < extras)
                if end == start:
                    break
                parts[member_id][topic_id] = tuple(range(start, end))
                start = end
        return GroupAssignment(
            {
                member_id: MemberAssignment(self._unless_equal(spec, member_id, part))
                for member_id, part in parts.items()
            }
        )

    @staticmethod
    def _unless_equal(spec: AssignmentSpec, member_id: str, part: Partitions) -> Partitions:
        old = spec.members[member_id].target_partitions
        return old if old == part else part
