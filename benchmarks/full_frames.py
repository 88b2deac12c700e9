"""The largest request of each API that takes lists: a MiB, or as many small elements as a frame may hold.

Elements are identical where that costs most, and distinct where duplicates are refused. `turns_bench`
measures how a node handles them, under the word `frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from benchmarks.load import CLIENT_ID
from wire.apis import ApiKey
from wire.errors import MalformedFrame
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_config_resources import ListConfigResourcesRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
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
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.protocol import decode_request, encode_request

FRAME_BYTES: Final = (1 << 20) - 200
TOPIC: Final = "t"
"""An existing topic with one partition."""

Many = Callable[[int], Any]
GROUP_CONFIG, TOPIC_CONFIG = 32, 2


class Full(NamedTuple):
    what: str
    api: ApiKey
    version: int
    body: Many
    """Builds a request with the given number of elements."""


def frames() -> Iterator[tuple[str, bytes]]:
    """Each request with as many elements as fit and are decoded."""
    for what, api, version, body in CASES:
        none, some = (len(encode_request(api, version, 1, CLIENT_ID, body(n))) for n in (1_000, 2_000))
        count = int((FRAME_BYTES - none) / (some - none) * 1_000)
        while (frame := _sound(api, version, body(count))) is None:
            count -= count // 50
        yield f"{api.name} {version}, {count:,} {what}, {len(frame) / 1024:,.0f} KiB", frame


def _sound(api: ApiKey, version: int, body: Any) -> bytes | None:
    frame = encode_request(api, version, 1, CLIENT_ID, body)
    if len(frame) > FRAME_BYTES:
        return None
    try:
        decode_request(frame[4:])
    except MalformedFrame:
        return None
    return frame


def _names(count: int) -> list[str]:
    return [f"{number:05x}" for number in range(count)]


def _fetch(n: int) -> Any:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)] * n
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=asked)])


def _list_offsets(n: int) -> Any:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * n
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])


def _commit(n: int, index: Callable[[int], int]) -> Any:
    asked = [OffsetCommitRequestPartition(partition_index=index(number)) for number in range(n)]
    return OffsetCommitRequest(
        group_id="full", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=asked)]
    )


def _commit_topics(n: int) -> Any:
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition()])] * n
    return OffsetCommitRequest(group_id="full", topics=topics)


def _offset_fetch(n: int) -> Any:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0] * n)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="full", topics=topics)])


def _offset_fetch_topics(n: int) -> Any:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])] * n
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="full", topics=topics)])


def _offset_delete(n: int) -> Any:
    asked = [OffsetDeleteRequestPartition(partition_index=0)] * n
    return OffsetDeleteRequest(
        group_id="full", topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=asked)]
    )


def _heartbeat(n: int, **fields: Any) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id="full-members", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000, **fields
    )


def _produce(n: int) -> Any:
    data = [PartitionProduceData(index=0, records=None)] * n
    return ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )


CASES: Final = (
    Full("partitions", ApiKey.FETCH, 4, _fetch),
    Full("topics", ApiKey.FETCH, 4, lambda n: FetchRequest(topics=[FetchTopic(topic="x")] * n)),
    Full("partitions", ApiKey.LIST_OFFSETS, 1, _list_offsets),
    Full("partitions", ApiKey.PRODUCE, 3, _produce),
    Full(
        "the same name",
        ApiKey.METADATA,
        1,
        lambda n: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * n),
    ),
    Full(
        "unknown names",
        ApiKey.METADATA,
        9,
        lambda n: MetadataRequest(topics=[MetadataRequestTopic(name=x) for x in _names(n)]),
    ),
    Full(
        "names",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda n: DescribeTopicPartitionsRequest(topics=[TopicRequest(name=x) for x in _names(n)]),
    ),
    Full("keys", ApiKey.FIND_COORDINATOR, 4, lambda n: FindCoordinatorRequest(coordinator_keys=[""] * n)),
    Full(
        "large keys",
        ApiKey.FIND_COORDINATOR,
        4,
        lambda n: FindCoordinatorRequest(coordinator_keys=["k" * 100] * n),
    ),
    Full("partitions of one", ApiKey.OFFSET_COMMIT, 2, lambda n: _commit(n, lambda number: 0)),
    Full("partitions", ApiKey.OFFSET_COMMIT, 2, lambda n: _commit(n, lambda number: number)),
    Full("topics", ApiKey.OFFSET_COMMIT, 8, _commit_topics),
    Full("partitions", ApiKey.OFFSET_FETCH, 8, _offset_fetch),
    Full("topics", ApiKey.OFFSET_FETCH, 8, _offset_fetch_topics),
    Full("partitions", ApiKey.OFFSET_DELETE, 0, _offset_delete),
    Full("groups", ApiKey.DESCRIBE_GROUPS, 5, lambda n: DescribeGroupsRequest(groups=_names(n))),
    Full("groups", ApiKey.DELETE_GROUPS, 2, lambda n: DeleteGroupsRequest(groups_names=_names(n))),
    Full(
        "groups",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        lambda n: ConsumerGroupDescribeRequest(group_ids=_names(n)),
    ),
    Full("states", ApiKey.LIST_GROUPS, 4, lambda n: ListGroupsRequest(states_filter=["Stable"] * n)),
    Full(
        "members",
        ApiKey.LEAVE_GROUP,
        4,
        lambda n: LeaveGroupRequest(group_id="full", members=[MemberIdentity(member_id="m")] * n),
    ),
    Full(
        "names subscribed to",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _heartbeat(n, subscribed_topic_names=_names(n), topic_partitions=[]),
    ),
    Full(
        "partitions owned",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _heartbeat(
            n,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[TopicPartitions(topic_id=b"x" * 16, partitions=list(range(n)))],
        ),
    ),
    Full(
        "topics owned",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        lambda n: _heartbeat(
            n,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[
                TopicPartitions(topic_id=x.to_bytes(16, "big"), partitions=[0]) for x in range(n)
            ],
        ),
    ),
    Full(
        "resources",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda n: DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=GROUP_CONFIG, resource_name="g", configuration_keys=None
                )
            ]
            * n
        ),
    ),
    Full(
        "keys",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda n: DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=GROUP_CONFIG, resource_name="g", configuration_keys=["x"] * n
                )
            ]
        ),
    ),
    Full(
        "resources",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda n: IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(resource_type=GROUP_CONFIG, resource_name=x, configs=[])
                for x in _names(n)
            ]
        ),
    ),
    Full(
        "configs",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        lambda n: IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=GROUP_CONFIG,
                    resource_name="g",
                    configs=[AlterableConfig(name="x", value="y")] * n,
                )
            ]
        ),
    ),
    Full(
        "types",
        ApiKey.LIST_CONFIG_RESOURCES,
        1,
        lambda n: ListConfigResourcesRequest(resource_types=[TOPIC_CONFIG] * n),
    ),
    Full(
        "topics",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: CreateTopicsRequest(
            topics=[CreatableTopic(name=x, num_partitions=0, replication_factor=1) for x in _names(n)],
            timeout_ms=1_000,
        ),
    ),
    Full(
        "the same topic",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: CreateTopicsRequest(
            topics=[CreatableTopic(name="x", num_partitions=1, replication_factor=1)] * n, timeout_ms=1_000
        ),
    ),
    Full(
        "assignments",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="assigned",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=x, broker_ids=[1]) for x in range(n)
                    ],
                )
            ],
            timeout_ms=1_000,
            validate_only=True,
        ),
    ),
    Full(
        "configs",
        ApiKey.CREATE_TOPICS,
        5,
        lambda n: CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="configured",
                    num_partitions=1,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name="x", value="y")] * n,
                )
            ],
            timeout_ms=1_000,
            validate_only=True,
        ),
    ),
    Full(
        "topics",
        ApiKey.CREATE_PARTITIONS,
        1,
        lambda n: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=x, count=5) for x in _names(n)], timeout_ms=1_000
        ),
    ),
    Full(
        "assignments",
        ApiKey.CREATE_PARTITIONS,
        1,
        lambda n: CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(
                    name=TOPIC, count=n, assignments=[CreatePartitionsAssignment(broker_ids=[1])] * n
                )
            ],
            timeout_ms=1_000,
            validate_only=True,
        ),
    ),
    Full(
        "names",
        ApiKey.DELETE_TOPICS,
        5,
        lambda n: DeleteTopicsRequest(topic_names=_names(n), timeout_ms=1_000),
    ),
    Full(
        "ids",
        ApiKey.DELETE_TOPICS,
        6,
        lambda n: DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=x.to_bytes(16, "big")) for x in range(n)], timeout_ms=1_000
        ),
    ),
)
