"""Error numbers of the protocol, and the event that a consumer makes of each.

The names are seed 000's. It gives no numbers: these are the ones that Kafka gave to the same errors later,
and `ILLEGAL_PROTOCOL_STATE`, which Kafka never had, is beyond all of Kafka's.
"""

from __future__ import annotations

from enum import IntEnum

from lineage.rewrite.machines import RewriteConsumerEvent


class RewriteError(IntEnum):
    """An error code of a response."""

    UNKNOWN = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_STARTUP_NOT_COMPLETE = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR_FOR_GROUP = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_PARTITIONING_STRATEGY = 23
    UNKNOWN_PARTITIONING_STRATEGY = 24
    UNKNOWN_CONSUMER = 25
    SESSION_TIMEOUT_TOO_HIGH = 26
    NEED_REBALANCE = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    INVALID_REQUEST = 42
    GROUP_TOO_LARGE = 81
    ILLEGAL_PROTOCOL_STATE = 200


EVENT_OF_ERROR: dict[int, RewriteConsumerEvent] = {
    RewriteError.COORDINATOR_STARTUP_NOT_COMPLETE: RewriteConsumerEvent.NOT_READY,
    RewriteError.ILLEGAL_PROTOCOL_STATE: RewriteConsumerEvent.NOT_READY,
    RewriteError.UNKNOWN: RewriteConsumerEvent.NOT_READY,
    RewriteError.COORDINATOR_NOT_AVAILABLE: RewriteConsumerEvent.LOST,
    RewriteError.NOT_COORDINATOR_FOR_GROUP: RewriteConsumerEvent.LOST,
    RewriteError.ILLEGAL_GENERATION: RewriteConsumerEvent.REBALANCE,
    RewriteError.NEED_REBALANCE: RewriteConsumerEvent.REBALANCE,
    RewriteError.UNKNOWN_CONSUMER: RewriteConsumerEvent.UNKNOWN,
}
"""Any other error of a JoinGroup is final: the consumer is `REFUSED`."""
