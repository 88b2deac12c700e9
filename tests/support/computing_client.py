"""Members that bring assignors of their own: the extended heartbeat, Prepare and Install, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from coordinator.state.reconcile import NO_METADATA, AssignorMetadata
from tests.support.world import Client, World
from wire.apis import ApiKey
from wire.messages import consumer_group_install_assignment as installing
from wire.messages import consumer_group_prepare_assignment as preparing
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

Parts = dict[str, dict[bytes, list[int]]]
"""Member id → topic id → partitions."""


def offer(
    name: str = "warm",
    low: int = 0,
    high: int = 0,
    *,
    reason: int = 0,
    version: int | None = None,
    metadata: bytes = b"",
) -> extended.Assignor:
    """An assignor in a heartbeat; its metadata is in the newest version unless told otherwise."""
    return extended.Assignor(
        name=name,
        minimum_version=low,
        maximum_version=high,
        reason=reason,
        metadata_version=high if version is None else version,
        metadata_bytes=metadata,
    )


def ask_to_prepare(
    world: World, member_id: str, epoch: int, group_id: str = "g"
) -> preparing.ConsumerGroupPrepareAssignmentResponse:
    request = preparing.ConsumerGroupPrepareAssignmentRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch
    )
    answer = world.handle(ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, 0, request)
    assert isinstance(answer, preparing.ConsumerGroupPrepareAssignmentResponse)
    return answer


def ask_to_install(
    world: World,
    member_id: str,
    epoch: int,
    group_epoch: int,
    members: Iterable[installing.Member],
    group_id: str = "g",
) -> installing.ConsumerGroupInstallAssignmentResponse:
    request = installing.ConsumerGroupInstallAssignmentRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        group_epoch=group_epoch,
        members=list(members),
    )
    answer = world.handle(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, 0, request)
    assert isinstance(answer, installing.ConsumerGroupInstallAssignmentResponse)
    return answer


def part(
    member_id: str,
    partitions: dict[bytes, list[int]] | None = None,
    *,
    error: int = 0,
    version: int = -1,
    metadata: bytes = b"",
) -> installing.Member:
    return installing.Member(
        member_id=member_id,
        error=error,
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in (partitions or {}).items()
        ],
        metadata_version=version,
        metadata_bytes=metadata,
    )


def dealt_round(shown: preparing.ConsumerGroupPrepareAssignmentResponse) -> list[installing.Member]:
    """Deal each topic's partitions to its subscribers one by one: valid, and unlike our own assignors."""
    parts: Parts = {member.member_id: {} for member in shown.members}
    for topic in shown.topics:
        takers = [
            member.member_id for member in shown.members if topic.topic_id in member.subscribed_topic_ids
        ]
        for number in range(topic.num_partitions if takers else 0):
            taker = takers[number % len(takers)]
            parts[taker].setdefault(topic.topic_id, []).append(number)
    return [part(member_id, partitions) for member_id, partitions in parts.items()]


@dataclass
class ComputingClient(Client):
    """A client with assignors: it sends the extended heartbeat and computes when it is asked to."""

    offers: list[extended.Assignor] | None = field(default_factory=lambda: [offer()])
    pending: dict[bytes, list[int]] = field(default_factory=dict)
    assignor_metadata: AssignorMetadata = NO_METADATA
    rack_id: str | None = None
    must_compute: bool = False
    asks_tokens: bool = False
    full_answer: extended.ExtendedConsumerGroupHeartbeatResponse | None = None

    def send(self, epoch: int, fields: dict[str, Any], is_lost: bool) -> ConsumerGroupHeartbeatResponse:
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in owned.items()
            ]
        says_all = "subscribed_topic_names" in fields
        request = extended.ExtendedConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            client_assignors=self.offers if says_all else None,
            rack_id=self.rack_id if says_all else None,
            fencing_tokens=self.asks_tokens,
            **fields,
        )
        version = 1 if self.asks_tokens else 0
        answer = self.world.beat(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, version, request)
        assert isinstance(answer, extended.ExtendedConsumerGroupHeartbeatResponse)
        stock = ConsumerGroupHeartbeatResponse(
            error_code=answer.error_code,
            error_message=answer.error_message,
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
        )
        given = answer.assignment
        if given is not None:
            stock.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=one.topic_id, partitions=one.partitions)
                    for one in given.assigned_topic_partitions
                ]
            )
        if not is_lost:
            self.full_answer = answer
            self.must_compute = answer.should_compute_assignment
            if given is not None:
                self.pending = {one.topic_id: one.partitions for one in given.pending_topic_partitions}
                self.assignor_metadata = AssignorMetadata(
                    given.error, given.metadata_version, given.metadata_bytes
                )
        return stock

    def offering(self, *offers: extended.Assignor) -> ConsumerGroupHeartbeatResponse:
        """Replace the assignors that it offers."""
        self.offers = list(offers)
        self.must_send_all = True
        return self.beat()

    def prepare(self) -> preparing.ConsumerGroupPrepareAssignmentResponse:
        return ask_to_prepare(self.world, self.member_id, self.epoch, self.group_id)

    def install(
        self, group_epoch: int, members: Iterable[installing.Member]
    ) -> installing.ConsumerGroupInstallAssignmentResponse:
        return ask_to_install(self.world, self.member_id, self.epoch, group_epoch, members, self.group_id)

    def compute(
        self,
        assign: Callable[
            [preparing.ConsumerGroupPrepareAssignmentResponse], list[installing.Member]
        ] = dealt_round,
    ) -> int:
        """Compute a target if asked to; return the error code it ended with."""
        if not self.must_compute:
            return 0
        shown = self.prepare()
        if shown.error_code:
            return shown.error_code
        return self.install(shown.group_epoch, assign(shown)).error_code


def settle_computing(clients: Iterable[Client], rounds: int = 4) -> None:
    """Let every client send heartbeats for some rounds, and compute if it is asked to."""
    clients = list(clients)
    for _ in range(rounds):
        for client in clients:
            client.beat()
            if isinstance(client, ComputingClient):
                client.compute()
