"""A small synchronous Kafka client with just what the `topics` and `groups` commands need.

A repeated request (`quorate.retrying_client`) may find that its first try succeeded: after a lost answer,
creating a topic that exists counts as done if the topic is as requested, as does deleting one that is gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from coordinator.catalog import topicracks
from quorate.groupclient import GroupClient
from quorate.retrying_client import LOOKUP_S_MAX, TryAgain, check
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

GROUP_RESOURCE = 32  # Kafka's numbers of config resources
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
HTTP_SETTINGS = ("http.advertised.host", "http.host", "http.advertised.port", "http.port")
EVERY_ADDRESS = ("0.0.0.0", "::")
TOPICS_DESCRIBED_MAX = 1_000  # per request
PARTITIONS_LISTED_MAX = 10_000  # per request, so that an answer stays below a megabyte
CONSUMER = -1  # asks as a client, not as a replica
OWN_SOURCE = 8  # a value set on the group itself


Partition = tuple[str, int]

Racks = tuple[tuple[str, ...], ...]
"""Racks by partition, up to the last partition whose racks are known."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: name, id (16 bytes), number of partitions, and the leader of each partition (-1: none)."""

    name: str
    topic_id: bytes
    num_partitions: int
    leaders: tuple[int, ...] = ()
    racks: Racks = ()
    """The racks of the nodes that hold the topic's replicas."""
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A group config in effect, set on the group itself or by the nodes' settings."""

    name: str
    value: str
    is_own: bool


class Client(GroupClient):
    """Topics, groups and their configs in the cluster at `bootstrap`."""

    def topics(self) -> list[TopicInfo]:
        """Every topic, sorted by name."""

        def attempt(deadline_s: float) -> list[TopicInfo]:
            answer = self._ask_any(ApiKey.METADATA, MetadataRequest(topics=None), deadline_s)
            rack_of = {node.node_id: node.rack for node in answer.brokers}
            found = []
            for topic in answer.topics:
                # the topic exists between two leaders, too
                if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                    check(topic.error_code, None, f"describing topic {topic.name!r}")
                rows = sorted(topic.partitions, key=lambda row: row.partition_index)
                leaders = tuple([row.leader_id for row in rows])
                racks = racks_of([[rack_of.get(node) for node in row.replica_nodes] for row in rows])
                name = topic.name or ""
                found.append(TopicInfo(name, topic.topic_id, len(rows), leaders, racks, topic.is_internal))
            return sorted(found, key=lambda topic: topic.name)

        return self._until_done(attempt)

    def topic(self, name: str) -> TopicInfo | None:
        """The topic with that name, or None."""
        return next((topic for topic in self.topics() if topic.name == name), None)

    def create_topic(self, name: str, num_partitions: int) -> None:
        """Create a topic; raises `ClusterRefused` (TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, ...)."""
        topic = CreatableTopic(name=name, num_partitions=num_partitions, replication_factor=-1)
        self._change(
            ApiKey.CREATE_TOPICS,
            CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms),
            lambda answer: answer.topics[0],
            f"creating topic {name!r}",
            done_before=ErrorCode.TOPIC_ALREADY_EXISTS,
            is_done=lambda: self._has_partitions(name, num_partitions),
        )

    def grow_topic(self, name: str, num_partitions: int) -> None:
        """Give a topic `num_partitions` partitions in total; raises `ClusterRefused`."""
        topic = CreatePartitionsTopic(name=name, count=num_partitions, assignments=None)
        self._change(
            ApiKey.CREATE_PARTITIONS,
            CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms),
            lambda answer: answer.results[0],
            f"growing topic {name!r} to {num_partitions} partitions",
            done_before=ErrorCode.INVALID_PARTITIONS,
            is_done=lambda: self._has_partitions(name, num_partitions),
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic; raises `ClusterRefused` (UNKNOWN_TOPIC_OR_PARTITION, ...)."""
        self._change(
            ApiKey.DELETE_TOPICS,
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=self._timeout_ms),
            lambda answer: answer.responses[0],
            f"deleting topic {name!r}",
            done_before=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            is_done=lambda: self.topic(name) is None,
        )

    def http_addresses(self) -> list[tuple[str, int]]:
        """Host and port of the first node that names its HTTP listener; [] if none does."""

        def attempt(deadline_s: float) -> list[tuple[str, int]]:
            for node_id, address in self._cluster(deadline_s).items():
                resource = DescribeConfigsResource(
                    resource_type=BROKER_RESOURCE,
                    resource_name=str(node_id),
                    configuration_keys=list(HTTP_SETTINGS),
                )
                until_s = min(deadline_s, time.monotonic() + LOOKUP_S_MAX)
                request = DescribeConfigsRequest(resources=[resource])
                (result,) = self._ask(address, ApiKey.DESCRIBE_CONFIGS, request, until_s).results
                known = {row.name: row.value or "" for row in result.configs}
                host, bound_host, port, bound_port = [known.get(name, "") for name in HTTP_SETTINGS]
                number = port if port not in ("", "0") else bound_port
                if number.isdecimal() and number != "0":
                    host = host or ("" if bound_host in EVERY_ADDRESS else bound_host) or address[0]
                    return [(host, int(number))]
            return []

        return self._until_done(attempt)

    def list_offsets(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        """The offset at a timestamp of each partition that exists; -1 if there is no later record."""
        wanted: dict[str, set[int]] = {}
        for topic, number in partitions:
            wanted.setdefault(topic, set()).add(number)

        def attempt(deadline_s: float) -> dict[Partition, int]:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in wanted], allow_auto_topic_creation=False
            )
            answer = self._ask_any(ApiKey.METADATA, asked, deadline_s)
            nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
            led: dict[int, list[Partition]] = {}
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.partition_index in wanted[topic.name]:
                        led.setdefault(row.leader_id, []).append((topic.name, row.partition_index))
            found: dict[Partition, int] = {}
            for leader, rows in led.items():
                if leader not in nodes:
                    raise TryAgain(f"no node leads {rows[0][0]}-{rows[0][1]}")
                for first in range(0, len(rows), PARTITIONS_LISTED_MAX):
                    some = rows[first : first + PARTITIONS_LISTED_MAX]
                    found |= self._offsets_at(nodes[leader], some, timestamp_ms, deadline_s)
            return found

        return self._until_done(attempt)

    def _offsets_at(
        self, node: tuple[str, int], partitions: list[Partition], timestamp_ms: int, deadline_s: float
    ) -> dict[Partition, int]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, number in partitions:
            row = ListOffsetsPartition(partition_index=number, timestamp=timestamp_ms)
            topics.setdefault(topic, []).append(row)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
            timeout_ms=self._timeout_ms,
        )
        found: dict[Partition, int] = {}
        for topic in self._ask(node, ApiKey.LIST_OFFSETS, request, deadline_s).topics:
            for row in topic.partitions:
                if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    check(row.error_code, None, f"listing the offset of {topic.name}-{row.partition_index}")
                    found[topic.name, row.partition_index] = row.offset
        return found

    def topic_racks(self, names: Iterable[str]) -> dict[str, Racks]:
        """The racks of replicas by partition, as set by `set_topic_racks`; missing topics are left out."""
        left, found = sorted(names), dict[str, Racks]()
        for first in range(0, len(left), TOPICS_DESCRIBED_MAX):
            some = left[first : first + TOPICS_DESCRIBED_MAX]
            found |= self._until_done(partial(self._described_racks, some))
        return found

    def _described_racks(self, names: list[str], deadline_s: float) -> dict[str, Racks]:
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[topicracks.NAME]
            )
            for name in names
        ]
        request = DescribeConfigsRequest(resources=resources)
        found: dict[str, Racks] = {}
        for result in self._ask_any(ApiKey.DESCRIBE_CONFIGS, request, deadline_s).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(result.error_code, result.error_message, f"describing topic {result.resource_name!r}")
            text = "".join([row.value or "" for row in result.configs if row.name == topicracks.NAME])
            by_partition = json.loads(text) if text else []
            found[result.resource_name] = tuple([tuple(racks) for racks in by_partition])
        return found

    def set_topic_racks(self, name: str, racks: Racks) -> None:
        """Set the racks of a topic's replicas by partition; () removes them. Raises `ClusterRefused`."""
        config = AlterableConfig(
            name=topicracks.NAME,
            config_operation=int(not racks),
            value=json.dumps(racks, ensure_ascii=False) if racks else None,
        )
        self._alter(TOPIC_RESOURCE, name, [config], f"the racks of topic {name!r}")

    def group_configs(self, group_id: str) -> list[ConfigInfo]:
        """The group's configs by name; the group need not exist."""
        resource = DescribeConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=group_id, configuration_keys=None
        )

        def attempt(deadline_s: float) -> list[ConfigInfo]:
            request = DescribeConfigsRequest(resources=[resource])
            (result,) = self._ask_any(ApiKey.DESCRIBE_CONFIGS, request, deadline_s).results
            check(result.error_code, result.error_message, f"describing the configs of group {group_id!r}")
            return sorted(
                (
                    ConfigInfo(row.name, row.value or "", row.config_source == OWN_SOURCE)
                    for row in result.configs
                ),
                key=lambda row: row.name,
            )

        return self._until_done(attempt)

    def configure_group(self, group_id: str, changes: Mapping[str, str | None]) -> None:
        """Set configs of a group, or unset them (None); raises `ClusterRefused` (INVALID_CONFIG, ...)."""
        configs = [
            AlterableConfig(name=name, config_operation=int(value is None), value=value)
            for name, value in changes.items()
        ]
        self._alter(GROUP_RESOURCE, group_id, configs, f"configuring group {group_id!r}")

    def _alter(self, kind: int, name: str, configs: list[AlterableConfig], what: str) -> None:
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

        def attempt(deadline_s: float) -> None:
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = self._ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, deadline_s)
            (row,) = answer.responses
            check(row.error_code, row.error_message, what)

        self._until_done(attempt)

    def _has_partitions(self, name: str, num_partitions: int) -> bool:
        topic = self.topic(name)
        return topic is not None and topic.num_partitions == num_partitions


def racks_of(partitions: Iterable[Iterable[str | None]]) -> Racks:
    """Racks by partition, each once and sorted; () if the nodes have none."""
    racks = [tuple(sorted({rack for rack in replicas if rack})) for replicas in partitions]
    while racks and not racks[-1]:
        racks.pop()
    return tuple(racks)
