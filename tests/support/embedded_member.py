"""A consumer of the classic protocol that subscribes to topics and takes up partitions, as clients do.

It follows the client's half of both: in a classic group it waits for the others and computes the assignment
if it leads, in a consumer group it is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coordinator.assignors.range import RangeAssignor
from coordinator.assignors.spi import AssignmentMemberSpec, AssignmentSpec, AssignmentTopicMetadata
from tests.support.classic_member import ClassicConsumer
from tests.support.group_client import Client
from tests.support.world import World
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
    encode,
)
from wire.errors import ErrorCode

Partition = tuple[str, int]


def assignment(partitions: Sequence[Partition], user_data: bytes | None = None) -> bytes:
    """An assignment as a leader encodes it."""
    topics: dict[str, list[int]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(number)
    named = [TopicPartitionsByName(topic=name, partitions=numbers) for name, numbers in topics.items()]
    return encode(ConsumerProtocolAssignment(assigned_partitions=named, user_data=user_data), 1)


class EmbeddedConsumer(ClassicConsumer):
    """A consumer with the classic protocol. It is eager unless it is `cooperative`: then it owns its
    partitions while it joins, and joins again after it gave some up."""

    def __init__(
        self,
        world: World,
        client_id: str,
        topics: Sequence[str] = ("orders",),
        *,
        cooperative: bool = False,
        assignors: Sequence[str] = ("range",),
        **more: Any,
    ) -> None:
        super().__init__(world, client_id, **more)
        self.topics = list(topics)
        self.is_cooperative = cooperative
        self.assignors = tuple(assignors)
        self.owned: set[Partition] = set()
        self.lost: list[set[Partition]] = []
        """The partitions that it gave up without a chance to commit."""
        self.phase = "unjoined"
        self.loses_reply: Callable[[], bool] = lambda: False
        """Asked about each reply; the client gives up waiting for a lost one, and joins again."""
        self.is_fenced = False
        """Whether another process has its instance id; its client stops then."""

    def subscription(self) -> bytes:
        topics: dict[str, list[int]] = {}
        for name, number in sorted(self.owned):
            topics.setdefault(name, []).append(number)
        owned = [TopicPartitionsByName(topic=name, partitions=numbers) for name, numbers in topics.items()]
        subscription = ConsumerProtocolSubscription(
            topics=self.topics, owned_partitions=owned, generation_id=self.generation
        )
        return encode(subscription, 2 if self.is_cooperative else 1)

    def poll(self) -> None:
        """Do what is due: join, sync, or send a heartbeat and do what it says."""
        if self.is_fenced:
            return
        if self.phase == "stable":
            self._heard(self.heartbeat())
        if self.phase == "unjoined" and not self.is_fenced:
            self._join_group()
        elif self.phase == "joining":
            self._joined_group(self.joined())
        if self.phase == "joined":
            self._sync_group()
        elif self.phase == "syncing":
            self._synced_group(self.synced())

    def _heard(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._lose(code)
        self.phase = "unjoined"

    def _lose(self, code: int) -> None:
        assert code in (
            ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID,
        ), ErrorCode(code)  # fmt: skip
        if self.owned:
            self.lost.append(self.owned)
        self.owned = set()
        self.is_fenced = code == ErrorCode.FENCED_INSTANCE_ID
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1

    def _join_group(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        self.protocols = dict.fromkeys(self.assignors, self.subscription())
        had_id = self.member_id
        answer = self.join()
        if self.loses_reply():
            self.member_id = had_id
        elif answer is None:
            self.phase = "joining"
        else:
            self._joined_group(answer)

    def _joined_group(self, answer: Any) -> None:
        if answer is None:
            return
        if answer.error_code == ErrorCode.NONE:
            self.phase = "joined"
            return
        self.phase = "unjoined"
        if answer.error_code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.MEMBER_ID_REQUIRED):
            self._lose(answer.error_code)

    def _sync_group(self) -> None:
        answer = self.sync(self._computed() if self.is_leader else None)
        if self.loses_reply():
            self.phase = "unjoined"
        elif answer is None:
            self.phase = "syncing"
        else:
            self._synced_group(answer)

    def _synced_group(self, answer: Any) -> None:
        if answer is None:
            return
        self.phase = "unjoined"
        if answer.error_code == ErrorCode.NONE:
            self._take_up(
                decode(ConsumerProtocolAssignment, answer.assignment) if answer.assignment else None
            )
        elif answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._lose(answer.error_code)

    def _take_up(self, given: ConsumerProtocolAssignment | None) -> None:
        topics = given.assigned_partitions if given is not None else []
        partitions = {(one.topic, number) for one in topics for number in one.partitions}
        gives_up = bool(self.owned - partitions)
        self.owned = partitions
        self.phase = "unjoined" if self.is_cooperative and gives_up else "stable"

    def _computed(self) -> dict[str, bytes]:
        """The assignments of a leader: by range, and only partitions that no other member owns."""
        said = {
            member_id: decode(ConsumerProtocolSubscription, metadata)
            for member_id, metadata in self.members.items()
        }
        owner_of = {
            (one.topic, number): member_id
            for member_id, subscription in said.items()
            for one in subscription.owned_partitions
            for number in one.partitions
        }
        names = {name for subscription in said.values() for name in subscription.topics}
        topics = {name.encode(): topic for name in names if (topic := self.world.catalog.view.topic(name))}
        spec = AssignmentSpec(
            {
                member_id: AssignmentMemberSpec(
                    frozenset(name.encode() for name in subscription.topics if name.encode() in topics)
                )
                for member_id, subscription in said.items()
            },
            {
                name: AssignmentTopicMetadata(topic.name, topic.num_partitions)
                for name, topic in topics.items()
            },
        )
        return {
            member_id: assignment(
                [
                    (name.decode(), number)
                    for name, numbers in part.target_partitions.items()
                    for number in numbers
                    if owner_of.get((name.decode(), number), member_id) == member_id
                ]
            )
            for member_id, part in RangeAssignor().assign(spec).members.items()
        }


def settled(world: World, *clients: Any, rounds: int = 12) -> None:
    """Let all clients act in turns, so often that the group comes to rest."""
    for _ in range(rounds):
        for client in clients:
            if isinstance(client, EmbeddedConsumer):
                client.poll()
            else:
                client.beat()
            world.work()


Stable = Callable[..., list[EmbeddedConsumer]]
"""Makes a stable classic group of consumers with these client ids."""


def owned(world: World, *clients: EmbeddedConsumer | Client) -> list[set[tuple[str, int]]]:
    """The partitions that each client owns, by topic name."""
    names = {topic.topic_id: topic.name for topic in world.catalog.view}
    return [
        client.owned
        if isinstance(client, EmbeddedConsumer)
        else {(names[topic_id], number) for topic_id, numbers in client.owned.items() for number in numbers}
        for client in clients
    ]


def shared(world: World, *clients: EmbeddedConsumer | Client, partitions: int = 6) -> None:
    """Assert that the clients own every partition once, and equally many."""
    parts = owned(world, *clients)
    assert sum(map(len, parts)) == partitions == len(set().union(*parts)), parts
    assert max(map(len, parts)) - min(map(len, parts)) <= 1, parts
