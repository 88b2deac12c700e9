"""The acceptor leaves descriptors free for files, and pauses when none are free."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from cluster.host.accepting import Acceptor, listening_sockets
from tests.support.waiting import until


class Taken(asyncio.Protocol):
    """An accepted connection."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)


class Door:
    """An acceptor and the connections that it accepted."""

    def __init__(self, sockets: list[socket.socket], **options: Any) -> None:
        self.handlers: list[Any] = []
        self.acceptor = Acceptor(asyncio.get_running_loop(), sockets, self._made, **options)

    def _made(self) -> Any:
        self.handlers.append(Taken())
        return self.handlers[-1]


@pytest.fixture
async def door() -> AsyncIterator[Callable[..., Door]]:
    doors: list[Door] = []

    def opened(sockets: list[socket.socket], **options: Any) -> Door:
        doors.append(Door(sockets, **options))
        return doors[-1]

    yield opened
    for door in doors:
        door.acceptor.close()
        for handler in door.handlers:
            handler.transport.abort()
    await asyncio.sleep(0)


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """Lower the soft limit so that twenty descriptors are free below half of it, and yield that half."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = max(map(int, os.listdir("/proc/self/fd"))) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * half, hard))
    yield half
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_who_connects_gets_none_of_the_descriptors_that_are_kept(
    door: Callable[..., Door], few_descriptors: int, caplog: pytest.LogCaptureFixture
) -> None:
    opened = door(await listening_sockets("127.0.0.1", 0), kept=1_000_000)
    clients = []
    while not caplog.records:  # each connection takes a descriptor in this process too
        clients.append(await asyncio.open_connection("127.0.0.1", opened.acceptor.port))
        await asyncio.sleep(0)
    assert opened.handlers
    assert all(
        handler.transport.get_extra_info("socket").fileno() < few_descriptors for handler in opened.handlers
    )
    said = (
        f"all of its {2 * few_descriptors} file descriptors are in use, except those reserved for its files"
    )
    assert [said in record.message for record in caplog.records] == [True]
    reader = clients[-1][0]
    assert await asyncio.wait_for(reader.read(), 1.0) == b""
    os.close(os.open("/", os.O_RDONLY))
    for _, writer in clients:
        writer.close()


class Short(socket.socket):
    """A listening socket for which no descriptor is free, a few times."""

    asked = 0
    short = 3

    def accept(self) -> Any:
        self.asked += 1
        if self.asked <= self.short:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def test_an_accept_without_a_descriptor_rests_and_is_told_once(
    door: Callable[..., Door], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.host.accepting.REST_S", 0.1)
    listening = Short()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    opened = door([listening])
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    _, writer = await asyncio.open_connection("127.0.0.1", opened.acceptor.port)
    await until(lambda: opened.handlers)
    assert loop.time() - began_s >= 0.29
    assert listening.asked == 5  # three failures, one connection, an empty backlog
    said = f"cannot accept a connection on port {opened.acceptor.port}: Too many open files"
    assert [record.message for record in caplog.records] == [said]
    writer.close()


async def test_a_listener_that_was_closed_while_it_rested_stays_closed(door: Callable[..., Door]) -> None:
    listening = Short()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    opened = door([listening])
    _, writer = await asyncio.open_connection("127.0.0.1", opened.acceptor.port)
    await until(lambda: listening.asked)
    opened.acceptor.close()
    opened.acceptor._listen(listening)
    assert not opened.handlers
    writer.close()
