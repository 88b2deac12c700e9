"""All nodes end at once, with a long log: clients get COORDINATOR_LOAD_IN_PROGRESS, then everything is there.

Also, nodes that were all stopped for longer than the session timeout fence no member.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from benchmarks import load
from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate.client import Client
from tests.report import count_fault
from tests.support.waiting import wait_for
from wire.errors import ErrorCode

TOPIC = "orders"
COMMITS = 1_000_000
PER_REQUEST = 100
GROUPS = 100
LOADING = f"error {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.value}"


def _states(url: str) -> set[str]:
    """Return the states that the node's shards have been in, from its HTTP port; empty while that does not
    answer yet, which may take until the log is read."""
    try:
        with urllib.request.urlopen(f"{url}/v1/cluster", timeout=1) as answer:
            shards = json.loads(answer.read())["shards"]
            return {state for shard in shards for state in shard["state_since_ms"]}
    except OSError:
        return set()


@pytest.mark.timeout(300)
def test_clients_hear_loading_and_then_success_after_a_full_restart(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, PER_REQUEST)
    addresses = [(node.host, node.port) for node in cluster.nodes]
    groups = [RawGroup(addresses, f"group-{number}") for number in range(GROUPS)]
    _fill(groups)
    for node in cluster.nodes:
        node.kill()
    count_fault("failover", "kill -9 of all three nodes at once")
    starting = [threading.Thread(target=node.start) for node in cluster.nodes]
    for thread in starting:
        thread.start()
    seen: set[str] = set()

    def have_started() -> bool:
        for node in cluster.nodes:
            seen.update(_states(f"http://{node.host}:{node.http_port}"))
        groups[0].coordinator = addresses[0]
        _look(groups[0])
        return not any(thread.is_alive() for thread in starting)

    wait_for(have_started, "the start of all nodes", within_s=240)
    assert groups[0].refusals[LOADING] > 0, groups[0].refusals
    assert "CatchUp" in seen, seen
    for group in groups:
        group.coordinator = None
        found = group.until_accepted(group.fetch, TOPIC, list(range(PER_REQUEST)))
        assert set(found.values()) == {COMMITS // PER_REQUEST // GROUPS}
        group.close()


def _fill(groups: list[RawGroup]) -> None:
    """Commit `COMMITS` offsets, so that each partition's last offset is the number of its commits; a group
    that a change of leaders interrupted begins again."""
    rounds = COMMITS // PER_REQUEST // len(groups)
    for group in groups:
        frames = [load.commit_frame(group.group_id, TOPIC, PER_REQUEST, at) for at in range(1, rounds + 1)]
        while not _sent(group, frames):
            group.coordinator = None


def _sent(group: RawGroup, frames: list[bytes]) -> bool:
    """Return whether the last one is accepted: then one node has led all the time."""
    with (
        contextlib.suppress(ConnectionError, RuntimeError),
        load.peers(group.until_accepted(group.find), 1) as (peer,),
    ):
        peer.socket.sendall(b"".join(frames[:-1]))
        for _ in frames[:-1]:
            peer.skip(int.from_bytes(peer.exactly(4), "big"))
        load.check_commit(peer, frames[-1])
        return True
    return False


def _look(group: RawGroup) -> None:
    """Fetch once from the coordinator, and ignore the outcome."""
    try:
        group.fetch(TOPIC, [0])
    except Exception as error:
        group.refusals[str(error)] += 1


@pytest.mark.parametrize(
    ("stopped_s", "session_timeout_ms"),
    [(5.0, 3_000), pytest.param(60.0, 10_000, marks=pytest.mark.slow)],
)
@pytest.mark.timeout(240)
def test_stopping_every_node_for_longer_than_the_session_fences_no_member(
    tmp_path: Path, stopped_s: float, session_timeout_ms: int
) -> None:
    settings = {
        "group.consumer.session.timeout.ms": str(session_timeout_ms),
        "group.consumer.heartbeat.interval.ms": "500",
    }
    cluster = launch_cluster(tmp_path / "cluster", num_nodes=3, settings=settings)
    try:
        with Client(cluster.bootstrap) as client:
            client.create_topic(TOPIC, 8)
        addresses = [(node.host, node.port) for node in cluster.nodes]
        members = [RawMember(RawGroup(addresses, f"g-{at % 4}"), f"member-{at}", [TOPIC]) for at in range(8)]
        for _ in range(4):
            for member in members:
                member.group.until_accepted(member.beat)
        before = [(member.epoch, member.owned) for member in members]
        for node in cluster.nodes:
            node.pause()
        count_fault("failover", "SIGSTOP of all three nodes")
        time.sleep(stopped_s)
        for node in cluster.nodes:
            node.resume()
        for member in members:
            assert member.group.until_accepted(member.beat), f"{member.member_id} was given something new"
        assert [(member.epoch, member.owned) for member in members] == before
        for member in members:
            member.group.close()
    finally:
        cluster.kill()
