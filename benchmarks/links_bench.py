"""The cost of a link between nodes: payloads per CPU-second over real sockets, and the share of the seal.

Two nodes' links run in one process, on one loop, over loopback: the CPU time is that of sending and receiving
together, kernel included. Each turn of the loop sends a batch of payloads, as replicas do, and the receiving
users count them. The seal (keyed BLAKE2b) is measured alone over the same packets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from pathlib import Path

from cluster.host.host_asyncio import AsyncioHost, new_event_loop
from raftlog.env.files import OsFiles
from raftlog.storage.directory import NodeIdentity, format_node, open_node
from raftlog.transport import PeerAddress, PeerSettings, SelfDescription
from raftlog.transport.links import Links
from raftlog.transport.packets import MESSAGE_HEAD, Sealer

RUN_S = 1.5
PACE_PER_S = 20_000
PACED_TURN_S = 0.001

DESCRIPTION = SelfDescription(
    release="bench",
    kafka_host="127.0.0.1",
    kafka_port=1,
    http_host="127.0.0.1",
    http_port=1,
    format_level_max=1,
    format_level=1,
)


class Counter:
    """A user of the links that counts payloads."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.ups = 0

    def peer_up(self, node_id: int) -> None:
        self.ups += 1

    def peer_down(self, node_id: int) -> None:
        self.ups -= 1

    def peer_message(self, node_id: int, payload: bytes) -> None:
        self.messages += 1
        self.bytes += len(payload)

    def peer_writable(self, node_id: int) -> None: ...


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Pair:
    """Nodes 1 and 2 with their links up."""

    def __init__(self, home: Path, host: AsyncioHost) -> None:
        self.host = host
        secret = home / "secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        ports = free_ports(2)
        nodes = tuple(
            PeerAddress(node_id=node_id, host="127.0.0.1", port=port)
            for node_id, port in zip((1, 2), ports, strict=True)
        )
        self.links: list[Links] = []
        self.counters: list[Counter] = []
        for node in nodes:
            path = str(home / str(node.node_id))
            identity = NodeIdentity(
                cluster_id="bench",
                node_id=node.node_id,
                incarnation=f"disk {node.node_id}",
                num_shards=4,
                voters=(1, 2),
            )
            format_node(OsFiles(), path, identity)
            directory = open_node(OsFiles(), path, host.fresh_id)
            settings = PeerSettings(
                nodes=nodes, bind_host=node.host, bind_port=node.port, secret_file=str(secret)
            )
            links = Links(host, directory, settings, lambda: DESCRIPTION)
            counter = Counter()
            for shard in range(-1, 4):
                links.attach(shard, counter)
            self.links.append(links)
            self.counters.append(counter)

    async def start(self) -> None:
        for links in self.links:
            started: asyncio.Future[None] = self.host.loop.create_future()

            def done(error: BaseException | None, started: asyncio.Future[None] = started) -> None:
                if error is None:
                    started.set_result(None)
                else:
                    started.set_exception(error)

            links.start(done)
            await started
        while not all(links.peers for links in self.links):
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        for links in self.links:
            links.stop()


async def flood(pair: Pair, payload_bytes: int, batch: int) -> None:
    """Send as fast as possible, `batch` payloads a turn."""
    sender, counter = pair.links[0], pair.counters[1]
    payload = os.urandom(payload_bytes)
    sealer = sender._up[2]._sealer
    first, packets, cpu, started = counter.messages, sealer._number, time.process_time(), time.perf_counter()
    sent = 0
    while time.perf_counter() - started < RUN_S:
        if sender.can_send(2) and sent - (counter.messages - first) < 20 * batch:
            for number in range(batch):
                sender.send(2, number & 3, payload)
            sent += batch
        await asyncio.sleep(0)
    while counter.messages - first < sent:
        await asyncio.sleep(0.001)
    cpu = time.process_time() - cpu
    packets = sealer._number - packets
    seal_s = seal_cost_s(payload, batch, sent // batch)
    print(
        f"{payload_bytes:>9,} bytes x {batch:>4} a turn: {sent / cpu:>11,.0f} payloads, "
        f"{packets / cpu:>9,.0f} packets, {sent * payload_bytes / cpu / 1e6:>7,.0f} MB per CPU-second; "
        f"the seal takes {100 * seal_s / cpu:4.1f} %"
    )


def seal_cost_s(payload: bytes, batch: int, turns: int) -> float:
    """CPU seconds to make and check the MACs of the same packets, extrapolated from sealing a sample."""
    body = (MESSAGE_HEAD.pack(0, len(payload)) + payload) * batch
    sealer = Sealer(b"k" * 32)
    sample = max(1, min(turns, 2_000_000_000 // max(1, len(body)) // 10, 5_000))
    started = time.process_time()
    for _ in range(sample):
        sealer.head(body)
    return 2 * (time.process_time() - started) / sample * turns


async def paced(pair: Pair) -> None:
    """Send 20,000 payloads of 200 bytes a second, in a turn each millisecond."""
    sender, counter = pair.links[0], pair.counters[1]
    payload = os.urandom(200)
    idle = time.process_time()
    turns = round(RUN_S / PACED_TURN_S)
    for _ in range(turns):
        await asyncio.sleep(PACED_TURN_S)
    idle = time.process_time() - idle
    first, cpu, started = counter.messages, time.process_time(), time.perf_counter()
    sent = 0
    while (elapsed_s := time.perf_counter() - started) < RUN_S:
        for number in range(int(elapsed_s * PACE_PER_S) - sent):
            sender.send(2, number & 3, payload)
            sent += 1
        await asyncio.sleep(PACED_TURN_S)
    while counter.messages - first < sent:
        await asyncio.sleep(0.001)
    cpu = time.process_time() - cpu
    print(
        f"{PACE_PER_S:,} payloads of 200 bytes a second: {100 * cpu / RUN_S:.1f} % of a core, both ends, "
        f"of which {100 * idle / RUN_S:.1f} % are the wake-ups alone"
    )


async def run(host: AsyncioHost, home: Path) -> None:
    """Run all measurements over one pair."""
    pair = Pair(home, host)
    await pair.start()
    await paced(pair)
    for payload_bytes, batch in [(200, 1), (200, 20), (200, 200), (4_096, 16), (1 << 20, 4)]:
        await flood(pair, payload_bytes, batch)
    pair.stop()
    await asyncio.sleep(0.05)


def main() -> None:
    """Print one line per load."""
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    host = AsyncioHost(loop)
    with tempfile.TemporaryDirectory() as home:
        loop.run_until_complete(run(host, Path(home)))
    host.close()
    loop.close()


if __name__ == "__main__":
    main()
