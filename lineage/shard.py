"""The shard around a group of an old protocol: topics by name, and the groups of other protocols.

Group ids are shared: one id has one kind of group. A coordinator of an old protocol asks `OtherGroups` before
an id becomes its own, and puts the records that `records_that_make_way` gives first into the entry that
makes it so. They remove a group of another kind that has no members any more; its offsets stay. So no index
of the log has two kinds of group under one id, and the caller need not complete an entry that it gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from records import ZERO_UUID, RawRecord

Topic = tuple[bytes, int]
"""A topic's id and its number of partitions."""
Topics = Mapping[str, Topic]
"""Topics by name; only `get` is called on it."""
NO_TOPIC: Topic = (ZERO_UUID, 0)


def is_another_topic(before: bytes, now: bytes) -> bool:
    """Whether two ids of topics of one name are known to differ; zeros are an id that is not known."""
    return ZERO_UUID not in (before, now) and before != now


class IdRefusal(Protocol):
    """The reason why a group cannot have its id: a group of another kind has it, or the shard is full."""

    @property
    def is_taken(self) -> bool: ...
    @property
    def why(self) -> str: ...


class OtherGroups(Protocol):
    """Answers about ids of those who keep groups of all kinds, as of the newest decision."""

    def refusal(self, group_id: str) -> IdRefusal | None:
        """The reason why a group of this protocol may not begin under the id; None if it may."""

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        """Tombstones of a group of another kind without members, if the id has one."""


class NoOtherGroups:
    """A shard that only holds groups of this protocol."""

    def refusal(self, group_id: str) -> IdRefusal | None:
        return None

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        return ()
