"""A client process of the classic protocol: it joins, syncs, sends heartbeats, and joins again when told.

Processes differ in how long they take to join again (`join_ms`) and to send SyncGroup (`sync_ms`); `NEVER`
for one that only sends heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.state.machines import ClassicState
from history.facts.rows import TopicPartition
from history.state.embedded import assigned
from tests.support.classic_member import ClassicConsumer
from tests.support.incidents.process import NEVER
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    encode,
)
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from tests.support.incidents.world import Call, IncidentWorld

HEARTBEAT_MS = 3_000.0
LOOK_MS = 20.0


class ClassicProcess:
    """One process of an application, with a heartbeat thread as in Java clients."""

    def __init__(
        self, world: IncidentWorld, client_id: str, *, rebalance_timeout_ms: int = 60_000, **client: Any
    ) -> None:
        from tests.support.incidents.world import GROUP

        self.world = world
        self.client_id = client_id
        self.client_host = f"/10.0.0.{world.rng.randrange(10, 200)}"
        self.join_ms: float = world.rng.uniform(20, 300)
        self.sync_ms: float = world.rng.uniform(5, 50)
        self._rebalance_timeout_ms = rebalance_timeout_ms
        protocols = {"range": encode(ConsumerProtocolSubscription(topics=["orders"]), 1)}
        self.client = ClassicConsumer(world, client_id, group_id=GROUP, protocols=protocols, **client)
        self.member_ids: list[str] = []
        """Every id that it has had."""
        self.is_alive = False
        self._calls: dict[str, Call] = {}

    @property
    def member_id(self) -> str:
        return self.client.member_id

    def describe(self) -> str:
        return f"{self.client_id} generation {self.client.generation} alive {self.is_alive}"

    def begin(self) -> None:
        self.is_alive = True
        self._join()

    def kill(self) -> None:
        self.is_alive = False
        self._stop()

    def _stop(self) -> None:
        for call in self._calls.values():
            call.cancel()
        self._calls = {}

    def leave(self) -> None:
        self.kill()
        self.client.leave()

    def restart(self, after_ms: float = 0.0) -> None:
        """Start another process of the same configuration."""
        self.client.member_id = ""
        self.world.at(self.world.now_ms + after_ms, self.begin)

    def _later(self, name: str, delay_ms: float, what: Any) -> None:
        if name in self._calls:
            self._calls[name].cancel()
        if delay_ms != NEVER:
            self._calls[name] = self.world.at(self.world.now_ms + delay_ms, what)

    def _join(self) -> None:
        self._stop()  # while JoinGroup waits there are no heartbeats
        self.world.speaking = self
        answer = self.client.join(rebalance_timeout_ms=self._rebalance_timeout_ms)
        self.world.speaking = None
        if answer is None:
            self._later("wait", LOOK_MS, self._look_for_join)
        else:
            self._joined(answer.error_code)

    def _look_for_join(self) -> None:
        answer = self.client.joined()
        if answer is None:
            self._later("wait", LOOK_MS, self._look_for_join)
        else:
            self._joined(answer.error_code)

    def _joined(self, error: int) -> None:
        if error:
            self._fenced()
            return
        if self.member_id not in self.member_ids:
            self.member_ids.append(self.member_id)
        self._later("beat", HEARTBEAT_MS, self._beat)
        self._later("sync", self.sync_ms, self._sync)

    def _sync(self) -> None:
        answer = self.client.sync(self._assignments() if self.client.is_leader else None)
        if answer is None:
            self._later("wait", LOOK_MS, self._look_for_sync)
        elif answer.error_code:
            self._told(answer.error_code)

    def _look_for_sync(self) -> None:
        answer = self.client.synced()
        if answer is None:
            self._later("wait", LOOK_MS, self._look_for_sync)
        elif answer.error_code:
            self._told(answer.error_code)

    def _assignments(self) -> dict[str, bytes]:
        member_ids = sorted(self.client.members)
        numbers = sorted(one.partition for one in self.world.all_partitions("orders"))
        return {
            member_id: encode(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        TopicPartitionsByName(topic="orders", partitions=numbers[place :: len(member_ids)])
                    ]
                ),
                1,
            )
            for place, member_id in enumerate(member_ids)
        }

    def _beat(self) -> None:
        self._later("beat", HEARTBEAT_MS * self.world.rng.uniform(0.97, 1.03), self._beat)
        self._told(self.client.heartbeat())

    def _told(self, error: int) -> None:
        if error == ErrorCode.REBALANCE_IN_PROGRESS and "join" not in self._calls:
            self._later("join", self.join_ms, self._join)
        elif error and error != ErrorCode.REBALANCE_IN_PROGRESS:
            self._fenced()

    def _fenced(self) -> None:
        self._stop()
        self.client.member_id = ""
        self._later("join", self.world.rng.uniform(10, 100), self._join)


def start(world: IncidentWorld, *, after_ms: float = 0.0, **how: Any) -> ClassicProcess:
    """Start a process, which joins after a delay if one is given."""
    process = ClassicProcess(world, f"app-{len(world.processes) + 1}", **how)
    world.processes.append(process)
    world.at(world.now_ms + after_ms, process.begin)
    if not after_ms:
        world.live(0.0)
    return process


def crowd(world: IncidentWorld, size: int, **how: Any) -> list[ClassicProcess]:
    """Start that many processes one after another; return when the group is stable."""
    world.create_topic("orders", 24)
    processes = [start(world, after_ms=world.rng.uniform(0, 4_000), **how) for _ in range(size)]
    world.live(4_000)
    settle(world)
    return processes


def settle(world: IncidentWorld) -> None:
    """Let time pass until all processes are members of a stable generation, and a little longer."""
    from tests.support.incidents.world import GROUP

    def is_stable() -> bool:
        group = world.shard.groups.classic.get(GROUP)
        assert group is not None
        alive = {one.member_id for one in world.processes if one.is_alive}
        state = ClassicState.STABLE if alive else ClassicState.EMPTY
        return group.state is state and alive == set(group.members) and not group.not_synced

    world.live_until(is_stable)
    world.live(world.rng.uniform(1_000, 8_000))


def assigned_to(world: IncidentWorld, member_id: str) -> set[TopicPartition]:
    """The partitions of a member in the newest generation that was written."""
    from tests.support.incidents.world import GROUP

    value = world.group(GROUP).classic
    assert value is not None
    (member,) = (one for one in value.members if one.member_id == member_id)
    return {
        TopicPartition(topic=topic, partition=number)
        for topic, numbers in assigned(member).items()
        for number in numbers
    }
