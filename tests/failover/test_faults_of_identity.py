"""Nodes that do not belong: another secret, cluster or id, a copy, another release, and plain noise.

Each is refused with a sentence that says what to do, on both sides of the link and in the status, and the
cluster keeps serving.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import struct
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.load import resident_bytes
from cluster.launching.cluster_directory import SECRET_FILE
from cluster.launching.launcher import (
    ClusterProcess,
    LaunchError,
    NodeProcess,
    launch_cluster,
    prepare_cluster,
)
from raftlog.env.files import OsFiles
from raftlog.storage.directory import read_identity
from records import LATEST_FORMAT_LEVEL
from tests.failover import newer_release
from tests.failover.conftest import SETTINGS
from tests.report import count_fault
from tests.support.real_cluster import (
    Committer,
    check_nothing_lost,
    committers,
    create_topic,
    log_text,
    quorate,
    status,
    trouble,
    wait_for_line,
)
from tests.support.waiting import wait_for

HOSTILE_CONNECTIONS = 200
"""Connections to each port of each node."""

NOISE_BYTES_MAX = 4_096
GREW_MAX_BYTES = 64 << 20
SLOWEST_COMMIT_S = 2.0
"""A generous bound, as the attack runs on the same machine."""

LAUNCHERS_SETTINGS = ("cluster.nodes", "cluster.secret.file", "peer.port", "cluster.shards")


# Instead of node 3


@dataclass(frozen=True)
class Impostor:
    """A node that starts in node 3's place."""

    name: str
    make: Callable[[ClusterProcess, Path], NodeProcess]
    refusal: str
    """The other nodes' reason for refusing it."""
    told: str
    """The reason that it reports itself."""


def _with_secret(cluster: ClusterProcess, home: Path) -> NodeProcess:
    secret = home.with_suffix(".secret")
    secret.write_text("not the secret of this cluster\n")
    secret.chmod(0o600)
    shutil.copytree(cluster.node(3).data, home)
    return _instead(cluster, home, {"cluster.secret.file": str(secret)})


def _of_cluster(cluster: ClusterProcess, home: Path) -> NodeProcess:
    identity = read_identity(OsFiles(), str(cluster.node(3).data))
    words = ["--cluster-id", "another", "--node-id", "3", "--nodes", "1,2,3"]
    done = quorate("node", "format", "--data", str(home), *words, "--shards", str(identity.num_shards))
    assert done.returncode == 0, done.stderr
    return _instead(cluster, home, {})


IMPOSTORS = [
    Impostor("wrong secret", _with_secret, "does not know this cluster's secret", "different secrets"),
    Impostor("wrong cluster", _of_cluster, "belongs to cluster 'another'", "belongs to another cluster"),
]


@pytest.fixture(scope="module")
def without_node_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterProcess, Committer]]:
    """Two nodes of three that serve a committing client."""
    cluster = launch_cluster(tmp_path_factory.mktemp("identity") / "cluster", settings=SETTINGS)
    try:
        create_topic(cluster)
        cluster.node(3).stop()
        one = Committer([(node.host, node.port) for node in cluster.nodes[:2]], "served")
        one.wait_for_more()
        yield cluster, one
        cluster.node(3).start()
        check_nothing_lost(cluster, [one])
    finally:
        cluster.kill()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("impostor", IMPOSTORS, ids=lambda one: one.name)
def test_a_stranger_is_kept_out_and_hears_why(
    without_node_3: tuple[ClusterProcess, Committer], tmp_path: Path, impostor: Impostor
) -> None:
    cluster, one = without_node_3
    stranger = impostor.make(cluster, tmp_path / "stranger")
    marks = [len(log_text(node)) for node in cluster.nodes[:2]]
    stranger.spawn()
    count_fault("failover", impostor.name)
    try:
        for node, mark in zip(cluster.nodes[:2], marks, strict=True):
            _wait_for_refusal(node, impostor.refusal, mark)
        wait_for_line(stranger, "WARNING", impostor.told)
        wait_for(lambda: impostor.told in trouble(stranger, 1), "the stranger shows it")
        shown = quorate("cluster", "status", "--url", stranger.url)
        assert impostor.told in shown.stdout, shown
        assert not any(shard["is_current"] for shard in status(stranger)["shards"])
        one.wait_for_more()
    finally:
        stranger.kill()


def _wait_for_refusal(node: NodeProcess, words: str, mark: int) -> None:
    wait_for(lambda: words in log_text(node)[mark:], f"node {node.node_id} logs {words!r}")
    wait_for(lambda: words in trouble(node, 3), f"node {node.node_id} shows {words!r}")


def test_a_secret_that_others_can_read_is_not_used(
    without_node_3: tuple[ClusterProcess, Committer], tmp_path: Path
) -> None:
    cluster, one = without_node_3
    secret = tmp_path / "secret"
    shutil.copy(cluster.data / SECRET_FILE, secret)
    secret.chmod(0o644)
    shutil.copytree(cluster.node(3).data, tmp_path / "node")
    careless = _instead(cluster, tmp_path / "node", {"cluster.secret.file": str(secret)})
    count_fault("failover", "a secret that everybody can read")
    with pytest.raises(LaunchError, match="is readable by all users: run chmod 600 on it") as refused:
        careless.start()
    assert refused.value.exit_code == 5
    secret.chmod(0o600)
    one.wait_for_more()


def _instead(cluster: ClusterProcess, home: Path, settings: dict[str, object]) -> NodeProcess:
    """Return a process on `home`, at node 3's address."""
    given = {**_given(cluster.node(3)), **settings}
    ports = {"port": cluster.node(3).port, "http_port": cluster.node(3).http_port}
    return NodeProcess(home, node_id=3, **ports, settings=given)


def _given(node: NodeProcess) -> dict[str, object]:
    """Return the launcher's settings for this node alone."""
    known = tomllib.loads((node.data / "node.toml").read_text())
    return {name: known[name] for name in LAUNCHERS_SETTINGS}


# Beside node 3


@pytest.mark.timeout(60)
def test_a_copy_of_a_node_that_runs_is_kept_out(cluster: ClusterProcess, tmp_path: Path) -> None:
    """Two processes with one id run from copies of one disk: the first one counts."""
    create_topic(cluster)
    working = committers(cluster, "twin")
    original = cluster.node(3)
    original.stop()
    shutil.copytree(original.data, tmp_path / "copy")
    original.start()
    port, http_port, peer_port = _free_ports(3)
    settings = _given(original) | {"peer.port": peer_port}
    twin = NodeProcess(tmp_path / "copy", node_id=3, port=port, http_port=http_port, settings=settings)
    lines = len(log_text(twin))
    twin.spawn()
    count_fault("failover", "two processes with one node id")
    try:
        wait_for(lambda: "knows a newer disk of this node" in log_text(twin)[lines:], "the copy withdraws")
        wait_for(lambda: "an old copy was restored here" in trouble(twin, 1), "the copy shows why")
        assert any("old copy of its disk" in log_text(node) for node in cluster.nodes[:2])
        for one in working:
            one.wait_for_more()
        assert not trouble(cluster.node(1), 3)
        assert status(original)["nodes"][0]["in_contact"]
    finally:
        twin.kill()
    check_nothing_lost(cluster, working)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        found = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found


# Another release


@pytest.mark.timeout(60)
def test_an_older_release_is_kept_out_once_the_cluster_was_upgraded(tmp_path: Path) -> None:
    cluster = prepare_cluster(tmp_path / "cluster", settings=SETTINGS)
    try:
        _check_upgrade(cluster)
    finally:
        cluster.kill()


def _check_upgrade(cluster: ClusterProcess) -> None:
    older = cluster.node(3)
    command = list(older.command)
    for node in cluster.nodes:
        at = node.command.index("-m")
        node.command[at : at + 2] = [newer_release.__file__]
    newer_command = list(older.command)
    cluster.start()
    create_topic(cluster)
    working = committers(cluster, "release")
    for one in working:
        one.wait_for_more()
    done = quorate("cluster", "upgrade", "--url", cluster.node(1).url)
    assert done.returncode == 0, done.stderr
    assert f"format level {LATEST_FORMAT_LEVEL + 1}" in done.stdout
    older.stop()
    older.command[:] = command
    older.spawn()
    count_fault("failover", "a release that cannot read the format")
    for node in cluster.nodes[:2]:
        reads = f"reads format levels up to {LATEST_FORMAT_LEVEL}, but the cluster uses"
        line = wait_for_line(node, "link to node 3", reads)
        assert "start a newer release" in line
    wait_for_line(older, "cannot read the format level that the cluster uses")
    wait_for(lambda: "format level" in trouble(older, 1), "the old release shows why")
    for one in working:
        one.wait_for_more()
    older.kill()
    older.command[:] = newer_command
    older.start()
    check_nothing_lost(cluster, working)


# Noise


@pytest.mark.timeout(90)
def test_noise_on_every_port_neither_stops_nor_slows_the_nodes(cluster: ClusterProcess) -> None:
    """Hellos and requests are truncated, changed and invented; half of the connections stay open."""
    create_topic(cluster)
    working = committers(cluster, "noise")
    for one in working:
        one.wait_for_more(100)
    memory = {node.node_id: resident_bytes(node.pid) for node in cluster.nodes}
    chance = random.Random(4)
    with contextlib.ExitStack() as opened:
        for node in cluster.nodes:
            peer_port = tomllib.loads((node.data / "node.toml").read_text())["peer.port"]
            for number in range(HOSTILE_CONNECTIONS):
                for port in (node.port, peer_port):
                    _annoy(port, chance, opened if number % 2 else None)
        count_fault("failover", "hostile connections", HOSTILE_CONNECTIONS * 6)
        for one in working:
            one.wait_for_more(100)
    for node in cluster.nodes:
        assert node.is_running
        assert "Traceback" not in log_text(node), log_text(node)
        assert log_text(node).count(" is up (release") == 2, log_text(node)
        assert resident_bytes(node.pid) - memory[node.node_id] < GREW_MAX_BYTES
    assert max(one.longest_gap_s for one in working) < SLOWEST_COMMIT_S
    check_nothing_lost(cluster, working)


def _annoy(port: int, chance: random.Random, stays_open: contextlib.ExitStack | None) -> None:
    """Open one connection with invalid bytes; the node may do anything with it."""
    with contextlib.suppress(OSError):
        sock = socket.create_connection(("127.0.0.1", port), timeout=1)
        with contextlib.suppress(OSError):
            sock.sendall(_noise(chance))
        if stays_open is not None:
            stays_open.callback(sock.close)
        else:
            sock.close()


def _noise(chance: random.Random) -> bytes:
    noise = chance.randbytes(chance.randrange(NOISE_BYTES_MAX))
    kind = chance.randrange(5)
    if kind == 0:
        return noise
    if kind == 1:  # a frame of a plausible length, as both protocols have it
        return struct.pack(">i", len(noise)) + noise
    if kind == 2:  # a frame that never ends
        return struct.pack(">i", 90 << 20) + noise
    if kind == 3:  # a whole request header followed by nonsense
        return (
            struct.pack(">ihhih", len(noise) + 10, chance.randrange(80), chance.randrange(10), 7, -1) + noise
        )
    hello = b"QUORATE-PEER" + struct.pack("<H", 1) + noise  # as a node begins a handshake
    return struct.pack("<IB", len(hello) + 1, 1) + hello
