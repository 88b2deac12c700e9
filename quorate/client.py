"""A small synchronous Kafka client, just enough for the `topics` and `groups` commands.

It speaks through `wire`, so the product needs no Kafka client library. Group requests follow
FindCoordinator to the group's node, changes of topics go to the controller. A node that is restarting,
loading or handing over answers with a retriable error or not at all; such an answer is asked for again, of
another node if there is one, with a short pause, until `timeout_s` has passed — so every call returns or
raises within that bound. A repeated request may find the work of its own first try done: creating a topic
that exists after a lost answer counts as done if the topic is what was asked for, deleting one that is gone
as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from quorate.connection import Connection, ConnectionLost, VersionMissing
from quorate.errors import CommandError, ExitCode
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from wire.schema import Message

T = TypeVar("T")

TIMEOUT_S = 10.0  # covers a restart of a node with a large log
PAUSE_S_MIN = 0.05
PAUSE_S_MAX = 0.5
ATTEMPT_S_MAX = 5.0  # a node holds a reply for at most 5 s before it answers COORDINATOR_NOT_AVAILABLE
LOOKUP_S_MAX = 2.0  # of one node, for what every node answers at once or after waiting 1 s for a new leader
NODES_MAX = 100  # nodes that are remembered beside those of the bootstrap
GROUP_KEY_TYPE = 0
FIND_COORDINATOR_VERSION = 3  # the last with one key per request: this client asks for one group at a time
OFFSET_FETCH_VERSION = 9  # the last that names topics rather than their ids
GROUP_RESOURCE = 32  # of configs, in Kafka's numbers
OWN_SOURCE = 8  # a value that the group itself was configured to
FINAL_HERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
"""Retriable for a consumer that waits for a topic, but an answer to somebody who named one."""

WAYS_OUT: dict[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "`quorate groups list` shows the groups that are there",
    ErrorCode.NON_EMPTY_GROUP: "its members must leave first, `quorate groups describe` names them",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`quorate topics list` shows the topics that are there",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`quorate topics grow NAME:PARTITIONS` gives it more partitions",
    ErrorCode.INVALID_CONFIG: "docs/configuration.md has the bounds, `quorate groups config` the values",
    ErrorCode.INVALID_PARTITIONS: "a topic only grows, and the number is its new total",
}
"""What to do about the refusals that a command on groups or topics meets."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its name, id (16 bytes) and number of partitions."""

    name: str
    topic_id: bytes
    num_partitions: int


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A line of `groups list`: the group's id, state and type as the coordinator names them."""

    group_id: str
    state: str
    group_type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """A member as the coordinator describes it; partitions by topic name."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int
    subscribed: tuple[str, ...]
    assigned: dict[str, list[int]]
    target: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and its committed offsets by topic and partition."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[MemberInfo, ...]
    offsets: dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A config of a group: the value that is set, by the group itself or by the nodes' settings."""

    name: str
    value: str
    is_own: bool


class Refused(CommandError):
    """The cluster answered, and the answer is no: carries Kafka's error code."""

    def __init__(self, error_code: int, message: str | None, what: str) -> None:
        name = error_name(error_code)
        text = f"{what}: {name} ({error_code})" + (f": {message}" if message else "")
        super().__init__(text.rstrip("."), hint=WAYS_OUT.get(error_code, ""), code=ExitCode.REFUSED)
        self.error_code = error_code


class Unreachable(CommandError):
    """No node answered within the time allowed."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"cannot reach the cluster at {bootstrap} ({reason})",
            hint="is the node running? start one with `quorate up`, or name one with --bootstrap HOST:PORT",
            code=ExitCode.UNREACHABLE,
        )


class NotInTime(CommandError):
    """The cluster answers, but only that it cannot do it just now."""

    def __init__(self, bootstrap: str, timeout_s: float, reason: str) -> None:
        super().__init__(
            f"the cluster at {bootstrap} could not do it within {timeout_s:g} s ({reason})",
            hint="`quorate cluster status` shows which node, shard or disk is missing",
            code=ExitCode.UNREACHABLE,
        )


class _TryAgain(Exception):
    """A retriable answer; the text says which."""


def error_name(error_code: int) -> str:
    """Kafka's name of an error code, or the number where it is unknown."""
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,host:port` as pairs; raises `CommandError` (usage) naming the part that is wrong."""
    nodes = []
    for part in bootstrap.split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise CommandError(
                f"{part!r} is not HOST:PORT", hint="for example 127.0.0.1:9092", code=ExitCode.USAGE
            )
        nodes.append((host.strip("[]"), int(port)))
    return nodes


class Client:
    """A client of the cluster at `bootstrap` (`host:port`, several with commas).

    Each call returns or raises within `timeout_s`.
    """

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.bootstrap = bootstrap
        self._nodes_known = parse_bootstrap(bootstrap)
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], Connection] = {}

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- topics ----

    def topics(self) -> list[TopicInfo]:
        """Every topic, by name."""

        def attempt(deadline_s: float) -> list[TopicInfo]:
            answer = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=None), deadline_s)
            found = []
            for topic in answer.topics:
                if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:  # between two leaders it is there
                    _check(topic.error_code, None, f"describing topic {topic.name!r}")
                found.append(TopicInfo(topic.name or "", topic.topic_id, len(topic.partitions)))
            return sorted(found, key=lambda topic: topic.name)

        return self._until_done(attempt)

    def topic(self, name: str) -> TopicInfo | None:
        """The topic of that name, or None."""
        return next((topic for topic in self.topics() if topic.name == name), None)

    def create_topic(self, name: str, num_partitions: int) -> None:
        """Create a topic; raises `Refused` (TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, ...)."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=-1)],
            timeout_ms=int(self._timeout_s * 1000),
        )
        what = f"creating topic {name!r}"
        self._change(
            ApiKey.CREATE_TOPICS,
            request,
            lambda answer: [(row.error_code, row.error_message, what) for row in answer.topics],
            done_before=ErrorCode.TOPIC_ALREADY_EXISTS,
            is_done=lambda: self._has_partitions(name, num_partitions),
        )

    def grow_topic(self, name: str, num_partitions: int) -> None:
        """Give a topic `num_partitions` partitions in total; raises `Refused`."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=num_partitions, assignments=None)],
            timeout_ms=int(self._timeout_s * 1000),
        )
        what = f"growing topic {name!r} to {num_partitions} partitions"
        self._change(
            ApiKey.CREATE_PARTITIONS,
            request,
            lambda answer: [(row.error_code, row.error_message, what) for row in answer.results],
            done_before=ErrorCode.INVALID_PARTITIONS,
            is_done=lambda: self._has_partitions(name, num_partitions),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; raises `Refused` (UNKNOWN_TOPIC_OR_PARTITION, ...)."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)],
            timeout_ms=int(self._timeout_s * 1000),
        )
        what = f"deleting topic {name!r}"
        self._change(
            ApiKey.DELETE_TOPICS,
            request,
            lambda answer: [(row.error_code, row.error_message, what) for row in answer.responses],
            done_before=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            is_done=lambda: self.topic(name) is None,
        )

    # ---- groups ----

    def groups(self) -> list[GroupInfo]:
        """Every group of every node, by id."""

        def attempt(deadline_s: float) -> list[GroupInfo]:
            found: dict[str, GroupInfo] = {}
            for address in self._cluster(deadline_s).values():
                answer = self._ask(address, ApiKey.LIST_GROUPS, ListGroupsRequest(), deadline_s)
                _check(answer.error_code, None, "listing groups")
                for row in answer.groups:
                    found[row.group_id] = GroupInfo(
                        row.group_id, row.group_state, row.group_type, row.protocol_type
                    )
            return [found[group_id] for group_id in sorted(found)]

        return self._until_done(attempt)

    def describe_group(self, group_id: str) -> GroupDescription:
        """A consumer group with members and offsets; raises `Refused` (GROUP_ID_NOT_FOUND, ...)."""

        def attempt(deadline_s: float) -> GroupDescription:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            answer = self._ask_coordinator(group_id, ApiKey.CONSUMER_GROUP_DESCRIBE, request, deadline_s)
            (group,) = answer.groups
            _check(group.error_code, group.error_message, f"describing group {group_id!r}")
            return GroupDescription(
                group_id=group_id,
                state=group.group_state,
                group_epoch=group.group_epoch,
                assignment_epoch=group.assignment_epoch,
                assignor=group.assignor_name,
                members=tuple(_member(row) for row in group.members),
                offsets=self._offsets(group_id, deadline_s),
            )

        return self._until_done(attempt)

    def offsets(self, group_id: str) -> dict[str, dict[int, int]]:
        """The group's committed offsets by topic and partition: the last acknowledged ones."""
        return self._until_done(lambda deadline_s: self._offsets(group_id, deadline_s))

    def delete_group(self, group_id: str) -> None:
        """Delete a group with its offsets; raises `Refused` (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...)."""
        tried = False

        def attempt(deadline_s: float) -> None:
            nonlocal tried
            request = DeleteGroupsRequest(groups_names=[group_id])
            again, tried = tried, True
            answer = self._ask_coordinator(group_id, ApiKey.DELETE_GROUPS, request, deadline_s)
            (row,) = answer.results
            if again and row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                return
            _check(row.error_code, None, f"deleting group {group_id!r}")

        self._until_done(attempt)

    def group_configs(self, group_id: str) -> list[ConfigInfo]:
        """What the group is configured to, by name; it need not exist."""
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=None
        )

        def attempt(deadline_s: float) -> list[ConfigInfo]:
            request = DescribeConfigsRequest(resources=[resource])
            (result,) = self._ask_any(ApiKey.DESCRIBE_CONFIGS, request, deadline_s).results
            _check(result.error_code, result.error_message, f"describing the configs of group {group_id!r}")
            return sorted(
                (
                    ConfigInfo(row.name, row.value or "", row.config_source == OWN_SOURCE)
                    for row in result.configs
                ),
                key=lambda row: row.name,
            )

        return self._until_done(attempt)

    def configure_group(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a group, or take them back (None); raises `Refused` (INVALID_CONFIG, ...)."""
        configs = [
            AlterableConfig(name=name, config_operation=int(value is None), value=value)
            for name, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=configs)

        def attempt(deadline_s: float) -> None:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, deadline_s)
            (row,) = answer.responses
            _check(row.error_code, row.error_message, f"configuring group {group_id!r}")

        self._until_done(attempt)

    # ---- asking ----

    def _offsets(self, group_id: str, deadline_s: float) -> dict[str, dict[int, int]]:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=True
        )
        answer = self._ask_coordinator(
            group_id, ApiKey.OFFSET_FETCH, request, deadline_s, version_max=OFFSET_FETCH_VERSION
        )
        (group,) = answer.groups
        _check(group.error_code, None, f"fetching the offsets of group {group_id!r}")
        offsets: dict[str, dict[int, int]] = {}
        for topic in group.topics:
            for row in topic.partitions:
                _check(row.error_code, None, f"fetching the offset of {topic.name}-{row.partition_index}")
                offsets.setdefault(topic.name, {})[row.partition_index] = row.committed_offset
        return offsets

    def _has_partitions(self, name: str, num_partitions: int) -> bool:
        topic = self.topic(name)
        return topic is not None and topic.num_partitions == num_partitions

    def _change(
        self,
        api: ApiKey,
        request: Message,
        rows: Callable[[Any], Iterable[tuple[int, str | None, str]]],
        *,
        done_before: ErrorCode,
        is_done: Callable[[], bool],
    ) -> None:
        """Ask for a change; `done_before` after a lost answer is success if `is_done` agrees."""
        tried = False

        def attempt(deadline_s: float) -> bool:
            nonlocal tried
            again, tried = tried, True
            answer = self._ask_controller(api, request, deadline_s)
            for error_code, message, what in rows(answer):
                if again and error_code == done_before:
                    return False
                _check(error_code, message, what)
            return True

        if not self._until_done(attempt) and not is_done():
            raise Refused(
                done_before, "an earlier try may have been carried out in part", "changing the catalog"
            )

    def _cluster(self, deadline_s: float) -> dict[int, tuple[str, int]]:
        """The nodes in contact, by id; the controller comes first."""
        answer = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=[]), deadline_s)
        nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        for address in nodes.values():
            if address not in self._nodes_known and len(self._nodes_known) < NODES_MAX:
                self._nodes_known.append(address)
        return dict(sorted(nodes.items(), key=lambda node: node[0] != answer.controller_id))

    def _ask_controller(self, api: ApiKey, request: Message, deadline_s: float) -> Any:
        """Ask the node that changes topics; one that does not any more says NOT_CONTROLLER."""
        nodes = self._cluster(deadline_s)
        if not nodes:
            raise _TryAgain("the cluster names no node")
        return self._ask(next(iter(nodes.values())), api, request, deadline_s)

    def _ask_any(
        self, api: ApiKey, request: Message, deadline_s: float, *, version_max: int | None = None
    ) -> Any:
        """Ask the first known node that answers; one that does not is asked last the next time."""
        reasons = []
        for address in list(self._nodes_known):
            until_s = min(deadline_s, time.monotonic() + LOOKUP_S_MAX)
            try:
                return self._ask(address, api, request, until_s, version_max=version_max)
            except ConnectionLost as error:
                reasons.append(str(error))
                self._nodes_known.remove(address)
                self._nodes_known.append(address)
        raise ConnectionLost("; ".join(reasons))

    def _ask_coordinator(
        self,
        group_id: str,
        api: ApiKey,
        request: Message,
        deadline_s: float,
        *,
        version_max: int | None = None,
    ) -> Any:
        find = FindCoordinatorRequest(key=group_id, key_type=GROUP_KEY_TYPE)
        found = self._ask_any(ApiKey.FIND_COORDINATOR, find, deadline_s, version_max=FIND_COORDINATOR_VERSION)
        _check(found.error_code, found.error_message, f"finding the coordinator of group {group_id!r}")
        return self._ask((found.host, found.port), api, request, deadline_s, version_max=version_max)

    def _ask(
        self,
        address: tuple[str, int],
        api: ApiKey,
        request: Message,
        deadline_s: float,
        *,
        version_max: int | None = None,
    ) -> Any:
        connection = self._connections.get(address)
        try:
            if connection is None:
                connection = self._connections[address] = Connection(*address, deadline_s)
            return connection.call(api, request, deadline_s, version_max=version_max)
        except ConnectionLost:
            self._connections.pop(address, None)
            raise
        except VersionMissing as error:
            raise CommandError(
                str(error), hint="this client is for Quorate and Kafka 3.7 or newer", code=ExitCode.REFUSED
            ) from error

    def _until_done(self, attempt: Callable[[float], T]) -> T:
        """Run `attempt` until it returns, raises something final, or the time is over."""
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = PAUSE_S_MIN
        while True:
            try:
                return attempt(min(deadline_s, time.monotonic() + ATTEMPT_S_MAX))
            except (ConnectionLost, _TryAgain) as error:
                if time.monotonic() + pause_s >= deadline_s:
                    if isinstance(error, _TryAgain):
                        raise NotInTime(self.bootstrap, self._timeout_s, str(error)) from error
                    raise Unreachable(self.bootstrap, str(error)) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


def _check(error_code: int, message: str | None, what: str) -> None:
    """Raise `_TryAgain` or `Refused` for an error code other than 0."""
    if error_code == ErrorCode.NONE:
        return
    if error_code in FINAL_HERE:
        raise Refused(error_code, message, what)
    if error_code in ErrorCode.__members__.values() and ErrorCode(error_code).retriable:
        raise _TryAgain(f"{what}: {error_name(error_code)}")
    raise Refused(error_code, message, what)


def _member(row: Any) -> MemberInfo:
    return MemberInfo(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        member_epoch=row.member_epoch,
        subscribed=tuple(row.subscribed_topic_names),
        assigned=_partitions(row.assignment),
        target=_partitions(row.target_assignment),
    )


def _partitions(assignment: Any) -> dict[str, list[int]]:
    return {row.topic_name: list(row.partitions) for row in assignment.topic_partitions}
