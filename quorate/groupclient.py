"""The client behind the `groups` commands: lists, descriptions, and changes to groups.

Everything goes through Kafka's own APIs, so it works on any cluster that serves them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quorate.retrying_client import ClusterRefused, RetryingClient, check
from wire.apis import ApiKey
from wire.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription, decode
from wire.errors import ErrorCode, MalformedFrame
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.describe_groups import DescribeGroupsRequest
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

OFFSET_FETCH_VERSION = 9  # the last version with topic names rather than ids
OFFSET_COMMIT_VERSION = 9  # likewise
COMMIT_PARTITIONS_MAX = 10_000
"""At most this many partitions per request: well within a decision, and answered in tens of ms."""
DEAD = "Dead"
"""The state in DescribeGroups for a group that does not exist."""
REMOVAL_REASON = "removed by an operator"

Offsets = dict[str, dict[int, int]]
"""Committed offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A line of `groups list`: the group's id, state and type as the coordinator names them."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member as the coordinator describes it; partitions are by topic name."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int
    subscribed: tuple[str, ...]
    regex: str | None
    assigned: dict[str, list[int]]
    target: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and committed offsets.

    `coordinator` is the id of the node that leads its shard, `trouble` is what prevents a new target.
    """

    group_id: str
    coordinator: int
    group_type: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    trouble: str | None
    members: tuple[MemberInfo, ...]
    offsets: Offsets


class GroupClient(RetryingClient):
    """Groups of the cluster at `bootstrap`."""

    def cluster_id(self) -> str | None:
        """The cluster's own id."""

        def attempt(deadline_s: float) -> str | None:
            answer = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=[]), deadline_s)
            found: str | None = answer.cluster_id
            return found

        return self._until_done(attempt)

    def coordinator(self, group_id: str) -> int:
        """The id of the node that coordinates the group; waits until one does."""
        return self._until_done(lambda deadline_s: int(self._find_coordinator(group_id, deadline_s).node_id))

    def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupInfo]:
        """Every group of every node, sorted by id, optionally filtered by `states` or `types`."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        def attempt(deadline_s: float) -> list[GroupInfo]:
            found: dict[str, GroupInfo] = {}
            for address in self._cluster(deadline_s).values():
                answer = self._ask(address, ApiKey.LIST_GROUPS, request, deadline_s)
                check(answer.error_code, None, "listing groups")
                for row in answer.groups:
                    found[row.group_id] = GroupInfo(
                        row.group_id, row.group_state, row.group_type, row.protocol_type
                    )
            return [found[group_id] for group_id in sorted(found)]

        return self._until_done(attempt)

    def describe_group(self, group_id: str) -> GroupDescription:
        """A group with members and offsets; raises `ClusterRefused` (GROUP_ID_NOT_FOUND, ...)."""

        def attempt(deadline_s: float) -> GroupDescription:
            found = self._find_coordinator(group_id, deadline_s)
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            address = (found.host, found.port)
            answer = self._ask(address, ApiKey.CONSUMER_GROUP_DESCRIBE, request, deadline_s)
            (group,) = answer.groups
            if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                other = self._describe_other(group_id, found, deadline_s)
                if other is not None:
                    return other
            check(group.error_code, group.error_message, f"describing group {group_id!r}")
            return GroupDescription(
                group_id=group_id,
                coordinator=found.node_id,
                group_type="consumer",
                state=group.group_state,
                group_epoch=group.group_epoch,
                assignment_epoch=group.assignment_epoch,
                assignor=group.assignor_name,
                trouble=group.error_message or None,
                members=tuple(_member(row) for row in group.members),
                offsets=self._offsets(group_id, deadline_s),
            )

        return self._until_done(attempt)

    def _describe_other(self, group_id: str, found: Any, deadline_s: float) -> GroupDescription | None:
        """A group of another protocol (classic, or with offsets only); None if there is none."""
        request = DescribeGroupsRequest(groups=[group_id])
        address = (found.host, found.port)
        answer = self._ask(address, ApiKey.DESCRIBE_GROUPS, request, deadline_s)
        (group,) = answer.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            return None
        check(group.error_code, group.error_message, f"describing group {group_id!r}")
        return GroupDescription(
            group_id=group_id,
            coordinator=found.node_id,
            group_type="classic",
            state=group.group_state,
            group_epoch=0,
            assignment_epoch=0,
            assignor=group.protocol_data,
            trouble=None,
            members=tuple(_classic_member(row, group.protocol_type) for row in group.members),
            offsets=self._offsets(group_id, deadline_s),
        )

    def offsets(self, group_id: str) -> Offsets:
        """The group's committed offsets by topic and partition."""
        return self._until_done(lambda deadline_s: self._offsets(group_id, deadline_s))

    def delete_group(self, group_id: str) -> None:
        """Delete a group and its offsets.

        Raises `ClusterRefused` (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...).
        """
        request = DeleteGroupsRequest(groups_names=[group_id])

        def attempt(deadline_s: float, again: bool) -> None:
            answer = self._ask_coordinator(group_id, ApiKey.DELETE_GROUPS, request, deadline_s)
            (row,) = answer.results
            if again and row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            check(row.error_code, None, f"deleting group {group_id!r}")

        self._until_certain(attempt)

    def remove_members(self, group_id: str, members: Sequence[MemberInfo]) -> None:
        """Remove members from the group; raises `ClusterRefused` for the first that could not be removed.

        Errors are per member, so the others are removed nevertheless. After a lost answer, a member that is
        already gone counts as removed.
        """
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                MemberIdentity(
                    member_id=member.member_id, group_instance_id=member.instance_id, reason=REMOVAL_REASON
                )
                for member in members
            ],
        )

        def attempt(deadline_s: float, again: bool) -> None:
            answer = self._ask_coordinator(group_id, ApiKey.LEAVE_GROUP, request, deadline_s)
            check(answer.error_code, None, f"removing members of group {group_id!r}")
            for row in answer.members:
                if not (again and row.error_code == ErrorCode.UNKNOWN_MEMBER_ID):
                    name = row.group_instance_id or row.member_id
                    check(row.error_code, None, f"removing {name!r} from group {group_id!r}")

        self._until_certain(attempt)

    def delete_offsets(self, group_id: str, partitions: Mapping[str, Sequence[int]]) -> None:
        """Delete committed offsets; raises `ClusterRefused` for the first topic whose offsets remain.

        The error is for example GROUP_SUBSCRIBED_TO_TOPIC.
        """
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                )
                for topic, numbers in partitions.items()
            ],
        )

        def attempt(deadline_s: float, again: bool) -> None:
            answer = self._ask_coordinator(group_id, ApiKey.OFFSET_DELETE, request, deadline_s)
            if again and answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return  # the group consisted of these offsets only
            check(answer.error_code, None, f"deleting offsets of group {group_id!r}")
            for topic in answer.topics:
                for row in topic.partitions:
                    what = f"deleting the offset of {topic.name}-{row.partition_index}"
                    check(row.error_code, None, f"{what} in group {group_id!r}")

        self._until_certain(attempt)

    def commit(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit offsets without a member id, which only an empty group accepts; raises `ClusterRefused`.

        A large commit is split into several requests, each of which is repeated until it is answered.
        """
        rows = [(topic, number, offset) for topic, by in offsets.items() for number, offset in by.items()]
        for first in range(0, len(rows), COMMIT_PARTITIONS_MAX):
            self._commit(group_id, rows[first : first + COMMIT_PARTITIONS_MAX])

    def _commit(self, group_id: str, rows: Sequence[tuple[str, int, int]]) -> None:
        parts: dict[str, list[OffsetCommitRequestPartition]] = {}
        for topic, number, offset in rows:
            part = OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            parts.setdefault(topic, []).append(part)
        topics = [OffsetCommitRequestTopic(name=name, partitions=asked) for name, asked in parts.items()]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)

        def attempt(deadline_s: float) -> None:
            answer = self._ask_coordinator(
                group_id, ApiKey.OFFSET_COMMIT, request, deadline_s, version_max=OFFSET_COMMIT_VERSION
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                        raise ClusterRefused(
                            ErrorCode.NON_EMPTY_GROUP, "it has members", f"group {group_id!r}"
                        )
                    what = f"committing {topic.name}-{row.partition_index} in group {group_id!r}"
                    check(row.error_code, None, what)

        self._until_done(attempt)

    def _offsets(self, group_id: str, deadline_s: float) -> Offsets:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=True
        )
        answer = self._ask_coordinator(
            group_id, ApiKey.OFFSET_FETCH, request, deadline_s, version_max=OFFSET_FETCH_VERSION
        )
        (group,) = answer.groups
        check(group.error_code, None, f"fetching the offsets of group {group_id!r}")
        offsets: Offsets = {}
        for topic in group.topics:
            for row in topic.partitions:
                check(row.error_code, None, f"fetching the offset of {topic.name}-{row.partition_index}")
                offsets.setdefault(topic.name, {})[row.partition_index] = row.committed_offset
        return offsets


def _member(row: Any) -> MemberInfo:
    return MemberInfo(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host.removeprefix("/"),
        member_epoch=row.member_epoch,
        subscribed=tuple(row.subscribed_topic_names),
        regex=row.subscribed_topic_regex or None,
        assigned=_partitions(row.assignment),
        target=_partitions(row.target_assignment),
    )


def _classic_member(row: Any, protocol_type: str) -> MemberInfo:
    """A classic member; subscription and assignment are known if they are in the format of consumers."""
    subscribed: list[str] = []
    assigned: dict[str, list[int]] = {}
    if protocol_type in ("consumer", ""):  # "": a group of an old protocol, in the same form
        with contextlib.suppress(MalformedFrame):  # both are the client's bytes, and may be empty
            subscribed = decode(ConsumerProtocolSubscription, row.member_metadata).topics
            assignment = decode(ConsumerProtocolAssignment, row.member_assignment)
            assigned = {one.topic: list(one.partitions) for one in assignment.assigned_partitions}
    return MemberInfo(
        member_id=row.member_id,
        instance_id=row.group_instance_id,
        client_id=row.client_id,
        client_host=row.client_host.removeprefix("/"),
        member_epoch=-1,
        subscribed=tuple(subscribed),
        regex=None,
        assigned=assigned,
        target={},
    )


def _partitions(assignment: Any) -> dict[str, list[int]]:
    return {row.topic_name: list(row.partitions) for row in assignment.topic_partitions}
