"""Consumers' embedded protocol: topic names there, topic ids in the records of consumer groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordinator.topics import CatalogView
from wire.embedded import ConsumerProtocolAssignment, TopicPartitionsByName, encode


def by_id(topics: Iterable[TopicPartitionsByName], catalog: CatalogView) -> dict[bytes, set[int]]:
    """These partitions by topic id, without those that the catalog does not have."""
    found: dict[bytes, set[int]] = {}
    for one in topics:
        topic = catalog.topic(one.topic)
        if topic is not None:
            numbers = {number for number in one.partitions if 0 <= number < topic.num_partitions}
            if numbers:
                found.setdefault(topic.topic_id, set()).update(numbers)
    return found


def assignment_bytes(
    partitions: Iterable[Mapping[bytes, Collection[int]]], version: int, catalog: CatalogView
) -> bytes:
    """The assignment that tells a classic member all of these partitions, in its version of the protocol."""
    numbers_of: dict[str, set[int]] = {}
    for part in partitions:
        for topic_id, numbers in part.items():
            topic = catalog.topic_by_id(topic_id)
            if topic is not None:
                numbers_of.setdefault(topic.name, set()).update(numbers)
    topics = [
        TopicPartitionsByName(topic=name, partitions=sorted(numbers))
        for name, numbers in sorted(numbers_of.items())
    ]
    return encode(ConsumerProtocolAssignment(assigned_partitions=topics), version)
