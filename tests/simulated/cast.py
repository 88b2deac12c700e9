"""Members of every kind: static ones, ones with expressions, ones that compute targets; and operators.

A member's process may end without leaving its group (`crash`); no process then owns the partitions of its
id. Operators remove such dead members, and configure groups at any node. They only lengthen sessions, since
clients go by the shortest.
"""

from __future__ import annotations

from typing import Any, Final

from cluster.simulator.talking import CallbackConnection
from tests.simulated.actors import Actor
from tests.simulated.chronicle import ConfigWrite
from tests.simulated.consumers import SimulatedConsumer
from tests.support.round_robin import RoundRobin
from wire.apis import ApiKey
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity

EXPRESSIONS: Final = ("orders", "orders|events", "(?i)O.*", "e.+|o.+", "nothing.*")

REBALANCE_TIMEOUT_MS: Final = 3_000
"""Poll interval and rebalance timeout of members that compute."""

OPERATING_MS: Final = 700.0

INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONFIGS: Final = {
    INTERVAL: 500,
    "consumer.assignment.interval.ms": 0,
    "consumer.session.timeout.ms": 4_000,
}
"""The least value that operators set, by config."""


class Versatile(SimulatedConsumer):
    """A consumer that may be static, may subscribe by an expression, and changes its subscription."""

    def resubscribe(self) -> None:
        """Subscribe to other topics from now on."""
        rng = self.host.rng
        self.expression = rng.choice(EXPRESSIONS)
        self.wanted = tuple(name for name in self.topics if rng.random() < 0.7)
        super().resubscribe()


class ComputingMember(Versatile):
    """A consumer that can compute its group's target, and is sometimes late or wrong."""

    def start(self, topics: dict[str, bytes], session_ms: float) -> None:
        assignor = RoundRobin(self.name, self.host.rng, late_ms=2 * REBALANCE_TIMEOUT_MS)
        self.settings = {"group_local_assignors": [assignor], "max_poll_interval_ms": REBALANCE_TIMEOUT_MS}
        super().start(topics, session_ms)


class Operator(Actor):
    """Removes members whose process ended, and changes the configs of one group."""

    def start(self, members: list[Versatile]) -> None:
        self.members = members
        self.every(OPERATING_MS, self._operate)

    def _operate(self) -> None:
        if self.host.rng.random() < 0.4:
            self._remove(self.host.rng.choice(self.members))
        else:
            self._configure()

    def _remove(self, victim: Versatile) -> None:
        identity = MemberIdentity(member_id=victim.crash(), reason="its process is gone")
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.LEAVE_GROUP, 5, request, self._removed)
        )

    def _removed(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            self.caller.moved()

    def finish(self) -> None:
        """Make one last change, of which every member must be notified soon."""
        self.stop()
        self.host.call_soon(self._configure, INTERVAL)

    def _configure(self, name: str = "") -> None:
        rng = self.host.rng
        name = name or rng.choice(sorted(CONFIGS))
        write = self.chronicle.configure(self.group_id, name, CONFIGS[name], self.world.now_ms)
        config = AlterableConfig(name=name, config_operation=0, value=write.value)
        if rng.random() < 0.2:
            config = AlterableConfig(name=name, config_operation=1)
            write.value = None
        resource = AlterConfigsResource(resource_type=32, resource_name=self.group_id, configs=[config])
        asked = CallbackConnection(self.host, self.name, rng.choice(self.caller.bootstrap))
        asked.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            IncrementalAlterConfigsRequest(resources=[resource]),
            lambda answer: self._configured(asked, write, answer),
        )

    def _configured(self, asked: CallbackConnection, write: ConfigWrite, answer: Any) -> None:
        asked.end()
        if answer is not None and answer.responses[0].error_code == 0:
            write.acked_ms = self.world.now_ms


KINDS: Final[tuple[tuple[type[Versatile], dict[str, bool]], ...]] = (
    (Versatile, {}),
    (Versatile, {"is_static": True}),
    (Versatile, {"is_regex": True}),
    (ComputingMember, {}),
    (ComputingMember, {"is_static": True}),
    (Versatile, {"is_static": True, "is_regex": True}),
    (ComputingMember, {"is_regex": True}),
)


def kind_of(group_number: int, number: int) -> tuple[type[Versatile], dict[str, bool]]:
    """Return the kind of a member: some groups have one kind, the others mix them."""
    return {
        0: KINDS[number % 2],
        1: KINDS[1 + number % 2],
        2: KINDS[3],
        3: KINDS[3 + number % 2 * 3],
        4: KINDS[number % len(KINDS)],
    }[group_number]
