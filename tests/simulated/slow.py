"""A consumer whose program polls rarely, and whose heartbeats say what those of other clients say.

librdkafka and Kafka's Java client apply assignments later, one after another, while heartbeats go on. Until a
new assignment is taken, they report the one before; the product's client reports what it is about to take as
well. Until the first one is taken, they look up its topics, and their heartbeats have all fields.
"""

from __future__ import annotations

from typing import Any, Final

from client.core.effects import Steps
from client.core.member.heartbeat import HeartbeatManager
from client.core.member.membership import MembershipManager
from client.core.requests import UnsentRequest
from client.core.types import TopicIdPartition
from cluster.simulator.virtual_consumer import Sleep
from tests.simulated.consumers import ConsumerProcess, SimulatedConsumer

POLL_MS: Final = ((50.0, 300.0), (50.0, 300.0), (300.0, 2_500.0))
"""Ranges of the time between two polls of the program: one in three is long."""


class LateMembership(MembershipManager):
    """Reports what its program had when it last acknowledged an assignment."""

    reported: frozenset[TopicIdPartition] = frozenset()

    @property
    def told(self) -> frozenset[TopicIdPartition]:
        return self.reported

    def reconciled(self, now_ms: float) -> None:
        self.reported = self.held
        super().reconciled(now_ms)

    def _lose_all(self, now_ms: float) -> None:
        self.reported = frozenset()
        super()._lose_all(now_ms)


class FullHeartbeats(HeartbeatManager):
    """Says everything until its program has partitions."""

    def _heartbeat(self, now_ms: float) -> UnsentRequest:
        if not self._membership.told:
            self._told = None
        return super()._heartbeat(now_ms)


class SlowProcess(ConsumerProcess):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for manager in self.consumer.assembly.background.managers:
            if isinstance(manager, MembershipManager):
                manager.__class__ = LateMembership
            elif isinstance(manager, HeartbeatManager):
                manager.__class__ = FullHeartbeats

    def poll(self) -> Steps[Any]:
        rng = self.machine.host.rng
        yield Sleep(rng.uniform(*rng.choice(POLL_MS)))
        yield from self._application.poll(1, 0)


class Slow(SimulatedConsumer):
    """A machine with such a consumer."""

    def new_process(self, member_id: str) -> SlowProcess:
        return SlowProcess(self, member_id, self.settings)
