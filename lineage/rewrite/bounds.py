"""The settings of the server side, and how large a group may get: its record must fit into one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lineage.rewrite.groups import LiveGroup
from lineage.rewrite.messages import TopicNumbers
from lineage.rewrite.strategies import STRATEGIES
from lineage.shard import Topic
from records import RewriteGroupValue, RewritePartitions

ITEM_BYTES = 8
"""Most bytes of a record that a number in a subscription takes, or a name beside its own bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """Server-side settings. All bounds together keep a group's record well below the size of an entry.

    `strategies` are the names that a JoinGroup may have; those that are not built in are users'.
    `subscription_bytes_max` is for one consumer, `subscriptions_bytes_max` for all of a group. Of a group's
    partitions, in the order of their topics, those beyond `partitions_max` have no owner. Longer client ids
    are cut. `commit_bytes_max` is for the records of one OffsetCommit, which has at most
    `commit_partitions_max` partitions, so that it is decided on in a short time."""

    max_session_timeout_ms: int = 30_000
    strategies: frozenset[str] = frozenset(STRATEGIES)
    consumers_max: int = 1_000
    subscription_bytes_max: int = 8_192
    subscriptions_bytes_max: int = 1 << 21
    partitions_max: int = 200_000
    group_id_bytes_max: int = 1_024
    client_id_bytes_max: int = 256
    metadata_bytes_max: int = 4_096
    commit_bytes_max: int = 8 << 20
    commit_partitions_max: int = 10_000


def subscription_bytes(topics: Iterable[str], partitions: Iterable[TopicNumbers | RewritePartitions]) -> int:
    """Most bytes that a subscription takes of the group's record."""
    size = sum(ITEM_BYTES + len(topic.encode()) for topic in topics)
    return size + sum(ITEM_BYTES * (1 + len(one.partitions)) + len(one.topic.encode()) for one in partitions)


def bytes_of_others(value: RewriteGroupValue, group: LiveGroup, consumer_id: str) -> int:
    """Most bytes that the subscriptions of all but one consumer take."""
    size = sum(subscription_bytes(one.topics, one.partitions) for one in group.others(consumer_id))
    return size + sum(
        subscription_bytes(one.topics, one.fixed)
        for one in value.consumers
        if one.consumer_id not in group.waiting and one.consumer_id != consumer_id
    )


def shared_out(topics: Mapping[str, Topic], partitions_max: int) -> dict[str, int]:
    """The number of partitions of each topic that are shared out: in order, as long as there is room."""
    shared = {}
    for name, (_, count) in topics.items():
        shared[name] = min(count, partitions_max)
        partitions_max -= shared[name]
    return shared
