"""Leases on three nodes: kill -9 of the coordinator, of a holder, of the node asked; a restore."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate import Lease, lease
from quorate.client import Client
from tests.support.real_cluster import TOPIC, create_topic, leader_of
from tests.support.waiting import until

SETTINGS = {
    "leader.balance.delay.ms": "600000",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "3000",
}
GROUP, PARTITIONS, WITHIN_S = "workers", 4, 20.0
EXAMPLES = Path(__file__).parents[2] / "examples"
Tokens = dict[int, int]

HOLDER = """
import asyncio, sys, quorate

async def work(lease):
    print(lease.partition, lease.token, flush=True)
    await asyncio.Event().wait()

async def main():
    async with quorate.lease(sys.argv[1], sys.argv[2], bootstrap_servers=sys.argv[3]) as partitions:
        await partitions.run(work)

asyncio.run(main())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    started = launch_cluster(tmp_path / "cluster", settings=SETTINGS)
    try:
        create_topic(started, PARTITIONS)
        yield started
    finally:
        started.kill()


class Workplace:
    """The workers of all members in this process, which must never meet."""

    def __init__(self, bootstrap: str) -> None:
        self.working: dict[int, Lease] = {}
        self.begun: list[Lease] = []
        self._bootstrap = bootstrap

    async def work(self, own: Lease) -> None:
        assert own.partition not in self.working, "two work on it at once"
        before = [one.token for one in self.begun if one.partition == own.partition]
        assert own.token > max(before, default=-1), "the token has not risen"
        self.begun.append(own)
        self.working[own.partition] = own
        try:
            await asyncio.Event().wait()
        finally:
            del self.working[own.partition]

    async def member(self) -> None:
        async with lease(GROUP, TOPIC, bootstrap_servers=self._bootstrap) as partitions:
            await partitions.run(self.work)

    def is_full(self) -> bool:
        return len(self.working) == PARTITIONS


async def end(*members: asyncio.Task[None]) -> None:
    for member in members:
        member.cancel()
    for ended in await asyncio.gather(*members, return_exceptions=True):
        assert isinstance(ended, asyncio.CancelledError)


async def test_leases_go_on_after_kill_9_of_the_coordinator(cluster: ClusterProcess) -> None:
    place = Workplace(cluster.bootstrap)
    first, second = (asyncio.create_task(place.member()) for _ in range(2))
    await until(lambda: place.is_full() and len(place.begun) >= PARTITIONS + 2, WITHIN_S)
    before = dict(place.working)
    leader_of(cluster.nodes, GROUP).kill()
    begun = len(place.begun)
    await end(second)  # the new coordinator is asked
    await until(lambda: place.is_full() and len(place.begun) > begun, WITHIN_S)
    kept = [part for part, one in place.working.items() if before[part] == one]
    assert len(kept) == PARTITIONS // 2, "nothing was lost"
    moved = [one.token for part, one in place.working.items() if part not in kept]
    assert min(moved) > max(one.token for one in before.values())
    await end(first)


async def test_the_partitions_of_a_killed_holder_get_higher_tokens(cluster: ClusterProcess) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, GROUP, TOPIC, cluster.bootstrap, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    held: Tokens = {}
    while len(held) < PARTITIONS:
        part, token = (await asyncio.wait_for(holder.stdout.readline(), WITHIN_S)).split()
        held[int(part)] = int(token)
    holder.kill()
    await holder.wait()
    place = Workplace(cluster.bootstrap)
    heir = asyncio.create_task(place.member())
    await until(place.is_full, WITHIN_S)
    assert min(one.token for one in place.working.values()) > max(held.values())
    await end(heir)


async def test_tokens_rise_after_a_restore_from_copies(cluster: ClusterProcess, tmp_path: Path) -> None:
    place = Workplace(cluster.bootstrap)
    member = asyncio.create_task(place.member())
    await until(place.is_full, WITHIN_S)
    await end(member)
    await asyncio.to_thread(cluster.stop)
    shutil.copytree(cluster.data, tmp_path / "copy")
    shutil.rmtree(cluster.data)
    shutil.copytree(tmp_path / "copy", cluster.data)
    again = await asyncio.to_thread(launch_cluster, cluster.data, settings=SETTINGS)
    try:
        place._bootstrap = again.bootstrap
        member = asyncio.create_task(place.member())  # work() compares the tokens with those before
        await until(place.is_full, WITHIN_S)
        await end(member)
    finally:
        await asyncio.to_thread(again.kill)


@asynccontextmanager
async def stream(url: str) -> AsyncIterator[tuple[aiohttp.StreamReader, aiohttp.ClientSession]]:
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/leases", json={"group": GROUP, "topics": TOPIC}) as answer,
    ):
        assert answer.status == 200, await answer.text()
        yield answer.content, session


async def event(reader: aiohttp.StreamReader) -> tuple[str, Any]:
    """Return the next event; an empty name at the end of the stream."""
    async with asyncio.timeout(WITHIN_S):
        while not (line := (await reader.readline()).decode()).startswith("event: "):
            if not line:
                return "", {}
        return line[7:].strip(), json.loads((await reader.readline())[6:])


async def test_a_stream_ends_with_its_node_and_others_get_its_partitions(cluster: ClusterProcess) -> None:
    asked, other = (node for node in cluster.nodes if node is not leader_of(cluster.nodes, GROUP))
    async with stream(asked.url) as (first, _):
        name, opened = await event(first)
        assert (name, (await event(first))[0]) == ("opened", "gained")
        async with stream(other.url) as (second, session):
            assert (await event(second))[0] == "opened"
            name, release = await event(first)
            assert name == "release"
            path = f"/v1/leases/{opened['lease']}/acknowledge"
            async with session.post(path, json={"change": release["change"]}) as answer:
                assert (await answer.json())["was_open"], "the other node redirects to the lease's"
            before = (await event(second))[1]["partitions"]
            await asyncio.to_thread(asked.kill)
            with pytest.raises(aiohttp.ClientPayloadError):
                await event(first)
            name, gained = await event(second)
            assert name == "gained"
            assert len(before) + len(gained["partitions"]) == PARTITIONS
            assert min(one["token"] for one in gained["partitions"]) > before[0]["token"]


async def worker(cluster: ClusterProcess, database: Path) -> asyncio.subprocess.Process:
    """Start a process of examples/leases.py."""
    program = str(EXAMPLES / "leases.py")
    return await asyncio.create_subprocess_exec(
        sys.executable, program, cluster.bootstrap, str(database), stdout=asyncio.subprocess.PIPE
    )


async def test_a_suspended_worker_of_the_example_cannot_write_late(
    cluster: ClusterProcess, tmp_path: Path
) -> None:
    """Suspended for longer than its session, it goes on in the middle of its work."""
    with Client(cluster.bootstrap) as client:
        client.create_topic("tenants", PARTITIONS)
    path = tmp_path / "tenants.db"
    suspended = await worker(cluster, path)

    def steps() -> list[tuple[int, int, int]]:
        with closing(sqlite3.connect(path, timeout=30)) as database:
            return database.execute("SELECT part, token, pid FROM steps ORDER BY rowid").fetchall()

    def parts_of(pid: int) -> set[int]:
        return {part for part, _, by in steps() if by == pid}

    await until(lambda: path.exists() and path.stat().st_size, WITHIN_S)
    await until(lambda: len(parts_of(suspended.pid)) == PARTITIONS, WITHIN_S)
    suspended.send_signal(signal.SIGSTOP)
    heir = await worker(cluster, path)
    await until(lambda: len(parts_of(heir.pid)) == PARTITIONS, WITHIN_S)
    suspended.send_signal(signal.SIGCONT)
    told = b""
    while b"a later owner has written" not in told and b"not ours any more" not in told:
        assert suspended.stdout is not None
        told = await asyncio.wait_for(suspended.stdout.readline(), WITHIN_S)
    begun = len(steps())
    await until(lambda: suspended.pid in {by for _, _, by in steps()[begun:]}, WITHIN_S)
    for process in (suspended, heir):
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), WITHIN_S) == 0
    for number in range(PARTITIONS):
        tokens = [token for part, token, _ in steps() if part == number]
        assert tokens == sorted(tokens), "no write came after one of a later owner"
