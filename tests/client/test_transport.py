"""The asyncio backend over real sockets: connections, TLS, large answers, and how each end is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from client.aio.loop import BackgroundDriver, fresh_id, now_ms
from client.aio.transport import AsyncioConnections, tls_context
from client.core.background import Background
from client.core.env import HandshakeFailed
from client.core.errors import ConfigError
from client.core.events import ErrorEvent
from client.core.network.frames import ResponseFrames
from client.core.settings import ConsumerSettings
from tests.support.certificates import authority, certificate, openssl

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
WAIT_S = 10
TURNS_OF_AN_ATTEMPT = 20
"""More turns of the event loop than an attempt to connect takes."""


def settings(**values: Any) -> ConsumerSettings:
    return ConsumerSettings(bootstrap_servers=(("127.0.0.1", 1),), group_id="g", **values)


class Recorder:
    """A delegate that notes what it is told."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.data = bytearray()

    def connected(self, number: int) -> None:
        self.told.put_nowait(("connected", number))

    def received(self, number: int, data: bytes) -> bool:
        self.data += data
        self.told.put_nowait(("received", number))
        return True

    def lost(self, number: int, error: Exception | None) -> None:
        self.told.put_nowait(("lost", number, error))

    async def next(self) -> tuple[Any, ...]:
        return await asyncio.wait_for(self.told.get(), WAIT_S)


def backend(recorder: Recorder, **values: Any) -> AsyncioConnections:
    driver = BackgroundDriver(lambda: None)
    driver.background = Background([], {}, Idle(), deque())
    connections = AsyncioConnections(settings(**values), driver)
    connections.events = recorder
    return connections


class Idle:
    """A delegate's half that has nothing to send."""

    def add(self, request: Any, now_ms: float) -> None: ...

    def poll(self, now_ms: float) -> float:
        return float("inf")


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    writers: list[asyncio.StreamWriter] = []

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(ConnectionError):
            await serve(reader, writer)

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            # asyncio's abort() fails on a transport that close() has ended after it sent what it had kept.
            if not writer.is_closing():
                writer.transport.abort()
        await asyncio.sleep(0)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def test_bytes_go_both_ways_until_the_connection_is_closed() -> None:
    recorder = Recorder()
    connections = backend(recorder)
    async with serving(echo) as port:
        connections.connect(1, "localhost", port)
        assert await recorder.next() == ("connected", 1)
        connections.write(1, b"hello")
        assert await recorder.next() == ("received", 1)
        assert recorder.data == b"hello"
        connections.close(1)
        connections.write(1, b"too late")
        await connections.wait_closed()
        assert recorder.told.empty()


def test_connections_are_made_on_other_event_loops_too() -> None:
    """On uvloop, which nodes use for leases over HTTP."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_bytes_go_both_ways_until_the_connection_is_closed())


async def test_the_nodes_end_of_a_connection_is_told() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    recorder = Recorder()
    connections = backend(recorder)
    async with serving(hang_up) as port:
        connections.connect(1, "127.0.0.1", port)
        assert await recorder.next() == ("connected", 1)
        assert await recorder.next() == ("lost", 1, None)


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", 1),
        ("no.such.host.invalid", 1),
        ("a" * 70 + ".example", 1),
        ("127.0.0.1", 99_999),
        ("", -1),
    ],
)
async def test_an_address_that_cannot_be_connected_to_is_told(host: str, port: int) -> None:
    recorder = Recorder()
    backend(recorder).connect(1, host, port)
    kind, number, error = await recorder.next()
    assert (kind, number) == ("lost", 1)
    assert isinstance(error, OSError)
    assert str(error)


async def test_a_name_with_a_dead_address_is_connected_to_at_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with full_listener() as dead:
        async with serving(echo) as port:

            async def addresses(*_args: Any, **_kwargs: Any) -> list[Any]:
                kind = socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, ""
                return [(*kind, address) for address in (dead, ("127.0.0.1", port))]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses)
            recorder = Recorder()
            connections = backend(recorder)
            connections.connect(1, "kafka.test", port)
            assert await recorder.next() == ("connected", 1)
            connections.close(1)
            await connections.wait_closed()


@contextmanager
def full_listener() -> Iterator[Any]:
    """The address of a listener that takes no connections, as of a host that does not answer."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            one = sockets.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_starts_no_thread_for_lookups(host: str) -> None:
    begun = set(threading.enumerate())
    recorder = Recorder()
    connections = backend(recorder)
    connections.connect(1, host, 1)
    what, _number, error = await recorder.next()
    assert what == "lost"
    assert isinstance(error, OSError)
    assert set(threading.enumerate()) == begun
    await connections.wait_closed()


async def test_an_attempt_that_is_given_up_is_not_told() -> None:
    recorder = Recorder()
    connections = backend(recorder)
    async with serving(echo) as port:
        connections.connect(1, "127.0.0.1", port)
        connections.close(1)
        connections.connect(2, "127.0.0.1", port)
        assert await recorder.next() == ("connected", 2)
        assert recorder.told.empty()
        connections.close(2)
        await connections.wait_closed()


@pytest.mark.parametrize("turns", range(TURNS_OF_AN_ATTEMPT))
async def test_an_attempt_that_is_given_up_leaves_no_socket_open(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up after every number of turns of the event loop, also just as the socket has been connected."""
    connections = backend(Recorder())
    opened: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            opened.append(self)

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(socket, "socket", Noted)
        connections.connect(1, "localhost", server.getsockname()[1])
        for _ in range(turns):
            await asyncio.sleep(0)
        connections.close(1)
        await connections.wait_closed()
        assert [each for each in opened if each.fileno() >= 0] == []


async def test_an_answer_of_fifty_megabytes_arrives_whole() -> None:
    size = 50_000_000
    frames, sizes = ResponseFrames(size), []
    done = asyncio.get_running_loop().create_future()

    class Reader(Recorder):
        def received(self, number: int, data: bytes) -> bool:
            sizes.extend(map(len, frames.feed(data)))
            if sizes:
                done.set_result(None)
            return bool(sizes)

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(size.to_bytes(4, "big"))
        writer.write(bytes(size))
        await writer.drain()
        writer.close()

    connections = backend(Reader())
    async with serving(send) as port:
        connections.connect(1, "127.0.0.1", port)
        await asyncio.wait_for(done, WAIT_S)
        connections.close(1)
        await connections.wait_closed()
    assert sizes == [size]


# TLS.


@pytest.fixture(scope="module")
def authority_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = authority(tmp_path_factory.mktemp("tls"), "authority")
    certificate(home, "localhost")
    return home


def server_tls(home: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(home / "localhost.pem", home / "localhost.key")
    return context


@openssl
async def test_tls_checks_the_authority(authority_home: Path) -> None:
    recorder = Recorder()
    trusting = backend(
        recorder,
        security_protocol="SSL",
        ssl_ca_location=str(authority_home / "ca.pem"),
        ssl_check_hostname=False,  # the name stands in the subject only
    )
    async with serving(echo, server_tls(authority_home)) as port:
        trusting.connect(1, "localhost", port)
        assert await recorder.next() == ("connected", 1)
        trusting.write(1, b"hello")
        assert await recorder.next() == ("received", 1)
        trusting.close(1)
        await trusting.wait_closed()


@openssl
async def test_an_unknown_authority_is_a_refusal(authority_home: Path) -> None:
    recorder = Recorder()
    async with serving(echo, server_tls(authority_home)) as port:
        backend(recorder, security_protocol="SSL").connect(1, "localhost", port)
        kind, _, error = await recorder.next()
    assert kind == "lost"
    assert isinstance(error, HandshakeFailed)
    assert "certificate verify failed" in str(error)


async def test_a_node_without_tls_is_a_refusal() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    recorder = Recorder()
    async with serving(plain) as port:
        backend(recorder, security_protocol="SSL").connect(1, "localhost", port)
        kind, _, error = await recorder.next()
    assert kind == "lost"
    assert isinstance(error, OSError)


async def test_a_handshake_that_stalls_is_given_up_with_its_socket() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1_000)
        writer.write(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76")  # the beginning of a ServerHello
        begun.set()
        with suppress(ConnectionError):
            await reader.read()
        ended.set()
        writer.close()

    recorder = Recorder()
    connections = backend(recorder, security_protocol="SSL")
    async with serving(stall) as port:
        connections.connect(1, "127.0.0.1", port)
        await asyncio.wait_for(begun.wait(), WAIT_S)
        connections.close(1)
        await asyncio.wait_for(connections.wait_closed(), WAIT_S)
        await asyncio.wait_for(ended.wait(), WAIT_S)
    assert recorder.told.empty()


@pytest.mark.parametrize("name", ["ssl_ca_location", "ssl_certificate_location"])
def test_files_that_cannot_be_used_are_a_wrong_setting(name: str, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("no certificate")
    for path in (damaged, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match="the TLS settings cannot be used"):
            tls_context(settings(security_protocol="SSL", **{name: str(path)}))


# The loop.


class Passes:
    """A delegate's half that counts its passes and says when the next one is due."""

    def __init__(self, *waits_ms: float) -> None:
        self.waits_ms = list(waits_ms)
        self.times: list[float] = []
        self.done = asyncio.Event()

    def add(self, request: Any, now_ms: float) -> None: ...

    def poll(self, now_ms: float) -> float:
        self.times.append(now_ms)
        if not self.waits_ms:
            self.done.set()
            return float("inf")
        return self.waits_ms.pop(0)


async def test_a_pass_follows_at_once_or_when_it_is_due() -> None:
    passes = Passes(0, 0, 30)
    driver = BackgroundDriver(lambda: None)
    driver.background = Background([], {}, passes, deque())
    for _ in range(10):
        driver.wake()
    await asyncio.wait_for(passes.done.wait(), WAIT_S)
    assert len(passes.times) == 4
    assert passes.times[3] - passes.times[2] >= 29
    await asyncio.to_thread(driver.wake_from_thread)
    await asyncio.sleep(0)
    assert len(passes.times) == 5
    driver.wake()
    driver.stop()
    driver.wake()
    await asyncio.sleep(0)
    assert len(passes.times) == 5


async def test_a_background_side_that_fails_is_told_to_the_application() -> None:
    class Failing(Passes):
        def poll(self, now_ms: float) -> float:
            raise KeyError("a bug")

    told = asyncio.Event()
    driver = BackgroundDriver(told.set)
    driver.background = Background([], {}, Failing(), deque())
    driver.wake()
    await asyncio.wait_for(told.wait(), WAIT_S)
    (event,) = driver.background.background_events
    assert isinstance(event, ErrorEvent)
    assert event.is_fatal
    assert "background side failed, which is a bug of it: KeyError('a bug')" in str(event.error)
    assert isinstance(driver.error, KeyError)


def test_fresh_ids_are_kafkas() -> None:
    ids = {fresh_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert {len(one) for one in ids} == {22}
    assert not any(one.startswith("-") for one in ids)
    assert now_ms() > 0
