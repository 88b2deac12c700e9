"""A client-side assignor for consumers in virtual time, which is sometimes late or wrong."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, Final

from client.core.assignors import GroupToAssign, MemberPart, OfferedMetadata
from client.core.types import TopicPartition
from cluster.simulator.virtual_consumer import Sleep

COMPUTING_MS: Final = 1_500.0
"""The longest time of a computation that is not late; one in ten is."""


class RoundRobin:
    """A client-side assignor that begins with a random member, and now and then assigns a partition twice."""

    name = "round"
    minimum_version = 0
    maximum_version = 2

    def __init__(self, member: str, rng: random.Random, late_ms: float) -> None:
        self._member = member
        self._rng = rng
        self._late_ms = late_ms

    def metadata(self) -> OfferedMetadata:
        return OfferedMetadata(1, self._member.encode())

    def assign(self, group: GroupToAssign) -> Generator[Any, Any, dict[str, MemberPart]]:
        """Compute for a while; one in ten takes so long that the member has not polled in time."""
        rng = self._rng
        yield Sleep(self._late_ms if rng.random() < 0.1 else rng.random() * COMPUTING_MS)
        parts: dict[str, set[TopicPartition]] = {member_id: set() for member_id in group.members}
        is_wrong = rng.random() < 0.1
        for topic, num_partitions in sorted(group.topics.items()):
            takers = [member_id for member_id, one in group.members.items() if topic in one.topics]
            if not takers:
                continue
            start = rng.randrange(len(takers))
            for number in range(num_partitions):
                parts[takers[(start + number) % len(takers)]].add(TopicPartition(topic, number))
            if is_wrong:
                parts[takers[0]].add(TopicPartition(topic, rng.randrange(-1, num_partitions + 1)))
        return {member_id: MemberPart(frozenset(part)) for member_id, part in parts.items()}

    def on_assignment(
        self, partitions: Sequence[TopicPartition], error: int, version: int, data: bytes
    ) -> None:
        """Do nothing: what a member gets does not change what it offers."""
