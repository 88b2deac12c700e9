"""A fault while state changes stops the node, with one line; a fault while the bytes of a client are read or
answered ends that connection, and the node serves on."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.host.host_asyncio import AsyncioHost
from cluster.kafka.connection import Connection
from cluster.simulator import Network, World
from cluster.simulator.host import VirtualHost
from cluster.simulator.machine import Machine
from raftlog.env.host import Listener
from raftlog.env.simulated_files import SimFiles
from raftlog.transport.handshake import Handshake
from tests.cluster.fakes import Bench
from tests.cluster.sim_links import SimLinks
from tests.report import count_fault
from tests.support.listener_rig import Rig, heartbeat
from tests.support.requests import join_request
from tests.support.sim_node import SimNode
from wire.apis import ApiKey
from wire.errors import ErrorCode


class Broken(RuntimeError):
    """A fault of the program, put in by a test."""


def broken(*_: object, **__: object) -> Any:
    raise Broken("on purpose")


# The loop of a real process.


def knocked_at(host: AsyncioHost) -> None:
    """Connect to a listener whose protocol factory raises."""
    found: list[Listener] = []

    def nobody() -> Any:
        found[0].close()
        broken()

    def connect(listener: Listener | None, _: object) -> None:
        assert listener is not None
        found.append(listener)
        socket.create_connection(("127.0.0.1", listener.port)).close()

    host.listen("", 0, nobody, connect)


WAYS: dict[str, Callable[[AsyncioHost], object]] = {
    "a callback": lambda host: host.call_soon(broken, 1),
    "a timer": lambda host: host.call_later(1, broken, 1),
    "the result of disk work": lambda host: host.run_on_disk(lambda: 1, broken),
    "the failure of disk work": lambda host: host.run_on_disk(broken, broken),
    "the result of a job": lambda host: host.spawn_job(
        "no.such.module", {}, broken, low_priority=False, deadline_ms=9_000
    ),
    "who asked to listen": lambda host: host.listen("256.1.1.1", 0, asyncio.Protocol, broken),
    "what is made for who connects": knocked_at,
    "who asked to connect": lambda host: host.connect("", 1, asyncio.Protocol, broken),
}


@pytest.mark.parametrize("way", WAYS)
async def test_any_callback_that_raises_stops_the_node(way: str) -> None:
    stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    host = AsyncioHost(asyncio.get_running_loop(), on_fatal=stopped.set_result)
    try:
        WAYS[way](host)
        said = await asyncio.wait_for(stopped, 10)
    finally:
        host.close()
    assert "internal error: Broken: on purpose (at test_what_stops_a_node.py:" in said
    assert "\n" not in said


async def test_a_foreign_task_that_raises_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The HTTP server's own tasks are an example."""
    stopped: list[str] = []
    loop = asyncio.get_running_loop()
    AsyncioHost(loop, on_fatal=stopped.append).close()
    loop.call_soon(broken)
    await asyncio.sleep(0)
    assert not stopped
    assert [one.levelno for one in caplog.records] == [logging.ERROR]
    assert "Broken: on purpose" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_node_whose_start_raises_ends_with_one_line(tmp_path: Path) -> None:
    program = (
        "import sys, cluster.main as main, cluster.node as node\n"
        "def broken(*_): raise KeyError('a shard')\n"
        "node.Node.start = broken\n"
        f"sys.exit(main.main(['--data-dir', {str(tmp_path)!r}, '--kafka-port', '0', '--http-port', '0']))"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", program, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 70
    assert [b"internal error: KeyError: 'a shard'" in line for line in err.splitlines()] == [True]


# The simulator behaves as a real process does.


def test_a_simulated_node_whose_callback_raises_is_dead_and_the_test_fails() -> None:
    world = World(1)
    host = VirtualHost(world, Network(world), SimFiles(1), name="node")
    host.call_soon(broken)
    with pytest.raises(Broken):
        world.run_for(1)
    assert host.is_dead
    assert "Broken: on purpose" in str(host.fatal_message)


def failing(machine: Machine) -> str:
    """The last line of a node that is expected to stop soon."""
    assert machine.world.run_until(lambda: machine.host.is_dead, within_ms=10_000)
    count_fault("cluster", "a fault of the program")
    return str(machine.host.fatal_message)


# Loading, and the work that follows a decision.


@pytest.mark.parametrize(
    "where", ["clean_up", "load_journal", "Snapshotter", "Applier.loaded", "Replica.core"]
)
def test_what_fails_in_loading_stops_the_node(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    machine = Machine(world, Network(world), num_shards=1)
    monkeypatch.setattr(f"raftlog.replica.replica.{where}", broken)
    machine.boot()
    assert "Broken: on purpose" in failing(machine)


def test_sessions_that_cannot_be_renewed_stop_the_node() -> None:
    sim = SimNode(num_shards=1)
    client = sim.client("one")
    sim.machine.disk.free = 1024
    sim.world.run_for(2_000)
    assert sim.commit(client, "billing", {0: 1}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    sim.world.run_for(2_000)
    sim.machine.disk.free = 1 << 40
    sim.node.shards[0].machine.becoming_ready = _breaks_at_its_first_step  # type: ignore[method-assign]
    sim.consumer("two").client.send(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request("billing", "m", "orders")
    )
    assert "sessions cannot be renewed: Broken: on purpose" in failing(sim.machine)


def _breaks_at_its_first_step(_: object) -> Any:
    raise Broken("on purpose")
    yield


def test_a_decision_that_is_not_carried_out_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.log(bench.metadata).lead()
    bench.log(bench.groups).lead()
    monkeypatch.setattr(bench.groups.duties, "decided", broken)
    bench.host.call_soon(bench.heartbeat, join_request("billing", "one", "orders"))
    bench.world.run_for(10)
    assert "a decision was not carried out: Broken: on purpose" in str(bench.host.fatal_message)


# Connections.


@pytest.mark.parametrize("heard", ["peer_up", "peer_down", "peer_message"])
def test_a_shard_that_fails_at_what_a_peer_says_stops_the_node(
    heard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = SimLinks()
    sim.boot(1)
    monkeypatch.setattr(sim[1].users[0], heard, broken)
    sim.boot(2)
    if heard != "peer_up":
        assert sim.until(lambda: sim[2].ups == [1])
        sim[2].links.send(1, 0, b"said")
        sim.settle(10)
        sim[2].kill()
    assert sim.until(lambda: sim[1].host.is_dead)
    assert "Broken: on purpose" in str(sim[1].host.fatal_message)


def test_a_hello_that_raises_costs_its_sender_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = SimLinks()
    sim.boot(1)
    monkeypatch.setattr(Handshake, "take", broken)
    sim.boot(2)
    sim.settle(1_000)
    assert not sim[1].host.is_dead
    assert "its hello cannot be read: Broken: on purpose" in caplog.text
    monkeypatch.undo()
    assert sim.until(lambda: sim[1].ups == [2])


@pytest.mark.parametrize("where", ["_serve", "_is_blocked", "_transport.write"])
def test_what_fails_in_reading_a_client_ends_its_connection_only(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    victim, other = rig.connect(), rig.connect()
    connection = next(iter(rig.listener.connections))
    if where == "_transport.write":
        monkeypatch.setattr(connection._transport, "write", broken)
    else:
        works = getattr(Connection, where)

        def broken_there(one: Connection, *args: Any) -> Any:
            return (broken if one is connection else works)(one, *args)

        monkeypatch.setattr(Connection, where, broken_there)
    victim.send(heartbeat(1))
    other.send(heartbeat(2))
    rig.run()
    assert victim.is_lost
    assert other.correlation_ids == [2]
    assert caplog.text.count("internal error: Broken: on purpose") == 1
