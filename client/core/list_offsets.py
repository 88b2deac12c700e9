"""Offsets by time, or the first and the last ones, from the leaders of the partitions (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Final

from client.core.calls import MISSING, PendingCall, PendingCalls, Then, completes
from client.core.env import Environment
from client.core.errors import KafkaError, error_name
from client.core.events import ListOffsetsEvent
from client.core.metadata import MetadataManager
from client.core.requests import FOREVER, NO_REPLICA, ClientResponse, PollResult, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import OffsetAndTimestamp, TopicPartition, partition_names
from wire.apis import ApiKey
from wire.errors import ErrorCode, is_retriable
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FIRST_VERSION: Final = 2
"""Version 1 does not know isolation.level."""
LAST_VERSION: Final = 10

_Times = frozenset[tuple[TopicPartition, int]]


class _Progress:
    """The offsets that a call has found so far, as it asks several leaders."""

    __slots__ = ("found", "missing")

    def __init__(self, times: _Times) -> None:
        self.found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self.missing: dict[TopicPartition, int] = dict(times)
        """Partitions without an answer, with their timestamps."""


class ListOffsetsManager:
    """Answers LIST_OFFSETS and the position manager."""

    def __init__(self, settings: ConsumerSettings, env: Environment, metadata: MetadataManager) -> None:
        self._settings = settings
        self._metadata = metadata
        self._isolation_level = int(settings.reads_committed)
        self._calls: PendingCalls[_Times] = PendingCalls(settings, env)
        self._progress: dict[PendingCall[_Times], _Progress] = {}
        self._view = metadata.view
        """The view in which calls without any leader have looked for theirs."""

    def list_offsets(self, event: ListOffsetsEvent, now_ms: float) -> None:
        """Handle LIST_OFFSETS."""
        assert event.deadline_ms is not None
        self.fetch(event.timestamps, completes(event.future), event.deadline_ms)

    def fetch(self, timestamps: Mapping[TopicPartition, int], then: Then, deadline_ms: float) -> None:
        """Ask for offsets: by Unix time in ms, FIRST_OFFSET or LAST_OFFSET.

        The result is a dict of each partition to `OffsetAndTimestamp`, or to None if no record is as late.
        """
        if not timestamps:
            then({}, None)
            return
        self._metadata.want_topics({partition.topic for partition in timestamps})
        what = f"the call for the offsets of {len(timestamps)} partitions by time"
        self._calls.add(frozenset(timestamps.items()), what, then, deadline_ms)

    def poll(self, now_ms: float) -> PollResult:
        """Return a request for each leader of a call whose attempt is due."""
        if self._view is not self._metadata.view:
            self._view = self._metadata.view
            for call in self._progress:
                if call.next_ms == FOREVER:
                    call.next_ms = now_ms
        requests: list[UnsentRequest] = []
        due = self._calls.due(now_ms)
        self._progress = {call: one for call, one in self._progress.items() if call in self._calls}
        for call in due:
            requests += self._requests(call, now_ms)
        return PollResult(requests, self._calls.wait_ms(now_ms))

    def _requests(self, call: PendingCall[_Times], now_ms: float) -> list[UnsentRequest]:
        progress = self._progress.setdefault(call, _Progress(call.key))
        by_leader: defaultdict[int, dict[TopicPartition, int]] = defaultdict(dict)
        unled: list[TopicPartition] = []
        for partition, timestamp in sorted(progress.missing.items()):
            leader = self._metadata.view.leader(partition)
            if leader is None:
                unled.append(partition)
            else:
                by_leader[leader][partition] = timestamp
        if unled:
            words = f"no leader of {partition_names(unled[0])} is known"
            self._metadata.refresh(now_ms, words)
            call.trouble = words
            call.next_ms = FOREVER  # until there is another view
        call.in_flight = len(by_leader)
        return [
            UnsentRequest(
                api=ApiKey.LIST_OFFSETS,
                build=partial(self._build, times),
                to=leader,
                then=partial(self._answered, call, progress, times),
                timeout_ms=self._calls.timeout_ms(call, now_ms),
                versions=(FIRST_VERSION, LAST_VERSION),
            )
            for leader, times in by_leader.items()
        ]

    def _build(self, times: Mapping[TopicPartition, int], version: int) -> ListOffsetsRequest:
        topics: defaultdict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for partition, timestamp in times.items():
            known = self._metadata.view.partition(partition)
            topics[partition.topic].append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    timestamp=timestamp,
                    current_leader_epoch=known.leader_epoch if known is not None else -1,
                )
            )
        return ListOffsetsRequest(
            replica_id=NO_REPLICA,
            isolation_level=self._isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
            timeout_ms=self._settings.request_timeout_ms,
        )

    def _answered(
        self,
        call: PendingCall[_Times],
        progress: _Progress,
        asked: Mapping[TopicPartition, int],
        response: ClientResponse,
    ) -> None:
        call.in_flight -= 1
        if response.failure is not None:
            self._metadata.refresh(response.received_ms, response.words or response.failure.value)
            call.unanswered(response)
            return
        refused = self._take(progress, asked, response.body)
        call.has_begun = bool(progress.found)
        for partition, code in refused.items():
            words = f"the offset of {partition_names(partition)} by time"
            if code != MISSING and not is_retriable(code):
                call.end(error=KafkaError(code, words))
                return
            self._metadata.refresh(response.received_ms, f"{words}: {error_name(code)}")
            call.trouble = f"{words} ({error_name(code)})"
        if not progress.missing:
            call.end(progress.found)
        elif not call.in_flight:
            call.retry_later(call.trouble, response.received_ms)

    def _take(
        self, progress: _Progress, asked: Mapping[TopicPartition, int], body: ListOffsetsResponse
    ) -> dict[TopicPartition, int]:
        """Take the offsets of an answer. Returns the partitions that have none, with their error codes."""
        codes: dict[TopicPartition, int] = dict.fromkeys(asked, MISSING)
        for topic in body.topics:
            for one in topic.partitions:
                partition = TopicPartition(topic.name, one.partition_index)
                if partition not in asked:
                    continue
                if one.error_code == ErrorCode.NONE and one.offset < 0 and asked[partition] < 0:
                    continue  # every log has a first and a last offset: as good as no answer
                codes[partition] = one.error_code
                if one.error_code == ErrorCode.NONE and progress.missing.pop(partition, None) is not None:
                    offset = OffsetAndTimestamp(one.offset, one.timestamp, one.leader_epoch)
                    progress.found[partition] = offset if one.offset >= 0 else None
        return {partition: code for partition, code in codes.items() if code}
