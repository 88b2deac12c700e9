"""Validation of heartbeats that does not depend on the group (KIP-848; checks and codes as in Kafka).

Ids are checked first, then the epoch's rules, then the member's own data. A refusal here has changed nothing.
Its message starts with Kafka's own sentence, if there is one, and names the field, its value and what is
allowed. A field that is set is checked in every kind of request, including a leave. Meaningless values that
Kafka accepts (a negative timeout or partition) are refused. Two things are harmless, here as in Kafka, and
accepted: a topic or partition named twice, and an unknown topic id. Regular expressions are checked in
`coordinator.members.regexes`, because whether one is new depends on the group.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.api import RequestRefused
from coordinator.limits import Limits
from coordinator.state.reconcile import AWAY_EPOCH
from records import topic_id_text
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


SHOWN_MAX = 40
"""Characters of a refused value repeated in a message; the value may be as long as a frame."""


def invalid(message: str) -> RequestRefused:
    return RequestRefused(ErrorCode.INVALID_REQUEST, message)


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str], limits: Limits
) -> None:
    """Raise `RequestRefused` (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) for a request that no group could
    serve."""
    _validate_ids(request, version, limits)
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        _validate_join(request)
    elif epoch == AWAY_EPOCH:
        if request.instance_id is None:
            raise invalid(
                f"InstanceId can't be null when MemberEpoch is {AWAY_EPOCH}: set group.instance.id."
            )
    elif epoch < AWAY_EPOCH:
        raise invalid(
            f"MemberEpoch is invalid: {epoch}. Send 0 to join, -1 to leave, -2 to leave temporarily, "
            "otherwise the member's epoch."
        )
    if request.rebalance_timeout_ms < -1:
        raise invalid(
            f"RebalanceTimeoutMs can't be {request.rebalance_timeout_ms}: send 0 or more ms, or -1 to leave "
            "it unchanged."
        )
    _validate_subscription(request, assignors, limits)
    if request.topic_partitions:
        _validate_owned(request.topic_partitions, limits)


def _validate_ids(request: ConsumerGroupHeartbeatRequest, version: int, limits: Limits) -> None:
    validate_name("GroupId", request.group_id, limits.group_id_bytes_max)
    if request.instance_id is not None:
        validate_name("InstanceId", request.instance_id, limits.instance_id_bytes_max)
    if request.rack_id is not None:
        validate_name("RackId", request.rack_id, limits.rack_id_bytes_max)
    is_to_be_made = version == 0 and request.member_epoch == JOIN_EPOCH and not request.member_id
    if not is_to_be_made:
        validate_name("MemberId", request.member_id, limits.member_id_bytes_max)


def validate_name(field: str, value: str, bytes_max: int) -> None:
    """Raise `RequestRefused` for an id that is blank or too long."""
    if not value.strip():
        raise invalid(
            f"{field} can't be empty. It was {_shown(value)}; send 1 to {bytes_max} bytes that are not all "
            "spaces."
        )
    if len(value.encode()) > bytes_max:
        raise invalid(
            f"{field} is longer than {bytes_max} bytes: it has {len(value.encode())}, {_shown(value)}."
        )


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request. It was -1; send 0 or more ms.")
    if request.topic_partitions is None or request.topic_partitions:
        was = "null" if request.topic_partitions is None else f"{len(request.topic_partitions)} topics"
        raise invalid(f"TopicPartitions must be empty when (re-)joining. It was {was}; send an empty list.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid(
            "SubscribedTopicNames or SubscribedTopicRegex must be set in first request. Both were null; an "
            "empty list is allowed."
        )


def _validate_subscription(
    request: ConsumerGroupHeartbeatRequest, assignors: Collection[str], limits: Limits
) -> None:
    names = request.subscribed_topic_names
    if names:
        if len(names) > limits.topics_per_member_max:
            raise invalid(
                f"SubscribedTopicNames has more than {limits.topics_per_member_max} topics: {len(names)}."
            )
        size = len("".join(names).encode())
        if size > limits.subscription_bytes_max:
            raise invalid(
                f"SubscribedTopicNames is larger than {limits.subscription_bytes_max} bytes: {size}."
            )
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise RequestRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {_shown(assignor)} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _validate_owned(topics: Collection[TopicPartitions], limits: Limits) -> None:
    count = sum(len(topic.partitions) for topic in topics)
    if max(count, len(topics)) > limits.partitions_max:
        raise invalid(
            f"TopicPartitions contains {count} partitions of {len(topics)} topics; at most "
            f"{limits.partitions_max} are allowed."
        )
    for topic in topics:
        if topic.partitions and min(topic.partitions) < 0:
            raise invalid(
                f"TopicPartitions can't hold partition {min(topic.partitions)} (topic id "
                f"{topic_id_text(topic.topic_id)}): partitions are numbered from 0."
            )


def _shown(value: str) -> str:
    return repr(value if len(value) <= SHOWN_MAX else value[:SHOWN_MAX] + "…")
