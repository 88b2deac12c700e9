"""A client process, which sends heartbeats, revokes partitions after a delay, and joins again when fenced.

Processes differ in how long they take to revoke (`revoke_ms`), and in what an incident does to them: `kill`,
`pause`, `leave`, `restart`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.computing_client import ComputingClient
from tests.support.group_client import Client
from wire.errors import ErrorCode

if TYPE_CHECKING:
    from tests.support.incidents.world import Call, IncidentWorld

FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
LOCKED_OUT = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)
NEVER = float("inf")
COMMIT_SHARE = 0.05
"""The share of heartbeats that are followed by a commit."""


class Process:
    """One process of an application."""

    def __init__(
        self,
        world: IncidentWorld,
        client_id: str,
        topics: tuple[str, ...],
        *,
        host: str | None = None,
        computes: bool = False,
        **client: Any,
    ) -> None:
        self.world = world
        self.client_id = client_id
        self.client_host = host or f"/10.0.0.{world.rng.randrange(10, 200)}"
        self.revoke_ms: float = world.rng.uniform(20, 300)
        self.compute_ms: float | None = world.rng.uniform(50, 400)
        """Milliseconds to compute a target when asked for one; None: it never does."""
        self.retry_ms = 5_000.0
        """Milliseconds until it tries again after its instance id was refused."""
        self.is_alive = False
        self.is_revoking = False
        self.commits = True
        kind = ComputingClient if computes else Client
        self.client: Client = kind(world, world.new_member_id(), topics, group_id=_group(), **client)
        self._next: Call | None = None
        self._pending_acknowledgement: Call | None = None
        self._is_computing = False

    @property
    def member_id(self) -> str:
        return self.client.member_id

    def describe(self) -> str:
        return f"{self.client_id} epoch {self.client.epoch} alive {self.is_alive}"

    # Incidents

    def begin(self) -> None:
        self.is_alive = True
        self._beat()

    def kill(self) -> None:
        """End the process without leaving the group."""
        self.is_alive = False
        self._cancel()

    def pause(self, span_ms: float) -> None:
        """Stop for a while, then go on as if nothing had happened."""
        self._cancel()
        self._beat_in(span_ms)

    def leave(self, *, for_good: bool = True) -> None:
        """Leave the group and end; a static member may mean to return."""
        self.kill()
        self.world.speaking = self
        self.client.leave(for_good=for_good)
        self.world.speaking = None

    def restart(self, after_ms: float = 0.0) -> None:
        """Start another process of the same configuration, with a member id of its own."""
        self.client.member_id = self.world.new_member_id()
        self.client.crash()
        self.is_revoking = self._is_computing = False
        self.world.at(self.world.now_ms + after_ms, self.begin)

    # Heartbeats, revocations and commits

    def _cancel(self) -> None:
        for call in (self._next, self._pending_acknowledgement):
            if call is not None:
                call.cancel()
        self._next = self._pending_acknowledgement = None
        self.is_revoking = False

    def _beat_in(self, delay_ms: float) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self.world.at(self.world.now_ms + delay_ms, self._beat)

    def _beat(self) -> None:
        if not self.is_alive:
            return
        world = self.world
        if world.is_down:
            self._beat_in(world.rng.uniform(50, 400))
            return
        client = self.client
        before = {(t, p) for t, parts in client.owned.items() for p in parts}
        world.speaking = self
        reply = client.beat(acknowledge=not self.is_revoking)
        self._hear(reply.error_code)
        if not reply.error_code:
            world.heartbeat_gaps.measure(client.group_id, client.member_id, world.now_ms)
            after = {(t, p) for t, parts in client.owned.items() for p in parts}
            if before - after and not self.is_revoking:
                self._let_go()
            if isinstance(client, ComputingClient) and client.must_compute:
                self._compute(client)
            if self.commits and client.owned and world.rng.random() < COMMIT_SHARE:
                self._commit()
        world.speaking = None

    def _hear(self, error: int) -> None:
        interval_ms = self.world.settings.for_group(self.client.group_id).heartbeat_interval_ms
        if error in FENCED:
            self._cancel()
            self._beat_in(self.world.rng.uniform(10, 100))
        elif error in LOCKED_OUT:
            self.client.crash()
            self._beat_in(self.retry_ms)
        else:
            self._beat_in(interval_ms * self.world.rng.uniform(0.97, 1.03))

    def _let_go(self) -> None:
        """Revoke partitions, and acknowledge it after the process's own delay."""
        self.is_revoking = True
        if self.revoke_ms != NEVER:
            at_ms = self.world.now_ms + self.revoke_ms
            self._pending_acknowledgement = self.world.at(at_ms, self._acknowledge)

    def _acknowledge(self) -> None:
        self.is_revoking = False
        self._pending_acknowledgement = None
        self._beat()

    def _compute(self, client: ComputingClient) -> None:
        if self.compute_ms is None or self._is_computing:
            return
        self._is_computing = True

        def done() -> None:
            self._is_computing = False
            if self.is_alive and not self.world.is_down:
                self.world.speaking = self
                client.compute()
                self.world.speaking = None

        self.world.at(self.world.now_ms + self.compute_ms, done)

    def _commit(self) -> None:
        client = self.client
        topic_id = min(client.owned)
        numbers = client.owned[topic_id]
        if numbers:
            place = (self.world.named(topic_id), min(numbers))
            offset = int(self.world.now_ms)
            self.world.commit(
                {place: offset}, group_id=client.group_id, member_id=client.member_id, epoch=client.epoch
            )


def _group() -> str:
    from tests.support.incidents.world import GROUP

    return GROUP
