"""A simulated machine: a disk that outlives its nodes, and one node at a time on it.

`boot` starts the real node on whatever the disk holds, `crash` ends it as a power failure or kill -9 does,
and lets the file layer decide what of the unsynced bytes survived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cluster.node import Node
from cluster.settings import Settings
from cluster.simulator.host import VirtualHost
from cluster.simulator.network import Network
from cluster.simulator.world import World
from raftlog.directory import NodeIdentity, format_node
from raftlog.simfiles import Crash, SimFiles

DATA_DIR: Final = "/data"
KAFKA_PORT: Final = 9092
START_TIMEOUT_MS: Final = 60_000.0

DiskCall = Callable[[int, str, str, bool], None]


class Machine:
    """One machine of a world; `settings` are fields of Settings, `host_options` those of VirtualHost."""

    def __init__(
        self,
        world: World,
        network: Network,
        *,
        name: str = "node",
        num_shards: int = 4,
        settings: dict[str, Any] | None = None,
        host_options: dict[str, Any] | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.settings = Settings(
            data_dir=DATA_DIR,
            cluster_shards=num_shards,
            kafka_port=KAFKA_PORT,
            http_port=0,
            **(settings or {}),
        )
        self.host_options = dict(host_options or {})
        self.disk = SimFiles(world.seed)
        self.on_disk_call: DiskCall | None = None
        self.boots = 0
        self.host: VirtualHost
        self.node: Node
        identity = NodeIdentity(
            cluster_id="SimulatedClusterAAAAAA",
            node_id=1,
            incarnation=f"{name}-incarnation",
            num_shards=num_shards,
        )
        format_node(self.disk, DATA_DIR, identity)

    def boot(self) -> Node:
        """Starts a node on the disk as it is; it listens and loads as time passes."""
        self.boots += 1
        self.host = VirtualHost(
            self.world, self.network, self.disk, name=self.name, boot=self.boots, **self.host_options
        )
        self.disk.on_call = self._disk_called
        self.node = Node(self.host, self.settings)
        self.host.call_soon(self.node.start, self._started)
        return self.node

    def boot_until_ready(self) -> Node:
        """Starts a node and lets time pass until every shard serves."""
        node = self.boot()
        if not self.world.run_until(lambda: node.is_ready or self.host.is_dead, within_ms=START_TIMEOUT_MS):
            raise TimeoutError(f"{self.host.name} is not ready after {START_TIMEOUT_MS} ms")
        if self.host.is_dead:
            raise RuntimeError(f"{self.host.name} stopped: {self.host.fatal_message}")
        return node

    def stop(self) -> None:
        """A clean stop, to its end."""
        done: list[bool] = []
        self.host.call_soon(self.node.stop, lambda: done.append(True))
        if not self.world.run_until(lambda: bool(done), within_ms=START_TIMEOUT_MS):
            raise TimeoutError(f"{self.host.name} does not stop")
        self.host.kill()

    def crash(self, how: Crash = Crash.TORN, seed: int = 0) -> None:
        """The node ends in this instant; the next boot finds what the file layer lets survive."""
        self.host.kill()
        self.disk = self.disk.crash(how, seed)

    def kill(self) -> None:
        """kill -9: the process ends, the machine and what was written go on."""
        self.crash(Crash.KEPT)

    def _started(self, error: BaseException | None) -> None:
        if error is not None:
            raise error

    def _disk_called(self, number: int, operation: str, path: str, is_done: bool) -> None:
        if is_done:
            self.host.took(operation)
        if self.on_disk_call is not None:
            self.on_disk_call(number, operation, path, is_done)
