"""The Kafka port: `listener` accepts, `connection` keeps order and bounds, `dispatch` finds who answers,
`cluster_apis`, `topic_pages` and `fetching` answer what needs no shard, `waiting` bounds who waits."""

from cluster.kafka.listener import KafkaListener

__all__ = ["KafkaListener"]
