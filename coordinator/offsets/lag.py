"""The committed offsets of a group, with its lag where the ends of partitions are known."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from records import ZERO_UUID

if TYPE_CHECKING:
    from coordinator.state.offsetstore import OffsetStore
    from coordinator.topics import CatalogView

Json = dict[str, Any]

Ends = Callable[[bytes, int], tuple[int, int] | None]
"""Returns the offset of a partition's first record and the one after its last, by topic id and number; None
if they are not known."""

OFFSETS_AT_ONCE = 200
"""Offsets decoded between two yields: about a millisecond."""


def lag(offset: int, start: int, end: int) -> int:
    """Return how many records of a partition come after a committed offset.

    Those before `start` no longer exist, so no group lags behind them."""
    return max(0, end - max(offset, start))


def offsets_view(
    offsets: OffsetStore, group_id: str, catalog: CatalogView, ends: Ends
) -> Generator[None, None, Json]:
    """Generate the offsets of a group by topic, each as it is when its step is done, and their lag in sum.

    As in OffsetFetch, offsets of deleted topics are left out. The sum is None if no end is known."""
    topics: dict[str, list[Json]] = {}
    total: int | None = None
    for number, key in enumerate(
        sorted(offsets.keys(group_id)), 1
    ):  # msgpack order: by number within a topic
        if not number % OFFSETS_AT_ONCE:
            yield
        found = offsets.committed(key)
        if found is None:
            continue
        topic, value = catalog.topic(found.topic), found.value
        if value.topic_id != ZERO_UUID and (topic is None or topic.topic_id != value.topic_id):
            continue
        row: Json = {"partition": found.partition, "offset": value.offset, "end": None, "lag": None}
        known = None
        if topic is not None and found.partition < topic.num_partitions:
            known = ends(topic.topic_id, found.partition)
        if known is not None:
            start, end = known
            row |= {"end": end, "lag": lag(value.offset, start, end)}
            total = (total or 0) + row["lag"]
        topics.setdefault(found.topic, []).append(row)
    return {"lag": total, "topics": topics}
