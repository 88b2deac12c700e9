"""A member of the classic protocol, sans-IO: what it sends next, and what an answer changes.

`Consumer` speaks the consumer group protocol only. This member is for comparisons and for simulations of a
coordinator: eager or cooperative, static or not. Its state says what it sends:

    UNJOINED  JoinGroup   an answer leads to SYNCING
    SYNCING   SyncGroup   an answer leads to STABLE, or a cooperative member that must revoke to UNJOINED
    STABLE    Heartbeat   REBALANCE_IN_PROGRESS leads to UNJOINED

Source: reference of Kafka's ConsumerCoordinator and KIP-429 (cooperative rebalancing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from enum import Enum
from typing import Any, Final, NamedTuple

from client.core.member.states import COORDINATOR_MOVED
from wire.apis import ApiKey
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
    encode,
)
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from wire.schema import Message

SUBSCRIPTION_VERSION: Final = 2
ASSIGNMENT_VERSION: Final = 1
EAGER, COOPERATIVE = "range", "cooperative-sticky"

GONE: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
"""Errors after which the coordinator no longer knows the member."""
LOST: Final = {*GONE, ErrorCode.ILLEGAL_GENERATION}
"""Errors after which the member's partitions may be another's."""
REJOIN: Final = {*LOST, ErrorCode.REBALANCE_IN_PROGRESS}

Part = tuple[str, int]
"""(topic name, partition)."""


Assign = Callable[[Mapping[str, set[Part]], Mapping[str, int]], Mapping[str, set[Part]]]
"""From what each member owns and the topics' numbers of partitions, to what each member gets."""


def round_robin(
    owned: Mapping[str, set[Part]], topics: Mapping[str, int], first: int = 0
) -> Mapping[str, set[Part]]:
    """Deal each topic's partitions to the members in the order of their ids, from the `first` on."""
    takers = sorted(owned)
    given: dict[str, set[Part]] = {member_id: set() for member_id in takers}
    for topic, num_partitions in topics.items():
        for number in range(num_partitions):
            given[takers[(first + number) % len(takers)]].add((topic, number))
    return given


class Phase(Enum):
    """The next request of a member."""

    UNJOINED = "JoinGroup"
    SYNCING = "SyncGroup"
    STABLE = "Heartbeat"


class Then(Enum):
    """The time at which the next request is due."""

    AT_ONCE = 0
    SOON = 1
    """After a short wait."""
    AT_INTERVAL = 2
    MOVED = 3
    """As soon as the coordinator is found, which has moved or gone."""
    UNEXPECTED = 4
    """At the interval, but the error is not one that a member handles."""


class Outgoing(NamedTuple):
    """A request."""

    api_key: ApiKey
    api_version: int
    body: Message


class ClassicMachine:
    """A member; `topics` maps the names that it subscribes to, to numbers of partitions as it knows them.

    `assign` is what it does as the leader; a partition that a cooperative member has and another is to get
    waits a round, whatever `assign` says.
    """

    def __init__(
        self,
        group_id: str,
        topics: Mapping[str, int],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol: str = EAGER,
        instance_id: str | None = None,
        assign: Assign = round_robin,
    ) -> None:
        self.group_id = group_id
        self.topics = topics
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocol = protocol
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[Part] = set()
        self.phase = Phase.UNJOINED
        self._assign_all = assign
        self._joined: Any = None
        """The answer to JoinGroup that SyncGroup follows."""

    @property
    def is_stable(self) -> bool:
        return self.phase is Phase.STABLE

    @property
    def is_leader(self) -> bool:
        """Whether it assigned the partitions of its generation, or is to."""
        return self._joined is not None and self._joined.leader == self.member_id

    def next_request(self) -> Outgoing:
        """Return what the member sends now. An eager member that joins owns nothing from here on."""
        if self.phase is Phase.STABLE:
            return self.heartbeat()
        return self._join() if self.phase is Phase.UNJOINED else self._sync()

    def heartbeat(self) -> Outgoing:
        """Return a heartbeat; a member that has not polled sends it while it is due to join again, too."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return Outgoing(ApiKey.HEARTBEAT, 4, request)

    def leave(self) -> Outgoing | None:
        """Give everything up, and return the farewell if the coordinator knows the member."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        was_member = bool(self.member_id)
        self.lose()
        self.member_id = ""
        if not was_member:
            return None
        return Outgoing(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=self.group_id, members=[identity]))

    def commit(self, offsets: Mapping[Part, int]) -> Outgoing:
        """Return a commit as a member of the current generation; `answered` does not take its answer."""
        topics = [
            OffsetCommitRequestTopic(
                name=one.topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offsets[one.topic, number]
                    )
                    for number in one.partitions
                ],
            )
            for one in _by_name(offsets.keys())
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=topics,
        )
        return Outgoing(ApiKey.OFFSET_COMMIT, 8, request)

    def rejoin(self) -> None:
        """Join again with the next request, as the topics have changed."""
        self.phase = Phase.UNJOINED

    def lose(self) -> None:
        """Own nothing any more, and join without a generation."""
        self.owned = set()
        self.generation = -1
        self.phase = Phase.UNJOINED

    def answered(self, api_key: int, answer: Any) -> Then:
        """Take the answer to `next_request`, None if there is none; return when the next request is due."""
        if answer is None or answer.error_code in COORDINATOR_MOVED:
            if self.phase is Phase.SYNCING:
                self.phase = Phase.UNJOINED
            return Then.MOVED
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return Then.AT_ONCE
        if answer.error_code:
            return self._refused(answer.error_code)
        if api_key == ApiKey.JOIN_GROUP:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._joined, self.phase = answer, Phase.SYNCING
            return Then.AT_ONCE
        return self._synced(answer) if api_key == ApiKey.SYNC_GROUP else Then.AT_INTERVAL

    def _refused(self, code: int) -> Then:
        self.phase = Phase.UNJOINED
        if code in GONE:
            self.member_id = ""
        if code in LOST:
            self.lose()
        if code in REJOIN:
            return Then.SOON
        return Then.AT_INTERVAL if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else Then.UNEXPECTED

    def _synced(self, answer: Any) -> Then:
        given: set[Part] = set()
        if answer.assignment:
            for one in decode(ConsumerProtocolAssignment, answer.assignment).assigned_partitions:
                given |= {(one.topic, number) for number in one.partitions}
        must_join_again = self.protocol == COOPERATIVE and not self.owned <= given
        self.owned = given
        self.phase = Phase.UNJOINED if must_join_again else Phase.STABLE
        return Then.AT_ONCE if must_join_again else Then.AT_INTERVAL

    def _join(self) -> Outgoing:
        if self.protocol == EAGER:
            self.owned = set()
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self.topics), owned_partitions=_by_name(self.owned), generation_id=self.generation
        )
        metadata = encode(subscription, SUBSCRIPTION_VERSION)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )
        return Outgoing(ApiKey.JOIN_GROUP, 9, request)

    def _sync(self) -> Outgoing:
        joined = self._joined
        is_leader = self.is_leader and not joined.skip_assignment
        assigned = self._assign(joined.members) if is_leader else {}
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=encode(assignment, ASSIGNMENT_VERSION)
                )
                for member_id, assignment in assigned.items()
            ],
        )
        return Outgoing(ApiKey.SYNC_GROUP, 5, request)

    def _assign(self, members: list[Any]) -> dict[str, ConsumerProtocolAssignment]:
        said = {one.member_id: decode(ConsumerProtocolSubscription, one.metadata) for one in members}
        owner: dict[Part, str] = {}
        for member_id, one in sorted(said.items(), key=lambda item: item[1].generation_id):
            for topic in one.owned_partitions:  # the newest generation is right
                owner |= {(topic.topic, number): member_id for number in topic.partitions}
        owned: dict[str, set[Part]] = {member_id: set() for member_id in said}
        for part, member_id in owner.items():
            owned[member_id].add(part)
        given = self._assign_all(owned, self.topics)
        must_wait = self.protocol == COOPERATIVE
        return {
            member_id: ConsumerProtocolAssignment(
                assigned_partitions=_by_name(
                    {part for part in parts if not must_wait or owner.get(part, member_id) == member_id}
                )
            )
            for member_id, parts in given.items()
        }


def offset_fetch(group_id: str, parts: Set[Part]) -> Outgoing:
    """Return a request for committed offsets."""
    topics = [
        OffsetFetchRequestTopics(name=one.topic, partition_indexes=one.partitions) for one in _by_name(parts)
    ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=True
    )
    return Outgoing(ApiKey.OFFSET_FETCH, 8, request)


def _by_name(parts: Set[Part]) -> list[TopicPartitionsByName]:
    by_name: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        by_name.setdefault(topic, []).append(number)
    return [TopicPartitionsByName(topic=topic, partitions=numbers) for topic, numbers in by_name.items()]
