"""DescribeCluster (KIP-700): the nodes and the controller, for admin clients."""

from wire.schema import NOT_REQUESTED, Message, array_of, boolean, int8, int16, int32, message, nested, string


@message(versions="0-2", flexible="0+")
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@nested
class DescribeClusterBroker(Message):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)
    is_fenced: bool = boolean("2+")


@message(versions="0-2", flexible="0+")
class DescribeClusterResponse(Message):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array_of(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=NOT_REQUESTED)
