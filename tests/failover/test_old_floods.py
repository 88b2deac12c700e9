"""Floods on the older protocols' listeners of a real node, beside a member of a Kafka group."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.client import Client
from tests.failover.old_groups import HERE, TOPIC, Kind, OldGroup
from tests.report import count_fault
from tests.support.real_cluster import addresses, group_in, leader_of
from tests.support.waiting import wait_for

SHARD = 0
SILENT, FLOODS = 150, 10
MAX_CONNECTIONS = 120
FLOOD_S = 6.0
BEAT_S = 0.01
BEAT_MEDIAN_S, BEAT_LONGEST_S = 0.05, 1.0
"""On a machine whose cores others use too; the loop's own bound is 50 ms."""
RSS_GROWTH_BYTES = 150 << 20


@pytest.fixture
def settings() -> dict[str, str]:
    return {"lineage.push.port": "0", "lineage.rewrite.port": "0", "max.connections": str(MAX_CONNECTIONS)}


@pytest.fixture
def groups(cluster: ClusterProcess, tmp_path: Path) -> Iterator[list[OldGroup]]:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 12)
        client.configure_group(group_in(SHARD, "push"), {"push.topics": TOPIC})
        client.configure_group(group_in(SHARD, "flooded"), {"push.topics": TOPIC})
    kinds = Kind("push", "log"), Kind("rewrite", "design")
    found = [
        OldGroup(kind, group_in(SHARD, kind.protocol), cluster, tmp_path / kind.protocol) for kind in kinds
    ]
    try:
        for one in found:
            one.join(2)
        for one in found:
            one.settle()
        yield found
    finally:
        for one in found:
            one.end()


def rss_bytes(node: NodeProcess) -> int:
    """The memory that a node has in use."""
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def beats_s(member: RawMember, for_s: float) -> list[float]:
    """The time that each of the member's heartbeats took."""
    found = []
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        began_s = time.monotonic()
        assert member.beat()
        found.append(time.monotonic() - began_s)
        time.sleep(BEAT_S)
    return found


@pytest.mark.timeout(120)
def test_floods_cost_others_little_and_the_node_keeps_nothing_of_them(
    cluster: ClusterProcess, groups: list[OldGroup], capsys: pytest.CaptureFixture[str]
) -> None:
    node = leader_of(cluster.nodes, group_in(SHARD, "push"))
    member = RawMember(RawGroup(addresses(cluster.nodes), group_in(SHARD, "kafka")), "member", [TOPIC])
    member.settle()
    before_s, before_bytes = beats_s(member, 1.0), rss_bytes(node)
    asked = {
        "host": node.host,
        "push": node.lineage_ports["push"],
        "rewrite": node.lineage_ports["rewrite"],
        "group": group_in(SHARD, "flooded"),
        "silent": SILENT,
        "floods": FLOODS,
        "seed": 1,
    }
    command = [sys.executable, "-m", "tests.failover.old_flood", json.dumps(asked)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=HERE.parents[1]) as flood:
        try:
            assert flood.stdout is not None
            assert flood.stdout.readline() == b"begun\n"
            count_fault("failover", "flood of the older listeners", 2 * (SILENT + FLOODS))
            flooded_s = beats_s(member, FLOOD_S)
            flooded_bytes = rss_bytes(node)
        finally:
            flood.kill()
    with capsys.disabled():
        for what, took_s in (("before", before_s), ("in the flood", flooded_s)):
            print(f"\nheartbeats {what}: {median(took_s) * 1000:.1f} ms (median), ", end="")
            print(f"{max(took_s) * 1000:.0f} ms (longest)", end="")
        print(f"\nmemory: {before_bytes >> 20} MiB, then {flooded_bytes >> 20} MiB")
    assert median(flooded_s) < BEAT_MEDIAN_S
    assert max(flooded_s) < BEAT_LONGEST_S
    assert flooded_bytes - before_bytes < RSS_GROWTH_BYTES
    for one in groups:
        one.settle()
        assert not one.doubled()
    wait_for(lambda: member.beat(), "the member to go on", 5.0)
    text = (node.data / "node.log").read_text(errors="replace")
    member.group.close()
    assert "Traceback" not in text
    assert node.is_running
