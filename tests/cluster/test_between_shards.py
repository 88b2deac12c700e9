"""The shards of one node together: the shared catalog, lists over all shards, waiters, evidence."""

from __future__ import annotations

import pytest

from cluster.node_info import ClientInfo
from raftlog.storage.evidence import read_evidence
from records.ids import topic_id_text
from tests.support.sim_node import GROUPS, SimNode
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.list_groups import ListGroupsRequest


def test_an_admin_reply_comes_when_groups_can_use_the_topic() -> None:
    sim = SimNode(topics={})
    consumer = sim.consumer("one", "billing", "payments")
    consumer.heartbeat()
    assert consumer.partitions == []
    assert sim.create_topic("payments", 3) == 0
    assert sim.node.catalog.topic("payments") is not None
    consumer.heartbeat()
    assert consumer.partitions == [0, 1, 2]


def test_groups_see_a_topic_only_when_no_crash_can_take_it_back() -> None:
    sim = SimNode(host_options={"sync_ms": 30.0})
    node, seen = sim.node, []
    topic = CreatePartitionsTopic(name="orders", count=13, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=5000)

    def sizes() -> list[int]:
        views = (node.metadata.machine.view, node.catalog)
        return [found.num_partitions for view in views if (found := view.topic("orders")) is not None]

    def grow() -> None:
        node.submit(
            ApiKey.CREATE_PARTITIONS, 3, request, ClientInfo(), lambda _: seen.append(("reply", sizes()))
        )
        seen.append(("decided", sizes()))

    sim.machine.host.call_soon(grow)
    sim.world.run_for(5)
    assert seen == [("decided", [13, 12])]
    sim.world.run_for(100)
    assert seen[1:] == [("reply", [13, 13])]


def test_lists_and_describes_over_all_shards() -> None:
    sim = SimNode()
    for group in GROUPS:
        sim.consumer(f"m-{group}", group).heartbeat()
    assert len({sim.node.shard_for(group).shard for group in GROUPS}) > 1
    listed = sim.admin.ask(ApiKey.LIST_GROUPS, 5, ListGroupsRequest())
    assert sorted(group.group_id for group in listed.groups) == sorted(GROUPS)


def test_waiters_are_called_once_when_their_index_is_committed() -> None:
    sim = SimNode(num_shards=1)
    shard, seen = sim.node.shards[0], []
    index = shard.commit_index
    shard.when_committed(index, lambda: seen.append("now"))
    shard.when_committed(index + 1, lambda: seen.append("next"))
    shard.when_committed(index + 1, lambda: seen.append("cancelled")).cancel()
    assert seen == []
    sim.world.run_for(1)
    assert seen == ["now"]
    sim.commit(sim.client("one"), "billing", {0: 1})
    sim.world.run_for(1)
    assert seen == ["now", "next"]


def test_status_is_plain_data() -> None:
    sim = SimNode(num_shards=2)
    status = sim.node.status()
    assert [shard["name"] for shard in status["shards"]] == ["metadata", "shard-0", "shard-1"]
    assert {shard["state"] for shard in status["shards"]} == {"Ready"}
    assert status["ready"] is True


def test_refusals_and_the_regularity_of_heartbeats_are_kept_as_evidence() -> None:
    sim = SimNode()
    consumer = sim.consumer("one")
    for pause_ms in (500, 500, 2_700, 500, 6_000):
        assert consumer.heartbeat().error_code == 0
        sim.world.run_for(pause_ms)
    consumer.epoch = 99
    assert consumer.heartbeat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    sim.machine.stop()
    notes = read_evidence(sim.machine.disk, sim.machine.settings.data_dir)
    gaps = [note["gap_ms"] for note in notes if note["kind"] == "heartbeat_gap"]
    assert gaps == [pytest.approx(2_700, abs=5)]
    refused = [note for note in notes if note["kind"] == "refused"]
    assert [(note["error"], note["group"], note["member"]) for note in refused] == [
        (ErrorCode.FENCED_MEMBER_EPOCH, "billing", "one")
    ]
    assert refused[0]["reason"]
    assert refused[0]["client"].startswith("one/")
    assert refused[0]["owned"] == {topic_id_text(part.topic_id): part.partitions for part in consumer.owned}


def test_a_long_poll_that_gave_up_leaves_nothing_behind() -> None:
    sim = SimNode(num_shards=1)
    shard = sim.node.shards[0]
    for _ in range(100):
        shard.when_committed(shard.commit_index + 1, lambda: None).cancel()
    assert shard.status()["waiting_for_commit"] == 0
