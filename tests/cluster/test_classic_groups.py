"""Groups of the classic protocol on three nodes: requests that wait, a leader that goes, what is durable."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.runtime.answers import Unavailable, code_for
from cluster.simulator.client import Call
from raftlog.storage.evidence import read_evidence
from tests.support.requests import commit_request, join_request
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, encode
from wire.errors import ErrorCode
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


@pytest.fixture
def nodes() -> ThreeNodes:
    return ThreeNodes()


class Joiner:
    """A client of the classic protocol on a connection of its own."""

    def __init__(self, nodes: ThreeNodes, name: str, metadata: bytes | None = None) -> None:
        self.nodes = nodes
        self.name = name
        self.metadata = name.encode() if metadata is None else metadata
        self.assignment = name.encode()
        self.member_id = ""
        self.generation = -1
        self.client = nodes.client(nodes.leader)

    def move(self) -> None:
        self.client.close()
        self.client = self.nodes.client(self.nodes.leader)

    def join(self) -> Call:
        """Send JoinGroup, again with the member id if one is required; it may wait."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        )
        if not self.member_id:
            answer = self.client.ask(ApiKey.JOIN_GROUP, 9, request)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            request.member_id = self.member_id = answer.member_id
        return self.client.send(ApiKey.JOIN_GROUP, 9, request)

    def sync(self, assignments: dict[str, bytes] | None = None) -> Call:
        given = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        return self.client.send(ApiKey.SYNC_GROUP, 5, request)

    def heartbeat(self) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
        return int(self.client.ask(ApiKey.HEARTBEAT, 4, request).error_code)

    def commit(self, offset: int) -> list[int]:
        request = commit_request(GROUP, {0: offset}, member_id=self.member_id, epoch=self.generation)
        answer = self.client.ask(ApiKey.OFFSET_COMMIT, 8, request)
        return [part.error_code for topic in answer.topics for part in topic.partitions]


def answered(nodes: ThreeNodes, *calls: Call) -> list[Any]:
    assert nodes.world.run_until(lambda: all(call.response is not None for call in calls), within_ms=15_000)
    return [call.response for call in calls]


def joined_together(nodes: ThreeNodes, joiners: tuple[Joiner, ...]) -> list[Any]:
    """Join as clients do, again whenever a heartbeat says so, until all are in one generation."""
    calls = {joiner: joiner.join() for joiner in joiners}
    for _ in range(20):
        nodes.world.run_for(50)
        done = [joiner for joiner in joiners if calls[joiner].response is not None]
        for joiner in done:
            joiner.generation = calls[joiner].response.generation_id  # type: ignore[union-attr]
        if len(done) == len(joiners) and len({joiner.generation for joiner in joiners}) == 1:
            return [call.response for call in calls.values()]
        for joiner in done:
            if joiner.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
                calls[joiner] = joiner.join()
    raise AssertionError("they do not come together")


def stable(nodes: ThreeNodes, *joiners: Joiner) -> None:
    """Complete a generation of these members."""
    replies = joined_together(nodes, joiners)
    assert [reply.error_code for reply in replies] == [0] * len(joiners)
    given = {joiner.member_id: joiner.assignment for joiner in joiners}
    is_leader = [reply.leader == reply.member_id for reply in replies]
    syncs = [joiner.sync(given if leads else None) for joiner, leads in zip(joiners, is_leader, strict=True)]
    assert [reply.assignment for reply in answered(nodes, *syncs)] == [
        joiner.assignment for joiner in joiners
    ]


def test_without_an_initial_delay_only_clients_that_come_together_wait() -> None:
    nodes = ThreeNodes(settings={"group_initial_rebalance_delay_ms": 0})
    joiners = [Joiner(nodes, name) for name in "abc"]
    find = FindCoordinatorRequest(coordinator_keys=[GROUP])
    asked = [joiner.client.send(ApiKey.FIND_COORDINATOR, 4, find) for joiner in joiners]
    answered(nodes, *asked)
    replies = answered(nodes, *[joiner.join() for joiner in joiners])
    assert [reply.generation_id for reply in replies] == [1, 1, 1]

    nodes = ThreeNodes(settings={"group_initial_rebalance_delay_ms": 0})
    alone = Joiner(nodes, "alone")
    alone.client.ask(ApiKey.FIND_COORDINATOR, 4, find)
    call = alone.join()
    assert nodes.world.run_until(lambda: call.response is not None, within_ms=20)


def test_a_generation_survives_its_leader(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a, b)
    assert a.commit(7) == [0]
    killed = nodes.leader
    nodes.cluster[killed].kill()
    nodes.cluster.wait_for_leader(nodes.shard, other_than=killed)
    for joiner in (a, b):
        joiner.move()
        assert joiner.heartbeat() == 0
    assert a.commit(8) == [0]


def test_a_refused_upgrade_is_in_the_log_of_the_node(
    nodes: ThreeNodes, caplog: pytest.LogCaptureFixture
) -> None:
    a = Joiner(nodes, "a")
    stable(nodes, a)
    answer = nodes.client(nodes.leader).ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join_request(GROUP, "c", "orders")
    )
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "Cannot upgrade classic group" in answer.error_message
    assert answer.error_message in caplog.text
    assert a.heartbeat() == 0


def test_an_upgraded_group_survives_its_leader(nodes: ThreeNodes) -> None:
    """The members of both kinds go on, and nothing of what they own is given away."""
    a = Joiner(nodes, "a", encode(ConsumerProtocolSubscription(topics=["orders"]), 1))
    a.assignment = encode(ConsumerProtocolAssignment(), 1)
    stable(nodes, a)
    request = join_request(GROUP, "c", "orders")
    answer = nodes.client(nodes.leader).ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == 0
    killed = nodes.leader
    nodes.cluster[killed].kill()
    nodes.cluster.wait_for_leader(nodes.shard, other_than=killed)
    a.move()
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.commit(7) == [0]
    (reply,) = answered(nodes, a.join())
    a.generation = reply.generation_id
    assert (reply.error_code, reply.generation_id) == (0, answer.member_epoch)
    (reply,) = answered(nodes, a.sync())
    assert reply.error_code == a.heartbeat() == 0
    assert a.commit(8) == [0]


def test_joins_that_wait_are_told_to_look_for_the_new_leader(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a)
    waits = b.join()
    old = nodes.leader
    target = next(node_id for node_id in (1, 2, 3) if node_id != old)
    machine = nodes.cluster[old]
    machine.host.call_soon(machine.node.transfer, nodes.shard, target, lambda reason: None)
    (reply,) = answered(nodes, waits)
    assert reply.error_code == ErrorCode.NOT_COORDINATOR
    nodes.cluster.wait_for_leader(nodes.shard, other_than=old)
    a.move(), b.move()
    assert a.heartbeat() == 0, "the generation that was written goes on"
    b.member_id = ""
    late = b.join()
    nodes.world.run_for(100)
    assert late.response is None
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    again = a.join()
    assert {reply.generation_id for reply in answered(nodes, late, again)} == {2}


def test_assignments_are_answered_when_they_are_committed(nodes: ThreeNodes) -> None:
    a = Joiner(nodes, "a")
    (reply,) = answered(nodes, a.join())
    a.generation = reply.generation_id
    leader = nodes.leader
    others = [node_id for node_id in (1, 2, 3) if node_id != leader]
    for other in others:
        nodes.cluster[other].kill()
    waits = a.sync({a.member_id: b"all"})
    nodes.world.run_for(200)
    assert waits.response is None
    for other in others:
        nodes.cluster[other].boot()
    (reply,) = answered(nodes, waits)
    assert (reply.error_code, reply.assignment) in [(0, b"all"), (ErrorCode.NOT_COORDINATOR, b"")]


def test_a_member_whose_connection_breaks_while_it_waits_is_waited_for(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a)
    b.join()
    b.client.close()
    nodes.world.run_for(100)
    b.client = nodes.client(nodes.leader)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    stable(nodes, a, b)


def test_heartbeats_succeed_while_the_shard_is_loaded() -> None:
    """As in Kafka: the member stays, and its session begins with the new leader."""
    assert code_for(Unavailable.LOADING, ApiKey.HEARTBEAT) is ErrorCode.NONE
    assert code_for(Unavailable.LOADING, ApiKey.JOIN_GROUP) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code_for(Unavailable.NOT_LEADER, ApiKey.HEARTBEAT) is ErrorCode.NOT_COORDINATOR


def test_members_that_wait_do_not_keep_others_from_being_served() -> None:
    nodes = ThreeNodes(settings={"runtime_held_replies_max": 100})
    a = Joiner(nodes, "a")
    stable(nodes, a)
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    for _ in range(100):  # an older version needs no member id, and nobody reads the answers
        client = nodes.client(nodes.leader)
        client.send(ApiKey.JOIN_GROUP, 3, request)
        nodes.world.run_for(1)
        client.close()
    nodes.world.run_for(1_000)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.commit(1) == [0]
    refused = nodes.client(nodes.leader).ask(ApiKey.JOIN_GROUP, 3, request)
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    nodes.world.run_for(31_000)
    assert nodes.client(nodes.leader).send(ApiKey.JOIN_GROUP, 3, request).response is None
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "it did not join again"


def fast(nodes: ThreeNodes) -> int:
    return int(nodes.cluster[nodes.leader].node.kafka.context.counters.fast_heartbeats)


def test_steady_heartbeats_are_answered_from_the_cache_and_keep_the_session(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a, b)
    before = fast(nodes)
    for _ in range(10):  # ten times as long as a session
        nodes.world.run_for(9_000)
        assert a.heartbeat() == b.heartbeat() == 0
    assert fast(nodes) > before + 10, "without a lease some are decided"
    nodes.world.run_for(11_000)
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID, "a silent member stays a member"


def test_a_rebalance_reaches_a_member_at_its_next_heartbeat(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a)
    for _ in range(3):
        assert a.heartbeat() == 0
    before = fast(nodes)
    assert before > 0
    b.join()
    nodes.world.run_for(50)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert fast(nodes) == before


def test_the_gaps_of_classic_heartbeats_are_measured_and_a_wait_in_a_join_is_none(nodes: ThreeNodes) -> None:
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a)
    duties: Any = nodes.runtime(nodes.leader).duties
    gaps = duties._gaps._gaps
    for _ in range(3):
        nodes.world.run_for(2_000)
        assert a.heartbeat() == 0
    assert 1_900 < gaps[GROUP, a.member_id].longest_ms < 2_200
    b.join()
    nodes.world.run_for(50)
    a.heartbeat()
    waits = a.join()
    answered(nodes, waits)
    assert (GROUP, a.member_id) not in gaps


def test_what_was_refused_is_noted_with_its_reason(nodes: ThreeNodes) -> None:
    """Replies of the classic protocol have no field for a reason; what they say to go on is no refusal."""
    a, b = Joiner(nodes, "a"), Joiner(nodes, "b")
    stable(nodes, a)
    b.join()
    nodes.world.run_for(50)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.generation = 7
    assert a.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    machine = nodes.cluster[nodes.leader]
    machine.node.evidence.flush()
    notes = read_evidence(machine.disk, machine.settings.data_dir)
    refused = [note for note in notes if note["kind"] == "refused"]
    assert [(note["api"], note["error"], note["member"]) for note in refused] == [
        (ApiKey.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION, a.member_id)
    ]
    assert "at generation 1, not 7" in refused[0]["reason"]
