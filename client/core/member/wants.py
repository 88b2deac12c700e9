"""The interfaces between the member and the consumer's other parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from client.core.errors import FatalError
from client.core.events import BackgroundEvent
from client.core.types import TopicPartition

Emit = Callable[[BackgroundEvent], None]
"""Passes an event to the application side."""


class MemberIdentity(Protocol):
    """The identity with which offsets are committed and fetched: `MembershipManager`."""

    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def member_epoch(self) -> int:
        """The epoch to send; 0 or below while it is not in the group."""

    @property
    def group_instance_id(self) -> str | None: ...
    @property
    def is_subscribed(self) -> bool:
        """Whether subscribe() is in force; otherwise the consumer is no member, and may commit as none."""

    def tenure(self, partition: TopicPartition) -> int | None:
        """The number of the time in which the application has the partition now; None if it has not."""


class TopicNamesById(Protocol):
    """Topic names by id: `MetadataManager`. The coordinator names topics by id only."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic's name, if it is known."""

    def want_ids(self, ids: Iterable[bytes]) -> None:
        """Find the names of these topics, in place of those that were wanted before."""


class GroupCoordinator(Protocol):
    """The place of the group's coordinator: `CoordinatorManager`."""

    @property
    def fatal(self) -> FatalError | None:
        """The error for which the group cannot be used at all, None while it can."""

    def lost(self, node_id: int, why: str, now_ms: float) -> None:
        """Look for it again, if it is still believed to be `node_id`."""


class AssignedPositions(Protocol):
    """The partitions that are fetched: `FetchPositions`."""

    def begin(self, partitions: Mapping[TopicPartition, int | None], version: int) -> None:
        """Fetch these; None: from the committed offset, or by auto.offset.reset."""

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these no more, and drop what is buffered."""
