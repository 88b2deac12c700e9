"""The limit of file descriptors is raised to what the settings need, or a warning is logged; a node without a
free descriptor waits, and stops in the end."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.descriptors import descriptors_needed
from cluster.launching.launcher import launch_node
from cluster.settings import Settings
from cluster.simulator import Network, SimCluster, World
from tests.report import count_fault

SCRIPT = """
import logging, resource, sys
from cluster.descriptors import provide_descriptors
from cluster.settings import Settings
soft, hard, max_connections = map(int, sys.argv[1:])
logging.basicConfig(format="%(levelname)s %(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
provide_descriptors(Settings(max_connections=max_connections))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def limits_after(soft: int, hard: int, max_connections: int) -> tuple[int, int, str]:
    """Return soft limit, hard limit and log of a process of its own: lowering a hard limit is final."""
    words = [str(number) for number in (soft, hard, max_connections)]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True, timeout=60
    )
    after_soft, after_hard = map(int, ran.stdout.split())
    return after_soft, after_hard, ran.stderr


def test_a_low_soft_limit_is_raised_to_what_is_needed_and_no_further() -> None:
    needed = descriptors_needed(Settings(max_connections=500))
    assert 500 < needed < 1_500
    assert limits_after(100, 2_000, 500) == (needed, 2_000, "")


def test_a_limit_that_suffices_is_left_alone() -> None:
    assert limits_after(1_900, 2_000, 500) == (1_900, 2_000, "")


def test_a_hard_limit_that_is_too_low_is_said_with_what_would_fit() -> None:
    soft, hard, said = limits_after(600, 900, 800)
    assert (soft, hard) == (900, 900)
    needed = descriptors_needed(Settings(max_connections=800))
    assert said.count("\n") == 1
    assert (
        f"WARNING max.connections = 800 needs {needed} file descriptors, but this process may open only 900"
        in said
    )
    found = re.search(r"so serves (\d+) connections", said)
    assert found
    assert descriptors_needed(Settings(max_connections=int(found[1]))) == 900


def test_a_node_provides_for_its_connections(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors_needed(Settings(max_connections=700))
    if before[1] != resource.RLIM_INFINITY and before[1] < needed:
        pytest.skip(f"the hard limit here is {before[1]}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        node = launch_node(tmp_path / "node", settings={"max.connections": "700"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        assert resource.prlimit(node.pid, resource.RLIMIT_NOFILE) == (needed, before[1])
    finally:
        node.kill()


# A node that finds none free


def short_in_an_election(short_ms: float) -> SimCluster:
    """Kill the leader of the only shard while no node has a descriptor free, for `short_ms`."""
    world = World(5)
    cluster = SimCluster(world, Network(world), num_shards=1)
    cluster.boot_until_ready()
    leader = cluster.leader_of(0)
    assert leader is not None
    short_until_ms = world.now_ms + short_ms
    for machine in cluster.up.values():
        machine.disk.is_short = lambda: world.now_ms < short_until_ms
    count_fault("cluster", "no descriptor free")
    cluster[leader].kill()
    world.run_for(10_000)
    return cluster


def test_a_file_call_waits_for_a_descriptor() -> None:
    cluster = short_in_an_election(900)
    assert len(cluster.up) == 2
    assert cluster.leader_of(0) in cluster.up


def test_a_node_that_never_gets_one_stops_and_names_the_limit() -> None:
    """The message does not blame the disk."""
    cluster = short_in_an_election(9_000)
    stopped = [
        machine.host.fatal_message for machine in cluster.machines.values() if machine.host.fatal_message
    ]
    assert stopped
    for message in stopped:
        assert "Too many open files" in message
        assert "no file descriptor became free within 1 s: raise the limit (ulimit -n" in message
        assert "disk" not in message
