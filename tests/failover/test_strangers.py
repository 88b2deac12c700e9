"""Strangers who hold connections to real nodes open, at no cost to the cluster."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import ClusterProcess, NodeProcess, launch_cluster
from cluster.launching.node_process import ports_before
from quorate.client import Client
from raftlog.transport.links import STRANGERS_MAX
from tests.report import count_fault
from tests.support.certificates import authority, certificate, openssl
from tests.support.real_cluster import (
    TOPIC,
    Committer,
    check_nothing_lost,
    committers,
    leader_of,
    log_text,
    quorate,
)
from tests.support.waiting import wait_for

DESCRIPTORS = 280
SILENT = 450


@pytest.fixture
def over_tls(tmp_path: Path) -> Iterator[ClusterProcess]:
    """Three nodes with TLS between them."""
    tls = certificate(authority(tmp_path, "ours"), "nodes")
    settings = {
        "peer.tls.cert.file": tls.cert_file,
        "peer.tls.key.file": tls.key_file,
        "peer.tls.ca.file": tls.ca_file,
        "leader.balance.delay.ms": "600000",
    }
    started = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=settings)
    try:
        yield started
    finally:
        started.kill()


@contextlib.contextmanager
def silent_strangers(node: NodeProcess, count: int) -> Iterator[None]:
    """Open connections to the port between nodes that never send a byte."""
    port = ports_before(node.data)["peer.port"]
    with contextlib.ExitStack() as held:
        for _ in range(count):
            held.enter_context(socket.create_connection(("127.0.0.1", port), 2.0))
        yield


def hand_over(
    leader: NodeProcess, other: NodeProcess, alive: list[NodeProcess], working: list[Committer]
) -> NodeProcess:
    """Hand shard 0 over from `leader`, which is returned, to `other`; all clients' commits go on."""
    done = quorate("cluster", "transfer", "0", "--to", str(other.node_id), "--url", leader.url)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: leader_of(alive, working[0].group_id) is other, "the hand-over")
    for one in working:
        one.wait_for_more()
    return leader


@openssl
@pytest.mark.timeout(60)
def test_silent_strangers_on_a_tls_port_take_no_descriptors_from_the_files(over_tls: ClusterProcess) -> None:
    """Two nodes of three, so that each election needs both to write their term."""
    with Client(over_tls.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    over_tls.nodes[2].kill()
    alive = over_tls.nodes[:2]
    working = committers(over_tls, "silent")
    for one in working:
        one.wait_for_more()
    for node in alive:
        hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
    leader = leader_of(alive, working[0].group_id)
    other = next(node for node in alive if node is not leader)
    for attacked in (leader, other):
        with silent_strangers(attacked, SILENT):
            count_fault("failover", "silent strangers")
            held = len(os.listdir(f"/proc/{attacked.pid}/fd"))
            assert held < STRANGERS_MAX + 100, held
            leader, other = other, hand_over(leader, other, alive, working)
    for node in alive:
        assert node.is_running, log_text(node)
        assert "Too many open files" not in log_text(node)
    over_tls.nodes[2].start()
    check_nothing_lost(over_tls, working)
