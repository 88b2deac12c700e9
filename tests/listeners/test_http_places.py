"""The HTTP listener's connections: silent ones make room for new ones, busy ones do not, probes get in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cluster.http import app, places
from cluster.http.metrics import NodeMetrics
from cluster.http.places import KEPT
from tests.listeners.event_loops import on_both_loops
from tests.listeners.http_rig import HttpRig, http_rig
from tests.support.waiting import until

CONNECTIONS_MAX = 3
PLACES = CONNECTIONS_MAX + KEPT
POLL = "GET /v1/shards/0/log?from=5&wait_ms=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF = "GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nX-a"


class Caller:
    """A client with one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.answered = asyncio.create_task(self._read())

    async def _read(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            return await self._reader.read(12)
        return b""

    @property
    def is_cut(self) -> bool:
        return self.answered.done() and not self.answered.result()


class Street:
    """All clients of one listener."""

    def __init__(self, rig: HttpRig) -> None:
        self._rig = rig
        self.callers: list[Caller] = []

    async def call(self, text: str = "") -> Caller:
        caller = Caller(*await asyncio.open_connection(*self._rig.listener.address))
        caller.writer.write(text.encode())
        self.callers.append(caller)
        return caller

    async def status(self, path: str) -> bytes:
        """Return the first bytes of the answer to a new client, on its own connection."""
        asking = await self.call(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return await asyncio.wait_for(asking.answered, 1.0)

    async def fill(self, count: int) -> list[Caller]:
        """Open connections that each sent half a request head, which the listener has read."""
        begun = [await self.call(HALF) for _ in range(count)]
        held = self._rig.listener._places
        while len(held._asking) < count:
            await asyncio.sleep(0)
        return begun


@contextlib.asynccontextmanager
async def street(**settings: int) -> AsyncIterator[tuple[HttpRig, Street]]:
    async with http_rig(http_connections_max=CONNECTIONS_MAX, **settings) as rig:
        street = Street(rig)
        yield rig, street
        for caller in street.callers:
            caller.writer.close()
            await caller.answered


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/cluster"])
@on_both_loops
async def test_half_heads_keep_no_client_out_and_the_oldest_makes_room(path: str) -> None:
    async with street() as (_, callers):
        begun = await callers.fill(PLACES)
        assert await callers.status(path) == b"HTTP/1.1 200"
        assert [caller.is_cut for caller in begun[:3]] == [True, False, False]
        assert await callers.status(path) == b"HTTP/1.1 200"


@on_both_loops
async def test_a_head_has_seconds_to_come_whole_and_an_idle_connection_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "HEAD_S", 0.2)
    async with street() as (rig, callers):
        assert (await rig.get("/healthz"))[0] == 200
        again = await callers.call("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await again.answered == b"HTTP/1.1 200"
        silent, half = await callers.call(), await callers.call(HALF)
        again.writer.write(HALF.encode())
        for caller in (silent, half):
            assert await asyncio.wait_for(caller.answered, 2.0) == b""
        await until(lambda: not rig.listener._places._asking)
        assert len(rig.listener._places._idle) == 1, "the session's, kept alive"


@on_both_loops
async def test_who_works_is_not_cut_and_probes_are_answered_beside_long_polls() -> None:
    async with street(http_waiting_max=100) as (rig, callers):
        polls = [await callers.call(POLL) for _ in range(CONNECTIONS_MAX)]
        while len(rig.listener._places._at_work) < CONNECTIONS_MAX:
            await asyncio.sleep(0)
        await callers.fill(KEPT)
        assert await callers.status("/v1/cluster") == b"HTTP/1.1 503"
        for path in ("/healthz", "/readyz", "/metrics"):
            assert await callers.status(path) == b"HTTP/1.1 200"
        assert not any(poll.is_cut for poll in polls)


@on_both_loops
async def test_metrics_have_places_of_their_own_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even when the limit of concurrent requests is reached."""
    monkeypatch.setattr(app, "SCRAPES_KEPT", 1)
    async with street(http_requests_max=1) as (rig, callers):
        let_go = asyncio.Event()
        monkeypatch.setattr(NodeMetrics, "render", lambda *_: b"")

        async def hang(*_: object) -> None:
            await let_go.wait()

        api = rig.listener._places
        monkeypatch.setattr(app.Api, "in_slices", hang)
        slow = [await callers.call("GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")]
        while len(api._at_work) < 1:
            await asyncio.sleep(0)
        assert await callers.status("/v1/cluster") == b"HTTP/1.1 503"
        slow.append(await callers.call("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        while len(api._at_work) < 2:
            await asyncio.sleep(0)
        assert await callers.status("/metrics") == b"HTTP/1.1 503"
        assert await callers.status("/healthz") == b"HTTP/1.1 200"
        let_go.set()
