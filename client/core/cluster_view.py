"""The cluster as Metadata describes it: nodes, topics, partitions and their leaders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from client.core.types import TopicPartition
from wire.schema import ZERO_UUID


class BrokerNode(NamedTuple):
    """A node of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(NamedTuple):
    """A partition and its leader."""

    leader_id: int
    """The node id of the leader, -1 if there is none."""
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()


class TopicView(NamedTuple):
    """A topic, or the error with which Metadata answered for it."""

    name: str
    topic_id: bytes
    error_code: int
    is_internal: bool
    partitions: Mapping[int, PartitionView]


class ClusterView(NamedTuple):
    """The knowledge of the cluster at one moment. The metadata manager replaces it by newer ones."""

    cluster_id: str | None
    nodes: Mapping[int, BrokerNode]
    topics: Mapping[str, TopicView]
    names: Mapping[bytes, str]
    """Names of topics by topic id (16 bytes)."""

    @classmethod
    def of(
        cls, cluster_id: str | None, nodes: Mapping[int, BrokerNode], topics: Mapping[str, TopicView]
    ) -> ClusterView:
        """Return a view of these nodes and topics; a topic without an id is known by its name only."""
        names = {one.topic_id: name for name, one in topics.items() if one.topic_id != ZERO_UUID}
        return cls(cluster_id, nodes, topics, names)

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        """Return a partition, if its topic is known and has it."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the node id of a partition's leader, None if it is unknown or there is none."""
        known = self.partition(partition)
        return known.leader_id if known is not None and known.leader_id in self.nodes else None


UNKNOWN_CLUSTER: Final = ClusterView(None, {}, {}, {})
