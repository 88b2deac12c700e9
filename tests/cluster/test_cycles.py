"""Nodes that lead, follow, hand over, lose contact and answer leave no reference cycles of our objects."""

from __future__ import annotations

from tests.report import count_fault
from tests.support.reference_cycles import cycles_of
from tests.support.three_nodes import ThreeNodes


def an_hour(nodes: ThreeNodes) -> None:
    """Let members join and leave, create a topic, hand leadership over, and replace a cut-off leader."""
    consumers = [nodes.consumer(f"member-{number}") for number in range(3)]
    for _ in range(6):
        for consumer in consumers:
            consumer.heartbeat()
        nodes.world.run_for(100)
    assert nodes.create(f"topic-{len(nodes.cluster[1].node.catalog)}", 3) == 0
    old = nodes.leader
    target = next(iter(nodes.cluster.others(old)))
    machine = nodes.cluster[old]
    machine.host.call_soon(machine.node.transfer, nodes.shard, target, lambda reason: None)
    assert nodes.cluster.wait_for_leader(nodes.shard, other_than=old) == target
    for consumer in consumers:
        nodes.move(consumer)
        consumer.leave()
        consumer.client.close()
    nodes.cluster.isolate(target)
    count_fault("cluster", "leader cut off")
    nodes.cluster.wait_for_leader(nodes.shard, other_than=target)
    nodes.network.heal_all()
    nodes.world.run_for(3_000)


def a_day(nodes: ThreeNodes) -> None:
    an_hour(nodes)
    an_hour(nodes)


def test_members_leaders_and_links_that_come_and_go() -> None:
    nodes = ThreeNodes()
    assert not cycles_of(lambda: a_day(nodes))
