"""Links between real nodes are cut, half-opened and healed; nothing is lost, no leader is deposed needlessly.

Cuts under the load of kill rounds are in `test_kill_rounds`.
"""

from __future__ import annotations

import time

import pytest

from benchmarks.raw import RawGroup, RawMember
from cluster.launching.launcher import NodeProcess
from history.checking.compare import compare, comparison_text
from quorate.client import Client
from tests.failover.mesh import Meshed
from tests.failover.proxy import Way
from tests.report import count_fault
from tests.support.real_cluster import NUM_SHARDS, group_in

TOPIC = "orders"
ROUNDS = 4
ROUNDS_OF_CHAOS = 40
CUT_S = 1.5
"""Several election timeouts, but shorter than the silence after which a link is closed."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [ROUNDS, pytest.param(ROUNDS_OF_CHAOS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_half_open", [False, True])
def test_a_leader_cut_off_is_replaced_and_loses_nothing(
    meshed: Meshed, count: int, is_half_open: bool
) -> None:
    """A cut resets and refuses both connections; a half-open link loses everything that the leader sends."""
    with Client(meshed.cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    offset = 0
    for number in range(count):
        group = RawGroup(meshed.addresses, group_in(number % NUM_SHARDS, "cut"))
        member = RawMember(RawGroup(meshed.addresses, group_in(number % NUM_SHARDS, "beat")), "m", [TOPIC])
        member.settle()
        for _ in range(50):
            offset += 1
            group.until_accepted(group.commit, TOPIC, {0: offset})
        leader = meshed.leader_of(group)
        for proxy, away in meshed.links_of(leader.node_id):
            proxy.hold(away) if is_half_open else proxy.cut()
        count_fault("failover", "leader's links held one way" if is_half_open else "leader's links cut")
        cut_s = time.monotonic()
        others = [address for address in meshed.addresses if address != (leader.host, leader.port)]
        group.nodes = member.group.nodes = others
        group.coordinator = member.group.coordinator = None
        assert group.until_accepted(group.fetch, TOPIC, [0])[0] >= offset
        assert meshed.leader_of(group) is not leader
        assert member.group.until_accepted(member.beat), "the failover moved partitions"
        time.sleep(max(0.0, cut_s + CUT_S - time.monotonic()))
        for proxy, away in meshed.links_of(leader.node_id):
            proxy.pass_on(away) if is_half_open else proxy.heal()
        group.nodes = [(leader.host, leader.port)]
        group.coordinator = None
        assert group.until_accepted(group.fetch, TOPIC, [0])[0] >= offset  # the client finds the new leader
        group.close()
        member.group.close()
    meshed.cluster.stop()
    compared = compare([str(node.data) for node in meshed.cluster.nodes])
    assert compared.ok, "\n".join(comparison_text(compared))


@pytest.mark.timeout(120)
def test_neither_a_deaf_follower_nor_one_that_was_stopped_deposes_the_leader(meshed: Meshed) -> None:
    """Pre-vote: a node that lost contact asks first, and nodes that hear from their leader refuse."""
    group = RawGroup(meshed.addresses, group_in(0, "calm"))
    with Client(meshed.cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1)
    group.until_accepted(group.commit, TOPIC, {0: 1})
    leader = meshed.leader_of(group)
    follower = next(node for node in meshed.cluster.nodes if node is not leader)
    terms = meshed.terms(leader)
    led = {shard for shard in terms if _leads(meshed, leader, shard)}  # shards that it led itself may move
    for proxy, away in meshed.links_of(follower.node_id):
        proxy.hold(Way.BACK if away is Way.THERE else Way.THERE)  # messages to it
    count_fault("failover", "follower's links held one way")
    time.sleep(CUT_S)
    for proxy, away in meshed.links_of(follower.node_id):
        proxy.pass_on(Way.BACK if away is Way.THERE else Way.THERE)
    assert 0 in led
    follower.pause()
    count_fault("failover", "SIGSTOP of a follower")
    time.sleep(CUT_S)
    follower.resume()
    group.until_accepted(group.commit, TOPIC, {0: 2})
    after = meshed.terms(leader)
    assert {shard: after[shard] for shard in led} == {shard: terms[shard] for shard in led}
    group.close()


def _leads(meshed: Meshed, node: NodeProcess, shard: int) -> bool:
    group = RawGroup(meshed.addresses, group_in(max(0, shard), "leads"))
    try:
        return shard >= 0 and meshed.leader_of(group) is node
    finally:
        group.close()
