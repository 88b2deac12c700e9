"""Committed offsets: asks the coordinator for those of the group (OffsetFetch)."""

from __future__ import annotations

from functools import partial
from typing import Final

from client.core.calls import MISSING, PendingCall, PendingCalls, Then, completes
from client.core.env import Environment
from client.core.errors import IllegalState, KafkaError, error_name
from client.core.events import FetchCommittedEvent
from client.core.member.states import COORDINATOR_MOVED
from client.core.member.wants import GroupCoordinator, MemberIdentity
from client.core.metadata import MetadataManager
from client.core.requests import ClientResponse, Destination, PollResult, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.topic_ids import TopicIds, by_topic
from client.core.types import OffsetAndMetadata, TopicPartition, partition_names
from wire.apis import ApiKey
from wire.errors import ErrorCode, is_retriable
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

VERSIONS: Final = 8, 9, 10
"""The first version, which names its group as one of several; the last one with names of topics; the last."""

MEMBER_MOVES: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""The next heartbeat brings another epoch, or says that the member is out; then the request is made again."""

_Partitions = frozenset[TopicPartition]


class CommittedManager:
    """Answers FETCH_COMMITTED and the position manager. Equal calls share a request."""

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
        self._requires_stable = settings.reads_committed
        self._calls: PendingCalls[_Partitions] = PendingCalls(settings, env)

    def fetch_committed(self, event: FetchCommittedEvent, now_ms: float) -> None:
        """Handle FETCH_COMMITTED."""
        assert event.deadline_ms is not None
        self.fetch(event.partitions, completes(event.future), event.deadline_ms)

    def fetch(self, partitions: _Partitions, then: Then, deadline_ms: float) -> None:
        """Ask for the committed offsets of partitions.

        The result is a dict of each partition to `OffsetAndMetadata`, or to None where there is none.
        """
        if self._identity is None:
            then(None, IllegalState("committed offsets belong to a group; set group.id"))
        elif not partitions:
            then({}, None)
        else:
            what = f"the call for the committed offsets of {len(partitions)} partitions"
            self._calls.add(partitions, what, then, deadline_ms)

    def poll(self, now_ms: float) -> PollResult:
        """Return a request for each call whose attempt is due."""
        requests = [self._request(call, now_ms) for call in self._calls.due(now_ms)]
        return PollResult(requests, self._calls.wait_ms(now_ms))

    def _request(self, call: PendingCall[_Partitions], now_ms: float) -> UnsentRequest:
        call.in_flight = 1
        ids = TopicIds.of(call.key, self._metadata.view)
        return UnsentRequest(
            api=ApiKey.OFFSET_FETCH,
            build=partial(self._build, call.key, ids),
            to=Destination.COORDINATOR,
            then=partial(self._answered, call, ids),
            timeout_ms=self._calls.timeout_ms(call, now_ms),
            versions=ids.versions(*VERSIONS),
        )

    def _build(self, partitions: _Partitions, ids: TopicIds, version: int) -> OffsetFetchRequest:
        identity = self._identity
        assert identity is not None
        is_member = identity.member_epoch > 0
        return OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=identity.group_id,
                    member_id=identity.member_id if is_member else None,
                    member_epoch=identity.member_epoch if is_member else -1,
                    topics=[
                        OffsetFetchRequestTopics(
                            name=topic, topic_id=ids.id_of(topic), partition_indexes=indexes
                        )
                        for topic, indexes in by_topic(partitions).items()
                    ],
                )
            ],
            require_stable=self._requires_stable,
        )

    def _answered(self, call: PendingCall[_Partitions], ids: TopicIds, response: ClientResponse) -> None:
        call.in_flight = 0
        now_ms = response.received_ms
        if response.failure is not None:
            call.unanswered(response)
            return
        found, refusals = self._offsets(call.key, ids, response.body)
        if not refusals:
            call.end(found)
            return
        code, words = refusals[0]
        if code in COORDINATOR_MOVED:
            self._coordinator.lost(response.node_id, f"it answered {error_name(code)} to OffsetFetch", now_ms)
        if code == ErrorCode.UNKNOWN_TOPIC_ID:
            self._metadata.refresh(now_ms, "the coordinator does not know a topic id")
        may_pass = code in MEMBER_MOVES or code == MISSING or is_retriable(code)
        if may_pass and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            call.retry_later(f"{words} ({error_name(code)})", now_ms)
        else:
            call.end(error=KafkaError(code, words))

    def _offsets(
        self, partitions: _Partitions, ids: TopicIds, body: OffsetFetchResponse
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], list[tuple[int, str]]]:
        """Return the offsets, and the errors, those that are final first."""
        assert self._identity is not None
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        refusals: list[tuple[int, str]] = []
        for group in body.groups:
            if group.group_id != self._identity.group_id:
                continue
            if group.error_code:
                refusals.append((group.error_code, f"committed offsets of group {group.group_id!r}"))
            for topic in group.topics:
                name = ids.name_of(topic.topic_id, topic.name)
                for one in topic.partitions:
                    partition = TopicPartition(name, one.partition_index)
                    if partition not in partitions:
                        continue
                    if one.error_code:
                        words = f"the committed offset of {partition_names(partition)}"
                        refusals.append((one.error_code, words))
                    elif one.committed_offset >= 0:
                        found[partition] = OffsetAndMetadata(
                            one.committed_offset, one.metadata or "", one.committed_leader_epoch
                        )
                    else:
                        found[partition] = None
        if not refusals and (missing := partitions - found.keys()):
            refusals.append((MISSING, f"the answer leaves out {partition_names(min(missing))}"))
        return found, sorted(refusals, key=lambda refusal: is_retriable(refusal[0]))
