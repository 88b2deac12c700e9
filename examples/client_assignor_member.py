"""A group member with assignors of its own: the client's side of docs/protocol-extensions.md.

It joins, heartbeats, revokes partitions when asked to, and computes the group's target when it is its turn.
It blocks, consumes no records, and lets its owner set the pace: one call is one request. That makes it a
reference for authors of such clients, and a member that tests can steer through every branch.

Invariants: partitions are used only while they are in `owned`; after an answer that may have been lost,
the member sends everything it knows again and assumes nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from quorate.connection import ClientConnection, ConnectionLost
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import consumer_group_install_assignment as install
from wire.messages import consumer_group_prepare_assignment as prepare
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.schema import Message

Address = tuple[str, int]
Owned = dict[bytes, set[int]]
"""Topic id → partitions."""

Assign = Callable[[prepare.ConsumerGroupPrepareAssignmentResponse], list[install.Member]]
"""Computes the members' target assignments from the group as the coordinator describes it."""

ANSWER_S = 5.0
ONE_KEY_VERSION = 3  # the last FindCoordinator version with one key
JOIN_EPOCH, LEAVE_EPOCH = 0, -1

ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class CoordinatorRefused(Exception):
    """The coordinator answered with an error."""

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


class ClientAssignorMember:
    """A member of `group_id`; `assign` runs the assignors that it offers."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        group_id: str,
        topics: Sequence[str],
        offers: Sequence[extended.Assignor],
        assign: Assign,
        *,
        rebalance_timeout_ms: int = 60_000,
    ) -> None:
        self.group_id = group_id
        self.member_id = str(uuid.uuid4())
        self.topics = list(topics)
        self.offers = list(offers)
        self.assign = assign
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.epoch = JOIN_EPOCH
        self.interval_ms = 0
        self.owned: Owned = {}
        self.pending: Owned = {}
        self.told = extended.Assignment(metadata_version=-1)
        """The last assignment metadata from the assignor: error, version and bytes."""
        self.must_compute = False
        self._bootstrap = list(bootstrap)
        self._connection: ClientConnection | None = None
        self._says_all = True
        self._has_news = False

    def heartbeat(self) -> extended.ExtendedConsumerGroupHeartbeatResponse:
        """Send one heartbeat and apply its answer.

        Raises `CoordinatorRefused` and `ConnectionLost`; the next heartbeat then sends all fields again.
        """
        says_all = self._says_all or self.epoch == JOIN_EPOCH
        self._says_all = True  # until it is answered
        request = extended.ExtendedConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if says_all:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.subscribed_topic_names = self.topics
            request.client_assignors = self.offers
        if says_all or self._has_news:
            request.topic_partitions = _wire(self.owned)
        try:
            answer = self._ask(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, request)
        except CoordinatorRefused as refused:
            if refused.code in FENCED:
                self._lose_everything()
            raise
        self._says_all = self._has_news = False
        self.epoch, self.interval_ms = answer.member_epoch, answer.heartbeat_interval_ms
        self.must_compute = answer.should_compute_assignment
        if answer.assignment is not None:
            self.told = answer.assignment
            owned = _sets(answer.assignment.assigned_topic_partitions)
            self._has_news, self.owned = owned != self.owned, owned
            self.pending = _sets(answer.assignment.pending_topic_partitions)
        return answer

    def prepare(self) -> prepare.ConsumerGroupPrepareAssignmentResponse:
        """The group's members and topics, from which to compute a target."""
        request = prepare.ConsumerGroupPrepareAssignmentRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        return self._ask(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, request)

    def install(self, group_epoch: int, members: Sequence[install.Member]) -> None:
        """Install a target; may be repeated after a lost answer."""
        request = install.ConsumerGroupInstallAssignmentRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            group_epoch=group_epoch,
            members=list(members),
        )
        self._ask(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, request)

    def compute(self) -> bool:
        """Compute and install the group's target if it is this member's turn.

        Failures are harmless: the next heartbeat tells which member's turn it is.
        """
        if not self.must_compute:
            return False
        shown = self.prepare()
        self.install(shown.group_epoch, self.assign(shown))
        self.must_compute = False
        return True

    def leave(self) -> None:
        """Leave the group for good and close the connection; a later heartbeat joins again."""
        self.epoch, self.owned = LEAVE_EPOCH, {}
        try:
            self._ask(
                ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT,
                extended.ExtendedConsumerGroupHeartbeatRequest(
                    group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
                ),
            )
        finally:
            self._lose_everything()
            self.close()

    def close(self) -> None:
        """Close the connection without leaving the group."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lose_everything(self) -> None:
        self.epoch, self.owned, self.pending, self.must_compute = JOIN_EPOCH, {}, {}, False
        self._says_all = True

    def _ask(self, api: ApiKey, body: Message) -> Any:
        deadline_s = time.monotonic() + ANSWER_S
        try:
            if self._connection is None:
                self._connection = self._find(deadline_s)
            answer = self._connection.call(api, body, deadline_s)
        except ConnectionLost:
            self.close()
            raise
        if answer.error_code:
            if answer.error_code in ELSEWHERE:
                self.close()
            raise CoordinatorRefused(answer.error_code, answer.error_message)
        return answer

    def _find(self, deadline_s: float) -> ClientConnection:
        """A connection to the group's coordinator, as named by the first node that answers."""
        lost = ConnectionLost("no node to ask")
        for host, port in self._bootstrap:
            try:
                asked = ClientConnection(host, port, deadline_s)
            except ConnectionLost as error:
                lost = error
                continue
            try:
                request = FindCoordinatorRequest(key=self.group_id, key_type=0)
                found = asked.call(ApiKey.FIND_COORDINATOR, request, deadline_s, version_max=ONE_KEY_VERSION)
            except ConnectionLost as error:
                lost = error
                continue
            finally:
                asked.close()
            if found.error_code:
                raise CoordinatorRefused(found.error_code, found.error_message)
            return ClientConnection(found.host, found.port, deadline_s)
        raise lost


def _wire(owned: Owned) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
        for topic_id, partitions in owned.items()
    ]


def _sets(topics: Sequence[TopicPartitions]) -> Owned:
    return {topic.topic_id: set(topic.partitions) for topic in topics}
