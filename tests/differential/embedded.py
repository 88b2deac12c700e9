"""Subscriptions and assignments that classic members embed in their requests, as the scripts write them."""

from __future__ import annotations

from tests.differential.side import ClassicModel, Owned, Side
from wire.embedded import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionsByName,
    decode,
    encode,
)
from wire.errors import MalformedFrame


def metadata(said: str, model: ClassicModel) -> bytes:
    """A subscription (`@t3|t4`), one that says what the member owns (`&t3|t4`), or bytes that are none."""
    if said[:1] not in ("@", "&"):
        return said.encode()
    owned = model.owned if said[0] == "&" else {}
    subscription = ConsumerProtocolSubscription(
        topics=said[1:].split("|"), owned_partitions=_named(owned), generation_id=model.generation
    )
    return encode(subscription, 2 if said[0] == "&" else 1)


def assigned_by_range(members: dict[str, bytes], side: Side) -> dict[str, bytes]:
    """The assignment of each member: a range of each topic; what another member still owns waits."""
    said = {
        member_id: decode(ConsumerProtocolSubscription, data)
        for member_id, data in sorted(members.items(), key=lambda item: str(side.who_is(item[0])))
    }
    owner = {
        (one.topic, number): member_id
        for member_id, subscription in said.items()
        for one in subscription.owned_partitions
        for number in one.partitions
    }
    given: dict[str, Owned] = {member_id: {} for member_id in said}
    for topic in sorted({topic for subscription in said.values() for topic in subscription.topics}):
        takers = [member_id for member_id, subscription in said.items() if topic in subscription.topics]
        count = int(topic[1:])
        for at, member_id in enumerate(takers):
            numbers = range(count * at // len(takers), count * (at + 1) // len(takers))
            free = [number for number in numbers if owner.get((topic, number), member_id) == member_id]
            if free:
                given[member_id][topic] = free
    return {
        member_id: encode(ConsumerProtocolAssignment(assigned_partitions=_named(owned)), 1)
        for member_id, owned in given.items()
    }


def subscription_of(data: bytes) -> tuple[list[str], Owned] | None:
    """The content of a subscription without the generation, which each side numbers in its own way."""
    try:
        said = decode(ConsumerProtocolSubscription, data)
    except MalformedFrame:
        return None
    return said.topics, {one.topic: one.partitions for one in said.owned_partitions}


def partitions_of(assignment: bytes) -> Owned | None:
    """The partitions of an assignment; None if it is not one of consumers."""
    try:
        topics = decode(ConsumerProtocolAssignment, assignment).assigned_partitions
    except MalformedFrame:
        return None
    return {one.topic: sorted(one.partitions) for one in topics if one.partitions}


def _named(owned: Owned) -> list[TopicPartitionsByName]:
    return [
        TopicPartitionsByName(topic=topic, partitions=numbers) for topic, numbers in sorted(owned.items())
    ]
