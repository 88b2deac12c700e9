"""The fields of a heartbeat, most of which are sent only when they changed (KIP-848).

A field that is left out is unchanged for the coordinator, so the client must know what it last heard. After a
heartbeat without an answer nobody does, and the next one has all fields again. MemberId, MemberEpoch and
InstanceId are in every heartbeat: the coordinator knows a static member by the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from client.core.assignors import AssignorOffer
from client.core.types import TopicIdPartition
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.extended_consumer_group_heartbeat import (
    AssignedTopicPartitions,
    Assignor,
    ExtendedConsumerGroupHeartbeatRequest,
)

LEASES_VERSION: Final = 1
"""The first version of the extended heartbeat with fencing tokens."""

REGEX_VERSION: Final = 1
"""The first version with SubscribedTopicRegex."""

OWN_ID_VERSION: Final = 1
"""The first version in which the client chooses its member id."""

Heartbeat = ConsumerGroupHeartbeatRequest | ExtendedConsumerGroupHeartbeatRequest


class HeartbeatFields(NamedTuple):
    """The conditional fields of one heartbeat."""

    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    """The expression; empty if there is none."""
    server_assignor: str | None
    client_assignors: tuple[Assignor, ...]
    """The extended heartbeat alone has them."""
    owned: frozenset[TopicIdPartition]
    fencing_tokens: bool = False
    """Every extended heartbeat of a member that wants tokens says so; one that does not ends the leases."""

    def body(
        self, told: HeartbeatFields | None, api: ApiKey, version: int, *, acknowledges: bool
    ) -> Heartbeat:
        """Make the request with the fields that are not as `told`, with all of them if that is None."""
        changed: dict[str, Any] = {
            name: value
            for name, value in self._asdict().items()
            if told is None or value != getattr(told, name) or (name == "owned" and acknowledges)
        }
        owned = changed.pop("owned", None)
        if owned is not None:
            changed["topic_partitions"] = by_topic(owned)
        if "subscribed_topic_names" in changed:
            changed["subscribed_topic_names"] = list(self.subscribed_topic_names)
        offered = changed.pop("client_assignors", None)
        changed.pop("fencing_tokens", None)
        if api is ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT:
            extended = ExtendedConsumerGroupHeartbeatRequest(**changed, fencing_tokens=self.fencing_tokens)
            extended.client_assignors = None if offered is None else list(offered)
            return extended
        if version < REGEX_VERSION:
            changed.pop("subscribed_topic_regex", None)
        return ConsumerGroupHeartbeatRequest(**changed)


def on_the_wire(offer: AssignorOffer) -> Assignor:
    """Return an offer as requests carry it."""
    return Assignor(
        name=offer.name,
        minimum_version=offer.minimum_version,
        maximum_version=offer.maximum_version,
        reason=offer.metadata.reason,
        metadata_version=offer.metadata.version,
        metadata_bytes=offer.metadata.data,
    )


def by_topic(parts: frozenset[TopicIdPartition]) -> list[TopicPartitions]:
    """Return partitions as requests carry them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(parts):
        topics.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]


def tokens_of(topics: Iterable[AssignedTopicPartitions]) -> dict[TopicIdPartition, int]:
    """Fencing tokens as answers carry them; without those of partitions that have none."""
    return {
        TopicIdPartition(topic.topic_id, number): token
        for topic in topics
        for number, token in zip(topic.partitions, topic.fencing_tokens, strict=False)
        if token >= 0
    }


def parts_of(topics: Iterable[TopicPartitions | AssignedTopicPartitions]) -> frozenset[TopicIdPartition]:
    """Return the partitions of a request's or an answer's topics."""
    return frozenset(
        TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions
    )
