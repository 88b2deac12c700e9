"""Three whole nodes: which one answers, what a change of leaders costs, what clients must not see of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from cluster.http.shard_metrics import GAUGES, LOG_COUNTERS, LOG_GAUGES, RUNTIME_COUNTERS
from cluster.membership import LISTED_AFTER_LOSS_MS, MEETING_MS
from cluster.node_info import ClientInfo, NodeInfo
from cluster.runtime.shard_state import ShardState
from cluster.settings import SettingsError
from cluster.simulator import Network, WireClient, World
from cluster.simulator.client import ConnectionGone
from cluster.simulator.machine import KAFKA_PORT, Machine
from records import LATEST_FORMAT_LEVEL, METADATA_SHARD, shard_of
from tests.report import count_fault
from tests.support.requests import commit_request, join_request
from tests.support.sim_node import GROUPS
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_cluster import DescribeClusterRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


@pytest.fixture
def nodes() -> ThreeNodes:
    return ThreeNodes()


# The node that answers.


def test_every_node_names_the_same_leaders_and_only_they_answer(nodes: ThreeNodes) -> None:
    cluster = nodes.cluster
    for shard in cluster.shards:
        leader = cluster.leader_of(shard)
        named = {machine.node.leader_of(shard).node_id for machine in cluster.machines.values()}  # type: ignore[union-attr]
        assert named == {leader}
    for node_id in cluster.machines:
        expected = ErrorCode.NONE if node_id == nodes.leader else ErrorCode.NOT_COORDINATOR
        assert nodes.commit(node_id, 7) == expected
    infos = cluster[1].node.nodes
    assert [(info.node_id, info.kafka_host, info.kafka_port) for info in infos] == [
        (node_id, cluster[node_id].address, KAFKA_PORT) for node_id in (1, 2, 3)
    ]
    assert {(info.http_host, info.http_port) for info in infos[1:]} == {
        (machine.settings.http_host, machine.settings.http_port) for machine in (cluster[2], cluster[3])
    }, "HTTP is not up when nodes meet, and is where the settings say"
    assert isinstance(cluster[3].node.coordinator_of(GROUP), NodeInfo)


def test_a_topic_is_known_everywhere_when_its_creation_is_answered(nodes: ThreeNodes) -> None:
    assert nodes.create("payments", 3) == 0
    for machine in nodes.cluster.machines.values():
        assert machine.node.catalog.topic("payments") is not None


def test_a_node_that_is_cut_off_holds_up_no_admin_call_for_long(nodes: ThreeNodes) -> None:
    controller = nodes.cluster.leader_of(METADATA_SHARD)
    nodes.cluster.isolate(next(iter(nodes.cluster.others(controller or 0))))
    count_fault("cluster", "node cut off")
    asked_ms = nodes.world.now_ms
    assert nodes.create("payments", 3) == 0
    assert nodes.world.now_ms - asked_ms < 1_100


def test_each_group_is_listed_once_over_all_nodes(nodes: ThreeNodes) -> None:
    for group in GROUPS:
        leader = nodes.cluster.leader_of(shard_of(group, 4))
        assert leader is not None
        request = join_request(group, "m", "orders")
        assert nodes.ask(leader, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request).error_code == 0
    listed = []
    for node_id in nodes.cluster.machines:
        answer = nodes.ask(node_id, ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
        assert answer.error_code == 0
        listed += [group.group_id for group in answer.groups]
    assert sorted(listed) == sorted(GROUPS)


# The nodes that clients are told of.


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_lost_node_is_listed_for_nine_seconds_and_leads_nothing(nodes: ThreeNodes, how: str) -> None:
    cluster, lost = nodes.cluster, nodes.leader
    first, _ = cluster.others(lost)

    def listed() -> list[int]:
        request = MetadataRequest(topics=[])
        return [broker.node_id for broker in nodes.ask(first, ApiKey.METADATA, 12, request).brokers]

    getattr(cluster[lost], how)()
    cluster.wait_for(lambda: lost not in {info.node_id for info in cluster[first].node.nodes})
    lost_ms = nodes.world.now_ms
    while listed() == [1, 2, 3]:
        for shard in cluster.shards:
            leader = cluster[first].node.leader_of(shard)
            assert leader is None or leader.node_id != lost
        nodes.world.run_for(100)
    assert listed() == list(cluster.others(lost))
    assert LISTED_AFTER_LOSS_MS <= nodes.world.now_ms - lost_ms < LISTED_AFTER_LOSS_MS + 500
    cluster.boot()
    cluster.wait_for(lambda: listed() == [1, 2, 3])


def test_a_node_that_was_never_met_is_not_listed() -> None:
    nodes = ThreeNodes(is_booted=False)
    for node_id in (1, 2):
        nodes.cluster[node_id].boot()
    nodes.cluster.wait_for_leader(METADATA_SHARD)
    booted_ms = nodes.world.now_ms
    answer = nodes.ask(1, ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert [broker.node_id for broker in answer.brokers] == [1, 2]
    assert nodes.world.now_ms - booted_ms < MEETING_MS + 100


def first_client(nodes: ThreeNodes, node_id: int) -> WireClient:
    """A client that is connected within a millisecond of when the node begins to listen."""
    client = nodes.client(node_id)
    while not client.is_connected:
        with suppress(ConnectionGone):
            client.connect()
        nodes.world.run_for(1)
    return client


def test_a_restarted_node_names_the_others_from_its_first_answer_on(nodes: ThreeNodes) -> None:
    """Its links come up one after the other, and a client asks as soon as it may connect."""
    cluster, leader = nodes.cluster, nodes.cluster.wait_for_leader(METADATA_SHARD)
    restarted, far = cluster.others(leader)
    cluster[restarted].kill()
    nodes.network.slow_down(cluster[restarted].name, cluster[far].name, 50)
    cluster[restarted].boot()
    client = first_client(nodes, restarted)
    described = client.send(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
    listed = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert [broker.node_id for broker in listed.brokers] == [1, 2, 3]
    assert [broker.broker_id for broker in described.response.brokers] == [1, 2, 3]


# A change of leaders.


def test_members_stay_and_commits_are_there_when_the_leader_is_killed(nodes: ThreeNodes) -> None:
    one, two = nodes.consumer("one"), nodes.consumer("two")
    for _ in range(4):
        one.heartbeat()
        two.heartbeat()
    assert nodes.commit(nodes.leader, 42) == ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    had = [(member.epoch, member.partitions) for member in (one, two)]
    killed, killed_ms = nodes.leader, nodes.world.now_ms
    nodes.cluster[killed].kill()
    count_fault("cluster", "leader killed")
    nodes.cluster.wait_for_leader(nodes.shard, other_than=killed)
    assert nodes.world.now_ms - killed_ms < 1_000
    for member in (one, two):
        nodes.move(member)
        assert member.heartbeat().error_code == 0
    assert [(member.epoch, member.partitions) for member in (one, two)] == had


def test_sessions_start_in_full_at_the_new_leader(nodes: ThreeNodes) -> None:
    one = nodes.consumer("one")
    one.heartbeat()
    nodes.world.run_for(40_000)
    killed = nodes.leader
    nodes.cluster[killed].kill()
    count_fault("cluster", "leader killed")
    nodes.cluster.wait_for_leader(nodes.shard, other_than=killed)
    runtime = nodes.runtime(nodes.leader)
    nodes.world.run_for(44_000)
    assert runtime.machine.projection.groups[GROUP].num_members == 1  # type: ignore[attr-defined]
    nodes.world.run_for(2_000)
    assert runtime.machine.projection.groups[GROUP].num_members == 0  # type: ignore[attr-defined]


def test_a_leader_that_is_cut_off_answers_nothing_that_it_cannot_prove(nodes: ThreeNodes) -> None:
    one, tool = nodes.consumer("one"), nodes.client(nodes.leader)
    for _ in range(3):
        assert one.heartbeat().error_code == 0
    old = nodes.leader
    runtime = nodes.runtime(old)
    nodes.cluster.isolate(old)
    count_fault("cluster", "leader cut off")
    nodes.world.run_for(150)  # half of the shortest election timeout: no other node can lead yet
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    read = tool.send(ApiKey.OFFSET_FETCH, 9, request)
    written = tool.send(ApiKey.OFFSET_COMMIT, 9, commit_request("simple", {0: 1}))
    steady = one.client.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, one.next_heartbeat())
    nodes.world.run_for(20)
    assert runtime.is_ready, "it does not know yet"
    assert [one.response for one in (read, written, steady)] == [None] * 3
    new = nodes.cluster.wait_for_leader(nodes.shard, other_than=old)
    nodes.world.run_for(400)
    assert runtime.state is ShardState.DOWN
    assert read.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert steady.response.error_code == ErrorCode.NOT_COORDINATOR
    assert new != old


def test_what_a_cut_off_controller_decided_is_gone_and_its_catalog_goes_on(nodes: ThreeNodes) -> None:
    """It had applied a topic that no other node has: its projection is rebuilt, no group used the topic."""
    cluster, old = nodes.cluster, nodes.cluster.leader_of(METADATA_SHARD)
    assert old is not None
    metadata, before = cluster[old].node.metadata, cluster[old].node.metadata.machine
    client = nodes.client(old)
    cluster.isolate(old)
    count_fault("cluster", "leader cut off")
    topic = CreatableTopic(name="lost", num_partitions=1, replication_factor=1)
    call = client.send(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    new = cluster.wait_for_leader(METADATA_SHARD, other_than=old)
    nodes.world.run_for(1_000)
    assert call.response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert before.view.topic("lost") is not None
    assert nodes.create("payments", 2) == 0
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=5000)
    nodes.ask(new, ApiKey.DELETE_TOPICS, 6, delete)
    nodes.network.heal_all()
    cluster.wait_for(lambda: metadata.is_readable and metadata.machine is not before)
    cluster.settle()
    nodes.world.run_for(1_000)
    assert [topic.name for topic in cluster[old].node.catalog.topics()] == ["payments"]
    assert metadata.machine.state_hash == cluster[new].node.metadata.machine.state_hash


def test_a_restarted_node_says_loading_until_it_knows_who_leads(nodes: ThreeNodes) -> None:
    other = next(node_id for node_id in nodes.cluster.machines if node_id != nodes.leader)
    nodes.cluster[other].kill()
    nodes.cluster.isolate(other)
    node = nodes.cluster[other].boot()
    nodes.world.run_for(1_000)
    assert nodes.commit(other, 1) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not node.is_ready
    assert node.leader_of(nodes.shard) is None
    nodes.network.heal_all()
    nodes.cluster.settle()
    assert nodes.commit(other, 1) == ErrorCode.NOT_COORDINATOR
    assert set(node.shards[nodes.shard].status()["state_since_ms"]) == {"CatchUp", "Down"}


def test_what_is_a_metric_is_in_the_status_of_every_shard(nodes: ThreeNodes) -> None:
    for machine in nodes.cluster.machines.values():
        runtimes: list[Any] = [machine.node.metadata, *machine.node.shards]
        for runtime in runtimes:
            status = runtime.status()
            assert set(status) >= set(GAUGES)
            assert set(status["log"]) >= set(LOG_GAUGES) | set(LOG_COUNTERS)
            assert set(runtime.counters.as_dict()) == set(RUNTIME_COUNTERS)


# Hand-over.


def test_a_stop_hands_over_within_a_second_and_closed_connections_tell_clients(
    nodes: ThreeNodes,
) -> None:
    one = nodes.consumer("one")
    for _ in range(3):
        one.heartbeat()
    old, asked_ms = nodes.leader, nodes.world.now_ms
    nodes.cluster[old].stop()
    assert nodes.world.now_ms - asked_ms < 500
    assert not one.client.is_connected
    new = nodes.cluster.wait_for_leader(nodes.shard, other_than=old)
    nodes.move(one, new)
    assert one.heartbeat().error_code == 0
    assert nodes.world.now_ms - asked_ms < 500


def test_a_stop_without_a_quorum_gives_up_handing_over(nodes: ThreeNodes) -> None:
    old = nodes.leader
    for other in nodes.cluster.others(old):
        nodes.cluster[other].kill()
    count_fault("cluster", "majority killed")
    asked_ms = nodes.world.now_ms
    nodes.cluster[old].stop()
    assert nodes.world.now_ms - asked_ms < 1_000


def test_a_stop_during_which_the_peers_do_not_answer_ends_in_time(nodes: ThreeNodes) -> None:
    old = nodes.leader
    for other in nodes.cluster.others(old):
        nodes.cluster[other].host.pause()
    count_fault("cluster", "node paused", 2)
    asked_ms = nodes.world.now_ms
    nodes.cluster[old].stop()
    assert nodes.world.now_ms - asked_ms < 1_000


@pytest.mark.parametrize("paused_ms", [10, 400])
def test_a_stop_hands_over_to_the_peer_that_answers(nodes: ThreeNodes, paused_ms: float) -> None:
    """Both logs are equally long; only one peer runs, whether the leader knows that by now or not."""
    cluster, old = nodes.cluster, nodes.leader
    paused, answering = cluster.others(old)
    cluster[paused].host.pause()
    count_fault("cluster", "node paused")
    nodes.world.run_for(paused_ms)
    led = [shard for shard in cluster.shards if cluster.leader_of(shard) == old]
    asked_ms = nodes.world.now_ms
    cluster[old].stop()
    assert nodes.world.now_ms - asked_ms < 1_000
    cluster[paused].host.resume()
    nodes.world.run_for(100)
    assert [cluster.leader_of(shard) for shard in led] == [answering] * len(led)
    assert [cluster.runtime(answering, shard).counters.elections_won for shard in led] == [1] * len(led)


def test_a_stop_waits_for_a_hand_over_that_is_under_way(nodes: ThreeNodes) -> None:
    old = nodes.leader
    target = nodes.cluster.others(old)[0]
    machine = nodes.cluster[old]
    machine.host.call_soon(machine.node.transfer, nodes.shard, target, lambda reason: None)
    nodes.world.run_for(0.01)
    machine.stop()
    assert nodes.runtime(target).is_ready


def test_a_transfer_goes_where_it_is_told_and_says_why_not(nodes: ThreeNodes) -> None:
    old = nodes.leader
    target = nodes.cluster.others(old)[1]
    told: list[str | None] = []
    one = nodes.consumer("one")
    one.heartbeat()
    host = nodes.cluster[old].host
    host.call_soon(nodes.cluster[old].node.transfer, nodes.shard, target, told.append)
    nodes.cluster.wait_for(lambda: bool(told))
    assert told == [None]
    assert nodes.cluster.wait_for_leader(nodes.shard, other_than=old) == target
    assert not one.client.is_connected
    host.call_soon(nodes.cluster[old].node.transfer, nodes.shard, target, told.append)
    nodes.cluster.wait_for(lambda: len(told) == 2)
    assert told[1] == f"node {old} does not lead shard-{nodes.shard}"


def test_commits_go_on_through_a_hand_over_without_one_that_is_lost(nodes: ThreeNodes) -> None:
    old = nodes.leader
    target = nodes.cluster.others(old)[0]
    acknowledged: list[int] = []
    node, host = nodes.cluster[old].node, nodes.cluster[old].host

    def commit(offset: int) -> None:
        def reply(answer: Any) -> None:
            code = answer.topics[0].partitions[0].error_code
            if code == 0:
                acknowledged.append(offset)
            else:
                assert code == ErrorCode.NOT_COORDINATOR

        node.submit(ApiKey.OFFSET_COMMIT, 9, commit_request(GROUP, {0: offset}), ClientInfo(), reply)

    for offset in range(400):
        host.call_later(offset * 0.1, commit, offset)
    host.call_later(10, node.transfer, nodes.shard, target, lambda reason: None)
    nodes.world.run_for(1_000)
    assert nodes.cluster.leader_of(nodes.shard) == target
    assert len(acknowledged) > 50
    error, offsets = nodes.fetch(target)
    assert error == 0
    assert offsets[0] >= acknowledged[-1]


# The whole cluster.


def test_the_format_level_is_raised_only_when_every_node_is_heard(nodes: ThreeNodes) -> None:
    controller = nodes.cluster.leader_of(METADATA_SHARD)
    assert controller is not None
    machine, told = nodes.cluster[controller], []
    machine.host.call_soon(machine.node.upgrade, told.append)
    nodes.cluster.wait_for(lambda: bool(told))
    assert told == [None]
    assert machine.node.format_level == LATEST_FORMAT_LEVEL
    gone = nodes.cluster.others(controller)[0]
    nodes.cluster[gone].kill()
    nodes.world.run_for(100)
    machine.host.call_soon(machine.node.upgrade, told.append)
    nodes.cluster.wait_for(lambda: len(told) == 2)
    assert told[1] == f"the format levels that node {gone} can read are unknown: it is not connected"


def refused(machine: Machine) -> str:
    with pytest.raises(SettingsError) as error:
        machine.node_class(machine.host, machine.settings).start(lambda _error: None)
    return str(error.value)


def test_settings_that_are_not_the_directorys_are_refused_in_words() -> None:
    world = World(1)
    network = Network(world)
    alone, member = Machine(world, network), Machine(world, network, name="n", node_id=2, voters=(1, 2, 3))
    for machine in (alone, member):
        machine.boot()
        machine.kill()
    alone.settings, member.settings = (
        alone.settings.__class__(
            data_dir="/data", cluster_nodes=("1@h:1", "2@h:2"), cluster_secret_file="/secret", insecure=True
        ),
        member.settings.__class__(node_id=2, data_dir="/data"),
    )
    assert "was formatted for a cluster of one node" in refused(alone)
    assert "cluster.nodes is empty, but /data was formatted as one of nodes 1, 2, 3" in refused(member)
