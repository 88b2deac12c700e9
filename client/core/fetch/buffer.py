"""The count, and the bound, of bytes that are fetched or may arrive, and are not handed out yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from client.core.types import TopicPartition


class FetchBuffer:
    """The bytes between the leaders and the application's poll.

    The data itself is with the application side, which says when it is done with it. A response may exceed
    the bound by one batch that is larger than all that was asked for (KIP-74). Partitions that are held back
    do not count, or they would keep the others from being fetched; each has two responses at most.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._by_partition: Counter[TopicPartition] = Counter()
        self._reserved: dict[Hashable, int] = {}

    def room(self, held_back: Iterable[TopicPartition]) -> int:
        """Return how many more bytes may be asked for, not counting partitions that are held back."""
        held = sum(self._by_partition[partition] for partition in held_back)
        return self._bytes_max + held - self._by_partition.total() - sum(self._reserved.values())

    def reserve(self, lane: Hashable, size: int) -> None:
        """Note how much a request asks for. A lane has one at a time."""
        self._reserved[lane] = size

    def release(self, lane: Hashable) -> None:
        """Note that the request of a lane has its answer."""
        self._reserved.pop(lane, None)

    def add(self, partition: TopicPartition, size: int) -> None:
        """Note data on its way to the application side."""
        if size:
            self._by_partition[partition] += size

    def free(self, partition: TopicPartition, size: int) -> None:
        """Note data that the application side has handed out or dropped."""
        left = self._by_partition[partition] - size
        if left > 0:
            self._by_partition[partition] = left
        else:
            del self._by_partition[partition]

    def holds(self, partition: TopicPartition) -> int:
        """Return the number of bytes of a partition that are fetched and not handed out."""
        return self._by_partition[partition]
