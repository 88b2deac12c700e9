"""Rendezvous hashing as an assignor: each subscriber gets a hash for each partition, and the highest wins.

The hash depends on the two names only, so that a member that joins or leaves moves only the partitions that
it wins or had won. The price is balance: parts differ by chance.
"""

from zlib import crc32

from coordinator.assignors import AssignmentSpec, GroupAssignment, MemberAssignment, require_known_topics


class Rendezvous:
    name = "rendezvous"

    def assign(self, spec: AssignmentSpec) -> GroupAssignment:
        require_known_topics(spec)
        parts: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in spec.members}
        for topic_id, topic in spec.topics.items():
            subscribers = [m for m, member in spec.members.items() if topic_id in member.subscribed_topics]
            for number in range(topic.num_partitions if subscribers else 0):
                draws = {m: crc32(f"{topic.topic_name} {number} {m}".encode()) for m in subscribers}
                winner = max((draw, member_id) for member_id, draw in draws.items())[1]
                parts[winner].setdefault(topic_id, []).append(number)
        return GroupAssignment({m: MemberAssignment(as_tuples(part)) for m, part in parts.items()})


def as_tuples(part: dict[bytes, list[int]]) -> dict[bytes, tuple[int, ...]]:
    return {topic_id: tuple(numbers) for topic_id, numbers in part.items()}
