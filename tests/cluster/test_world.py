"""The simulator's own promises: order, pauses, crashes, streams, and the same history for the same seed."""

from __future__ import annotations

import asyncio

import pytest

from cluster.simulator import Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles


def host_in(world: World, network: Network | None = None, **options: float) -> VirtualHost:
    return VirtualHost(world, network or Network(world), SimFiles(world.seed), **options)  # type: ignore[arg-type]


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Listening(Echo):
    """Records every event of its connection."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.received = b""
        self.lost: Exception | str | None = "not lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return False

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


def connected(
    world: World, server_factory: type[Echo]
) -> tuple[VirtualHost, VirtualHost, Listening, list[Echo]]:
    network = Network(world)
    server, client = host_in(world, network), VirtualHost(world, network, SimFiles(2), name="client")
    accepted: list[Echo] = []

    def accept() -> Echo:
        accepted.append(server_factory())
        return accepted[-1]

    near = Listening()
    server.listen("", 9092, accept, lambda _listener, error: None)
    client.connect("", 9092, lambda: near, lambda _handler, error: None)
    world.run_for(5)
    assert near.calls == ["made"]
    return server, client, near, accepted


def test_events_run_in_order_of_time_then_of_making() -> None:
    world, seen = World(1), []
    world.at(5, seen.append, "b")
    world.at(1, seen.append, "a")
    world.at(5, seen.append, "c")
    world.at(3, seen.append, "cancelled").cancel()
    world.run_for(10)
    assert seen == ["a", "b", "c"]
    assert world.now_ms == 10


def test_run_until_never_runs_what_lies_beyond_its_end() -> None:
    world, seen = World(1), []
    world.at(1, seen.append, "gone").cancel()
    world.at(100, seen.append, "late")
    assert not world.run_until(lambda: bool(seen), within_ms=50)
    assert world.now_ms == 50


def test_pause_delays_every_event_and_runs_timers_before_deliveries() -> None:
    world, seen = World(1), []
    host = host_in(world)
    host.call_later(10, seen.append, "timer")
    world.at(5, seen.append, "delivery", owner=host.name)
    host.pause(60_000)
    world.run_for(59_999)
    assert seen == []
    world.run_for(2)
    assert seen == ["timer", "delivery"]


def test_kill_ends_every_callback_of_the_host_and_of_no_other() -> None:
    world, seen = World(1), []
    network = Network(world)
    one, two = host_in(world, network), VirtualHost(world, network, SimFiles(2), name="two")
    one.call_later(10, seen.append, "one")
    two.call_later(10, seen.append, "two")
    one.kill()
    one.call_soon(seen.append, "one after death")
    world.run_for(20)
    assert seen == ["two"]


def test_fatal_leaves_the_running_callback_at_once() -> None:
    world, seen = World(1), []
    host = host_in(world)

    def work() -> None:
        try:
            host.fatal("disk broken")
        except Exception:  # as a node's handler might; the node must not go on
            seen.append("swallowed")
        seen.append("went on")

    host.call_soon(work)
    world.run_for(1)
    assert seen == []
    assert host.fatal_message == "disk broken"


def test_disk_work_is_done_in_order_one_after_another_and_reports_errors() -> None:
    world, seen = World(1), []
    host = host_in(world, sync_ms=10.0)

    def fail() -> None:
        raise OSError("no")

    host.run_on_disk(lambda: "first", lambda result, error: seen.append((world.now_ms, result, error)))
    host.run_on_disk(fail, lambda result, error: seen.append((world.now_ms, result, str(error))))
    world.run_for(15)
    assert seen == [(10.0, "first", None)]
    world.run_for(15)
    assert seen[1:] == [(20.0, None, "no")]


def test_stream_echoes_bytes_in_order_in_any_pieces() -> None:
    world = World(7)
    _, _, near, _ = connected(world, Echo)
    message = bytes(range(256)) * 40
    for at in range(0, len(message), 100):
        near.transport.write(message[at : at + 100])
    world.run_for(50)
    assert near.received == message


def test_close_delivers_what_was_written_and_abort_resets() -> None:
    world = World(3)
    _, _, near, accepted = connected(world, Listening)
    far = accepted[0]
    assert isinstance(far, Listening)
    near.transport.write(b"last words")
    near.transport.close()
    world.run_for(5)
    assert (far.received, far.calls, far.lost, near.lost) == (b"last words", ["made", "eof"], None, None)

    _, _, near, accepted = connected(World(4), Listening)
    near.transport.abort()
    far = accepted[0]
    assert isinstance(far, Listening)
    near.transport.network.world.run_for(5)  # type: ignore[attr-defined]
    assert isinstance(far.lost, ConnectionResetError)


def test_a_reader_that_stops_fills_the_writer_until_it_is_told_to_pause() -> None:
    world = World(5)
    _, _, near, accepted = connected(world, Listening)
    far = accepted[0]
    assert isinstance(far, Listening)
    far.transport.pause_reading()
    for _ in range(40):
        near.transport.write(bytes(8192))
        world.run_for(1)
    assert "pause" in near.calls
    assert near.transport.get_write_buffer_size() > 0
    far.transport.resume_reading()
    world.run_for(5)
    assert near.calls[-1] == "resume"
    assert len(far.received) == 40 * 8192


def test_killing_a_host_resets_its_connections_and_frees_its_address() -> None:
    world = World(6)
    server, client, near, _ = connected(world, Echo)
    server.kill()
    world.run_for(5)
    assert isinstance(near.lost, ConnectionResetError)
    errors: list[BaseException | None] = []
    client.connect("", 9092, Listening, lambda _handler, error: errors.append(error))
    world.run_for(1)
    assert isinstance(errors[0], ConnectionRefusedError)


def test_listening_twice_on_an_address_fails() -> None:
    world = World(1)
    host, errors = host_in(world), []
    for _ in range(2):
        host.listen("", 9092, Echo, lambda _listener, error: errors.append(error))
    world.run_for(1)
    assert errors[0] is None
    assert isinstance(errors[1], OSError)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_seed_is_one_history_and_another_seed_another(seed: int) -> None:
    def history(of: int) -> tuple[int, int, bytes]:
        world = World(of)
        host, _, near, _ = connected(world, Echo)
        for _ in range(50):
            near.transport.write(host.fresh_id().encode())
            world.run_for(host.rng.uniform(0, 2))
        return world.trace_hash, world.events_run, near.received

    assert history(seed) == history(seed)
    assert history(seed) != history(seed + 10)
