"""The scratch log of whole nodes in virtual time: who keeps it, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cluster.scratchlog import ScratchLog
from records import METADATA_SHARD
from tests.report import count_fault
from tests.support.log_cases import AskedLog, Transactional
from tests.support.record_batches import batch, offsets
from tests.support.sim_node import SimNode
from tests.support.three_nodes import ThreeNodes
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TERM_OFFSETS = 1 << 40


Ask = Callable[[int, int, Any], Any]
"""Sends a request, of an API and version, to one node and returns the answer."""


def produced(ask: Ask, value: bytes = b"x", topic: str = "orders") -> tuple[int, int]:
    """Return the error code and the offset of a message."""
    partition = PartitionProduceData(index=0, records=batch(value))
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=[partition])])
    answer = ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


def fetched(ask: Ask, offset: int) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="orders", partitions=[partition])
    request = FetchRequest(max_wait_ms=100, min_bytes=1, topics=[topic])
    return ask(ApiKey.FETCH, 12, request).responses[0].partitions[0]


class Nodes(ThreeNodes):
    """Three nodes with a scratch log, and the topic `orders`."""

    def __init__(self, **settings: object) -> None:
        super().__init__(settings={"scratch_log_enable": True} | settings)

    @property
    def controller(self) -> int:
        return self.cluster.wait_for_leader(METADATA_SHARD)

    def scratch_log(self, node_id: int) -> ScratchLog:
        log = self.cluster[node_id].node.kafka.context.scratch_log
        assert log is not None
        return log

    def produce(self, node_id: int, value: bytes, topic: str = "orders") -> tuple[int, int]:
        return produced(self.client(node_id).ask, value, topic)

    def read(self, node_id: int, offset: int = 0) -> Any:
        return fetched(self.client(node_id).ask, offset)


def test_only_the_leader_of_the_metadata_shard_keeps_messages() -> None:
    nodes = Nodes()
    leader = nodes.controller
    assert nodes.produce(leader, b"a") == (0, 0)
    for other in {1, 2, 3} - {leader}:
        assert nodes.produce(other, b"b") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert nodes.read(other).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert offsets(nodes.read(leader).records) == [0]


@pytest.mark.parametrize("how", ["killed", "handed over"])
def test_a_new_leader_begins_empty_behind_all_offsets_and_the_old_one_keeps_nothing(how: str) -> None:
    nodes = Nodes()
    old = nodes.controller
    assert [nodes.produce(old, b"x")[1] for _ in range(3)] == [0, 1, 2]
    if how == "killed":
        nodes.cluster[old].kill()
        count_fault("cluster", "leader killed")
    else:
        done: list[str | None] = []
        nodes.cluster[old].node.transfer(METADATA_SHARD, None, done.append)
        nodes.cluster.wait_for(lambda: bool(done))
        assert done == [None]
        assert nodes.scratch_log(old).num_bytes == 0
    new = nodes.controller
    assert new != old
    first = nodes.cluster[new].node.metadata_term * TERM_OFFSETS
    assert nodes.read(new, offset=3).high_watermark == first
    assert nodes.produce(new, b"y") == (0, first)
    assert offsets(nodes.read(new, offset=3).records) == [first]
    assert nodes.create("clicks", 1) == 0
    assert nodes.produce(new, b"z", topic="clicks") == (0, 0)


def test_messages_are_not_given_up_so_that_the_preferred_node_leads() -> None:
    nodes = Nodes(leader_balance_delay_ms=1_000)
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(METADATA_SHARD) == 1)
    nodes.cluster[1].kill()
    count_fault("cluster", "leader killed")
    leader = nodes.controller
    code, offset = nodes.produce(leader, b"x")
    assert code == 0
    nodes.cluster[1].boot()
    nodes.world.run_for(10_000)
    assert nodes.controller == leader
    assert len(offsets(nodes.read(leader, offset).records)) == 1
    assert nodes.delete("orders") == 0
    nodes.cluster.wait_for(lambda: nodes.cluster.leader_of(METADATA_SHARD) == 1)


def test_the_messages_of_a_deleted_topic_are_dropped_and_its_successor_begins_at_0() -> None:
    nodes = Nodes()
    leader = nodes.controller
    nodes.produce(leader, b"x")
    assert nodes.scratch_log(leader).num_bytes > 0
    assert nodes.delete("orders") == 0
    assert nodes.scratch_log(leader).num_bytes == 0
    assert nodes.produce(leader, b"x")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nodes.create("orders", 1) == 0
    assert nodes.produce(leader, b"x") == (0, 0)


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_single_node_that_is_restarted_goes_on_behind_its_offsets(how: str) -> None:
    alone = SimNode(settings={"scratch_log_enable": True})
    for number in range(3):
        assert produced(alone.client(f"producer-{number}").ask) == (0, number)
    end = alone.machine.stop if how == "stopped" else alone.machine.kill
    end()
    alone.reboot()
    first = alone.node.metadata_term * TERM_OFFSETS
    client = alone.client("consumer")
    assert fetched(client.ask, offset=3).high_watermark == first
    assert produced(client.ask) == (0, first)
    assert offsets(fetched(client.ask, offset=3).records) == [first]


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_goes_on_with_the_next_leader_and_ends_in_its_log(committed: bool) -> None:
    nodes = Nodes()

    def ask(api: int, version: int, request: Any) -> Any:
        return nodes.client(nodes.controller).ask(api, version, request)

    old = nodes.controller
    now_ms = int(nodes.cluster[old].node.clock.wall_at(nodes.cluster[old].host.monotonic_ms()))
    log = AskedLog(ask, "orders", b"", now_ms)
    producer = Transactional(log)
    producer.begin()
    assert producer.put(b"lost") == (0, 0)
    nodes.cluster[old].kill()
    count_fault("cluster", "leader killed")
    first = nodes.cluster[nodes.controller].node.metadata_term * TERM_OFFSETS
    assert producer.put(b"kept") == (0, first)
    assert log.fetch(0, isolation_level=1) == (0, [])
    producer.end(committed=committed)
    assert log.offset(-1, isolation_level=1)[2] == first + 2
    assert log.fetch(0, isolation_level=1) == (0, [first, first + 1])
    assert log.aborted == ([] if committed else [first])
    producer.begin()
    assert producer.put(b"next") == (0, first + 2)
