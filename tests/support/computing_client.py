"""Members that bring assignors of their own: the extended heartbeat, Prepare and Install, by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from client.core.assignors import AssignorOffer, OfferedMetadata
from client.core.requests import UnsentRequest
from coordinator.state.reconcile import NO_METADATA, AssignorMetadata
from tests.support.group_client import Client, LoneMember
from tests.support.world import World
from wire.apis import ApiKey
from wire.messages import consumer_group_install_assignment as installing
from wire.messages import consumer_group_prepare_assignment as preparing
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import TopicPartitions

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
) -> AssignorOffer:
    """An assignor; its metadata is in the newest version unless told otherwise."""
    return AssignorOffer(
        name, low, high, OfferedMetadata(high if version is None else version, metadata, reason)
    )


OFFER = offer()


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


class ComputingClient(Client):
    """A client with assignors, which computes when it is asked to."""

    def __init__(self, *words: Any, offers: Sequence[AssignorOffer] = (OFFER,), **fields: Any) -> None:
        super().__init__(*words, **fields)
        self.offers = offers
        self.full_answer: extended.ExtendedConsumerGroupHeartbeatResponse | None = None
        """The last answer that it heard."""
        self.pending: dict[bytes, list[int]] = {}
        """Partitions of its target that others still have."""
        self.assignor_metadata = NO_METADATA

    @property
    def must_compute(self) -> bool:
        return self._member is not None and self._member.membership.must_compute

    def _send(self, member: LoneMember, request: UnsentRequest, is_lost: bool) -> Any:
        answer = super()._send(member, request, is_lost)
        if not is_lost and request.api is ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT:
            self.full_answer = answer
            given = answer.assignment
            if given is not None:
                self.pending = {one.topic_id: one.partitions for one in given.pending_topic_partitions}
                self.assignor_metadata = AssignorMetadata(
                    given.error, given.metadata_version, given.metadata_bytes
                )
        return answer

    def offering(self, *offers: AssignorOffer) -> Any:
        """Replace the assignors that it offers."""
        self.offers = offers
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
