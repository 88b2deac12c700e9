"""Raw clients of one group: they find its coordinator, send requests, and report every answer unchanged.

Nothing is retried implicitly: a request is sent once, and the caller gets its answer, its error or the loss
of its connection. `until_accepted` is the only loop: it looks up the coordinator and repeats the request
until it is accepted, counting the errors by code.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from cluster.launching.launcher import NodeProcess
from quorate.connection import ClientConnection, ConnectionLost
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.schema import Message

T = TypeVar("T")
Address = tuple[str, int]

ASK_S = 1.0
"""Seconds to wait for a node's answer: it may be stopped."""

ACCEPT_S = 30.0
PAUSE_S = 0.005
"""Seconds between two attempts, which is the resolution of every measured outage."""

ONE_KEY_VERSION = 3  # the last FindCoordinator version with one key
NAMES_VERSION = 9  # the last OffsetCommit and OffsetFetch version with topic names


class Refused(Exception):
    """The coordinator answered with an error code."""

    def __init__(self, error_code: int) -> None:
        super().__init__(f"error {error_code}")
        self.error_code = error_code


def coordinator_of(nodes: Iterable[NodeProcess], group_id: str) -> Address:
    """Return the address of a group's coordinator as soon as a node knows it."""
    group = RawGroup([(node.host, node.port) for node in nodes], group_id)
    try:
        return group.until_accepted(group.find)
    finally:
        group.close()


class RawGroup:
    """One group, seen through one connection at a time; `nodes` may be asked for the coordinator."""

    def __init__(self, nodes: list[Address], group_id: str) -> None:
        self.nodes = nodes
        self.group_id = group_id
        self.coordinator: Address | None = None
        self.refusals: Counter[str] = Counter()
        self._connections: dict[Address, ClientConnection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def find(self) -> Address:
        """The coordinator, as named by the first node that answers; raises Refused, ConnectionLost."""
        lost: ConnectionLost | None = None
        for address in self.nodes:
            try:
                request = FindCoordinatorRequest(key=self.group_id, key_type=0)
                found = self.ask_at(address, ApiKey.FIND_COORDINATOR, request, ONE_KEY_VERSION)
            except ConnectionLost as error:
                lost = error
                continue
            if found.error_code:
                raise Refused(found.error_code)
            self.coordinator = (found.host, found.port)
            return self.coordinator
        raise lost or ConnectionLost("no node to ask")

    def ask(self, api: ApiKey, body: Message, version_max: int | None = None) -> Any:
        """Ask the known coordinator, or find it first."""
        return self.ask_at(self.coordinator or self.find(), api, body, version_max)

    def ask_at(self, address: Address, api: ApiKey, body: Message, version_max: int | None = None) -> Any:
        deadline_s = time.monotonic() + ASK_S
        connection = self._connections.get(address)
        try:
            if connection is None:
                connection = self._connections[address] = ClientConnection(*address, deadline_s)
            return connection.call(api, body, deadline_s, version_max=version_max)
        except ConnectionLost:
            self._connections.pop(address, None)
            raise

    def until_accepted(self, call: Callable[..., T], *args: Any) -> T:
        """Call repeatedly, with a fresh coordinator lookup each time, until nothing is raised.

        Raises TimeoutError after `ACCEPT_S`.
        """
        deadline_s = time.monotonic() + ACCEPT_S
        while True:
            try:
                return call(*args)
            except Refused as refused:
                self.refusals[f"error {refused.error_code}"] += 1
            except ConnectionLost:
                self.refusals["connection lost"] += 1
            self.coordinator = None
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.group_id}: nothing accepted in {ACCEPT_S} s: {self.refusals}")
            time.sleep(PAUSE_S)

    # ---- offsets ----

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        """Commit without being a member; returns once every partition is acknowledged."""
        rows = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            for partition, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        answer = self.ask(ApiKey.OFFSET_COMMIT, request, NAMES_VERSION)
        _raise_first(row.error_code for found in answer.topics for row in found.partitions)

    def fetch(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """Committed offsets by partition, -1 if there is none."""
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group_id, topics=wanted)])
        (group,) = self.ask(ApiKey.OFFSET_FETCH, request, NAMES_VERSION).groups
        _raise_first([group.error_code])
        rows = [row for found in group.topics for row in found.partitions]
        _raise_first(row.error_code for row in rows)
        return {row.partition_index: row.committed_offset for row in rows}


class RawMember:
    """A member of a group that acknowledges every assignment."""

    def __init__(self, group: RawGroup, member_id: str, topics: list[str]) -> None:
        self.group = group
        self.member_id = member_id
        self.topics = topics
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    def beat(self) -> bool:
        """Send one heartbeat; True if it was accepted and brought nothing new. Raises Refused."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=-1,
        )
        if self.epoch == 0:
            request.subscribed_topic_names = list(self.topics)
            request.rebalance_timeout_ms = 60_000
            request.topic_partitions = []
        elif self.owned:
            request.topic_partitions = self.owned
        answer: ConsumerGroupHeartbeatResponse = self.group.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
        _raise_first([answer.error_code])
        before, owned = (self.epoch, self.owned), self.owned
        if answer.assignment is not None:
            owned = [
                TopicPartitions(topic_id=topic.topic_id, partitions=list(topic.partitions))
                for topic in answer.assignment.topic_partitions
            ]
        self.epoch, self.owned = answer.member_epoch, owned
        return before == (self.epoch, self.owned)

    def settle(self, within_s: float = ACCEPT_S) -> None:
        """Send heartbeats until two in a row bring nothing new."""
        deadline_s = time.monotonic() + within_s
        calm = 0
        while calm < 2:
            calm = calm + 1 if self.group.until_accepted(self.beat) else 0
            assert time.monotonic() < deadline_s, f"{self.member_id} did not settle"

    def leave(self) -> None:
        self.epoch, self.owned = -1, []
        with contextlib.suppress(Refused):
            self.beat()


def _raise_first(error_codes: Any) -> None:
    for error_code in error_codes:
        if error_code:
            raise Refused(error_code)
