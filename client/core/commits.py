"""Commits of offsets, one request at a time, so that no earlier commit overwrites a later one.

Commits wait in a queue; two equal ones in a row are one. A request takes the member epoch when it is sent,
and is made again if it is refused because the epoch has changed. A member that is not part of the group any
more must not commit, as its partitions are another member's; nor must it commit what it consumed of a
partition that it has given up since, or it would overwrite the commits of the next owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from client.core.calls import MISSING, PendingCall, PendingCalls, completes
from client.core.env import Environment
from client.core.errors import FencedError, IllegalState, KafkaError, error_name
from client.core.events import CommitEvent
from client.core.member.states import COORDINATOR_MOVED
from client.core.member.wants import GroupCoordinator, MemberIdentity
from client.core.metadata import MetadataManager
from client.core.requests import ClientResponse, Destination, PollResult, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.topic_ids import TopicIds
from client.core.types import OffsetAndMetadata, TopicPartition, partition_names
from wire.apis import ApiKey
from wire.errors import ErrorCode, is_retriable
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

VERSIONS: Final = 2, 9, 10
"""The first version that is used, the last one with names of topics, and the last one."""

FENCING: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, and it is none of them",
    ErrorCode.FENCED_MEMBER_EPOCH: "the group has removed it",
    ErrorCode.ILLEGAL_GENERATION: "the group went on without it",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer has its group.instance.id",
}
"""Errors of a consumer that is not part of the group, with the reason."""


class _Commit(NamedTuple):
    """The offsets of a commit, and after which errors it is made again, as `CommitEvent` has them."""

    offsets: frozenset[tuple[TopicPartition, OffsetAndMetadata]]
    retries: bool
    releases: bool
    tenures: frozenset[tuple[TopicPartition, int]]
    """The partitions that the member had when the commit was made."""


class CommitManager:
    """Handles COMMIT."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        identity: MemberIdentity | None,
        coordinator: GroupCoordinator,
        metadata: MetadataManager,
    ) -> None:
        self._identity = identity
        self._coordinator = coordinator
        self._metadata = metadata
        self._sent_epoch = -1
        """The member epoch of the request in flight."""
        self._calls: PendingCalls[_Commit] = PendingCalls(settings, env, one_by_one=True)

    def commit(self, event: CommitEvent, now_ms: float) -> None:
        """Handle COMMIT."""
        then = completes(event.future)
        if self._identity is None:
            then(None, IllegalState("offsets are committed by a group; set group.id"))
        elif not event.offsets:
            then(None, None)
        else:
            assert event.deadline_ms is not None
            what = f"the commit of {len(event.offsets)} partitions"
            if self._has_left():
                then(None, _fenced(what))  # before another commit in the queue can outlast that
                return
            tenures = ((at, self._identity.tenure(at)) for at in event.offsets)
            held = frozenset((at, tenure) for at, tenure in tenures if tenure is not None)
            key = _Commit(frozenset(event.offsets.items()), event.retries, event.releases, held)
            self._calls.add(key, what, then, event.deadline_ms)

    def poll(self, now_ms: float) -> PollResult:
        """Return the request of the first commit in the queue, if its attempt is due."""
        for call in self._calls.due(now_ms):
            if (obstacle := self._obstacle(call)) is not None:
                call.end(error=obstacle)
                return PollResult((), 0.0)
            return PollResult((self._request(call, now_ms),), self._calls.wait_ms(now_ms))
        return PollResult((), self._calls.wait_ms(now_ms))

    def _has_left(self) -> bool:
        assert self._identity is not None
        return self._identity.is_subscribed and self._identity.member_epoch <= 0

    def _obstacle(self, call: PendingCall[_Commit]) -> FencedError | None:
        """The reason why a commit must not be sent any more."""
        assert self._identity is not None
        if self._has_left():
            return _fenced(call.what)
        given_up = sorted(at for at, tenure in call.key.tenures if self._identity.tenure(at) != tenure)
        if given_up:
            names = partition_names(*given_up)
            return FencedError(f"{call.what} was not made: {names} were given up meanwhile")
        return None

    def _request(self, call: PendingCall[_Commit], now_ms: float) -> UnsentRequest:
        call.in_flight = 1
        ids = TopicIds.of((partition for partition, _ in call.key.offsets), self._metadata.view)
        return UnsentRequest(
            api=ApiKey.OFFSET_COMMIT,
            build=partial(self._build, call.key, ids),
            to=Destination.COORDINATOR,
            then=partial(self._answered, call, ids),
            timeout_ms=self._calls.timeout_ms(call, now_ms),
            versions=ids.versions(*VERSIONS),
            is_wanted=lambda: self._obstacle(call) is None,
        )

    def _build(self, key: _Commit, ids: TopicIds, version: int) -> OffsetCommitRequest:
        identity = self._identity
        assert identity is not None
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in sorted(key.offsets):
            topics[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        self._sent_epoch = identity.member_epoch if identity.is_subscribed else -1
        return OffsetCommitRequest(
            group_id=identity.group_id,
            member_id=identity.member_id if identity.is_subscribed else "",
            generation_id_or_member_epoch=self._sent_epoch,
            group_instance_id=identity.group_instance_id if identity.is_subscribed else None,
            topics=[
                OffsetCommitRequestTopic(name=topic, topic_id=ids.id_of(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    def _answered(self, call: PendingCall[_Commit], ids: TopicIds, response: ClientResponse) -> None:
        call.in_flight = 0
        if response.failure is not None:
            if (obstacle := self._obstacle(call)) is not None:
                call.end(error=obstacle)
                return
            call.unanswered(response)
            if not call.key.retries:
                call.end(error=KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{call.what} failed: {call.trouble}"))
            return
        refused = _refused(call.key, ids, response.body)
        if not refused:
            call.end()
            return
        # The error that decides is the most severe one: a fence, then what will not pass, then the rest.
        code = min(refused, key=lambda code: (code not in FENCING, is_retriable(code), code))
        self._refuse(call, code, refused[code], response)

    def _refuse(
        self,
        call: PendingCall[_Commit],
        code: int,
        partitions: list[TopicPartition],
        response: ClientResponse,
    ) -> None:
        assert self._identity is not None
        now_ms = response.received_ms
        words = f"the offsets of {partition_names(*partitions)} were not committed"
        if code in FENCING:
            call.end(
                error=FencedError(
                    f"{words}: the consumer is not part of the group, {FENCING[code]} ({error_name(code)}). "
                    "Its partitions may be another consumer's; poll() joins again"
                )
            )
            return
        if code in COORDINATOR_MOVED:
            self._coordinator.lost(
                response.node_id, f"it answered {error_name(code)} to OffsetCommit", now_ms
            )
        is_unknown = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
        if is_unknown:
            self._metadata.refresh(now_ms, "a commit was refused for an unknown topic")
        is_stale = code == ErrorCode.STALE_MEMBER_EPOCH
        if is_stale and self._identity.member_epoch != self._sent_epoch:
            call.next_ms = now_ms  # at once: the heartbeat has brought another epoch meanwhile
        elif is_unknown and call.key.releases:
            call.end(error=KafkaError(code, f"{words}: the topic is deleted, or not known"))
        elif call.key.retries and (is_stale or is_retriable(code) or code == MISSING):
            call.retry_later(f"{words} ({error_name(code)})", now_ms)
        else:
            call.end(error=KafkaError(code, words))


def _fenced(what: str) -> FencedError:
    return FencedError(f"{what} was not made: the consumer is not part of the group")


def _refused(key: _Commit, ids: TopicIds, body: OffsetCommitResponse) -> dict[int, list[TopicPartition]]:
    """Return the partitions that were not committed, by error code."""
    codes: dict[TopicPartition, int] = {partition: MISSING for partition, _ in key.offsets}
    for topic in body.topics:
        name = ids.name_of(topic.topic_id, topic.name)
        for one in topic.partitions:
            partition = TopicPartition(name, one.partition_index)
            if partition in codes:
                codes[partition] = one.error_code
    refused: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, code in sorted(codes.items()):
        if code:
            refused[code].append(partition)
    return refused
