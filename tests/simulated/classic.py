"""Members of the classic protocol in a simulated cluster: they join, sync, assign, beat and commit.

An eager member gives up everything before it joins again; a cooperative one keeps what it has, and joins once
more when it had to give something up. A static member keeps its instance id when its process ends. Each owns
a partition from the reply to SyncGroup that assigns it until it gives it up, learns that it is out of the
group, or a session timeout has passed since it sent its last accepted request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from records import (
    Cause,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    RawRecord,
    RecordType,
    decode_key_and_value,
)
from tests.simulated.actors import Member
from tests.simulated.consumers import AWAY_SHARE
from tests.simulated.talking import MOVED, RETRY_MS, Connection
from wire.apis import ApiKey
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
    encode,
)
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

CLASSIC: Final = {
    "group_min_session_timeout_ms": 1_000,
}
"""Settings of a cluster with classic members."""
REBALANCE_TIMEOUT_MS: Final = 6_000
"""Longer than a session: a member that is not heard is out before its partitions are given away."""
JOIN_PATIENCE_MS: Final = REBALANCE_TIMEOUT_MS + 5_000.0
"""How long Kafka's clients wait for the reply to JoinGroup."""
SUBSCRIPTION_VERSION: Final = 2
EAGER, COOPERATIVE = "range", "cooperative-sticky"

GONE: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
REFUSED: Final = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
"""Errors of a consumer that joins before another process with its instance id is out of the group."""
AGAIN: Final = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}

Parts = set[tuple[bytes, int]]


class ClassicMember(Member):
    """A consumer of the classic protocol; `epoch` is its generation."""

    def __init__(
        self, *args: Any, num_partitions: dict[str, int], protocol: str = EAGER, is_static: bool = False
    ) -> None:
        super().__init__(*args)
        self.num_partitions = num_partitions
        self.protocol = protocol
        self.instance_id = self.name if is_static else None

    def _begin(self) -> None:
        super()._begin()
        self.process_id, self.member_id = self.member_id, ""
        self.epoch = -1
        self.is_in_generation = False
        """Whether it has an assignment of its generation, and nobody told it to join again."""

    # What it sends

    def _send(self, connection: Connection) -> None:
        if self.is_in_generation:
            request = HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            self._ask(connection, ApiKey.HEARTBEAT, 4, request, self._beaten)
        else:
            self._send_join(connection)

    def _ask(self, connection: Connection, api: ApiKey, version: int, request: Any, then: Any) -> None:
        """Send a request; what a former process of this member is told does not count."""
        sent_ms, process_id = self.world.now_ms, self.process_id
        patience_ms = JOIN_PATIENCE_MS if api is ApiKey.JOIN_GROUP else None

        def told(answer: Any) -> None:
            self._is_asking = False
            if process_id != self.process_id:
                return
            if answer is None or answer.error_code in MOVED:
                self.caller.moved()
            else:
                then(sent_ms, answer)

        connection.ask(api, version, request, told, patience_ms)

    def _send_join(self, connection: Connection) -> None:
        if self.protocol == EAGER:
            self._own(set())
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self.topics), owned_partitions=self._by_name(self.owned), generation_id=self.epoch
        )
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=int(self.session_ms),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=self.protocol, metadata=encode(subscription, SUBSCRIPTION_VERSION)
                )
            ],
        )
        self._ask(connection, ApiKey.JOIN_GROUP, 9, request, self._joined)

    def _send_sync(self, leader: str, members: list[Any], skip_assignment: bool) -> None:
        is_leader = leader == self.member_id and not skip_assignment
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode(assignment, 1))
                for member_id, assignment in (self._assign(members) if is_leader else {}).items()
            ],
        )
        self._is_asking = True
        self.caller.with_coordinator(
            lambda connection: self._ask(connection, ApiKey.SYNC_GROUP, 5, request, self._synced)
        )

    def leave(self) -> None:
        """Leave the group; another consumer takes its place."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        is_member = bool(self.member_id)
        self._own(set())
        self._begin()
        if is_member:
            request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
            self.caller.with_coordinator(
                lambda connection: connection.ask(ApiKey.LEAVE_GROUP, 5, request, lambda _: None)
            )

    def crash(self) -> str:
        """End the process without leaving; another takes its place. Return the dead member's id."""
        dead = self.member_id
        self._own(set())
        self._begin()
        self.caller.moved()
        return dead

    # What it is told

    def _beaten(self, sent_ms: float, answer: Any) -> None:
        if answer.error_code:
            self._put_out(answer.error_code)
        else:
            self.ownership.accepted(sent_ms, self.world.now_ms)

    def _joined(self, _sent_ms: float, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.beat()
        elif answer.error_code:
            self._put_out(answer.error_code)
        else:
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            self._send_sync(answer.leader, answer.members, answer.skip_assignment)

    def _synced(self, sent_ms: float, answer: Any) -> None:
        if answer.error_code:
            self._put_out(answer.error_code)
            return
        given: Parts = set()
        if answer.assignment:
            for one in decode(ConsumerProtocolAssignment, answer.assignment).assigned_partitions:
                given |= {(self.topics[one.topic], number) for number in one.partitions}
        has_revoked = not self.owned <= given
        self.is_in_generation = not (has_revoked and self.protocol == COOPERATIVE)
        self.ownership.accepted(sent_ms, self.world.now_ms)
        self._own(given)
        if not self.is_in_generation:
            self.beat()

    def _put_out(self, code: int) -> None:
        """Join again, as a new member if the coordinator no longer knows this one."""
        self.is_in_generation = False
        if code in GONE:
            self.member_id = ""
        if code in (*GONE, ErrorCode.ILLEGAL_GENERATION):
            self._own(set())
            self.epoch = -1
        if code in (*GONE, *AGAIN):
            self.host.call_later(RETRY_MS * self.host.rng.random(), self.beat)
        elif code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.chronicle.unexpected[type(self).__name__, code] += 1

    # The leader's part

    def _assign(self, members: list[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Assign round-robin; a partition that a cooperative member has, and another gets, waits a round."""
        found = {one.member_id: decode(ConsumerProtocolSubscription, one.metadata) for one in members}
        takers = sorted(found)
        owner = self._owners(found) if self.protocol == COOPERATIVE else {}
        parts: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in takers}
        start = self.host.rng.randrange(len(takers))
        for topic, topic_id in sorted(self.topics.items()):
            for number in range(self.num_partitions[topic]):
                taker = takers[(start + number) % len(takers)]
                if owner.get((topic_id, number), taker) == taker:
                    parts[taker].setdefault(topic, []).append(number)
        return {
            member_id: ConsumerProtocolAssignment(
                assigned_partitions=[
                    TopicPartitionsByName(topic=topic, partitions=numbers) for topic, numbers in given.items()
                ]
            )
            for member_id, given in parts.items()
        }

    def _owners(self, found: dict[str, ConsumerProtocolSubscription]) -> dict[tuple[bytes, int], str]:
        """Who has which partition, by what the members say; the newest generation is right."""
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, said in sorted(found.items(), key=lambda item: item[1].generation_id):
            for one in said.owned_partitions:
                owners |= {(self.topics[one.topic], number): member_id for number in one.partitions}
        return owners

    def _by_name(self, owned: Parts) -> list[TopicPartitionsByName]:
        by_name: dict[str, list[int]] = {}
        for topic_id, number in sorted(owned):
            by_name.setdefault(self.names[topic_id], []).append(number)
        return [TopicPartitionsByName(topic=name, partitions=numbers) for name, numbers in by_name.items()]

    def _commit_one(self) -> None:
        if self.is_in_generation:
            super()._commit_one()


class Generations:
    """Follows the log of a shard: once a generation is written, no commit of an older one is accepted, and
    none of a client that is not a member of it."""

    def __init__(self) -> None:
        self._newest: dict[str, GroupMetadataValue] = {}

    def entry(self, cause: Cause, raws: Sequence[RawRecord]) -> list[str]:
        """Take note of an entry; return what is wrong with it."""
        found = []
        for raw in raws:
            if raw.type == RecordType.GROUP_METADATA:
                key, value = decode_key_and_value(raw)
                assert isinstance(key, GroupMetadataKey)
                if isinstance(value, GroupMetadataValue):
                    self._newest[key.group_id] = value
                else:
                    self._newest.pop(key.group_id, None)
            elif raw.type == RecordType.OFFSET_COMMIT and raw.value is not None and cause.member_id:
                key, _ = decode_key_and_value(raw)
                assert isinstance(key, OffsetCommitKey)
                newest = self._newest.get(key.group_id)
                if newest is not None and not self._may_commit(newest, cause):
                    what = f"{cause.member_id} commits in generation {cause.member_epoch} of {key.group_id}"
                    found.append(f"{what}, whose newest is {newest.generation}")
        return found

    @staticmethod
    def _may_commit(newest: GroupMetadataValue, cause: Cause) -> bool:
        """A member may commit in a generation that is not written yet: its members have joined it."""
        if cause.member_epoch != newest.generation:
            return cause.member_epoch > newest.generation
        return any(one.member_id == cause.member_id for one in newest.members)


class Migrant(ClassicMember):
    """A consumer whose next process may speak the other protocol, with the same instance id if it has one."""

    speaks_consumer = False
    wanted: tuple[str, ...] = ()

    def _begin(self) -> None:
        super()._begin()
        self.speaks_consumer = self.host.rng.random() < 0.5
        if self.speaks_consumer:
            self.member_id, self.epoch = self.process_id, 0

    def _send(self, connection: Connection) -> None:
        if self.speaks_consumer:
            Member._send(self, connection)
        else:
            super()._send(connection)

    def _heartbeat(self, says_all: bool) -> Any:
        request = super()._heartbeat(says_all)
        request.instance_id = self.instance_id
        if says_all:
            request.subscribed_topic_names = list(self.wanted or self.topics)
        return request

    def leave(self) -> None:
        if not self.speaks_consumer:
            super().leave()
            return
        is_away = self.instance_id is not None and self.host.rng.random() <= AWAY_SHARE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=-2 if is_away else -1,
            instance_id=self.instance_id if is_away else None,
        )
        self._own(set())
        self._begin()
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, lambda _: None)
        )

    def resubscribe(self) -> None:
        """Subscribe to other topics from now on, if it speaks the consumer protocol."""
        self.wanted = tuple(name for name in self.topics if self.host.rng.random() < 0.7)
        self.must_say_all = True

    def _refused(self, code: int) -> None:
        if code in REFUSED:
            self._own(set())
            self.epoch = 0
        else:
            super()._refused(code)

    def _commit_one(self) -> None:
        if self.speaks_consumer:
            Member._commit_one(self)
        else:
            super()._commit_one()
