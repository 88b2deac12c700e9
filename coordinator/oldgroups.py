"""Group ids that old protocols and the others share: who has an id, and who gives way.

Groups of the protocols before Kafka's (records 1010 and 1011) are decided on by coordinators of their own,
which know nothing of this package. Ids and offsets are shared, and one id has one kind of group at every
index. A group without members gives way: whoever takes the id first writes the tombstones of the former group
in the same entry; the offsets stay. A group with members refuses all others (`require_free`,
`IdsForOldGroups.refusal`). `GroupShard.followed_old_group` must be told of every entry of an old protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from coordinator.api import RequestRefused
from coordinator.group_context import GroupContext
from coordinator.state import writes
from coordinator.state.machines import ClassicState
from coordinator.state.projection import OldGroupKey, OldGroupValue, Projection
from coordinator.topics import CatalogView
from records import (
    ZERO_UUID,
    PushGroupKey,
    PushGroupValue,
    PushState,
    RawRecord,
    RewriteConsumer,
    RewriteGroupKey,
    offset_commit_key,
)
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.consumer_group_install_assignment import ConsumerGroupInstallAssignmentRequest
from wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentRequest
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest
from wire.messages.heartbeat import HeartbeatRequest
from wire.messages.join_group import JoinGroupRequest
from wire.messages.sync_group import SyncGroupRequest
from wire.schema import Message

_PROTOCOLS: Mapping[type[OldGroupKey], str] = {
    RewriteGroupKey: "the rewrite protocol",
    PushGroupKey: "the push protocol",
}

TYPE_NAMES: Mapping[type[OldGroupKey], str] = {RewriteGroupKey: "rewrite", PushGroupKey: "push"}
"""Types of groups in the HTTP API. Kafka's clients know few types, so its APIs say "classic"."""

_REFUSALS: Mapping[type[Message], ErrorCode] = {
    ConsumerGroupHeartbeatRequest: ErrorCode.GROUP_ID_NOT_FOUND,
    ExtendedConsumerGroupHeartbeatRequest: ErrorCode.GROUP_ID_NOT_FOUND,
    ConsumerGroupPrepareAssignmentRequest: ErrorCode.GROUP_ID_NOT_FOUND,
    ConsumerGroupInstallAssignmentRequest: ErrorCode.GROUP_ID_NOT_FOUND,
    JoinGroupRequest: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    SyncGroupRequest: ErrorCode.UNKNOWN_MEMBER_ID,
    HeartbeatRequest: ErrorCode.UNKNOWN_MEMBER_ID,
}
"""Kafka's error if the group is of a type that the request is not for."""


def refuse_members(groups: GroupContext, request: Message) -> None:
    """Raise `RequestRefused` for a member's request to a group of an old protocol that has consumers.

    Commits are checked where members are; a LeaveGroup names members that the group does not have."""
    code = _REFUSALS.get(type(request))
    if code is not None:
        require_free(groups, getattr(request, "group_id", ""), code)


def require_free(groups: GroupContext, group_id: str, code: ErrorCode) -> None:
    """Raise `RequestRefused` with this code if consumers of an old protocol have the group."""
    if groups.has_old_consumers(group_id):
        raise RequestRefused(code, f"{described(groups.projection, group_id)} Stop them, or use another id.")


def described(projection: Projection, group_id: str) -> str:
    """A sentence that says what the group of an old protocol is."""
    key, value = projection.old_groups_of(group_id)[0]
    number = len(value.consumers)
    members = f"{number} consumer{'' if number == 1 else 's'}"
    return f"Group {group_id} is a group of {_PROTOCOLS[type(key)]} with {members}."


class HeldId(NamedTuple):
    """The reason why a group of an old protocol cannot begin under an id: a group of another kind has
    members, or else the shard has as many groups as it may have."""

    is_taken: bool
    why: str


class IdsForOldGroups:
    """Answers to the coordinators of one old protocol about the other groups of a shard.

    `groups` returns the shard's present context, since another may take its place; `key` is the class of the
    protocol's key. This is `lineage.shard.OtherGroups`."""

    def __init__(self, groups: Callable[[], GroupContext], key: type[OldGroupKey]) -> None:
        self._groups = groups
        self._key = key

    def refusal(self, group_id: str) -> HeldId | None:
        """The error if a group of the protocol cannot begin under this id; None if it can."""
        groups = self._groups()
        projection = groups.projection
        mine = False
        for key, value in projection.old_groups_of(group_id):
            mine |= isinstance(key, self._key)
            if value.consumers and not isinstance(key, self._key):
                return HeldId(True, f"{described(projection, group_id)} Stop them, or use another id.")
        if groups.has_members(group_id):
            group = projection.groups.get(group_id)
            kind = "consumer" if group is not None and group.is_consumer else "classic"
            return HeldId(
                True, f"Group {group_id} is a {kind} group with members. Stop them, or use another id."
            )
        if not mine and not groups.has_room_for(group_id):
            return HeldId(
                False,
                f"This shard already has the maximum of {groups.limits.groups_max} groups (groups.max).",
            )
        return None

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        """Tombstones of the group of another kind, without members, that has the id; they come first."""
        projection = self._groups().projection
        gone = [
            writes.old_group_tombstone(key)
            for key, _ in projection.old_groups_of(group_id)
            if not isinstance(key, self._key)
        ]
        group = projection.groups.get(group_id)
        return (*gone, *(writes.group_tombstones(group) if group is not None else ()))


def tombstones(groups: GroupContext, group_id: str) -> list[RawRecord]:
    """The tombstone of the group's record of an old protocol, if there is one; it must have no consumers."""
    return [writes.old_group_tombstone(key) for key, _ in groups.projection.old_groups_of(group_id)]


def committed_offset(
    projection: Projection, group_id: str, topic: str, topic_id: bytes, partition: int
) -> int:
    """The committed offset of a partition; -1 if there is none, or one of another topic of that name."""
    found = projection.offsets.get(offset_commit_key(group_id, topic, partition))
    if found is None or (ZERO_UUID not in (found.topic_id, topic_id) and found.topic_id != topic_id):
        return -1
    return found.offset


class TopicsByName(Mapping[str, tuple[bytes, int]]):
    """The catalog as old protocols read it: topic name → id and number of partitions.

    `catalog` returns the present catalog, since another object may take its place."""

    def __init__(self, catalog: Callable[[], CatalogView]) -> None:
        self._catalog = catalog

    def __getitem__(self, name: str) -> tuple[bytes, int]:
        topic = self._catalog().topic(name)
        if topic is None:
            raise KeyError(name)
        return topic.topic_id, topic.num_partitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog().names())

    def __len__(self) -> int:
        return len(self._catalog())


def subscribed_topics(value: OldGroupValue) -> frozenset[str] | None:
    """The topics that a group's consumers subscribe to; empty without consumers.

    None while this is not known: push consumers name no topics, and no round has divided any yet."""
    if isinstance(value, PushGroupValue) and not value.topics and _is_in_round(value):
        return None
    names = {topic.name for topic in value.topics} if value.consumers else set()
    for one in value.consumers:  # version 0 of the records lacks these topics
        if isinstance(one, RewriteConsumer):
            names.update(part.topic for part in one.fixed)
        else:
            names.update(part.topic for part in one.owned)
    return frozenset(names)


def _is_in_round(value: PushGroupValue) -> bool:
    """Whether consumers stop, or wait until all have stopped."""
    return any(one.state not in (PushState.STARTING, PushState.STARTED) for one in value.consumers)


def state_of(value: OldGroupValue) -> ClassicState:
    """The group's state as Kafka would call it. A group of seed 000 shows a rebalance to its leader only."""
    if not value.consumers:
        return ClassicState.EMPTY
    if isinstance(value, PushGroupValue) and any(one.state != PushState.STARTED for one in value.consumers):
        return ClassicState.PREPARING_REBALANCE
    return ClassicState.STABLE
