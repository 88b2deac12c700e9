"""Metadata: nodes, controller, topics and the leader of each partition.

A null topic list asks for all topics, an empty one (from version 1) for none. From version 10 topics carry
ids, and from 12 a client may ask by id with a null name.
"""

from wire.schema import NOT_REQUESTED, Message, array_of, boolean, int16, int32, message, nested, string, uuid

FIRST_WITH_NULL_NAMES = 12


@nested
class MetadataRequestTopic(Message):
    topic_id: bytes = uuid("10+")
    name: str | None = string("0+", nullable="10+")


@message(versions="0-13", flexible="9+")
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = array_of(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@nested
class MetadataResponseBroker(Message):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None)


@nested
class MetadataResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array_of(int32, "0+")
    isr_nodes: list[int] = array_of(int32, "0+")
    offline_replicas: list[int] = array_of(int32, "5+")


@nested
class MetadataResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array_of(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=NOT_REQUESTED)


@message(versions="0-13", flexible="9+")
class MetadataResponse(Message):
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array_of(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array_of(MetadataResponseTopic, "0+")
    error_code: int = int16("13+")
    cluster_authorized_operations: int = int32("8-10", default=NOT_REQUESTED)


def refusal(request: MetadataRequest, api_version: int, code: int, message: str | None) -> MetadataResponse:
    """The error response: the code per topic, and from version 13 on at the top level too.

    Before, a request for all topics cannot be refused."""
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(
                # Before version 12 a name cannot be null, not even that of a topic requested by id.
                name=topic.name if api_version >= FIRST_WITH_NULL_NAMES else topic.name or "",
                topic_id=topic.topic_id,
                error_code=code,
            )
            for topic in request.topics or ()
        ],
    )
