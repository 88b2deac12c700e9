"""Members of the classic protocol in a simulated cluster: they join, sync, assign, beat and commit.

An eager member gives up everything before it joins again; a cooperative one keeps what it has, and joins once
more when it had to give something up. A static member keeps its instance id when its process ends. Each owns
a partition from the reply to SyncGroup that assigns it until it gives it up, learns that it is out of the
group, or a session timeout has passed since it sent its last accepted request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tests.simulated.actors import COMMIT_MS, HEARTBEAT_MS
from tests.simulated.chronicle import Ownership
from tests.simulated.consumers import ConsumerProcess, SimulatedConsumer, SimulatedProcess
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
AGAIN: Final = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}

Parts = set[tuple[bytes, int]]


class ClassicConsumerProcess:
    """A consumer of the classic protocol, in the place of a `ConsumerProcess`."""

    def __init__(self, machine: ClassicMember, protocol: str) -> None:
        self.machine = machine
        self.host = machine.host
        self.protocol = protocol
        self.member_id = ""
        self.generation = -1
        self.is_in_generation = False
        """Whether it has an assignment of its generation, and nobody told it to join again."""
        self.is_subscribed = True
        self.is_stopped = self._is_dead = self._is_asking = False
        self.interval_ms = 0
        self.holds: Parts = set()
        self.names = {topic_id: name for name, topic_id in machine.topics.items()}
        name = f"{machine.name}.{machine.lives}"
        self.ownership = Ownership(machine.chronicle, machine.group_id, name, machine.session_ms)
        self._every(HEARTBEAT_MS, self.beat)
        self._every(COMMIT_MS, self._commit_one)

    def _every(self, period_ms: float, step: Callable[[], None]) -> None:
        def again() -> None:
            if not self._is_dead and not self.is_stopped:
                step()
                self.host.call_later(period_ms * self.host.rng.uniform(0.8, 1.2), again)

        self.host.call_later(period_ms * self.host.rng.random(), again)

    def kill(self) -> None:
        """End without a word to anybody."""
        self._is_dead = True
        self._own(set())
        self.machine.caller.moved()

    def leave(self) -> None:
        """Leave the group, and end."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.machine.instance_id)
        self._is_dead = True
        self._own(set())
        if self.member_id:
            request = LeaveGroupRequest(group_id=self.machine.group_id, members=[identity])
            self.machine.caller.with_coordinator(
                lambda connection: connection.ask(ApiKey.LEAVE_GROUP, 5, request, lambda _: None)
            )
        self.machine.ended(self, 0.0)

    # What it sends

    def beat(self) -> None:
        if not self._is_asking and not self._is_dead:
            self._is_asking = True
            self.machine.caller.with_coordinator(self._send)

    def _send(self, connection: Connection) -> None:
        if self.is_in_generation:
            request = HeartbeatRequest(
                group_id=self.machine.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.machine.instance_id,
            )
            self._ask(connection, ApiKey.HEARTBEAT, 4, request, self._beaten)
        else:
            self._send_join(connection)

    def _ask(self, connection: Connection, api: ApiKey, version: int, request: Any, then: Any) -> None:
        sent_ms = self.machine.world.now_ms
        patience_ms = JOIN_PATIENCE_MS if api is ApiKey.JOIN_GROUP else None

        def told(answer: Any) -> None:
            self._is_asking = False
            if self._is_dead:
                return
            if answer is None or answer.error_code in MOVED:
                self.machine.caller.moved()
            else:
                then(sent_ms, answer)

        connection.ask(api, version, request, told, patience_ms)

    def _send_join(self, connection: Connection) -> None:
        if self.protocol == EAGER:
            self._own(set())
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self.machine.topics),
            owned_partitions=self._by_name(self.holds),
            generation_id=self.generation,
        )
        request = JoinGroupRequest(
            group_id=self.machine.group_id,
            session_timeout_ms=int(self.machine.session_ms),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            group_instance_id=self.machine.instance_id,
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
            group_id=self.machine.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.machine.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode(assignment, 1))
                for member_id, assignment in (self._assign(members) if is_leader else {}).items()
            ],
        )
        self._is_asking = True
        self.machine.caller.with_coordinator(
            lambda connection: self._ask(connection, ApiKey.SYNC_GROUP, 5, request, self._synced)
        )

    # What it is told

    def _beaten(self, sent_ms: float, answer: Any) -> None:
        if answer.error_code:
            self._put_out(answer.error_code)
        else:
            self.ownership.accepted(sent_ms, self.machine.world.now_ms)

    def _joined(self, _sent_ms: float, answer: Any) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.beat()
        elif answer.error_code:
            self._put_out(answer.error_code)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._send_sync(answer.leader, answer.members, answer.skip_assignment)

    def _synced(self, sent_ms: float, answer: Any) -> None:
        if answer.error_code:
            self._put_out(answer.error_code)
            return
        given: Parts = set()
        if answer.assignment:
            for one in decode(ConsumerProtocolAssignment, answer.assignment).assigned_partitions:
                given |= {(self.machine.topics[one.topic], number) for number in one.partitions}
        has_revoked = not self.holds <= given
        self.is_in_generation = not (has_revoked and self.protocol == COOPERATIVE)
        self.ownership.accepted(sent_ms, self.machine.world.now_ms)
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
            self.generation = -1
        if code in (*GONE, *AGAIN):
            self.host.call_later(RETRY_MS * self.host.rng.random(), self.beat)
        elif code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.machine.chronicle.unexpected[type(self).__name__, code] += 1

    # The leader's part

    def _assign(self, members: list[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Assign round-robin; a partition that a cooperative member has, and another gets, waits a round."""
        found = {one.member_id: decode(ConsumerProtocolSubscription, one.metadata) for one in members}
        takers = sorted(found)
        owner = self._owners(found) if self.protocol == COOPERATIVE else {}
        parts: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in takers}
        start = self.host.rng.randrange(len(takers))
        for topic, topic_id in sorted(self.machine.topics.items()):
            for number in range(self.machine.num_partitions[topic]):
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
                owners |= {(self.machine.topics[one.topic], number): member_id for number in one.partitions}
        return owners

    def _by_name(self, owned: Parts) -> list[TopicPartitionsByName]:
        by_name: dict[str, list[int]] = {}
        for topic_id, number in sorted(owned):
            by_name.setdefault(self.names[topic_id], []).append(number)
        return [TopicPartitionsByName(topic=name, partitions=numbers) for name, numbers in by_name.items()]

    # What it has

    def _own(self, owned: Parts) -> None:
        self.holds = owned
        self.ownership.assigned(owned, self.machine.world.now_ms)

    def _commit_one(self) -> None:
        if self.holds and self.is_in_generation:
            topic_id, partition = self.host.rng.choice(sorted(self.holds))
            member = {"member_id": self.member_id, "epoch": self.generation}
            self.machine.commit(self.names[topic_id], partition, **member)


class ClassicMember(SimulatedConsumer):
    """A machine whose processes are consumers of the classic protocol."""

    def __init__(self, *args: Any, num_partitions: dict[str, int], protocol: str = EAGER, **how: Any) -> None:
        super().__init__(*args, **how)
        self.num_partitions = num_partitions
        self.protocol = protocol

    def new_process(self, member_id: str) -> SimulatedProcess:
        return ClassicConsumerProcess(self, self.protocol)


class Migrant(ClassicMember):
    """A machine whose next process may speak the other protocol, with the same instance id if it has one."""

    def new_process(self, member_id: str) -> SimulatedProcess:
        if self.host.rng.random() < 0.5:
            return ConsumerProcess(self, member_id, self.settings)
        return super().new_process(member_id)

    def resubscribe(self) -> None:
        """Subscribe to other topics from now on, if it speaks the consumer protocol."""
        self.wanted = tuple(name for name in self.topics if self.host.rng.random() < 0.7)
        super().resubscribe()


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
