"""The Kafka port.

`listener` accepts connections, `connection` keeps order and bounds, `dispatch` finds the handler of a
request, `cluster_apis`, `topic_pages` and `fetching` answer requests that need no shard, `waiting` bounds
those that wait.
"""

from cluster.kafka.listener import KafkaListener

__all__ = ["KafkaListener"]
