"""A simulated machine: a disk that outlives its nodes, and one node at a time on it.

`boot` starts the real node on whatever the disk holds; `kill`, `crash` and `lose_power` end it and let the
file layer decide which unsynced bytes survive. The disk can be wiped, kept aside and put back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from cluster.node import Node
from cluster.settings import Settings
from cluster.simulator.host import LOOPBACK, VirtualHost
from cluster.simulator.network import Network
from cluster.simulator.world import World
from coordinator.topics import FIRST_FORMAT_LEVEL
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.storage.directory import NodeIdentity, format_node

CLUSTER_ID: Final = "SimulatedClusterAAAAAA"
DATA_DIR: Final = "/data"
SECRET_FILE: Final = "/secret"
SECRET: Final = b"what all simulated nodes share"
KAFKA_PORT: Final = 9092
PEER_PORT: Final = 9192
START_TIMEOUT_MS: Final = 60_000.0

DiskCall = Callable[[int, str, str, bool], None]


class Machine:
    """One machine of a world; `settings` are fields of Settings, `host_options` those of VirtualHost.

    `voters` are the ids of all nodes of a cluster; the machine of node n is then at 127.0.0.n. Without them
    the node is alone, at 127.0.0.1. By default the directory is one of an older release, as to the format
    level at which a new cluster begins.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        *,
        name: str = "node",
        node_id: int = 1,
        voters: tuple[int, ...] = (),
        num_shards: int = 4,
        settings: dict[str, Any] | None = None,
        host_options: dict[str, Any] | None = None,
        secret: bytes = SECRET,
        starting_level: int = FIRST_FORMAT_LEVEL,
        node_class: type[Node] = Node,
    ) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.node_id = node_id
        self.address = address_of(node_id) if voters else LOOPBACK
        if voters:
            network.machines[self.address] = name
        self.settings = Settings(
            node_id=node_id,
            data_dir=DATA_DIR,
            cluster_shards=num_shards,
            **_addresses(self.address, voters),
            **(settings or {}),
        )
        self.host_options = dict(host_options or {})
        self.secret = secret
        self.node_class = node_class
        self.on_disk_call: DiskCall | None = None
        self.boots = 0
        self.wipes = 0
        self.host: VirtualHost
        self.node: Node
        self.identity = NodeIdentity(
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            incarnation=f"{name}-incarnation",
            num_shards=num_shards,
            voters=voters,
            starting_level=starting_level,
        )
        self.disk = self._fresh_disk(self.identity)

    # Its node.

    def boot(self) -> Node:
        """Start a node on the disk as it is; it listens and loads as time passes."""
        assert not self.is_up
        self.disk.process_ended()
        self.boots += 1
        self.network.power_on(self.name)
        self.host = VirtualHost(
            self.world, self.network, self.disk, name=self.name, boot=self.boots, **self.host_options
        )
        self.disk.on_call = self._disk_called
        self.disk.pause = self.host.wait_for_descriptor
        self.node = self.node_class(self.host, self.settings)
        self.host.call_soon(self._start)
        return self.node

    def boot_until_ready(self) -> Node:
        """Start a node and let time pass until every shard serves."""
        node = self.boot()
        if not self.world.run_until(lambda: node.is_ready or self.host.is_dead, within_ms=START_TIMEOUT_MS):
            raise TimeoutError(f"{self.host.name} is not ready after {START_TIMEOUT_MS} ms")
        if self.host.is_dead:
            raise RuntimeError(f"{self.host.name} stopped: {self.host.fatal_message}")
        return node

    @property
    def is_up(self) -> bool:
        """Whether a process runs, paused or not."""
        return self.boots > 0 and not self.host.is_dead

    def stop(self) -> None:
        """Stop the node cleanly and wait for the end."""
        done: list[bool] = []
        self.host.call_soon(self.node.stop, lambda: done.append(True))
        if not self.world.run_until(lambda: bool(done) or self.host.is_dead, within_ms=START_TIMEOUT_MS):
            raise TimeoutError(f"{self.host.name} does not stop")
        self.host.kill()

    def crash(self, how: Crash = Crash.TORN, seed: int = 0) -> None:
        """End the node at this instant; the next boot finds what the file layer lets survive."""
        self.host.kill()
        self.disk = self.disk.crash(how, seed)

    def kill(self) -> None:
        """End the process as kill -9 does; the machine and everything written survive."""
        self.crash(Crash.KEPT)

    def lose_power(self, how: Crash = Crash.TORN, seed: int = 0) -> None:
        """Take the power from the whole machine: no peer gets a reset; unsynced data is lost or torn."""
        self.host.kill(has_power=False)
        self.disk = self.disk.crash(how, seed)

    # Its disk, while no node is up.

    def copy_disk(self) -> SimFiles:
        """Return a copy of the disk as it is now, to be put back later like a restored backup."""
        return self.disk.crash(Crash.KEPT)

    def put_disk(self, disk: SimFiles) -> None:
        """Replace the present disk by another one."""
        assert not self.is_up
        self.disk = disk.crash(Crash.KEPT)

    def replace_disk(self) -> None:
        """Replace a lost disk by an empty one, formatted as a replacement."""
        assert not self.is_up
        self.wipes += 1
        incarnation = f"{self.name}-incarnation-{self.wipes}"
        self.format_anew(incarnation=incarnation, is_replacement=True, starting_level=FIRST_FORMAT_LEVEL)

    def format_anew(self, **identity: Any) -> None:
        """Replace the disk by an empty one, with these fields of its identity changed."""
        self.identity = dataclasses.replace(self.identity, **identity)
        self.disk = self._fresh_disk(self.identity)

    def _fresh_disk(self, identity: NodeIdentity) -> SimFiles:
        disk = SimFiles(self.world.seed)
        if self.settings.cluster_nodes:
            file = disk.open(SECRET_FILE, "w")
            file.pwrite(self.secret, 0)
            file.fdatasync()
            file.close()
            disk.fsync_dir("/")
        format_node(disk, DATA_DIR, identity)
        return disk

    def _start(self) -> None:
        """Start the node; a disk that fails meanwhile ends the process, as any other of its errors does."""
        try:
            self.node.start(self._started)
        except OSError as error:
            self.host.fatal(f"cannot start: {error}")

    def _started(self, error: BaseException | None) -> None:
        if error is not None:
            raise error

    def _disk_called(self, number: int, operation: str, path: str, is_done: bool) -> None:
        if is_done:
            self.host.took(operation)
        if self.on_disk_call is not None:
            self.on_disk_call(number, operation, path, is_done)


def address_of(node_id: int) -> str:
    """Return the address of the machine of a node of a cluster."""
    return f"127.0.0.{node_id}"


def _addresses(address: str, voters: tuple[int, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {"kafka_host": address, "kafka_port": KAFKA_PORT, "http_port": 0}
    if voters:
        found["cluster_nodes"] = tuple(f"{node_id}@{address_of(node_id)}:{PEER_PORT}" for node_id in voters)
        found["cluster_secret_file"] = SECRET_FILE
    return found
