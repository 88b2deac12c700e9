"""Groups of seed 000's protocol on three nodes in virtual time, in both variants."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.lineage.client_line import ClientLine
from cluster.lineage.rewrite_client import RewriteClient
from cluster.simulator import VirtualHost
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.messages import (
    ConsumerMetadataRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    decode_response,
    encode_request,
)
from raftlog.env.simulated_files import SimFiles
from tests.cluster.old_protocols import REWRITE_PORT, SESSION_MS, OldNodes
from tests.report import count_fault
from tests.support.three_nodes import GROUP
from wire.schema import Message

BEAT_MS = SESSION_MS / 3


@pytest.fixture(params=["design", "thread"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def nodes(variant: str) -> OldNodes:
    return OldNodes(settings={"lineage_rewrite_variant": variant})


def join(nodes: OldNodes, variant: str, *names: str, **others: Any) -> list[RewriteClient]:
    return [nodes.rewrite(name, variant=variant, **others) for name in names]


class Asker:
    """A client of one node that sends requests and waits for their answers."""

    def __init__(self, nodes: OldNodes, node_id: int) -> None:
        self._nodes = nodes
        self._answers: list[bytes] = []
        host = VirtualHost(nodes.world, nodes.network, SimFiles(), name="asker")
        address = nodes.cluster[node_id].address, REWRITE_PORT
        self.is_lost = False
        self._line = ClientLine(host, address, self._answers.append, self._lost)

    def _lost(self) -> None:
        self.is_lost = True

    @property
    def num_answers(self) -> int:
        return len(self._answers)

    def send(self, request: Message) -> None:
        self._line.send(encode_request(7, "asker", request))

    def ask(self, request: Message) -> Any:
        self.send(request)
        self._nodes.wait(lambda: bool(self._answers))
        number, answer = decode_response(request, self._answers.pop())
        assert number == 7
        return answer


def test_consumers_get_ids_a_generation_and_all_partitions(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b", "c")
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    record = nodes.rewrite_record
    assert record is not None
    assert {one.consumer_id for one in record.consumers} == {
        one.core.consumer_id for one in nodes.rewriting.values()
    }
    assert all(one.consumer_id.startswith(f"{GROUP}-") for one in record.consumers)
    nodes.world.run_for(3 * SESSION_MS)
    assert nodes.rewrite_record == record, "heartbeats write nothing"


def test_offsets_are_committed_in_an_interval_and_before_a_rebalance(nodes: OldNodes, variant: str) -> None:
    at = {("orders", number): 5 for number in range(12)}
    (first,) = join(
        nodes, variant, "a", settings={"commit_interval_ms": 2 * SESSION_MS}, positions=lambda: at
    )
    nodes.wait(lambda: nodes.is_shared({"a"}))
    assert nodes.committed(0) is None
    at.update(dict.fromkeys(at, 6))
    join(nodes, variant, "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    assert nodes.committed(0) == 6
    at.update(dict.fromkeys(at, 9))
    (mine,) = {number for _, number in sorted(first.core.owned)[:1]}
    nodes.wait(lambda: nodes.committed(mine) == 9, within_ms=3 * SESSION_MS)


def test_a_consumer_that_dies_is_found_dead_after_its_session(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    nodes.kill_client("a")
    took_ms = nodes.wait(lambda: nodes.is_shared({"b"}))
    assert SESSION_MS - BEAT_MS <= took_ms <= SESSION_MS + 2 * BEAT_MS


def test_a_killed_coordinator_costs_no_generation(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b", "c")
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    before, owners = nodes.rewrite_record, nodes.owners()
    leader = nodes.leader
    nodes.cluster[leader].kill()
    count_fault("cluster", "rewrite coordinator killed")
    if variant == "design":  # it goes on consuming while it rediscovers
        for _ in range(30):
            nodes.world.run_for(100)
            assert nodes.owners() == owners
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.rewrite_record == before


def test_a_coordinator_killed_in_a_rebalance_ends_it_later(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    join(nodes, variant, "c")
    nodes.world.run_for(BEAT_MS / 2)  # some are told, none has joined
    nodes.cluster[nodes.leader].kill()
    count_fault("cluster", "rewrite coordinator killed")
    nodes.wait(lambda: nodes.is_shared({"a", "b", "c"}))


def test_a_deposed_leader_answers_no_consumer_and_work_is_done_once(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    nodes.cluster.isolate(nodes.leader)
    count_fault("cluster", "rewrite coordinator cut off")
    for _ in range(150):
        nodes.world.run_for(100)
        assert all(len(names) == 1 for names in nodes.owners().values())
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))


def test_topics_that_are_created_and_grow_begin_a_generation(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b", topics=["orders", "later"])
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    nodes.create("later", 4)
    nodes.wait(lambda: len(nodes.owners()) == 16 and nodes.is_shared({"a", "b"}))
    nodes.grow("later", 6)
    nodes.wait(lambda: len(nodes.owners()) == 18 and nodes.is_shared({"a", "b"}))


def test_nodes_that_were_stopped_find_no_consumer_dead(nodes: OldNodes, variant: str) -> None:
    """SIGSTOP of all nodes for longer than a session."""
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    before = nodes.rewrite_record
    for machine in nodes.cluster.machines.values():
        machine.host.pause(3 * SESSION_MS)
    count_fault("cluster", "node of old groups paused", 3)
    nodes.world.run_for(3 * SESSION_MS)
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.rewrite_record == before


def test_any_node_names_the_coordinator_and_others_refuse(nodes: OldNodes, variant: str) -> None:
    leader = nodes.leader
    for node_id in nodes.cluster.machines:
        asker = Asker(nodes, node_id)
        where = asker.ask(ConsumerMetadataRequest(group_id=GROUP))
        assert (where.error_code, where.coordinator.node_id) == (0, leader)
        assert where.coordinator.port == REWRITE_PORT
        beat = HeartbeatRequest(group_id=GROUP, group_generation_id=1, consumer_id="x")
        error = asker.ask(beat).error_code
        elsewhere = {
            "design": RewriteError.NOT_COORDINATOR_FOR_GROUP,
            "thread": RewriteError.COORDINATOR_NOT_AVAILABLE,
        }
        assert error == (RewriteError.UNKNOWN_CONSUMER if node_id == leader else elsewhere[variant])


def test_a_consumer_asks_the_next_broker_when_one_knows_no_coordinator(nodes: OldNodes, variant: str) -> None:
    """The first of its brokers is cut off from the others, and still answers."""
    first = next(iter(nodes.cluster.machines))
    nodes.cluster.isolate(first)
    count_fault("cluster", "broker of old groups cut off")

    asker, metadata = Asker(nodes, first), ConsumerMetadataRequest(group_id=GROUP)
    for _ in range(20):
        nodes.world.run_for(500)
        if asker.is_lost or asker.ask(metadata).error_code:
            break
    assert Asker(nodes, first).ask(metadata).error_code == RewriteError.COORDINATOR_NOT_AVAILABLE
    join(nodes, variant, "a")
    nodes.wait(lambda: nodes.is_shared({"a"}))


def test_a_join_group_that_another_replaces_is_given_up_with_its_connection(
    nodes: OldNodes, variant: str
) -> None:
    """It gets no answer, so its connection would wait for ever, and never count as idle."""
    join(nodes, variant, "a", "silent")
    nodes.wait(lambda: nodes.is_shared({"a", "silent"}))
    consumer_id = nodes.rewriting["a"].core.consumer_id
    nodes.kill_client("a")
    nodes.kill_client("silent")
    changed = JoinGroupRequest(
        group_id=GROUP,
        session_timeout=SESSION_MS,
        topics=["orders", "payments"],
        consumer_id=consumer_id,
        partition_assignment_strategy="range",
    )
    askers = [Asker(nodes, nodes.leader) for _ in range(3)]
    for asker in askers:
        asker.send(changed)
        nodes.world.run_for(100)
    assert [one.is_lost for one in askers] == [True, True, False]
    nodes.world.run_for(2 * SESSION_MS)
    assert [one.num_answers for one in askers] == [0, 0, 1]


def test_a_planned_hand_over_closes_connections_and_loses_nothing(nodes: OldNodes, variant: str) -> None:
    join(nodes, variant, "a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    before, leader = nodes.rewrite_record, nodes.leader
    told: list[str | None] = []
    nodes.cluster[leader].node.transfer(nodes.shard, None, told.append)
    nodes.cluster.wait_for_leader(nodes.shard, other_than=leader)
    count_fault("cluster", "shard of old groups handed over")
    nodes.world.run_for(2 * SESSION_MS)
    assert nodes.is_shared({"a", "b"})
    assert nodes.rewrite_record == before


def test_a_join_that_waits_for_others_has_no_time_limit_of_the_node(nodes: OldNodes, variant: str) -> None:
    """It waits for the slowest consumer's session, which is longer than held replies may take."""
    join(nodes, variant, "a", settings={})
    nodes.wait(lambda: nodes.is_shared({"a"}))
    asker = Asker(nodes, nodes.leader)
    nodes.rewriting["a"].pause(20 * SESSION_MS)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout=SESSION_MS,
        topics=["orders"],
        partition_assignment_strategy="range",
    )
    answer = asker.ask(request)
    assert answer.error_code == 0
    assert len(answer.partitions_to_own[0].partitions) == 12


def test_a_lookup_at_a_frozen_node_goes_to_another_one_after_a_heartbeat_interval(
    nodes: OldNodes, variant: str
) -> None:
    nodes.cluster[1].host.pause(10 * SESSION_MS)
    count_fault("cluster", "node of old groups paused")
    nodes.cluster.wait_for_leader(nodes.shard, other_than=1)
    join(nodes, variant, "a")  # it asks the first node first
    nodes.wait(lambda: nodes.is_shared({"a"}), within_ms=BEAT_MS + 500)
