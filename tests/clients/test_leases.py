"""Leases on a real node, by both doors: `quorate.lease()`, and /v1/leases with its stream of events."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from client.aio.leases import Leases
from cluster.launching.launcher import NodeProcess, launch_node
from quorate import FatalError, KafkaError, Lease, lease
from quorate.client import Client
from quorate.groupclient import GroupClient
from tests.clients.conftest import SETTINGS
from tests.support.waiting import until

LEASES_MAX = 4
WITHIN_S = 10.0
Tokens = dict[int, int]
"""Partition → token."""


@pytest.fixture(scope="module")
def leasing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that gives tokens."""
    settings = {
        **SETTINGS,
        "group.consumer.heartbeat.interval.ms": "100",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "http.leases.max": LEASES_MAX,
    }
    process = launch_node(tmp_path_factory.mktemp("leases") / "node", settings=settings)
    yield process
    assert process.stop() == 0
    assert "Traceback" not in (Path(process.data) / "node.log").read_text(encoding="utf-8")


@pytest.fixture
def bootstrap(leasing: NodeProcess) -> str:
    return f"{leasing.host}:{leasing.port}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    with Client(bootstrap) as client:
        client.create_topic(name, 4)
    return name


@pytest.fixture
def opened(bootstrap: str, group: str, topic: str) -> Callable[..., Leases]:
    """Makes leases of the test's topic."""
    return lambda **settings: lease(group, topic, bootstrap_servers=bootstrap, **settings)


async def held(leases: Leases, count: int) -> Tokens:
    """Take changes until so many partitions are held."""
    async with asyncio.timeout(WITHIN_S):
        while len(leases) != count:
            await anext(leases)
    return {one.partition: one.token for one in leases}


class Workplace:
    """Workers of several processes, which note when two work on one partition at once."""

    def __init__(self) -> None:
        self.working: dict[int, Lease] = {}
        self.highest: Tokens = {}
        self.begun = 0

    async def work(self, own: Lease) -> None:
        assert own.partition not in self.working, "two work on it at once"
        assert own.token > self.highest.get(own.partition, -1), "the token has not risen"
        self.highest[own.partition], self.working[own.partition] = own.token, own
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.02)  # some time to end
            del self.working[own.partition]


async def test_workers_of_a_group_share_the_partitions_and_never_meet(opened: Callable[..., Leases]) -> None:
    place = Workplace()

    async def member() -> None:
        async with opened() as leases:
            await leases.run(place.work)

    members = [asyncio.create_task(member()) for _ in range(3)]
    await until(lambda: len(place.working) == 4, WITHIN_S)
    for leaver in members[:2]:
        before = place.begun
        leaver.cancel()
        await asyncio.wait({leaver})
        await until(lambda before=before: len(place.working) == 4 and place.begun > before, WITHIN_S)
    members[2].cancel()
    (ended,) = await asyncio.gather(members[2], return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    assert not place.working


async def test_tokens_rise_when_a_static_member_is_replaced(opened: Callable[..., Leases]) -> None:
    async with opened(group_instance_id="one") as first:
        before = await held(first, 4)
    async with opened(group_instance_id="one") as second:
        after = await held(second, 4)
    assert min(after.values()) > max(before.values())


async def test_tokens_rise_when_the_group_is_deleted_and_made_again(
    opened: Callable[..., Leases], bootstrap: str, group: str
) -> None:
    async with opened() as first:
        before = await held(first, 4)
    with GroupClient(bootstrap) as client:
        client.delete_group(group)
    async with opened() as second:
        assert min((await held(second, 4)).values()) > max(before.values())
        assert second.explain().member_epoch == 1


async def test_a_name_that_no_topic_can_have_is_an_error(bootstrap: str, group: str) -> None:
    with pytest.raises(KafkaError, match="'no such' is not a name"):
        async with lease(group, "no such", bootstrap_servers=bootstrap):
            pass


async def test_a_topic_that_does_not_exist_is_an_error(
    bootstrap: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client.aio.leases.TOPIC_S", 0.1)
    with pytest.raises(KafkaError, match="topic 'no-such-topic' does not exist"):
        async with lease(group, "no-such-topic", bootstrap_servers=bootstrap):
            pass


async def test_a_second_process_with_the_same_instance_id_is_refused(opened: Callable[..., Leases]) -> None:
    async with opened(group_instance_id="one") as first:
        await held(first, 4)
        with pytest.raises(FatalError, match="Give each consumer its own"):
            async with opened(group_instance_id="one"):
                pass
        assert len(first) == 4


# HTTP.


class Reader:
    """The reader of one stream."""

    def __init__(self, session: aiohttp.ClientSession, answer: aiohttp.ClientResponse) -> None:
        self.tokens: Tokens = {}
        self.lease = ""
        self.answer = answer
        self._session = session

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next event."""
        async with asyncio.timeout(WITHIN_S):
            while (line := (await self.answer.content.readline()).decode()).startswith(":") or line == "\n":
                continue
            if not line:
                return "end of the stream", {}
            name = line.removeprefix("event: ").strip()
            data = json.loads((await self.answer.content.readline()).decode().removeprefix("data: "))
        named = {one["partition"]: one["token"] for one in data.get("partitions", ())}
        if name == "gained":
            self.tokens |= named
        else:
            self.tokens = {part: token for part, token in self.tokens.items() if part not in named}
        return name, data

    async def hold(self, count: int) -> Tokens:
        while len(self.tokens) != count:
            await self.next()
        return dict(self.tokens)

    async def acknowledge(self, data: dict[str, Any]) -> dict[str, Any]:
        url = f"/v1/leases/{self.lease}/acknowledge"
        async with self._session.post(url, json={"change": data["change"]}) as answer:
            assert answer.status == 200
            found: dict[str, Any] = await answer.json()
            return found

    def end(self) -> None:
        self.answer.close()


OpenStream = Callable[..., Awaitable[Reader]]


@pytest.fixture
async def session(leasing: NodeProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(leasing.url) as session:
        yield session


@pytest.fixture
async def stream(session: aiohttp.ClientSession, group: str, topic: str) -> AsyncIterator[OpenStream]:
    """Opens leases over HTTP, which end with the test."""
    readers: list[Reader] = []

    async def open_stream(**fields: Any) -> Reader:
        answer = await session.post("/v1/leases", json={"group": group, "topics": topic, **fields})
        assert answer.status == 200, await answer.text()
        reader = Reader(session, answer)
        readers.append(reader)
        name, data = await reader.next()
        assert (name, data["group"]) == ("opened", group)
        reader.lease = data["lease"]
        return reader

    yield open_stream
    for reader in readers:
        await session.delete(f"/v1/leases/{reader.lease}")
        reader.end()


async def test_a_stream_tells_what_is_held_and_what_must_be_released(stream: OpenStream) -> None:
    first = await stream()
    before = await first.hold(4)
    second = await stream()
    name, data = await first.next()
    assert (name, len(data["partitions"])) == ("release", 2)
    heard = asyncio.ensure_future(second.hold(2))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(heard), 0.5)
    assert await first.acknowledge(data) == {"change": data["change"], "was_open": True}
    after = await heard
    assert after.keys() == {one["partition"] for one in data["partitions"]}
    assert min(after.values()) > max(before.values())
    assert (await first.acknowledge(data))["was_open"] is False, "an acknowledgement whose answer was lost"


async def test_the_end_of_a_stream_leaves_the_group(stream: OpenStream) -> None:
    first, second = await stream(), await stream()
    before = await first.hold(4)
    first.end()
    after = await second.hold(4)
    assert min(after.values()) > max(before.values())


async def test_both_doors_share_one_group(stream: OpenStream, opened: Callable[..., Leases]) -> None:
    reader = await stream()
    await reader.hold(4)
    async with opened() as leases:
        _, data = await reader.next()
        await reader.acknowledge(data)
        assert len(await held(leases, 2)) == 2
    assert len(await reader.hold(4)) == 4


async def test_a_lease_is_given_up_by_delete(stream: OpenStream, session: aiohttp.ClientSession) -> None:
    reader = await stream(instance_id="one")
    before = await reader.hold(4)
    async with session.delete(f"/v1/leases/{reader.lease}") as answer:
        assert await answer.json() == {"closed": reader.lease}
    assert await reader.next() == ("closed", {})
    assert (await reader.next())[0] == "end of the stream"
    async with session.delete(f"/v1/leases/{reader.lease}") as answer:
        assert (answer.status, (await answer.json())["error"]) == (404, "NO_SUCH_LEASE")
    again = await stream(instance_id="one")
    assert min((await again.hold(4)).values()) > max(before.values())


async def test_a_reader_that_does_not_acknowledge_loses_its_partitions(stream: OpenStream) -> None:
    first = await stream(release_timeout_ms=500)
    await first.hold(4)
    second = await stream(release_timeout_ms=500)
    assert (await first.next())[0] == "release"
    name, data = await first.next()
    assert (name, len(data["partitions"])) == ("lost", 4)
    assert len(await second.hold(4)) == 4
    await first.acknowledge(data)
    assert (await second.next())[0] == "release", "it has joined again"


@pytest.mark.parametrize(
    ("fields", "status", "error"),
    [
        ({}, 400, "MISSING_FIELD"),
        ({"group": "g", "topics": ","}, 400, "MISSING_FIELD"),
        ({"group": "g", "topics": "t", "instance": "a"}, 400, "UNKNOWN_FIELD"),
        ({"group": "g", "topics": "t", "instance_id": ""}, 400, "BAD_PARAMETER"),
        ({"group": "g", "topics": ",".join(map(str, range(1_001)))}, 400, "TOO_MANY_TOPICS"),
        ({"group": "g" * 40_000, "topics": "t"}, 400, "INVALID_REQUEST"),
    ],
)
async def test_a_lease_that_cannot_be_is_refused(
    session: aiohttp.ClientSession, fields: dict[str, Any], status: int, error: str
) -> None:
    async with session.post("/v1/leases", json=fields) as answer:
        assert (answer.status, (await answer.json())["error"]) == (status, error)


async def test_a_second_stream_of_a_static_member_is_refused(
    stream: OpenStream, session: aiohttp.ClientSession, group: str, topic: str
) -> None:
    first = await stream(instance_id="one")
    await first.hold(4)
    fields = {"group": group, "topics": topic, "instance_id": "one"}
    async with session.post("/v1/leases", json=fields) as answer:
        assert (answer.status, (await answer.json())["error"]) == (409, "UNRELEASED_INSTANCE_ID")


async def test_leases_have_a_bound(stream: OpenStream, session: aiohttp.ClientSession) -> None:
    async def refusal() -> str:
        async with session.post("/v1/leases", json={}) as answer:
            error: str = (await answer.json())["error"]
            return error

    async def has_room() -> bool:
        return await refusal() == "MISSING_FIELD"

    readers = [await stream() for _ in range(LEASES_MAX)]
    assert await refusal() == "TOO_MANY_LEASES"
    readers[0].end()
    await until(has_room, WITHIN_S)


@asynccontextmanager
async def unread(leasing: NodeProcess, group: str, topic: str) -> AsyncIterator[socket.socket]:
    """A reader that asks for a lease and never reads."""
    body = json.dumps({"group": group, "topics": topic, "release_timeout_ms": 500})
    head = f"POST /v1/leases HTTP/1.1\r\nHost: {leasing.host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((leasing.host, leasing.http_port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        yield connection


async def test_a_reader_that_reads_nothing_loses_what_it_does_not_release(
    leasing: NodeProcess, stream: OpenStream, group: str, topic: str
) -> None:
    async with unread(leasing, group, topic):
        other = await stream(release_timeout_ms=500)
        await other.hold(4)
