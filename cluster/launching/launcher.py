"""Starts nodes for people and tests: one, or a cluster of them on this machine.

`launch_node` starts a cluster of one on its directory; `launch_cluster` starts several, each with a directory
inside the cluster's (`cluster.launching.cluster_directory`).

Invariants: a directory is formatted once, and only by a launch or by an explicit format. Ports stay
the same over restarts as long as they are free. A failed launch leaves no process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cluster.host.fresh_ids import fresh_id
from cluster.launching.cluster_directory import (
    CLUSTER_FILE,
    EXIT_USAGE,
    OTHER_DIRECTORY,
    SECRET_FILE,
    ClusterPlan,
    as_launch_errors,
    format_cluster,
    plan_cluster,
    read_document,
    write_document,
)
from cluster.launching.node_process import CONFIG_FILE, LOOPBACK, LaunchError, NodeProcess, ports_before
from cluster.settings import SettingsError, load_settings
from raftlog.env.files import Lock, OsFiles
from raftlog.storage.directory import LOCK_FILE, NODE_FILE, NodeIdentity, format_node, read_identity

__all__ = [
    "CLUSTER_FILE",
    "ClusterProcess",
    "LaunchError",
    "NodeProcess",
    "cluster_size",
    "launch_cluster",
    "launch_node",
    "prepare_cluster",
]

EXIT_NODE_STOPPED: Final = 70
"""Exit code of a node whose port is taken."""

WAY_OUT: Final = "choose another port (kafka.port, http.port, peer.port)"

ALONE: Final = 1
"""The id of a node that is launched alone."""

NODES_ALLOWED: Final = (1, 3, 5)
STOP_TIMEOUT_S: Final = 10.0

START_TIMEOUT_S: Final = 30.0
"""A log is read and a leader elected within a second or two; a busy machine needs more."""

ELECTIONS_OF_START: Final = 3
"""Longest election timeouts that a start may take in addition: no node votes in the first half of one."""

PORT_MAX: Final = 65_535

ANNOUNCEMENT_PAUSE_S: Final = 0.005
"""Seconds for which one starting node is listened to before the next one."""


def launch_cluster(
    data: Path,
    num_nodes: int = 3,
    *,
    kafka_port: int = 0,
    http_port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> ClusterProcess:
    """Format `data` if it is new, start all nodes at once and return when every one serves.

    Node 1 listens on the ports given, node 2 on the next ones, and so on, also on those that `settings` have
    for older group protocols; a port of 0 is the one that a node had before, or a free one. Raises
    LaunchError.
    """
    cluster = prepare_cluster(data, num_nodes, kafka_port=kafka_port, http_port=http_port, settings=settings)
    try:
        cluster.start()
    except BaseException:
        cluster.kill()
        raise
    return cluster


def launch_node(data: Path, **launch: Any) -> NodeProcess:
    """Launch a cluster of one, as `launch_cluster` does, and return its node."""
    return launch_cluster(data, 1, **launch).nodes[0]


def prepare_cluster(
    data: Path,
    num_nodes: int = 3,
    *,
    kafka_port: int = 0,
    http_port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> ClusterProcess:
    """Prepare a launch up to its first process, for callers that want to `configure` nodes first."""
    check_num_nodes(num_nodes)
    for name, port in (("Kafka", kafka_port), ("HTTP", http_port)):
        if port + num_nodes - 1 > PORT_MAX:
            raise LaunchError(
                f"{name} port {port} is too high for {num_nodes} nodes, which take one after the other: "
                f"the highest is {PORT_MAX}",
                EXIT_USAGE,
            )
    if num_nodes == 1:
        alone = _prepare_alone(data, (kafka_port, http_port), settings or {})
        return ClusterProcess(alone.data, [alone], None)
    with as_launch_errors(f"cannot use {data} as a cluster's directory"):
        plan = plan_cluster(data, num_nodes, settings or {})
        plan.data.mkdir(parents=True, exist_ok=True)
        lock = OsFiles().lock(str(plan.data / LOCK_FILE))
        try:
            format_cluster(plan)
            return ClusterProcess(plan.data, _configured(plan, kafka_port, http_port), lock)
        except BaseException:
            lock.release()
            raise


def cluster_size(data: Path) -> int | None:
    """Return the number of nodes of the cluster made on this directory; None if there is none.

    Raises LaunchError if the directory's own document cannot be read.
    """
    document = read_document(data)
    if document is not None:
        return len(document["nodes"])
    return 1 if (data / NODE_FILE).exists() else None


def check_num_nodes(num_nodes: int) -> None:
    """Raise LaunchError with the reason if this is not a suitable number of nodes."""
    if num_nodes in NODES_ALLOWED:
        return
    reason = (
        f"a cluster on one machine can have {', '.join(map(str, NODES_ALLOWED[:-1]))} or {NODES_ALLOWED[-1]}"
    )
    if num_nodes % 2 == 0:
        lost = (num_nodes - 1) // 2
        reason = (
            f"an even number of nodes tolerates no more failures than the odd number below it: {num_nodes} "
            f"nodes need {num_nodes // 2 + 1} to continue and can lose {lost}, as {num_nodes - 1} nodes can; "
            "choose "
            f"{' or '.join(str(n) for n in NODES_ALLOWED if abs(n - num_nodes) == 1) or NODES_ALLOWED[-1]}"
        )
    raise LaunchError(f"{num_nodes} nodes: {reason}", EXIT_USAGE)


class ClusterProcess:
    """All nodes of one cluster on this machine, the processes of one launcher."""

    def __init__(self, data: Path, nodes: list[NodeProcess], lock: Lock | None) -> None:
        self.data = data
        self.nodes = nodes
        self._lock = lock

    @property
    def bootstrap(self) -> str:
        """Every node's address for Kafka clients."""
        return ",".join(node.bootstrap for node in self.nodes)

    def node(self, node_id: int) -> NodeProcess:
        """Return the node with that id; raises KeyError."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        raise KeyError(node_id)

    def as_dict(self) -> dict[str, Any]:
        """Return the description for scripts: `{"bootstrap", "nodes": [{"id", "pid", …}]}`."""
        return {"bootstrap": self.bootstrap, "nodes": [node.as_dict() for node in self.nodes]}

    @property
    def start_timeout_s(self) -> float:
        """Seconds that a start may take with the election timeouts of these nodes."""
        try:
            settings = load_settings(self.nodes[0].data / CONFIG_FILE, os.environ)
        except SettingsError:  # the node says what is wrong with them
            return START_TIMEOUT_S
        return START_TIMEOUT_S + ELECTIONS_OF_START * settings.raft_max_timeout_ms / 1000

    def start(self, wait_ready_s: float | None = None, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start all nodes that do not run, at once, and wait until each serves.

        Calls `meanwhile` while waiting. Raises LaunchError as soon as one ends instead; the others continue.
        """
        wait_ready_s = self.start_timeout_s if wait_ready_s is None else wait_ready_s
        deadline_s = time.monotonic() + wait_ready_s
        if len(self.nodes) > 1 and self._lock is None:
            with as_launch_errors(f"cannot start the cluster on {self.data}"):
                self._lock = OsFiles().lock(str(self.data / LOCK_FILE))
        starting = [node for node in self.nodes if not node.is_running]
        for node in starting:
            node.spawn()
        self.write_down()
        while starting:
            if time.monotonic() > deadline_s:
                starting[0].await_announced(deadline_s, wait_ready_s)
            starting = [node for node in starting if not node.is_announced(ANNOUNCEMENT_PAUSE_S)]
            meanwhile()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> dict[int, int]:
        """Stop all running nodes together, without handing anything over; return exit codes by node id."""
        running = [node for node in self.nodes if node.is_running]
        deadline_s = time.monotonic() + timeout_s
        for node in running:
            node.let_go()
        codes = {node.node_id: node.await_end(max(0.0, deadline_s - time.monotonic())) for node in running}
        self._release()
        return codes

    def kill(self) -> None:
        """Kill all nodes at once with SIGKILL."""
        for node in self.nodes:
            node.kill(wait=False)
        for node in self.nodes:
            node.kill()
        self._release()

    def write_down(self) -> None:
        """Write cluster.json, from which scripts learn where each node runs."""
        if len(self.nodes) > 1:
            document = read_document(self.data)
            assert document is not None, "a formatted cluster has its document"
            known = {row["id"]: row for row in document["nodes"]}
            known |= {node.node_id: node.as_dict() for node in self.nodes if node.was_started}
            write_document(self.data, {**document, "nodes": list(known.values())})

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


# One node.


def _prepare_alone(data: Path, ports: tuple[int, int], settings: Mapping[str, str]) -> NodeProcess:
    wanted: dict[str, object] = dict(settings)
    with as_launch_errors(f"cannot use {data} as a node's directory"):
        if (data / CLUSTER_FILE).exists():
            raise LaunchError(
                f"{data} is the directory of a cluster of several nodes: {OTHER_DIRECTORY}", EXIT_USAGE
            )
        num_shards = load_settings(None, {}, wanted).cluster_shards
        if not (data / NODE_FILE).exists():
            from records import LATEST_FORMAT_LEVEL  # only formatting needs it

            identity = NodeIdentity(
                cluster_id=fresh_id(),
                node_id=ALONE,
                incarnation=fresh_id(),
                num_shards=num_shards,
                starting_level=LATEST_FORMAT_LEVEL,
            )
            format_node(OsFiles(), str(data.resolve()), identity)
        wanted.setdefault("cluster.shards", read_identity(OsFiles(), str(data)).num_shards)
        # The node takes the lock itself; it is tried here so that a running node's configuration is not
        # replaced.
        OsFiles().lock(str(data / LOCK_FILE)).release()
        before = ports_before(data)
        asked = dict(zip(("kafka", "http"), ports, strict=True)) | _lineage_ports(wanted)
        found = _stable_ports([_asked(name, port, before, wanted) for name, port in asked.items()])
        wanted |= {f"{name}.port": port for name, port in zip(asked, found, strict=True)}
        kafka_port, http_port = found[:2]
        return NodeProcess(data, node_id=ALONE, port=kafka_port, http_port=http_port, settings=wanted)


# Several nodes.


def _configured(plan: ClusterPlan, kafka_port: int, http_port: int) -> list[NodeProcess]:
    wanted = {"kafka": kafka_port, "http": http_port, "peer": 0, **_lineage_ports(plan.settings)}
    asked: list[Asked] = []
    for number, node_id in enumerate(plan.node_ids):
        before = ports_before(plan.home(node_id))
        asked += [
            _asked(name, port and port + number, before, plan.settings) for name, port in wanted.items()
        ]
    found = iter(_stable_ports(asked))
    ports = [{f"{name}.port": next(found) for name in wanted} for _ in plan.node_ids]
    peers = [
        f"{node_id}@{LOOPBACK}:{own['peer.port']}" for node_id, own in zip(plan.node_ids, ports, strict=True)
    ]
    common = {**plan.settings, "cluster.nodes": peers, "cluster.secret.file": str(plan.data / SECRET_FILE)}
    return [
        NodeProcess(
            plan.home(node_id),
            node_id=node_id,
            port=own["kafka.port"],
            http_port=own["http.port"],
            settings={**common, **own},
        )
        for node_id, own in zip(plan.node_ids, ports, strict=True)
    ]


def _lineage_ports(settings: Mapping[str, object]) -> dict[str, int]:
    """Return the ports asked for older group protocols; a protocol that is off has none."""
    asked = {name: int(str(settings.get(f"{name}.port", -1))) for name in ("lineage.push", "lineage.rewrite")}
    return {name: port for name, port in asked.items() if port >= 0}


# Ports.

FREE_PORTS: Final = range(15_000, 32_000)
"""Ports below those of outgoing connections (32768–60999 on Linux), so that none of these takes one."""

FREE_PORT_TRIES: Final = 100

Asked = tuple[str, str, int, int]
"""A port to be found: the setting, the host it listens on, the requested port or 0, the previous one or 0."""


def _asked(name: str, port: int, before: Mapping[str, int], settings: Mapping[str, object]) -> Asked:
    host = str(settings.get(f"{name}.host", LOOPBACK))
    return f"{name}.port", host, port, before.get(f"{name}.port", 0)


def _stable_ports(asked: Sequence[Asked]) -> list[int]:
    """Return for each the requested port, else the previous one if it is free, else a free one.

    Raises LaunchError if a requested port is taken: sooner and more plainly than the node itself would report
    it. All probes stay open to the end, and listen, so that neither two of these nor another launcher get the
    same port: sockets that are merely bound (with SO_REUSEADDR, which a node that comes back needs) may share
    a port on Linux.
    """
    given = [port for _, _, port, _ in asked if port]
    with contextlib.ExitStack() as probes:
        for name, host, port, _ in asked:
            if port and (given.count(port) > 1 or not _is_free(probes, host, port)):
                why = "is used twice" if given.count(port) > 1 else "address already in use"
                raise LaunchError(f"{name} {port}: {why}; {WAY_OUT}", EXIT_NODE_STOPPED)
        return [port or _free_port(probes, 0 if before in given else before) for _, _, port, before in asked]


def _is_free(probes: contextlib.ExitStack, host: str, port: int) -> bool:
    """Whether the port is free. Any other problem with host and port is better reported by the node."""
    probe = probes.enter_context(socket.socket())
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
        probe.listen()
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    except (OverflowError, UnicodeError):
        return True
    return True


def _free_port(probes: contextlib.ExitStack, before: int) -> int:
    """Return the previous port, or a random free one.

    It is below those that systems use for outgoing connections, so that between this check and the node's own
    bind only another launcher could take it.
    """
    tries = ([before] if before else []) + random.sample(FREE_PORTS, FREE_PORT_TRIES)
    for port in tries:
        probe = probes.enter_context(socket.socket())
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((LOOPBACK, port))
            probe.listen()
            return port
    raise LaunchError(f"none of {len(tries)} tried ports on {LOOPBACK} is free", EXIT_NODE_STOPPED)
