"""/v1/leases at the listener: slow and vanished readers, other nodes' leases, and the node's stop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from client.core.errors import IllegalState
from client.core.leases import LeaseChange
from client.core.types import Lease
from cluster.http.leases import LeaseServer
from tests.listeners.http_rig import HttpRig, http_rig
from tests.support.listener_rig import INFO, PEER
from tests.support.waiting import until

MANY = tuple(Lease("orders", number, 7) for number in range(5_000))
"""Leases whose event is larger than the buffers of a connection, when it comes some times."""


class FakeLeases:
    """A member whose changes a test chooses."""

    made: FakeLeases
    changes: ClassVar[list[LeaseChange]] = []

    def __init__(self, *arguments: Any) -> None:
        FakeLeases.made = self
        self.arguments = arguments
        self.taken = 0
        self.acknowledged: list[int] = []
        self.closed: list[dict[str, Any]] = []
        self.releases = 0
        self.repeats = False
        """Whether the changes come again and again."""
        self._news = asyncio.Event()

    async def __aenter__(self) -> FakeLeases:
        return self

    def explain(self) -> Any:
        return SimpleNamespace(member_id="m-1")

    async def next_change(self) -> LeaseChange:
        while not self.closed:
            if self.taken < len(self.changes) or self.repeats:
                self.taken += 1
                return self.changes[(self.taken - 1) % len(self.changes)]
            self._news.clear()
            await self._news.wait()
        raise IllegalState("closed")

    def acknowledge(self, change: LeaseChange) -> None:
        self.acknowledged.append(change.number)

    async def release(self, timeout: float) -> bool:
        self.releases += 1
        return False

    async def close(self, timeout: float = 15.0, **how: Any) -> None:
        self.closed.append(how)
        self._news.set()


@asynccontextmanager
async def leased(
    monkeypatch: pytest.MonkeyPatch, *changes: LeaseChange, repeats: bool = False
) -> AsyncIterator[tuple[HttpRig, asyncio.StreamReader, FakeLeases]]:
    """An open stream, whose answer is read by hand."""
    monkeypatch.setattr(FakeLeases, "changes", list(changes))
    monkeypatch.setattr("client.aio.leases.Leases", FakeLeases)
    async with http_rig() as rig:
        body = json.dumps({"group": "g", "topics": "orders"})
        reader, writer = await asyncio.open_connection("127.0.0.1", rig.listener.address[1], limit=4_096)
        head = "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        await reader.readuntil(b"event: opened")
        FakeLeases.made.repeats = repeats
        FakeLeases.made._news.set()
        try:
            yield rig, reader, FakeLeases.made
        finally:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_a_reader_that_does_not_read_is_disconnected_and_its_member_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cluster.http.file_server.UNREAD_S", 0.2)
    async with leased(monkeypatch, LeaseChange(gained=MANY), repeats=True) as (_, _, member):
        await until(lambda: member.closed, 20)
        assert member.closed == [{"leaves": True}]
        taken = member.taken
        await asyncio.sleep(0.05)
        assert member.taken == taken, "nothing more is queued for it"


async def test_a_reader_that_vanishes_leaves_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async with leased(monkeypatch) as (rig, _, member):
        pass
    await until(lambda: member.closed)
    assert member.closed[0] == {"leaves": True}
    assert rig.listener


async def test_a_quiet_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.http.leases.ALIVE_S", 0.02)
    async with leased(monkeypatch) as (_, reader, _):
        for _ in range(2):
            await asyncio.wait_for(reader.readuntil(b": alive\n\n"), 5)


async def test_what_is_not_acknowledged_when_the_node_stops_waits_for_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To leave would be to say that the reader's work has ended."""
    async with leased(monkeypatch, LeaseChange(ended=MANY[:1], number=3)) as (rig, reader, member):
        await asyncio.wait_for(reader.readuntil(b"event: release"), 5)
        await rig.listener.end_leases()
        assert member.releases == 1
        await asyncio.wait_for(reader.readuntil(b"event: closed"), 5)
        await until(lambda: len(member.closed) == 2)
        assert member.closed == [{"leaves": False}] * 2
        assert member.acknowledged == []
        status, answer = await rig.post("/v1/leases", {"group": "g", "topics": "orders"})
        assert (status, answer["error"]) == (503, "STOPPING")


def server_of(rig: HttpRig) -> LeaseServer:
    server: LeaseServer = rig.listener._app[rig.listener._leases]
    return server


class JoiningLeases(FakeLeases):
    """A member that the coordinator does not admit."""

    async def __aenter__(self) -> FakeLeases:
        await self._news.wait()
        raise IllegalState("closed before it had joined")


async def test_a_member_that_joins_while_the_node_stops_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader was told of nothing, so there is no work to wait for."""
    monkeypatch.setattr("client.aio.leases.Leases", JoiningLeases)
    async with http_rig() as rig:
        asked = asyncio.ensure_future(rig.post("/v1/leases", {"group": "g", "topics": "orders"}))
        await until(lambda: bool(server_of(rig)._joining))
        await rig.listener.end_leases()
        assert JoiningLeases.made.closed[0] == {}
        status, answer = await asked
        assert (status, answer["error"]) == (503, "LEASE_ENDED")


async def test_members_that_leave_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens and closes leases in a loop does not have more members than http.leases.max."""
    monkeypatch.setattr("client.aio.leases.Leases", FakeLeases)
    async with http_rig() as rig:
        server = server_of(rig)
        monkeypatch.setattr(server, "_settings", replace(server._settings, http_leases_max=1))
        has_left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(FakeLeases, "close", lambda *_words, **_how: asyncio.wait_for(has_left, None))
        server._leave(FakeLeases())  # type: ignore[arg-type]
        status, answer = await rig.post("/v1/leases", {"group": "g", "topics": "orders"})
        assert (status, answer["error"]) == (429, "TOO_MANY_LEASES")
        has_left.set_result(None)
        await until(lambda: not server._leaving)


async def test_another_node_redirects_to_the_node_of_a_lease() -> None:
    async with http_rig() as rig:
        rig.node.nodes = (INFO, replace(PEER, http_host="::1", http_port=8093))
        for method, path in (("POST", f"{PEER.node_id}-m/acknowledge"), ("DELETE", f"{PEER.node_id}-m")):
            url = f"{rig.url}/v1/leases/{path}"
            body = {"change": 1} if method == "POST" else None
            async with rig.session.request(method, url, json=body, allow_redirects=False) as answer:
                assert answer.status == 307
                assert answer.headers["Location"] == f"http://[::1]:8093/v1/leases/{path}"


@pytest.mark.parametrize("field", ["group", "topics", "instance_id"])
async def test_a_text_that_no_request_can_carry_is_refused_at_once(field: str) -> None:
    async with http_rig() as rig:
        fields = {"group": "g", "topics": "orders", field: "\ud800"}
        status, answer = await rig.post("/v1/leases", fields)
        assert (status, answer["error"]) == (400, "BAD_PARAMETER")
        assert answer["message"].startswith(f"{field} must be a text that UTF-8 can express")


async def test_a_delete_whose_client_has_gone_still_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections end with close(): if it was cancelled, the member would stay until its session ends."""
    may_leave, left = asyncio.Event(), asyncio.Event()

    async def close(member: FakeLeases, timeout: float = 15.0, **how: Any) -> None:
        member.closed.append(how)
        if how.get("for_good"):
            await may_leave.wait()
            left.set()

    async with leased(monkeypatch) as (rig, _, member):
        monkeypatch.setattr(FakeLeases, "close", close)
        deleting = asyncio.ensure_future(rig.session.delete(f"{rig.url}/v1/leases/{INFO.node_id}-m-1"))
        await until(lambda: member.closed)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        async with rig.session.get(f"{rig.url}/healthz") as answer:
            assert answer.status == 200
        may_leave.set()
        await asyncio.wait_for(left.wait(), 5)


async def test_a_page_of_another_site_cannot_open_a_lease() -> None:
    async with http_rig() as rig:
        origin = {"Origin": "https://example.org"}
        async with rig.session.post(f"{rig.url}/v1/leases", json={}, headers=origin) as answer:
            assert answer.status == 403
