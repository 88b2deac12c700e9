"""A node whose catalog is behind: topics that it does not know yet are never treated as deleted.

Nodes 1 and 3 do not reach each other, node 1 leads the metadata shard, and both reach node 2. A new topic
stays unknown to node 3 as long as the cut lasts.
"""

from __future__ import annotations

import itertools

import pytest

from cluster.runtime.refusal_notes import first_error
from cluster.runtime.shard_runtime import AnyShardRuntime, ShardRuntime
from cluster.runtime.shard_state import ShardState
from coordinator.topics import new_topic_id
from raftlog.env.obstacles import Obstacle
from records import METADATA_SHARD
from tests.report import count_fault
from tests.support.requests import commit_request
from tests.support.three_nodes import GROUP, ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

MAY_SAY_NOTHING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}


@pytest.fixture
def cut() -> ThreeNodes:
    """The link between nodes 1 and 3 is cut, node 1 leads the metadata shard, node 2 the shard of `GROUP`."""
    nodes = ThreeNodes()
    assert nodes.cluster.leader_of(METADATA_SHARD) == 1
    if nodes.leader != 2:
        give(nodes, 2)
        nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(nodes.shard) == 2)
    nodes.cluster.cut(1, 3)
    count_fault("cluster", "one link cut")
    nodes.world.run_for(1_000)
    assert nodes.leader == 2
    return nodes


def give(nodes: ThreeNodes, node_id: int) -> None:
    """Hand the shard of `GROUP` to this node, if it accepts it."""
    nodes.runtime(nodes.leader).replica.leadership.transfer(node_id, lambda why: None)


def lacks(runtime: AnyShardRuntime) -> Obstacle:
    return runtime.duties.lacks(runtime.host.monotonic_ms())


def test_no_node_denies_an_acknowledged_offset_of_a_topic_that_it_does_not_know(cut: ThreeNodes) -> None:
    assert cut.create("late", 1) == 0
    assert cut.cluster[3].node.catalog.topic("late") is None
    assert cut.commit(2, 42, topic="late") == 0
    runtime = cut.runtime(3)
    cut.cluster.wait_for(lambda: runtime.machine.applied_index == cut.runtime(2).commit_index)
    assert lacks(runtime) is Obstacle.CATALOG_BEHIND
    give(cut, 3)
    for _ in range(20):
        cut.world.run_for(100)
        for node_id in (2, 3):
            error, offsets = cut.fetch(node_id)
            assert error in MAY_SAY_NOTHING or offsets == {0: 42}
    assert runtime.state is not ShardState.READY
    cut.network.heal_all()
    cut.cluster.wait_for(lambda: lacks(runtime) is Obstacle.NONE)
    cut.world.run_for(500)  # and its leader has been notified
    give(cut, 3)
    cut.cluster.wait_for(lambda: cut.cluster.leader_of(cut.shard) == 3)
    assert cut.fetch(3) == (0, {0: 42})


def fetch_of(version: int) -> OffsetFetchRequest:
    """Return a request for all offsets of the group, from version 10 on by topic id."""
    topics = None
    if version >= 10:
        topics = [OffsetFetchRequestTopics(topic_id=new_topic_id(bytes(16), 1), partition_indexes=[0])]
    if version < 8:
        return OffsetFetchRequest(group_id=GROUP, topics=None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])


EVERYTHING = [
    *((ApiKey.OFFSET_FETCH, version, fetch_of(version)) for version in range(2, 11)),
    *((ApiKey.OFFSET_COMMIT, version, commit_request(GROUP, {0: 1})) for version in (2, 8, 9, 10)),
    (ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=GROUP, topics=[])),
    (ApiKey.LIST_GROUPS, 5, ListGroupsRequest()),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=[GROUP])),
    (ApiKey.DESCRIBE_GROUPS, 6, DescribeGroupsRequest(groups=[GROUP])),
    (ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[GROUP])),
]  # fmt: skip


def test_every_request_to_a_leader_whose_catalog_is_behind_is_to_be_tried_again(
    cut: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a node is not made leader; if it becomes leader nevertheless, it answers for no group."""
    monkeypatch.setattr(ShardRuntime, "obstacle", lambda self: Obstacle.NONE)
    assert cut.create("late", 1) == 0
    assert cut.commit(2, 42, topic="late") == 0
    give(cut, 3)
    runtime = cut.runtime(3)
    cut.cluster.wait_for(lambda: runtime.replica.is_leader)
    cut.world.run_for(1_000)
    assert runtime.state is ShardState.CATCH_UP
    for api_key, version, request in EVERYTHING:
        answer = cut.ask(3, api_key, version, request)
        found = first_error(answer)
        assert found is not None, (api_key, version, answer)
        assert found[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, (api_key, version, answer)


def refused_by_name(nodes: ThreeNodes, node_id: int) -> list[int]:
    """Return a node's error codes for an offset's commit, fetch and deletion by topic name."""
    deletion = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=5)]
            )
        ],
    )
    return [
        nodes.commit(node_id, 7),
        nodes.fetch(node_id)[0],
        nodes.ask(node_id, ApiKey.OFFSET_DELETE, 0, deletion).error_code,
    ]


def test_who_does_not_hear_of_the_catalog_goes_by_no_name(cut: ThreeNodes) -> None:
    """Node 3 leads a shard and misses that a topic was deleted and created again. Commits by name must not go
    to the old topic, and the old topic's offsets must not be answered."""
    cut.network.heal_all()
    cut.cluster.settle()
    assert cut.commit(2, 1) == 0
    give(cut, 3)
    cut.cluster.wait_for(lambda: cut.cluster.leader_of(cut.shard) == 3)
    runtime = cut.runtime(3)
    age_max_ms = cut.cluster[3].node.metadata.duties.committed.age_max_ms
    assert refused_by_name(cut, 3) == [0, 0, 0]
    assert lacks(runtime) is Obstacle.NONE
    cut.cluster.cut(1, 3)
    old = cut.cluster[1].node.catalog.topic("orders")
    assert cut.delete("orders") == 0
    asked_ms = cut.world.now_ms
    assert cut.create("orders", 12) == 0
    assert cut.world.now_ms - asked_ms >= age_max_ms - 1_000, "the name was not free"
    assert cut.cluster[3].node.catalog.topic("orders") == old
    assert lacks(runtime) is not Obstacle.NONE
    if cut.leader == 3:  # still
        assert refused_by_name(cut, 3) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
        member = cut.consumer("a")
        assert member.heartbeat().error_code == 0, "sessions and groups live on"
        assert member.leave().error_code == 0
    cut.network.heal_all()
    cut.cluster.wait_for(lambda: cut.cluster[3].node.catalog.topic("orders") != old)
    cut.cluster.wait_for(lambda: lacks(cut.runtime(cut.leader)) is Obstacle.NONE)
    assert cut.commit(cut.leader, 9) == 0
    assert cut.fetch(cut.leader) == (0, {0: 9})
    cut.world.run_for(5_000)
    assert cut.fetch(cut.leader) == (0, {0: 9}), "an acknowledged offset went with the old topic"


def test_a_name_is_free_at_once_when_every_node_knows(cut: ThreeNodes) -> None:
    cut.network.heal_all()
    cut.cluster.settle()
    for _ in range(3):
        asked_ms = cut.world.now_ms
        assert cut.delete("orders") == 0
        assert cut.create("orders", 12) == 0
        assert cut.world.now_ms - asked_ms < 500


def test_a_name_that_was_free_before_is_used_at_once(cut: ThreeNodes) -> None:
    """The name is new, or its topic was deleted long ago."""
    assert cut.delete("orders") == 0
    asked_ms = cut.world.now_ms
    assert cut.create("fresh", 1) == 0
    assert cut.world.now_ms - asked_ms < 1_500
    cut.world.run_for(10_000)
    assert cut.delete("fresh") == 0
    asked_ms = cut.world.now_ms
    assert cut.create("orders", 1) == 0
    assert cut.world.now_ms - asked_ms < 1_500


def test_the_end_of_the_metadata_leader_stops_no_commit(cut: ThreeNodes) -> None:
    """Catalogs stay current while a new leader is elected, so names may still be used."""
    cut.network.heal_all()
    cut.cluster.settle()
    cut.cluster[1].kill()
    count_fault("cluster", "controller killed")
    for offset in range(40):
        assert cut.commit(2, offset) == 0
        assert cut.fetch(2) == (0, {0: offset})
        cut.world.run_for(100)
    assert cut.cluster.leader_of(METADATA_SHARD) in (2, 3)
    assert lacks(cut.runtime(2)) is Obstacle.NONE


FAR_MS = 120.0


def test_nodes_far_apart_go_by_names_as_long_as_they_can_elect_a_leader() -> None:
    """With round trips longer than a leader's lease, nodes can still tell that their catalogs are current."""
    nodes = ThreeNodes()
    for one, other in itertools.permutations((1, 2, 3), 2):
        nodes.network.latency_ms[f"node-{one}", f"node-{other}"] = FAR_MS
    nodes.world.run_for(1_000)
    leaders = {shard: nodes.cluster.leader_of(shard) for shard in nodes.cluster.shards}
    for offset in range(10):
        nodes.world.run_for(1_000)
        assert nodes.commit(nodes.leader, offset) == 0
        assert nodes.fetch(nodes.leader) == (0, {0: offset})
        assert all(lacks(nodes.runtime(node_id)) is Obstacle.NONE for node_id in (1, 2, 3))
    assert {shard: nodes.cluster.leader_of(shard) for shard in nodes.cluster.shards} == leaders


def test_a_slow_disk_keeps_up_with_topics_that_come_without_end() -> None:
    """The catalog of a node whose disk is slow is always a little behind, and never for long."""
    nodes = ThreeNodes()
    controller = nodes.cluster.leader_of(METADATA_SHARD)
    assert controller is not None
    slow = nodes.cluster.others(controller)[0]
    nodes.cluster[slow].host.sync_ms = 120.0
    for number in range(300):
        topic = CreatableTopic(name=f"topic-{number}", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        nodes.client(controller).send(ApiKey.CREATE_TOPICS, 7, request)
        nodes.world.run_for(20)
    assert nodes.cluster[slow].node.catalog.version < nodes.cluster[controller].node.catalog.version
    assert lacks(nodes.runtime(slow)) is Obstacle.NONE
