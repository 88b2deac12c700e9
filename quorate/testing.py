"""A cluster for tests of a Kafka application: real nodes, leaders to kill, faults, and the log of it all.

The pytest plugin (`quorate.pytest_plugin`) hands one to each test that asks for the fixture `quorate`. It is
also a context manager:

    with QuorateCluster(Path("data"), num_nodes=3) as cluster:
        cluster.create_topic("orders", partitions=6)
        run_application(cluster.bootstrap)
        cluster.kill_leader("billing")
        print(cluster.explain("billing"))

Invariants: the nodes are processes of their own on loopback, and none outlives the cluster's `close`; topics
take messages, which are kept in memory (`scratch.log.enable`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from quorate.client import Client
from quorate.errors import CommandError, ExitCode
from quorate.faultclient import add_fault, advance_clock, delete_fault

if TYPE_CHECKING:
    from history.state.replay import ReplayedGroup

SETTINGS: Final = {"scratch.log.enable": "true", "faults.enable": "true"}
"""The settings of `quorate up`, which a test may override."""

TIMEOUT_S: Final = 15.0
"""Limit on each call that talks to nodes, and on the wait for a new leader."""


class QuorateCluster:
    """A running cluster of `num_nodes` (1, 3 or 5) on a new or existing directory.

    Raises `LaunchError` if it cannot start. Calls that talk to nodes raise `CommandError` if none answers
    within `TIMEOUT_S`.
    """

    def __init__(self, data: Path, num_nodes: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self._cluster: ClusterProcess = launch_cluster(
            data, num_nodes, settings={**SETTINGS, **(settings or {})}
        )
        try:
            self._client = Client(self._cluster.bootstrap, timeout_s=TIMEOUT_S)
        except BaseException:
            self._cluster.kill()  # nobody has this object, to close it
            raise

    def close(self) -> None:
        """Kill what still runs. The log stays in `data`."""
        self._client.close()
        self._cluster.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for any Kafka client: every node's address."""
        return self._cluster.bootstrap

    @property
    def url(self) -> str:
        """The HTTP addresses of all nodes, for `quorate … --url`."""
        return ",".join(node.url for node in self._cluster.nodes)

    @property
    def data(self) -> Path:
        """The directory of the nodes' logs; `quorate log …` reads it while they run, and afterwards."""
        return self._cluster.data

    @property
    def nodes(self) -> list[NodeProcess]:
        """The nodes' processes: `kill`, `pause`, `resume`, `stop` and `start` them."""
        return self._cluster.nodes

    def node(self, node_id: int) -> NodeProcess:
        """The process of a node; raises KeyError."""
        return self._cluster.node(node_id)

    # Topics.

    def create_topic(self, name: str, partitions: int = 3) -> str:
        """Create a topic and return its name. Raises `CommandError` if it exists."""
        self._client.create_topic(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        self._client.delete_topic(name)

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {topic.name: topic.num_partitions for topic in self._client.topics()}

    # Failures.

    def leader(self, group: str) -> NodeProcess:
        """The node that coordinates the group; waits until there is one."""
        return self.node(self._client.coordinator(group))

    def kill_leader(self, group: str) -> NodeProcess:
        """End the group's coordinator with SIGKILL, and wait until another node has taken over.

        Returns the node that was killed; its `start` brings it back. In a cluster of one there is no other
        node, so this raises `CommandError`."""
        if len(self.nodes) == 1:
            raise CommandError(
                "a cluster of one node has no other leader",
                hint="ask for three: @pytest.mark.quorate(nodes=3)",
                code=ExitCode.USAGE,
            )
        node = self.leader(group)
        node.kill()
        self.leader(group)
        return node

    def add_fault(self, action: str, *, nodes: list[int] | None = None, **options: Any) -> int:
        """Let matching requests fail from now on, on all nodes or some; returns the fault's id.

        Actions: delay, drop, error, close, silence, throttle. Options: api, group, member, client_id,
        connection, error, delay_ms, throttle_ms, after, times, rate, seed, for_ms; see
        docs/testing-clients.md. Example: `add_fault("drop", api="ConsumerGroupHeartbeat", times=1)`.
        """
        added = add_fault(self.url, {"action": action, **options}, nodes, TIMEOUT_S)
        return int(added.fault["id"])

    def clear_fault(self, fault_id: int) -> None:
        """End a fault on every node that has it."""
        for node in self.nodes:
            if node.is_running:
                delete_fault(node.url, fault_id, TIMEOUT_S)

    # Time.

    def advance(self, seconds: float) -> None:
        """Let time pass at once for groups, offsets and transactions: what is due then expires now.

        Clients keep their own clocks. To the nodes, they have been silent for so long: to end the session of
        one member only, advance to a little before its end, so that the others' next heartbeats come in time.
        A node that is started later has the real time again."""
        advance_clock(self.url, round(seconds * 1000), TIMEOUT_S)

    def state(self, group: str, *, at: int | None = None, at_ms: int | None = None) -> ReplayedGroup:
        """The group after the log's entry `at`, or at a time (Unix ms); by default now.

        Raises `NothingToRead` if the log does not know the group, or not yet at that moment."""
        from history.reading.source import NothingToRead
        from history.state.replay import replay

        groups = replay(str(self.data), group=group, at_index=at, at_ms=at_ms).groups
        if not groups:
            raise NothingToRead(f"group {group} does not exist at that moment")
        return groups[0]

    def explain(self, group: str) -> str:
        """The cause of each epoch of the group, in sentences, as `quorate log explain` prints it."""
        from history.telling.explain import explain
        from history.telling.prose import explanation_text

        return "\n".join(explanation_text(explain(str(self.data), group)))

    def timeline(self, group: str) -> str:
        """The page of `quorate log timeline --html`."""
        from history.reading.opening import open_node
        from quorate.commands.log.timeline import group_page

        return group_page(open_node(str(self.data)), group)

    def groups(self) -> list[str]:
        """All groups that the log knows, also those that were deleted."""
        from history.reading.groups import groups_of
        from history.reading.opening import open_node

        return groups_of(open_node(str(self.data)))
