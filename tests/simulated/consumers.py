"""Members that are the product's own consumer: the whole core in virtual time, over simulated connections.

A `SimulatedConsumer` is a machine on which one process runs after another. A process is a `VirtualConsumer`
and the program of a user, which subscribes, polls, commits one partition after another, and closes. Nothing
is fetched: simulated nodes have no messages, so the program pauses what it gets.

The program owns a partition from on_assign to on_revoke or on_lost, but no longer than until its member sends
that it leaves, or a session timeout after the last accepted heartbeat was sent. These times are read off the
wire.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Protocol

from client.core.effects import Steps
from client.core.env import Environment
from client.core.errors import ConsumerError, FatalError, KafkaError
from client.core.rebalance import RebalanceCallbacks
from client.core.settings import read_settings
from client.core.types import OffsetAndMetadata, TopicPartition
from cluster.simulator.client_connections import LENGTH_BYTES, HostConnections
from cluster.simulator.virtual_consumer import VirtualConsumer
from cluster.simulator.wiretap import Wiretap
from tests.simulated.actors import COMMIT_MS, Actor
from tests.simulated.chronicle import Ownership
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.protocol import decode_request, decode_response

HEARTBEATS: Final = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT}

RESTART_MS: Final = 500.0
"""Time until a process that met a fatal error is started again."""
CLOSE_MS: Final = 2_000.0
AWAY_SHARE: Final = 0.7
"""Share of a static member's departures after which it means to come back."""

SETTINGS: Final[dict[str, Any]] = {
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "max_poll_interval_ms": 60_000,
    "request_timeout_ms": 2_000,
    "default_api_timeout_ms": 4_000,
    "socket_connection_setup_timeout_ms": 2_000,
    "socket_connection_setup_timeout_max_ms": 2_000,
}
RESTARTED: Final = {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
"""Fatal errors that another process with the same instance id explains."""
EXPECTED: Final = {ErrorCode.INVALID_ASSIGNMENT}
"""Other errors that a program may hear: a computed assignment that was wrong."""


class _Heartbeats(Wiretap):
    """Reads along which heartbeats of a process pass."""

    def __init__(self, process: ConsumerProcess) -> None:
        self._process = process

    def requested(self, api_key: int, frame: bytes) -> None:
        if api_key in HEARTBEATS and decode_request(frame[LENGTH_BYTES:])[1].member_epoch < 0:
            self._process.left()

    def answered(self, api_key: int, api_version: int, sent_ms: float, payload: bytes) -> None:
        if api_key in HEARTBEATS:
            self._process.heard(sent_ms, decode_response(api_key, api_version, payload)[1])


class SimulatedProcess(Protocol):
    """One process: a member, its program, and what the program has."""

    member_id: str
    interval_ms: int
    """The heartbeat interval that it heard last; 0 if it has heard of none."""
    ownership: Ownership
    is_stopped: bool
    is_subscribed: bool

    @property
    def holds(self) -> Collection[object]: ...

    def leave(self) -> None:
        """Leave the group and end."""

    def kill(self) -> None:
        """End without a word to anybody."""


class SimulatedConsumer(Actor):
    """A machine with a consumer, which may be static and may subscribe by an expression."""

    def __init__(self, *args: Any, is_static: bool = False, is_regex: bool = False) -> None:
        super().__init__(*args)
        self.instance_id = self.name if is_static else None
        self.is_regex = is_regex
        self.expression = "orders|events"
        self.wanted: tuple[str, ...] = ()
        self.settings: dict[str, Any] = {}
        """Settings of its processes beside SETTINGS."""
        self.process: SimulatedProcess

    def start(self, topics: dict[str, bytes], session_ms: float) -> None:
        """Start the first process; `topics` maps names to ids."""
        self.topics = topics
        self.session_ms = session_ms
        self.lives = 0
        self._begin()

    def _begin(self) -> None:
        self.lives += 1
        self.process = self.new_process(f"{self.name}.{self.lives}")

    def new_process(self, member_id: str) -> SimulatedProcess:
        return ConsumerProcess(self, member_id, self.settings)

    def ended(self, process: SimulatedProcess, after_ms: float) -> None:
        """Start the next process, as one has ended."""
        if process is self.process and not self.is_stopped:
            self.host.call_later(after_ms, lambda: process is self.process and self._begin())

    @property
    def ownership(self) -> Ownership:
        return self.process.ownership

    @property
    def owned(self) -> Collection[object]:
        return self.process.holds

    @property
    def member_id(self) -> str:
        return self.process.member_id

    @property
    def interval_ms(self) -> int:
        return self.process.interval_ms

    def leave(self) -> None:
        """Close the consumer, now and then after it has left for good; then another process is started."""
        self.process.leave()

    def crash(self) -> str:
        """End the process without leaving; another takes its place. Return the dead member's id."""
        dead = self.member_id
        self.process.kill()
        self._begin()
        return dead

    def resubscribe(self) -> None:
        """Subscribe to other topics from the next poll on; see `ConsumerProcess.subscribe`."""
        self.process.is_subscribed = False

    def stop(self) -> None:
        super().stop()
        self.process.is_stopped = True


class ConsumerProcess:
    """A process that runs the product's own consumer."""

    def __init__(self, machine: SimulatedConsumer, member_id: str, settings: dict[str, Any]) -> None:
        self.machine = machine
        self.member_id = member_id
        self.holds: set[TopicPartition] = set()
        self.interval_ms = 0
        self.is_subscribed = self.is_closing = self.is_stopped = False
        self.ownership = Ownership(machine.chronicle, machine.group_id, member_id, machine.session_ms)
        host, bootstrap = machine.host, machine.caller.bootstrap
        self._ends = HostConnections(host, _Heartbeats(self))
        self.consumer = VirtualConsumer(
            read_settings(
                SETTINGS
                | {
                    "bootstrap_servers": ",".join(f"{name}:{port}" for name, port in bootstrap),
                    "client_id": machine.name,
                    "group_id": machine.group_id,
                    "group_instance_id": machine.instance_id,
                }
                | settings
            ),
            Environment(host.monotonic_ms, host.wall_ms, host.rng.random, lambda: member_id),
            self._ends,
            host.call_later,
        )
        self._ends.delegate = self.consumer.assembly.delegate
        self._ends.wake = self.consumer.wake
        self._application = self.consumer.application
        host.call_later(COMMIT_MS * host.rng.random(), self._start)

    def leave(self) -> None:
        self.is_closing = True

    def kill(self) -> None:
        self.consumer.kill()
        self._ends.kill()
        self.holds.clear()
        self._own()

    # What passes on the wire.

    def heard(self, sent_ms: float, answer: Any) -> None:
        if not answer.error_code and answer.member_epoch > 0:
            self.interval_ms = answer.heartbeat_interval_ms
            self.ownership.accepted(sent_ms, self.machine.world.now_ms)

    def left(self) -> None:
        self.ownership.left(self.machine.world.now_ms)

    # The program.

    def _start(self) -> None:
        if not self.consumer.is_dead:
            self.consumer.run(self._program(), self._ended)

    def _ended(self, _result: Any, error: BaseException | None) -> None:
        if isinstance(error, FatalError):
            self._note(error)
        elif error is not None:
            raise error
        self.kill()
        self.machine.ended(self, RESTART_MS if error is not None else 0.0)

    def _program(self) -> Steps[None]:
        while not self.is_closing:
            try:
                if not self.is_subscribed:
                    self.is_subscribed = True
                    yield from self.subscribe()
                yield from self.poll()
                self._commit_one()
            except FatalError:
                yield from self._close()
                raise
            except ConsumerError as error:
                self._note(error)
        if self.machine.instance_id is not None and self.machine.host.rng.random() > AWAY_SHARE:
            yield from self._leave_for_good()
        yield from self._close()

    def poll(self) -> Steps[Any]:
        return self._application.poll(1, COMMIT_MS * self.machine.host.rng.uniform(0.8, 1.2))

    def subscribe(self) -> Steps[None]:
        machine = self.machine
        topics = () if machine.is_regex else machine.wanted or tuple(machine.topics)
        regex = machine.expression if machine.is_regex else None
        callbacks = RebalanceCallbacks(self._on_assign, self._on_revoke, self._on_revoke)
        return self._application.subscribe(topics, regex, callbacks)

    def _leave_for_good(self) -> Steps[None]:
        try:
            yield from self._application.unsubscribe(CLOSE_MS)
        except ConsumerError as error:
            self._note(error)

    def _close(self) -> Steps[None]:
        try:
            yield from self._application.close(CLOSE_MS)
        except ConsumerError as error:
            self._note(error)

    def _note(self, error: ConsumerError) -> None:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NONE
        if isinstance(error, KafkaError) and code not in RESTARTED | EXPECTED:
            self.machine.chronicle.unexpected[type(self.machine).__name__, code] += 1

    def _commit_one(self) -> None:
        if not self.holds or self.is_stopped:
            return
        machine = self.machine
        at = machine.host.rng.choice(sorted(self.holds))
        write = machine.chronicle.begin((machine.group_id, at.topic, at.partition), machine.world.now_ms)

        def committed(error: Exception | None, _offsets: Any) -> None:
            if error is None:
                write.acked_ms = machine.world.now_ms

        self._application.commit_async({at: OffsetAndMetadata(write.offset)}, committed)

    # Its callbacks.

    def _on_assign(self, partitions: list[TopicPartition]) -> None:
        self.holds.update(partitions)
        self._own()
        self._application.pause(partitions)

    def _on_revoke(self, partitions: list[TopicPartition]) -> None:
        self.holds.difference_update(partitions)
        self._own()

    def _own(self) -> None:
        owned = {(self.machine.topics[at.topic], at.partition) for at in self.holds}
        self.ownership.assigned(owned, self.machine.world.now_ms)
