"""Three replicas of one shard, nothing above them: `python -m benchmarks.replicas CONFIG`, a process each.

CONFIG is JSON: {"id", "directory", "secret", "nodes": {id: port}}. A leader answers each line of standard
input, a count, with the times in ms of that many sequential proposals, from the call until they were
committed. Its projection only counts entries, so that the log, the links and the sync are timed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.host.host_asyncio import AsyncioHost, new_event_loop
from raftlog.env.files import OsFiles
from raftlog.env.obstacles import Obstacle
from raftlog.env.settings import LogSettings
from raftlog.env.state_machine import SnapshotHeader
from raftlog.replica.replica import Replica
from raftlog.storage.directory import NodeIdentity, format_node, open_node
from raftlog.transport import PeerAddress, PeerSettings, SelfDescription
from raftlog.transport.links import Links
from records import Cause, RawRecord, RecordType, Trigger, encode_entry

LOOPBACK = "127.0.0.1"
VOTERS = (1, 2, 3)
VALUE_BYTES = 200
READY_S = 20.0

_BODY = encode_entry(
    Cause(trigger=Trigger.OFFSETS_COMMITTED),
    [RawRecord(RecordType.GROUP_CONFIG, 0, b"\x92\xa1k\xa1x", b"v" * VALUE_BYTES)],
)


class Counting:
    """A projection that only knows its applied index; `on_commit` is called at every commit."""

    def __init__(self) -> None:
        self.applied = 0
        self.is_ready = False
        self.on_commit: Any = None

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        self.applied = header.last_index

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        self.applied = index

    def committed(self, index: int) -> None:
        if self.on_commit is not None:
            self.on_commit(index)

    def ready(self, term: int) -> None:
        self.is_ready = True

    def deposed(self, reason: str) -> None:
        self.is_ready = False

    def leading(self, term: int) -> None: ...

    def followed(self, leader_id: int | None) -> None: ...

    def proven(self, proven_ms: float) -> None: ...

    def reset(self) -> None:
        self.applied = 0

    def observe_obstacles(self, now_ms: float) -> None: ...

    def obstacle(self) -> Obstacle:
        return Obstacle.NONE

    def state_hash(self) -> int:
        return self.applied

    def applied_index(self) -> int:
        return self.applied

    def catalog_version(self) -> int:
        return 0


class OneReplica:
    """The process: host, links, replica."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: dict[str, Any]) -> None:
        self.host = AsyncioHost(loop)
        directory = open_node(self.host.files, config["directory"], self.host.fresh_id)
        nodes = tuple(
            PeerAddress(node_id=int(number), host=LOOPBACK, port=port)
            for number, port in sorted(config["nodes"].items())
        )
        settings = PeerSettings(
            nodes=nodes,
            bind_host=LOOPBACK,
            bind_port=config["nodes"][str(config["id"])],
            secret_file=config["secret"],
        )
        self.links = Links(self.host, directory, settings, _nobody)
        self.machine = Counting()
        self.replica = Replica(self.host, directory, 0, self.machine, LogSettings(), links=self.links)
        self.links.attach(0, self.replica)

    def start(self) -> None:
        self.replica.start()
        self.links.start(_raise)

    async def time_proposals(self, count: int) -> list[float]:
        """Milliseconds of each of `count` sequential proposals."""
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(count):
            done: asyncio.Future[None] = loop.create_future()
            index = self.machine.applied = self.replica.next_index

            def committed(reached: int, index: int = index, done: asyncio.Future[None] = done) -> None:
                if reached >= index and not done.done():
                    done.set_result(None)

            self.machine.on_commit = committed
            start = time.perf_counter()
            self.replica.propose(_BODY, 1, self.host.wall_ms())
            await done
            times.append((time.perf_counter() - start) * 1000)
        return times


def _nobody() -> SelfDescription:
    return SelfDescription(
        release="bench",
        kafka_host="",
        kafka_port=0,
        http_host="",
        http_port=0,
        format_level_max=1,
        format_level=1,
    )


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


async def serve(one: OneReplica) -> None:
    """Report leadership, then answer counts until standard input ends."""
    one.start()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb")
    )
    asking = asyncio.ensure_future(reader.readline())
    while not asking.done():
        if one.machine.is_ready:
            print("leads", flush=True)
            break
        await asyncio.wait([asking], timeout=0.05)
    while line := await asking:
        print(json.dumps(await one.time_proposals(int(line))), flush=True)
        asking = asyncio.ensure_future(reader.readline())


class Replicas:
    """Three processes; `leader` is the one that leads."""

    def __init__(self, leader: subprocess.Popen[str]) -> None:
        self._leader = leader

    def propose_ms(self, count: int) -> list[float]:
        assert self._leader.stdin is not None
        assert self._leader.stdout is not None
        self._leader.stdin.write(f"{count}\n")
        self._leader.stdin.flush()
        times: list[float] = json.loads(self._leader.stdout.readline())
        return times


@contextlib.contextmanager
def replicas(directory: Path) -> Iterator[Replicas]:
    """Start three replicas on new directories below `directory`."""
    secret = directory / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    probes = [socket.create_server((LOOPBACK, 0)) for _ in VOTERS]
    ports = {str(number): probe.getsockname()[1] for number, probe in zip(VOTERS, probes, strict=True)}
    for probe in probes:
        probe.close()
    children = []
    try:
        for number in VOTERS:
            config = {"id": number, "directory": str(directory / f"replica-{number}"), "secret": str(secret)}
            identity = NodeIdentity(
                cluster_id="bench", node_id=number, incarnation=f"i{number}", num_shards=1, voters=VOTERS
            )
            format_node(OsFiles(), str(config["directory"]), identity)
            command = [sys.executable, "-m", "benchmarks.replicas", json.dumps(config | {"nodes": ports})]
            children.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        yield Replicas(_first_that_leads(children))
    finally:
        for child in children:
            child.kill()
            child.wait()


def _first_that_leads(children: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    by_fd = {child.stdout.fileno(): child for child in children if child.stdout is not None}
    ready = select.select(list(by_fd), [], [], READY_S)[0]
    if not ready:
        raise TimeoutError("no replica leads")
    leader = by_fd[ready[0]]
    assert leader.stdout is not None
    leader.stdout.readline()
    return leader


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    event_loop = new_event_loop()
    asyncio.set_event_loop(event_loop)
    event_loop.run_until_complete(serve(OneReplica(event_loop, json.loads(sys.argv[1]))))
