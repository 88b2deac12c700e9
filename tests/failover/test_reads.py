"""No read is stale, neither right after a failover nor from a leader that was replaced.

Apache Kafka 4.3 answered an older offset in two of four runs of the first kind.
"""

from __future__ import annotations

import time

import pytest

from benchmarks.raw import RawGroup, Refused
from cluster.launching.launcher import ClusterProcess, NodeProcess
from quorate.client import Client
from quorate.connection import ClientConnection, ConnectionLost
from tests.report import count_fault
from wire.apis import ApiKey
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.protocol import decode_response, encode_request

TOPIC = "orders"
ROUNDS = 20
ROUNDS_OF_CHAOS = 200
COMMITS = 50
"""Commits in a row on one connection; the leader is killed when the last one is acknowledged."""

STALE_ROUNDS = 5
FETCH_VERSION = 9


def _addresses(cluster: ClusterProcess) -> list[tuple[str, int]]:
    return [(node.host, node.port) for node in cluster.nodes]


def _coordinator(cluster: ClusterProcess, group: RawGroup) -> NodeProcess:
    address = group.until_accepted(group.find)
    return next(node for node in cluster.nodes if (node.host, node.port) == address)


def _others(cluster: ClusterProcess, node: NodeProcess) -> list[tuple[str, int]]:
    return [address for address in _addresses(cluster) if address != (node.host, node.port)]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("count", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
def test_a_fetch_right_after_a_failover_is_never_older_than_an_acknowledged_commit(
    cluster: ClusterProcess, count: int
) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    offset = 0
    group = RawGroup(_addresses(cluster), "reads")
    for _ in range(count):
        leader = _coordinator(cluster, group)
        for _ in range(COMMITS):
            offset += 1
            group.until_accepted(group.commit, TOPIC, {0: offset})
        leader.kill()
        count_fault("failover", "kill -9 with no pause after an acknowledgement")
        group.coordinator = None
        group.nodes = _others(cluster, leader)
        found = group.until_accepted(group.fetch, TOPIC, [0])
        assert found[0] >= offset, f"acknowledged {offset}, read {found[0]}"
        leader.start()
        group.nodes = _addresses(cluster)
    group.close()


@pytest.mark.timeout(300)
def test_a_leader_that_slept_through_its_replacement_answers_no_old_offset(cluster: ClusterProcess) -> None:
    """The request waits in its socket while others go on; the answer is a refusal or the newest offset."""
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    for number in range(STALE_ROUNDS):
        group = RawGroup(_addresses(cluster), f"sleeper-{number}")
        group.until_accepted(group.commit, TOPIC, {0: 1})
        leader = _coordinator(cluster, group)
        question = ClientConnection(leader.host, leader.port, time.monotonic() + 5)
        leader.pause()
        count_fault("failover", "SIGSTOP of a leader that holds a read")
        try:
            rows = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group.group_id, topics=rows)]
            )
            frame = encode_request(ApiKey.OFFSET_FETCH, FETCH_VERSION, 77, "sleeper", request)
            question.socket.sendall(frame)
            group.coordinator = None
            group.nodes = _others(cluster, leader)
            group.until_accepted(group.commit, TOPIC, {0: 2})
        finally:
            leader.resume()
        assert _answer(question) in ("refused", 2)
        group.close()


def _answer(question: ClientConnection) -> object:
    """Return the offset that was answered, or "refused"."""
    question.socket.settimeout(10)
    try:
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = question.socket.recv(4096)
            if not piece:
                return "refused"
            data += piece
    except ConnectionResetError:
        return "refused"
    finally:
        question.close()
    _, answer = decode_response(ApiKey.OFFSET_FETCH, FETCH_VERSION, data[4:])
    (group,) = answer.groups
    if group.error_code:
        return "refused"
    ((row,),) = [topic.partitions for topic in group.topics]
    return row.committed_offset if not row.error_code else "refused"


@pytest.mark.timeout(120)
def test_a_node_cut_off_by_stopping_both_others_acknowledges_nothing(cluster: ClusterProcess) -> None:
    with Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    group = RawGroup(_addresses(cluster), "alone")
    group.until_accepted(group.commit, TOPIC, {0: 1})
    leader = _coordinator(cluster, group)
    others = [node for node in cluster.nodes if node is not leader]
    for node in others:
        node.pause()
    count_fault("failover", "SIGSTOP of both followers")
    try:
        with pytest.raises((Refused, ConnectionLost)):
            group.commit(TOPIC, {0: 2})
        with pytest.raises((Refused, ConnectionLost)):
            group.fetch(TOPIC, [0])
    finally:
        for node in others:
            node.resume()
    group.coordinator = None
    found = group.until_accepted(group.fetch, TOPIC, [0])
    assert found[0] in (1, 2)
    group.close()
