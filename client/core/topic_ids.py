"""Topics by name and by id, as requests name them: the newest versions only by id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from client.core.cluster_view import ClusterView
from client.core.types import TopicPartition
from wire.schema import ZERO_UUID


class TopicIds(NamedTuple):
    """The ids of a request's topics, as they were known when it was made."""

    ids: Mapping[str, bytes]
    names: Mapping[bytes, str]
    is_complete: bool
    """Whether all ids are known, so that the request may name its topics by id only."""

    @classmethod
    def of(cls, partitions: Iterable[TopicPartition], view: ClusterView) -> TopicIds:
        topics = {partition.topic for partition in partitions}
        known = {
            name: view.topics[name].topic_id
            for name in topics
            if name in view.topics and view.topics[name].topic_id != ZERO_UUID
        }
        return cls(known, {topic_id: name for name, topic_id in known.items()}, len(known) == len(topics))

    def versions(self, first: int, last_with_names: int, last: int) -> tuple[int, int]:
        """Return the versions that a request may have; those after `last_with_names` have ids only."""
        return first, last if self.is_complete else last_with_names

    def id_of(self, topic: str) -> bytes:
        return self.ids.get(topic, ZERO_UUID)

    def name_of(self, topic_id: bytes, name: str) -> str:
        """Return the name of an answer's topic, of whose id and name the other one is empty."""
        return self.names.get(topic_id, name)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by their topic, in order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(partitions):
        found[partition.topic].append(partition.partition)
    return dict(found)
