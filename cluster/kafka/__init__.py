"""The Kafka port: `listener` accepts, `connection` keeps order and bounds, `dispatch` finds who answers,
`cluster_apis`, `topic_pages` and `fetching` answer what needs no shard."""

from cluster.kafka.listener import KafkaListener

__all__ = ["KafkaListener"]
