"""Who owns what in a push group: lists read from record 1011, and how a round divides the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from lineage.push.messages import ELEMENTS_MAX
from lineage.shard import Topic
from records import PushConsumer, PushGroupValue, PushPartitions


def consumer_list(value: PushGroupValue | None) -> list[PushConsumer]:
    """The seed's consumer list: the registered consumers, sorted by id."""
    return [] if value is None else list(value.consumers)


def partition_list(value: PushGroupValue | None) -> dict[tuple[str, int], str]:
    """The seed's partition list: (topic, partition) → id of the consumer that owns it."""
    return {
        partition: one.consumer_id for one in consumer_list(value) for partition in partitions_of(one.owned)
    }


def partitions_of(owned: Iterable[PushPartitions]) -> list[tuple[str, int]]:
    """The partitions one by one, in the order of the record."""
    return [(one.topic, partition) for one in owned for partition in one.partitions]


def topics_of(value: PushGroupValue) -> dict[str, Topic]:
    """The topics that the newest round divided, by name."""
    return {topic.name: (topic.topic_id, topic.num_partitions) for topic in value.topics}


def divide(
    consumer_ids: Sequence[str], num_partitions: Mapping[str, int], partitions_max: int
) -> dict[str, tuple[PushPartitions, ...]]:
    """Divide the partitions of all topics (topic → number) into ranges whose sizes differ by one at most.

    No more than `partitions_max` are divided, and a consumer gets no more than Start and the reply to Ping
    can carry; the rest has no owner. The seed names no strategy. The result depends on nothing but the
    arguments' contents."""
    every = ((topic, number) for topic in sorted(num_partitions) for number in range(num_partitions[topic]))
    all_partitions = list(islice(every, partitions_max))
    size, rest = divmod(len(all_partitions), len(consumer_ids))
    shares: dict[str, tuple[PushPartitions, ...]] = {}
    begin = 0
    for place, consumer_id in enumerate(sorted(consumer_ids)):
        end = begin + size + (place < rest)
        share: dict[str, list[int]] = {}
        for topic, number in all_partitions[begin : min(end, begin + ELEMENTS_MAX)]:
            share.setdefault(topic, []).append(number)
        shares[consumer_id] = tuple(
            PushPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in share.items()
        )
        begin = end
    return shares
