"""What is wrong with a heartbeat whatever the group looks like (KIP-848; checks and messages as Kafka's).

Ids come first, then the rules of the epoch. A refusal here has cost nothing and changed nothing. Two rules
are this release's own: instance ids and subscriptions by regular expression are refused, naming the field.
"""

from __future__ import annotations

from collections.abc import Collection

from coordinator.api import Refused
from coordinator.limits import Limits
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


def invalid(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, message)


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str], limits: Limits
) -> None:
    """Raises `Refused` (INVALID_REQUEST, UNSUPPORTED_ASSIGNOR) for a request that no group could serve."""
    _validate_ids(request, version, limits)
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        _validate_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise invalid(
            f"MemberEpoch is invalid: {epoch}. Send 0 to join, -1 to leave, else the member's epoch."
        )
    if request.instance_id is not None:
        raise invalid("InstanceId must be null: static members are not supported. Unset group.instance.id.")
    if request.subscribed_topic_regex:
        raise invalid(
            "SubscribedTopicRegex must be null or empty: subscriptions by regular expression are not "
            "supported. Subscribe to topic names."
        )
    if len(request.subscribed_topic_names or ()) > limits.topics_per_member_max:
        raise invalid(f"SubscribedTopicNames has more than {limits.topics_per_member_max} topics.")
    if len("".join(request.subscribed_topic_names or ()).encode()) > limits.subscription_bytes_max:
        raise invalid(f"SubscribedTopicNames is larger than {limits.subscription_bytes_max} bytes.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )


def _validate_ids(request: ConsumerGroupHeartbeatRequest, version: int, limits: Limits) -> None:
    if not request.group_id.strip():
        raise invalid("GroupId can't be empty.")
    if len(request.group_id.encode()) > limits.group_id_bytes_max:
        raise invalid(f"GroupId is longer than {limits.group_id_bytes_max} bytes.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise invalid("RackId can't be empty.")
    if len((request.rack_id or "").encode()) > limits.rack_id_bytes_max:
        raise invalid(f"RackId is longer than {limits.rack_id_bytes_max} bytes.")
    may_be_empty = version == 0 and request.member_epoch == JOIN_EPOCH
    if not request.member_id.strip() and not (may_be_empty and not request.member_id):
        raise invalid("MemberId can't be empty.")
    if len(request.member_id.encode()) > limits.member_id_bytes_max:
        raise invalid(f"MemberId is longer than {limits.member_id_bytes_max} bytes.")


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("SubscribedTopicNames or SubscribedTopicRegex must be set in first request.")
