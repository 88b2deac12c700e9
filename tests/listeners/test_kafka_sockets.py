"""The listener on real sockets, on uvloop and on plain asyncio, which pause writes differently."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.host.host_asyncio import AsyncioHost, new_event_loop
from cluster.kafka import KafkaListener
from cluster.kafka.unserved import SHARE_REQUESTS
from cluster.settings import Settings
from tests.support.listener_rig import CountingEntry, FakeNode, heartbeat
from tests.support.waiting import until

LOOPS = [asyncio.new_event_loop, new_event_loop]
MIB = 1 << 20


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """A function that runs a coroutine, on each kind of loop in turn."""

    def run(coroutine: Any) -> None:
        loop = request.param()
        try:
            loop.run_until_complete(asyncio.wait_for(coroutine, 30))
        finally:
            loop.close()

    return run


@dataclass
class Served:
    listener: KafkaListener
    node: FakeNode
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def connect(self, **limits: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.listener.address, **limits)
        self.writers.append(writer)
        return reader, writer

    async def close(self) -> None:
        for writer in self.writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def served(**settings: Any) -> AsyncIterator[Served]:
    chosen = Settings(kafka_port=0, **settings)
    host = AsyncioHost(asyncio.get_running_loop())
    node = FakeNode(chosen)
    listener = KafkaListener(host, node, chosen)
    listening = asyncio.get_running_loop().create_future()
    listener.start(listening.set_result)
    assert await listening is None
    at = Served(listener, node)
    try:
        yield at
    finally:
        await at.close()
        listener.stop()
        await until(lambda: not listener.connections)
        host.close()


async def frames(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        found.append(await reader.readexactly(length))
    return found


def ids(found: list[bytes]) -> list[int]:
    return [struct.unpack_from(">i", frame)[0] for frame in found]


@pytest.mark.parametrize("fast", [False, True])
def test_ten_thousand_pipelined_requests(on_loop: Callable[[Any], None], fast: bool) -> None:
    async def story() -> None:
        async with served() as at:
            if fast:
                at.node.entries["g", "m"] = CountingEntry()
            reader, writer = await at.connect()
            other_reader, other_writer = await at.connect()
            writer.write(b"".join(heartbeat(number) for number in range(10_000)))
            other_writer.write(heartbeat(1))
            assert ids(await frames(other_reader, 1)) == [1]
            assert ids(await frames(reader, 10_000)) == list(range(10_000))
            assert (at.listener.context.counters.fast_heartbeats > 9_000) == fast

    on_loop(story())


def test_a_slow_reader_is_held_and_then_served_in_full(on_loop: Callable[[Any], None]) -> None:
    async def story() -> None:
        async with served(connection_buffered_pause_bytes=65_536) as at:
            at.node.padding = "x" * 20_000
            reader, writer = await at.connect(limit=1_024)
            writer.write(b"".join(heartbeat(number) for number in range(2_000)))  # 40 MB of replies
            (connection,) = at.listener.connections
            await until(lambda: connection._unread and not connection._reading)
            other_reader, other_writer = await at.connect()
            for number in range(50):  # others are served in turns in which this one could be
                other_writer.write(heartbeat(number))
                assert ids(await frames(other_reader, 1)) == [number]
            assert len(at.node.asked) < 1_500
            assert connection.unread_bytes() < 65_536 + SHARE_REQUESTS * 20_200, "the pause and one slice"
            assert ids(await frames(reader, 2_000)) == list(range(2_000))

    on_loop(story())


def test_a_reply_that_is_sent_in_part_counts_as_a_whole(on_loop: Callable[[Any], None]) -> None:
    """The kernel takes megabytes of it, and the transport keeps it whole."""

    async def story() -> None:
        async with served() as at:
            at.node.padding = "x" * (8 * MIB)
            reader, writer = await at.connect(limit=1_024)
            writer.write(heartbeat(1))
            (connection,) = at.listener.connections
            await until(lambda: 0 < connection.unread_bytes() < 8 * MIB)
            assert connection.kept_now() > 8 * MIB > connection.kept_now(is_whole=False)
            assert ids(await frames(reader, 1)) == [1]
            assert connection.kept_now() == 0

    on_loop(story())


def test_announced_bytes_cost_no_memory_until_they_come(on_loop: Callable[[Any], None]) -> None:
    async def story() -> None:
        async with served() as at:
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            clients = [await at.connect() for _ in range(200)]
            for _, writer in clients:
                writer.write(struct.pack(">i", 1 * MIB) + b"\x00" * 5_000)
            await until(lambda: at.listener.context.kept_bytes >= 200 * 5_004)
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert after - before < 20 * MIB, "200 MB were announced"

    on_loop(story())


def test_half_closed_reset_and_garbage_leave_nothing_behind(on_loop: Callable[[Any], None]) -> None:
    async def story() -> None:
        async with served() as at:
            for kind in range(30):
                _, writer = await at.connect()
                writer.write((heartbeat(1), b"\xff" * 50, heartbeat(1)[:9])[kind % 3])
                if kind % 2:
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                    writer.transport.abort()
                else:
                    writer.write_eof()
                    writer.close()
            await until(lambda: not at.listener.connections)
            reader, writer = await at.connect()
            writer.write(heartbeat(7))
            assert ids(await frames(reader, 1)) == [7]

    on_loop(story())


def test_an_address_in_use_is_reported(on_loop: Callable[[Any], None]) -> None:
    async def story() -> None:
        async with served() as at:
            taken = Settings(kafka_port=at.listener.address[1])
            second = KafkaListener(at.listener.context.host, at.node, taken)
            outcome = asyncio.get_running_loop().create_future()
            second.start(outcome.set_result)
            assert isinstance(await outcome, OSError)

    on_loop(story())
