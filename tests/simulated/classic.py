"""Members of the classic protocol in a simulated cluster: they join, sync, assign, beat and commit.

An eager member gives up everything before it joins again; a cooperative one keeps what it has, and joins once
more when it had to give something up. A static member keeps its instance id when its process ends. Each owns
a partition from the reply to SyncGroup that assigns it until it gives it up, learns that it is out of the
group, or a session timeout has passed since it sent its last accepted request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from client.classic_member import EAGER, ClassicMachine, Part, Then, round_robin
from cluster.simulator.talking import RETRY_MS, CallbackConnection
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
from wire.apis import ApiKey

CLASSIC: Final = {
    "group_min_session_timeout_ms": 1_000,
}
"""Settings of a cluster with classic members."""
REBALANCE_TIMEOUT_MS: Final = 6_000
"""Longer than a session: a member that is not heard is out before its partitions are given away."""
JOIN_PATIENCE_MS: Final = REBALANCE_TIMEOUT_MS + 5_000.0
"""The time that Kafka's clients wait for the reply to JoinGroup."""


class ClassicConsumerProcess:
    """A consumer of the classic protocol, in the place of a `ConsumerProcess`."""

    def __init__(self, machine: ClassicMember, protocol: str) -> None:
        self.machine = machine
        self.host = machine.host
        self._core = ClassicMachine(
            machine.group_id,
            {topic: machine.num_partitions[topic] for topic in sorted(machine.topics)},
            session_timeout_ms=int(machine.session_ms),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            protocol=protocol,
            instance_id=machine.instance_id,
            assign=self._assign,
        )
        self.is_subscribed = True
        self.is_stopped = self._is_dead = self._is_asking = False
        self.interval_ms = 0
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
        self._own()
        self.machine.caller.moved()

    def leave(self) -> None:
        """Leave the group, and end."""
        farewell = self._core.leave()
        self._is_dead = True
        self._own()
        if farewell is not None:
            self.machine.caller.with_coordinator(lambda connection: connection.ask(*farewell, lambda _: None))
        self.machine.ended(self, 0.0)

    # What it sends, and what it is told

    def beat(self) -> None:
        if not self._is_asking and not self._is_dead:
            self._is_asking = True
            self.machine.caller.with_coordinator(self._send)

    def _send(self, connection: CallbackConnection) -> None:
        sent_ms = self.machine.world.now_ms
        out = self._core.next_request()
        self._own()

        def told(answer: Any) -> None:
            self._is_asking = False
            if not self._is_dead:
                self._told(out.api_key, sent_ms, answer)

        patience_ms = JOIN_PATIENCE_MS if out.api_key is ApiKey.JOIN_GROUP else None
        connection.ask(*out, told, patience_ms)

    def _told(self, api_key: int, sent_ms: float, answer: Any) -> None:
        then = self._core.answered(api_key, answer)
        if answer is not None and not answer.error_code and api_key != ApiKey.JOIN_GROUP:
            self.ownership.accepted(sent_ms, self.machine.world.now_ms)
        self._own()
        if then is Then.MOVED:
            self.machine.caller.moved()
        elif then is Then.AT_ONCE:
            self.beat()
        elif then is Then.SOON:
            self.host.call_later(RETRY_MS * self.host.rng.random(), self.beat)
        elif then is Then.UNEXPECTED:
            self.machine.chronicle.unexpected[type(self).__name__, answer.error_code] += 1

    def _assign(self, owned: Mapping[str, set[Part]], topics: Mapping[str, int]) -> Mapping[str, set[Part]]:
        return round_robin(owned, topics, self.host.rng.randrange(len(owned)))

    # What it has

    @property
    def holds(self) -> set[Part]:
        return set() if self._is_dead else self._core.owned

    @property
    def member_id(self) -> str:
        return self._core.member_id

    def _own(self) -> None:
        owned = {(self.machine.topics[topic], number) for topic, number in self.holds}
        self.ownership.assigned(owned, self.machine.world.now_ms)

    def _commit_one(self) -> None:
        if self.holds and self._core.is_stable:
            topic, partition = self.host.rng.choice(sorted(self.holds))
            member = {"member_id": self.member_id, "epoch": self._core.generation}
            self.machine.commit(topic, partition, **member)


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
