"""The faults that the simulator can inject into machines and their network, one by one."""

from __future__ import annotations

import asyncio
import math

import pytest

from cluster.simulator import Machine, Network, VirtualHost, World
from raftlog.env.simulated_files import SimFiles


class Peer(asyncio.Protocol):
    """One end of a connection, which records what it received and when, and how it ended."""

    transport: asyncio.Transport

    def __init__(self, host: VirtualHost) -> None:
        self.host = host
        self.got: list[tuple[float, bytes]] = []
        self.lost: Exception | str | None = "not lost"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got.append((self.host.monotonic_ms(), data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc

    @property
    def bytes(self) -> bytes:
        return b"".join(data for _, data in self.got)


class Pair:
    """Two machines, `one` and `two`, with a connection from the first to the second."""

    def __init__(self, seed: int = 1, **options: float) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.network.machines |= {"127.0.0.1": "one", "127.0.0.2": "two"}
        self.one = VirtualHost(self.world, self.network, SimFiles(), name="one", **options)  # type: ignore[arg-type]
        self.two = VirtualHost(self.world, self.network, SimFiles(), name="two")
        self.near, self.far = Peer(self.one), Peer(self.two)
        self.errors: list[BaseException | None] = []
        self.two.listen("127.0.0.2", 1, lambda: self.far, lambda _listener, error: None)
        self.dial()
        self.world.run_for(5)
        assert self.errors == [None]

    def dial(self, handler: Peer | None = None) -> None:
        self.one.connect(
            "127.0.0.2", 1, lambda: handler or self.near, lambda _h, error: self.errors.append(error)
        )


def test_a_cut_one_way_holds_bytes_back_and_lets_the_other_way_pass() -> None:
    pair = Pair()
    pair.network.cut_one_way("one", "two")
    pair.near.transport.write(b"request")
    pair.far.transport.write(b"news")
    pair.world.run_for(60_000)
    assert (pair.near.bytes, pair.far.bytes) == (b"news", b"")
    assert (pair.near.lost, pair.far.lost) == ("not lost", "not lost")
    pair.near.transport.write(b" and more")
    pair.network.heal("one", "two")
    pair.world.run_for(5)
    assert pair.far.bytes == b"request and more"


def test_what_an_aborted_connection_wrote_into_a_cut_never_arrives() -> None:
    pair = Pair()
    pair.network.cut_one_way("one", "two")
    pair.near.transport.write(b"too late")
    pair.near.transport.abort()
    pair.world.run_for(1_000)
    assert pair.far.lost == "not lost"
    pair.network.heal_all()
    pair.world.run_for(5)
    assert pair.far.bytes == b""
    assert isinstance(pair.far.lost, ConnectionResetError)


def test_a_writer_into_a_cut_is_told_to_pause_in_the_end() -> None:
    pair = Pair()
    told: list[str] = []
    pair.near.pause_writing = lambda: told.append("pause")  # type: ignore[method-assign]
    pair.near.resume_writing = lambda: told.append("resume")  # type: ignore[method-assign]
    pair.network.cut("one", "two")
    for _ in range(40):
        pair.near.transport.write(bytes(8192))
        pair.world.run_for(1)
    assert told == ["pause"]
    pair.network.heal("one", "two")
    pair.world.run_for(5)
    assert told == ["pause", "resume"]


@pytest.mark.parametrize("way", [("one", "two"), ("two", "one")])
def test_a_dial_through_a_cut_waits_for_its_end(way: tuple[str, str]) -> None:
    pair = Pair()
    pair.network.cut_one_way(*way)
    pair.dial(Peer(pair.one))
    pair.world.run_for(10_000)
    assert pair.errors == [None]
    pair.network.heal_all()
    pair.world.run_for(5)
    assert pair.errors == [None, None]


def test_a_reset_hits_both_ends_and_no_other_connection() -> None:
    pair = Pair()
    assert pair.network.reset("one", "two") == 1
    assert pair.network.reset("one", "three") == 0
    pair.world.run_for(1)
    assert isinstance(pair.near.lost, ConnectionResetError)
    assert isinstance(pair.far.lost, ConnectionResetError)


def test_one_end_may_hear_of_a_reset_later() -> None:
    pair = Pair()
    assert pair.network.reset("one", "two", later_ms=50) == 1
    pair.world.run_for(49)
    assert isinstance(pair.near.lost, ConnectionResetError)
    assert pair.far.lost == "not lost"
    pair.world.run_for(2)
    assert isinstance(pair.far.lost, ConnectionResetError)


def test_a_slow_link_delays_every_byte_and_keeps_their_order() -> None:
    pair = Pair()
    pair.near.transport.write(b"a")
    pair.network.slow_down("one", "two", 80.0)
    pair.near.transport.write(b"b")
    pair.network.slow_down("one", "two", 0.0)
    pair.near.transport.write(b"c")
    pair.world.run_for(200)
    assert pair.far.bytes == b"abc"
    assert pair.far.got[1][0] >= 80


def test_a_machine_without_power_says_nothing_and_refuses_what_it_does_not_know() -> None:
    pair = Pair()
    pair.two.kill(has_power=False)
    pair.near.transport.write(b"hello?")
    pair.dial(Peer(pair.one))
    pair.world.run_for(30_000)
    assert pair.near.lost == "not lost"
    assert pair.errors == [None]
    pair.network.power_on("two")
    pair.world.run_for(5)
    assert isinstance(pair.near.lost, ConnectionResetError)
    assert isinstance(pair.errors[1], ConnectionRefusedError)


def test_an_idle_end_learns_of_a_power_failure_when_it_writes() -> None:
    pair = Pair()
    pair.two.kill(has_power=False)
    pair.network.power_on("two")
    pair.world.run_for(5)
    assert pair.near.lost == "not lost"
    pair.near.transport.write(b"hello?")
    pair.world.run_for(5)
    assert isinstance(pair.near.lost, ConnectionResetError)


def test_a_paused_machine_takes_nothing_until_it_goes_on() -> None:
    pair = Pair()
    seen: list[str] = []
    pair.two.call_later(100, seen.append, "timer")
    pair.two.pause()
    pair.near.transport.write(b"waits")
    pair.world.run_for(60_000)
    assert (seen, pair.far.bytes, pair.two.is_paused) == ([], b"", True)
    pair.two.resume()
    pair.world.run_for(1)
    assert (seen, pair.far.bytes) == (["timer"], b"waits")
    assert pair.far.got[0][0] >= 60_000


def test_a_longer_pause_replaces_a_shorter_one() -> None:
    pair, seen = Pair(), []
    pair.two.call_later(1, seen.append, "ran")
    pair.two.pause(10)
    pair.two.pause(100)
    pair.world.run_for(50)
    assert seen == []
    pair.world.run_for(60)
    assert seen == ["ran"]


def test_a_paused_machine_can_be_killed() -> None:
    pair, seen = Pair(), []
    pair.two.call_later(1, seen.append, "ran")
    pair.two.pause()
    pair.world.run_for(10)
    pair.two.kill()
    pair.two.resume()
    pair.world.run_for(10)
    assert seen == []
    assert isinstance(pair.near.lost, ConnectionResetError)


def test_a_node_whose_disk_fails_while_it_starts_ends() -> None:
    world = World(1)
    machine = Machine(world, Network(world))
    machine.disk.fail = lambda _number, _operation, _path: OSError(5, "injected")
    machine.boot()
    world.run_for(100)
    assert not machine.is_up
    assert "cannot start" in (machine.host.fatal_message or "")


def test_a_busy_loop_holds_up_its_own_machine_only() -> None:
    pair, seen = Pair(), []

    def log(what: str, host: VirtualHost) -> None:
        seen.append((what, round(host.monotonic_ms() - began_ms)))

    def work() -> None:
        pair.world.spend(50)
        log("worked", pair.one)

    began_ms = pair.world.now_ms
    pair.one.call_later(10, work)
    pair.one.call_later(20, log, "late", pair.one)
    pair.two.call_later(20, log, "on time", pair.two)
    pair.world.run_for(100)
    assert seen == [("worked", 60), ("on time", 20), ("late", 60)]


def test_what_waits_for_a_busy_loop_keeps_its_order() -> None:
    pair, seen = Pair(), []

    def work() -> None:
        pair.world.spend(50)
        pair.one.call_soon(seen.append, "made last")

    pair.one.call_later(3, seen.append, "second")
    pair.one.call_later(2, seen.append, "first")
    pair.one.call_later(1, work)
    pair.world.run_for(100)
    assert seen == ["first", "second", "made last"]


def test_a_disk_that_stands_still_holds_up_the_loop_when_the_loop_syncs() -> None:
    pair, seen = Pair(), []

    def sync() -> None:
        pair.one.took("fdatasync")
        seen.append(round(pair.one.monotonic_ms() - began_ms))

    began_ms = pair.world.now_ms
    pair.one.stall_disk(3_000)
    pair.one.call_later(1_000, sync)
    pair.one.call_later(1_100, lambda: seen.append(round(pair.one.monotonic_ms() - began_ms)))
    pair.world.run_for(5_000)
    assert seen == [3_000, 3_000]


def test_a_disk_that_stands_still_holds_up_its_thread_and_what_was_on_it() -> None:
    pair = Pair(sync_ms=10.0)
    done: list[float] = []
    began_ms = pair.world.now_ms
    for _ in range(2):
        pair.one.run_on_disk(lambda: None, lambda _r, _e: done.append(pair.world.now_ms - began_ms))
    pair.world.run_for(5)
    pair.one.stall_disk(3_000)
    pair.world.run_for(5_000)
    assert done == [3_005, 3_005]


def test_wall_clocks_may_be_wrong_and_jump() -> None:
    pair = Pair()
    before = pair.one.wall_ms()
    pair.one.wall_skew_ms = -3_600_000
    assert pair.one.wall_ms() == before - 3_600_000
    assert pair.two.wall_ms() == before


def test_the_monotonic_clock_never_goes_back() -> None:
    pair = Pair(clock_step_ms=5.0)
    readings: list[float] = []
    pair.one.call_later(1, lambda: readings.extend(pair.one.monotonic_ms() for _ in range(10)))
    assert pair.world.run_until(lambda: len(readings) == 10, within_ms=math.inf)
    assert pair.one.monotonic_ms() >= readings[-1]
