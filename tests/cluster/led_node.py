"""A node that leads, for the tests of one node among others."""

from __future__ import annotations

from typing import Any

from records import METADATA_SHARD
from tests.cluster.fakes import Bench
from tests.support.requests import join_request
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

FETCH = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="billing", topics=None)])
JOIN = join_request("billing", "one", "orders")


def create(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=4, replication_factor=1)], timeout_ms=5000
    )


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)


def spread_everywhere(bench: Bench) -> None:
    waiting, bench.log(bench.metadata).everywhere = bench.log(bench.metadata).everywhere, []
    for _, fn in waiting:
        fn()


def error_of(answer: Any) -> int:
    return int(answer.groups[0].error_code)


def lead(bench: Bench) -> Bench:
    """Let the node lead both shards, with topic orders, one stable member, and no reply held."""
    bench.log(bench.metadata).lead()
    bench.log(bench.groups).lead()
    created = bench.ask(create("orders"), ApiKey.CREATE_TOPICS, 7, shard=METADATA_SHARD)
    bench.log(bench.metadata).commit()
    spread_everywhere(bench)
    assert created[0].topics[0].error_code == 0
    joined = bench.heartbeat(JOIN)
    bench.log(bench.groups).commit()
    assert joined[0].member_epoch == 1
    owned = [
        TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
        for topic in joined[0].assignment.topic_partitions
    ]
    report = ConsumerGroupHeartbeatRequest(
        group_id="billing", member_id="one", member_epoch=1, topic_partitions=owned
    )
    reported = bench.heartbeat(report)
    bench.groups.proven(bench.world.now_ms)
    bench.log(bench.groups).proofs_asked = 0
    bench.world.now_ms += 1
    assert reported[0].error_code == 0
    return bench
