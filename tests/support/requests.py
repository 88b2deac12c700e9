"""Requests as clients send them."""

from __future__ import annotations

from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def join_request(group_id: str, member_id: str, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
    )


def commit_request(
    group_id: str, offsets: dict[int, int], *, topic: str = "orders", member_id: str = "", epoch: int = -1
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


HEARTBEAT = "consumer.heartbeat.interval.ms"


def setting(name: str, value: int | None, group_id: str = "billing") -> IncrementalAlterConfigsRequest:
    text = None if value is None else str(value)
    config = AlterableConfig(name=name, config_operation=int(value is None), value=text)
    resource = AlterConfigsResource(resource_type=32, resource_name=group_id, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])
