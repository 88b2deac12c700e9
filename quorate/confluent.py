"""The client under confluent-kafka's names: `from quorate.confluent import Consumer, KafkaException`.

docs/client.md has what differs.
"""

from client.confluent import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaException,
    TopicPartition,
)
from client.confluent import ConfluentError as KafkaError
from client.confluent import ConfluentMessage as Message
from client.sync import SyncConsumer as Consumer

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "TopicPartition",
]
