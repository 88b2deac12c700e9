"""Nodes that consist of their links only, on one simulated network."""

from __future__ import annotations

import dataclasses
from typing import Any

from cluster.simulator import Network, World
from cluster.simulator.host import VirtualHost
from raftlog.env.host import Stream, StreamHandler
from raftlog.env.simulated_files import SimFiles
from raftlog.storage.directory import NodeDirectory, NodeIdentity, format_node, open_node
from raftlog.transport import PeerAddress, PeerSettings, SelfDescription
from raftlog.transport.links import Links

SECRET = b"a secret of thirty-two bytes....\n"
PORT = 9192
SHARDS = (-1, 0, 1)


class Recorder:
    """A user of one shard that records what it receives."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def peer_up(self, node_id: int) -> None:
        self.heard.append(("up", node_id))

    def peer_down(self, node_id: int) -> None:
        self.heard.append(("down", node_id))

    def peer_message(self, node_id: int, payload: bytes) -> None:
        self.heard.append(("message", node_id, payload))

    def peer_writable(self, node_id: int) -> None:
        self.heard.append(("writable", node_id))

    def messages(self, node_id: int) -> list[bytes]:
        return [heard[2] for heard in self.heard if heard[:2] == ("message", node_id)]


class LinkedNode:
    """A machine with a disk and a node on it that has only links."""

    def __init__(self, sim: SimLinks, node_id: int, *, name: str = "", **identity: Any) -> None:
        self.sim = sim
        self.node_id = node_id
        self.name = name or f"n{node_id}"
        self.disk = SimFiles(sim.world.seed + node_id)
        self.secret = SECRET
        self.settings = PeerSettings(
            nodes=sim.addresses,
            bind_host=self.name,
            bind_port=PORT,
            secret_file="/etc/secret",
        )
        self.description = SelfDescription(
            release="1.0",
            kafka_host=self.name,
            kafka_port=9092,
            http_host=self.name,
            http_port=8092,
            format_level_max=1,
            format_level=1,
        )
        self.wall_skew_ms = 0
        self.errors: list[BaseException | None] = []
        self.host: VirtualHost
        self.links: Links
        self.users: dict[int, Recorder]
        self.directory: NodeDirectory
        self.format(**identity)

    def format(self, **identity: Any) -> None:
        given: dict[str, Any] = {
            "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "node_id": self.node_id,
            "incarnation": f"{self.name}-first",
            "num_shards": 2,
            "voters": tuple(address.node_id for address in self.sim.addresses),
            **identity,
        }
        format_node(self.disk, "/data", NodeIdentity(**given))

    def boot(self) -> Links:
        self.sim.boots += 1
        world, network = self.sim.world, self.sim.network
        self.host = VirtualHost(world, network, self.disk, name=self.name, boot=self.sim.boots)
        self.host.wall_skew_ms = self.wall_skew_ms
        if not self.disk.exists("/etc"):
            self.disk.mkdir("/etc")
        file = self.disk.open("/etc/secret", "w")
        file.truncate(0)
        file.pwrite(self.secret, 0)
        self.directory = open_node(self.disk, "/data", self.host.fresh_id)
        self.links = Links(self.host, self.directory, self.settings, lambda: self.description)
        self.users = {shard: Recorder() for shard in SHARDS}
        for shard, user in self.users.items():
            self.links.attach(shard, user)
        self.host.call_soon(self.links.start, self.errors.append)
        return self.links

    def kill(self) -> None:
        self.host.kill()
        self.directory.lock.release()

    def reboot(self) -> Links:
        self.kill()
        return self.boot()

    @property
    def ups(self) -> list[int]:
        return sorted(self.links.peers)

    def trouble(self, node_id: int) -> str:
        return next(row["trouble"] or "" for row in self.links.status() if row["node_id"] == node_id)


class SimLinks:
    """`count` nodes, 1 to `count`; node 1 is called n1 and listens at n1:9192."""

    def __init__(self, seed: int = 1, count: int = 3) -> None:
        self.world = World(seed)
        self.boots = 0
        self.network = Network(self.world)
        self.addresses = tuple(
            PeerAddress(node_id=node_id, host=f"n{node_id}", port=PORT) for node_id in range(1, count + 1)
        )
        self.nodes = {address.node_id: LinkedNode(self, address.node_id) for address in self.addresses}

    def __getitem__(self, node_id: int) -> LinkedNode:
        return self.nodes[node_id]

    def boot(self, *node_ids: int) -> None:
        for node_id in node_ids or tuple(self.nodes):
            self.nodes[node_id].boot()

    def boot_until_up(self) -> None:
        self.boot()
        everyone = set(self.nodes)
        assert self.until(lambda: all(set(node.ups) | {id_} == everyone for id_, node in self.nodes.items()))

    def until(self, condition: Any, within_ms: float = 3_000) -> bool:
        return self.world.run_until(condition, within_ms=within_ms)

    def settle(self, ms: float = 20) -> None:
        self.world.run_for(ms)


class RawPeer:
    """A stranger with a socket: it sends any bytes and keeps what it receives."""

    def __init__(self, sim: SimLinks, name: str = "stranger") -> None:
        self.sim = sim
        self.host = VirtualHost(sim.world, sim.network, SimFiles(9), name=name)
        self.received = bytearray()
        self.is_lost = False
        self.transport: Stream | None = None

    def connect(self, node: LinkedNode) -> RawPeer:
        self.host.connect(node.name, PORT, lambda: self, lambda *_: None)
        assert self.sim.until(lambda: self.transport is not None)
        return self

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def connection_made(self, transport: Stream) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool | None:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


def as_handler(peer: RawPeer) -> StreamHandler:
    return peer


def described(node: LinkedNode, **changes: Any) -> None:
    node.description = dataclasses.replace(node.description, **changes)
