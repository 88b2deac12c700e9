"""Three nodes as one of them reports them: coordinators, controller, replicas, and requests that wait."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.kafka import waiting
from cluster.node_info import NodeInfo
from records import METADATA_SHARD, shard_of
from tests.support.listener_rig import CLIENT_ID, INFO, PEER, RawClient, Rig, heartbeat
from wire.apis import API_VERSIONS, ApiKey
from wire.messages.describe_cluster import DescribeClusterRequest
from wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from wire.messages.fetch import FetchRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from wire.protocol import encode_request

THIRD = NodeInfo(node_id=8, cluster_id="test-cluster", kafka_host="kafka3.example", kafka_port=39092)
NUM_SHARDS = 4
GROUPS = {shard_of(f"g{number}", NUM_SHARDS): f"g{number}" for number in range(64)}
"""One group of each shard."""


def versions(api_key: ApiKey) -> list[int]:
    low, high = API_VERSIONS[api_key]
    return list(range(low, high + 1))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.node.nodes, rig.node.voters = (INFO, PEER), (7, 8, 9)
    rig.node.leaders = {METADATA_SHARD: PEER, 0: INFO, 1: PEER, 2: PEER, 3: INFO}
    return rig


def request(api_key: ApiKey, version: int, body: Any, correlation_id: int = 1) -> bytes:
    return encode_request(api_key, version, correlation_id, CLIENT_ID, body)


def find(*groups: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=groups[0], coordinator_keys=list(groups))


def found(rig: Rig, *groups: str, client: RawClient | None = None) -> list[tuple[str, int, int, str, int]]:
    answer = rig.ask(client or rig.connect(), ApiKey.FIND_COORDINATOR, 6, find(*groups), within_ms=2_000)
    return [(one.key, one.error_code, one.node_id, one.host, one.port) for one in answer.coordinators]


# Coordinators


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_each_group_has_the_leader_of_its_shard_as_coordinator(rig: Rig, version: int) -> None:
    answer = rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, version, find(GROUPS[2]))
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id, one.host, one.port) == (0, 9, "kafka2.example", 29092)


def test_a_batch_is_one_reply_with_an_answer_for_each_key(rig: Rig) -> None:
    rig.node.leaders[1] = None
    started_ms = rig.world.now_ms
    assert found(rig, GROUPS[0], GROUPS[1], GROUPS[2], GROUPS[0]) == [
        (GROUPS[0], 0, 7, "kafka.example", 19092),
        (GROUPS[1], 15, -1, "", -1),
        (GROUPS[2], 0, 9, "kafka2.example", 29092),
        (GROUPS[0], 0, 7, "kafka.example", 19092),
    ]
    assert 1_000 <= rig.world.now_ms - started_ms < 1_050
    assert len(rig.listener.context.leaders) == 0


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_without_a_leader_the_answer_waits_for_one(rig: Rig, version: int) -> None:
    rig.node.leaders[2] = None
    started_ms = rig.world.now_ms
    rig.world.at(started_ms + 400, lambda: rig.node.leaders.update({2: INFO}))
    answer = rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, version, find(GROUPS[2]))
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id) == (0, 7)
    assert 400 <= rig.world.now_ms - started_ms < 430


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_a_second_without_a_leader_is_coordinator_not_available(rig: Rig, version: int) -> None:
    rig.node.leaders[2] = None
    client = rig.connect()
    answer = rig.ask(client, ApiKey.FIND_COORDINATOR, version, find(GROUPS[2]), within_ms=1_100)
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id, one.host, one.port) == (15, -1, "", -1)
    assert not client.is_lost


def test_other_key_types_are_refused_at_once_by_any_node(rig: Rig) -> None:
    rig.node.leaders = dict.fromkeys(range(-1, NUM_SHARDS), None)
    asked = FindCoordinatorRequest(key="t", coordinator_keys=["t", "u"], key_type=1)
    answer = rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, 6, asked, within_ms=50)
    assert [(one.key, one.error_code) for one in answer.coordinators] == [("t", 42), ("u", 42)]


def test_no_keys_have_no_coordinators(rig: Rig) -> None:
    asked = FindCoordinatorRequest(coordinator_keys=[])
    assert rig.ask(rig.connect(), ApiKey.FIND_COORDINATOR, 6, asked).coordinators == []


# Controller, replicas


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_partitions_are_led_by_the_leader_of_the_metadata_shard_in_its_term(rig: Rig, version: int) -> None:
    asked = MetadataRequest(topics=[] if version == 0 else None)
    answer = rig.ask(rig.connect(), ApiKey.METADATA, version, asked)
    assert [broker.node_id for broker in answer.brokers] == [7, 9]
    assert answer.controller_id == (9 if version >= 1 else -1)
    for partition in (partition for topic in answer.topics for partition in topic.partitions):
        assert (partition.error_code, partition.leader_id) == (0, 9)
        assert partition.leader_epoch == (4 if version >= 7 else -1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([7, 8, 9], [7, 9])
        assert partition.offline_replicas == ([8] if version >= 5 else [])


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_a_node_that_was_just_lost_is_listed_but_not_in_sync(rig: Rig, version: int) -> None:
    rig.node.lost = (THIRD,)
    asked = MetadataRequest(topics=[] if version == 0 else None)
    answer = rig.ask(rig.connect(), ApiKey.METADATA, version, asked)
    assert [broker.node_id for broker in answer.brokers] == [7, 9, 8]
    for partition in answer.topics[0].partitions:
        assert partition.isr_nodes == [7, 9]
        assert partition.offline_replicas == ([8] if version >= 5 else [])
    answer = rig.ask(rig.connect(), ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest())
    assert [broker.broker_id for broker in answer.brokers] == [7, 9, 8]


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_waits_for_a_leader_and_then_says_that_there_is_none(rig: Rig, version: int) -> None:
    rig.node.leaders[METADATA_SHARD] = None
    client, started_ms = rig.connect(), rig.world.now_ms
    asked = MetadataRequest(topics=[] if version == 0 else None)
    answer = rig.ask(client, ApiKey.METADATA, version, asked, within_ms=2_000)
    assert 1_000 <= rig.world.now_ms - started_ms < 1_050
    assert answer.controller_id == -1
    assert len(answer.brokers) == 2
    for topic in answer.topics:
        assert topic.error_code == 0
        assert {(one.error_code, one.leader_id) for one in topic.partitions} == {(5, -1)}
    rig.world.at(rig.world.now_ms + 300, lambda: rig.node.leaders.update({METADATA_SHARD: INFO}))
    answer = rig.ask(client, ApiKey.METADATA, version, asked, within_ms=400)
    assert answer.controller_id == (7 if version >= 1 else -1)
    assert {one.leader_id for topic in answer.topics for one in topic.partitions} == {7}


@pytest.mark.parametrize("leader", [PEER, None])
def test_describe_cluster_and_topic_pages_tell_the_same(rig: Rig, leader: NodeInfo | None) -> None:
    rig.node.leaders[METADATA_SHARD] = leader
    client, leader_id = rig.connect(), -1 if leader is None else leader.node_id
    asked = DescribeClusterRequest()
    answer = rig.ask(client, ApiKey.DESCRIBE_CLUSTER, 2, asked, within_ms=1_100)
    assert (answer.controller_id, [one.broker_id for one in answer.brokers]) == (leader_id, [7, 9])
    pages = DescribeTopicPartitionsRequest(topics=[])
    answer = rig.ask(client, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, pages, within_ms=1_100)
    for partition in answer.topics[0].partitions:
        assert (partition.error_code, partition.leader_id) == (0 if leader else 5, leader_id)
        assert (partition.isr_nodes, partition.offline_replicas) == ([7, 9], [8])
        # Kafka's own Java client does not expect null, which the protocol allows.
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_a_leader_that_comes_while_the_catalog_loads_is_told_with_it(rig: Rig) -> None:
    rig.node.is_catalog_current, rig.node.leaders[METADATA_SHARD] = False, None
    now_ms = rig.world.now_ms
    rig.world.at(now_ms + 100, lambda: setattr(rig.node, "is_catalog_current", True))
    rig.world.at(now_ms + 200, lambda: rig.node.leaders.update({METADATA_SHARD: INFO}))
    answer = rig.ask(rig.connect(), ApiKey.METADATA, 12, MetadataRequest(topics=None))
    assert (answer.controller_id, 200 <= rig.world.now_ms - now_ms < 240) == (7, True)


# Requests that wait, and for how long


def test_a_heartbeat_does_not_wait_behind_a_question_that_waits_for_a_leader(rig: Rig) -> None:
    rig.node.leaders[METADATA_SHARD] = rig.node.leaders[2] = None
    client = rig.connect()
    client.send(request(ApiKey.METADATA, 12, MetadataRequest(topics=None), 1))
    client.send(request(ApiKey.FIND_COORDINATOR, 6, find(GROUPS[2]), 2))
    client.send(request(ApiKey.FETCH, 12, FetchRequest(), 3))
    rig.run()
    assert client.frames == []
    client.send(heartbeat(4))
    rig.run()
    assert client.correlation_ids == [1, 2, 3, 4]
    assert len(rig.listener.context.leaders) == 0


def test_a_client_that_goes_leaves_nothing_waiting(rig: Rig) -> None:
    rig.node.leaders[2] = None
    client = rig.connect()
    client.send(request(ApiKey.FIND_COORDINATOR, 6, find(GROUPS[2])))
    rig.run()
    assert len(rig.listener.context.leaders) == 1
    client.transport.abort()
    rig.run()
    assert len(rig.listener.context.leaders) == 0


def test_waits_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEADER_WAITS_MAX", 10)
    rig.node.leaders[2] = None
    clients = [rig.connect() for _ in range(7)]
    for client in clients:
        client.send(request(ApiKey.FIND_COORDINATOR, 6, find(GROUPS[2])))
        rig.run(1)
    rig.run(100)
    assert [len(client.frames) for client in clients] == [0] * 5 + [1, 1]
    rig.run(1_000)
    assert [len(client.frames) for client in clients] == [1] * 7
    clients[0].send(request(ApiKey.FIND_COORDINATOR, 6, find(*[GROUPS[2]] * 10)))
    rig.run()
    assert len(clients[0].frames) == 2


def test_a_flood_of_keys_is_looked_up_once_a_shard(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.node.leaders[2] = None
    asked: list[int] = []
    plain = rig.node.leader_of
    monkeypatch.setattr(rig.node, "leader_of", lambda shard: (asked.append(shard), plain(shard))[1])
    keys = [f"k{number}" for number in range(8_000)]
    assert len(found(rig, *keys)) == 8_000
    assert len(asked) < 1_000


@pytest.mark.parametrize("key_type", [0, 1])
def test_a_flood_of_keys_loses_its_connection(rig: Rig, key_type: int) -> None:
    client = rig.connect()
    asked = FindCoordinatorRequest(coordinator_keys=[""] * 30_000, key_type=key_type)
    client.send(request(ApiKey.FIND_COORDINATOR, 6, asked))
    rig.run()
    assert (client.is_lost, client.frames) == (True, [])
    assert rig.listener.context.counters.connections_closed["flooding"] == 1


# Hand-over


def uses(group: str, correlation_id: int = 1) -> bytes:
    return heartbeat(correlation_id, group=group)


def test_a_hand_over_closes_the_connections_that_used_the_shard_and_no_other(rig: Rig) -> None:
    one, two, both, none, reader = (rig.connect() for _ in range(5))
    one.send(uses(GROUPS[0]))
    two.send(uses(GROUPS[1]))
    both.send(uses(GROUPS[1]) + uses(GROUPS[0], 2) + uses(GROUPS[1], 3))
    none.send(request(ApiKey.METADATA, 12, MetadataRequest(topics=None)))
    groups = [OffsetFetchRequestGroup(group_id=GROUPS[shard], topics=None) for shard in (3, 0)]
    reader.send(request(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups)))
    rig.run()
    rig.listener.close_users_of(0)
    rig.run()
    assert [client.is_lost for client in (one, two, both, none, reader)] == [True, False, True, False, True]
    assert rig.listener.context.counters.connections_closed["handed over"] == 3
    rig.listener.close_users_of(METADATA_SHARD)
    rig.run()
    assert not none.is_lost


def test_the_last_replies_go_out_before_the_connection_closes(rig: Rig) -> None:
    client = rig.connect()
    rig.node.holding = True
    client.send(uses(GROUPS[0], 1) + uses(GROUPS[0], 2))
    rig.run()
    rig.listener.close_users_of(0)
    client.send(uses(GROUPS[0], 3))
    rig.run()
    assert (client.is_lost, len(rig.node.held)) == (False, 2)
    rig.node.release()
    rig.node.release()
    rig.run()
    assert (client.correlation_ids, client.is_lost) == ([1, 2], True)


def test_a_waiting_fetch_does_not_delay_the_close(rig: Rig) -> None:
    client = rig.connect()
    client.send(uses(GROUPS[0], 1) + request(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=30_000), 2))
    rig.run()
    rig.listener.close_users_of(0)
    rig.run()
    assert (client.correlation_ids, client.is_lost) == ([1, 2], True)


def test_a_reply_that_never_comes_does_not_keep_the_connection(rig: Rig) -> None:
    client = rig.connect()
    rig.node.holding = True
    client.send(uses(GROUPS[0]))
    rig.run()
    rig.listener.close_users_of(0)
    rig.listener.close_users_of(0)
    rig.run(4_000)
    assert not client.is_lost
    rig.run(1_500)
    assert client.is_lost
    rig.node.release()
