"""Asks the leaders for records: one Fetch request to each node, for all its partitions that want data.

A second one goes beside it, on a connection of its own, if the first waits for records and a partition that
is not in it wants data: after a seek, or when what was fetched of it has been read. It waits no longer than
the first one will, so that both become one again.

A partition is asked for while the application reads the response before, but not further ahead, and not while
it is paused. All responses together stay within the fetch buffer: a request asks for no more bytes than have
room (KIP-74). Positions move when records arrive, so the next request does not wait for the application.

Requests have no session (KIP-227): each names all its partitions. Topics are named by id where ids are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from client.core.backoff import Backoff, retry_backoff
from client.core.env import Environment
from client.core.errors import KafkaError, error_name
from client.core.events import BackgroundEvent, ErrorEvent, FetchConsumedEvent, FetchResponseEvent
from client.core.fetch.buffer import FetchBuffer
from client.core.fetch.extent import fetched_to
from client.core.metadata import MetadataManager
from client.core.positions import FetchPositions, FetchState, PartitionPosition
from client.core.requests import (
    FOREVER,
    NO_REPLICA,
    NOTHING,
    ClientResponse,
    PollResult,
    RequestFailure,
    UnsentRequest,
)
from client.core.settings import ConsumerSettings
from client.core.topic_ids import TopicIds
from client.core.types import FetchedData, TopicPartition, partition_names
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

VERSIONS: Final = 4, 12, 17
"""The first version, with message format 2 and isolation.level; the last with names of topics; the last."""

WAITS_AFTER_MS: Final = 10.0
"""A Fetch without an answer for so long waits for records, as far as the client can tell."""

NO_SESSION_EPOCH: Final = -1
"""The request neither belongs to a session nor begins one."""

NO_EPOCH: Final = -1

MOVED: Final = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
"""Errors after which the view of the cluster is asked for again."""

PASSING: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors that pass without a newer view. All others are reported, and the partition is tried again."""


class FetchLane(NamedTuple):
    """A place for one Fetch in flight to a node: the first one, or the one beside it."""

    node_id: int
    is_beside: bool


class _InFlight(NamedTuple):
    """A Fetch without an answer."""

    wanted: Sequence[PartitionPosition]
    since_ms: float
    wait_ms: float
    """The longest that the node waits for records."""


class FetchSender:
    """The request manager of Fetch."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        metadata: MetadataManager,
        positions: FetchPositions,
        emit: Callable[[BackgroundEvent], None],
        has_backlog: Callable[[], bool],
    ) -> None:
        self.buffer = FetchBuffer(settings.fetch_max_bytes)
        self._settings = settings
        self._env = env
        self._metadata = metadata
        self._positions = positions
        self._emit = emit
        self._has_backlog = has_backlog
        """Whether so many events wait for the application side that no answers should join them."""
        self._isolation_level = int(settings.reads_committed)
        self._in_flight: dict[FetchLane, _InFlight] = {}
        self._requests_made = 0
        self._asked: dict[FetchLane, int] = {}
        """The number of the last request of each lane."""
        self._failing: dict[int, tuple[Backoff, float]] = {}
        """Nodes that did not answer, and until when they are left alone."""

    def consumed(self, event: FetchConsumedEvent, now_ms: float) -> None:
        """Handle FETCH_CONSUMED: bytes of the buffer are free."""
        self.buffer.free(event.partition, event.bytes)

    def poll(self, now_ms: float) -> PollResult:
        """Return a request for each lane that has none in flight and partitions that want data."""
        if self._has_backlog():
            return NOTHING  # the poll() that takes the events makes a pass
        by_lane: defaultdict[FetchLane, list[PartitionPosition]] = defaultdict(list)
        wait_ms = FOREVER
        for one in self._positions:
            if not self._wants_data(one):
                continue
            node_id = self._node_of(one, now_ms)
            if node_id is None:
                self._metadata.refresh(now_ms, f"no leader of {partition_names(one.partition)} is known")
            elif (free := self._free_lane(node_id, now_ms)) is not None:
                lane, from_ms = free
                until_ms = max(one.next_ms, from_ms, self._failing.get(node_id, _NOT_FAILING)[1])
                if until_ms > now_ms:
                    wait_ms = min(wait_ms, until_ms - now_ms)
                else:
                    by_lane[lane].append(one)
        return PollResult(self._requests(by_lane, now_ms), wait_ms)

    def _free_lane(self, node_id: int, now_ms: float) -> tuple[FetchLane, float] | None:
        """Return the lane for the next Fetch to a node, and from when; None: an answer is waited for."""
        first, beside = FetchLane(node_id, is_beside=False), FetchLane(node_id, is_beside=True)
        flight = self._in_flight.get(first)
        if flight is None:
            return first, 0.0
        if beside in self._in_flight or now_ms + 2 * WAITS_AFTER_MS > flight.since_ms + flight.wait_ms:
            return None
        return beside, flight.since_ms + WAITS_AFTER_MS

    def _wants_data(self, one: PartitionPosition) -> bool:
        return (
            one.state is FetchState.FETCHING
            and not one.is_paused
            and not one.is_asked
            and not one.is_damaged
            and self.buffer.holds(one.partition) < max(self._settings.max_partition_fetch_bytes, 1)
        )

    def _node_of(self, one: PartitionPosition, now_ms: float) -> int | None:
        """Return the node to fetch from: the follower that the leader named, or the leader."""
        if one.read_replica is not None:
            node_id, until_ms = one.read_replica
            if now_ms < until_ms and node_id in self._metadata.view.nodes:
                return node_id
            one.read_replica = None
        return self._metadata.view.leader(one.partition)

    def _requests(
        self, by_lane: Mapping[FetchLane, Sequence[PartitionPosition]], now_ms: float
    ) -> list[UnsentRequest]:
        """Divide the buffer's room among the lanes. If it is short, those asked longest ago come first."""
        if not by_lane:
            return []
        bytes_max = self._settings.fetch_max_bytes
        least = min(self._settings.max_partition_fetch_bytes, bytes_max)
        share = max(bytes_max // max(len(by_lane.keys() | self._in_flight.keys()), 1), least)
        held_back = [one.partition for one in self._positions if one.is_paused or one.is_damaged]
        requests: list[UnsentRequest] = []
        for lane in sorted(by_lane, key=lambda lane: self._asked.get(lane, 0)):
            wanted = by_lane[lane]
            room = min(
                share, self._settings.max_partition_fetch_bytes * len(wanted), self.buffer.room(held_back)
            )
            if room < least:
                break  # an answer, or FETCH_CONSUMED, makes room
            requests.append(self._request(lane, wanted, room, now_ms))
        return requests

    def _request(
        self, lane: FetchLane, wanted: Sequence[PartitionPosition], bytes_max: int, now_ms: float
    ) -> UnsentRequest:
        self._requests_made += 1
        self._asked[lane] = self._requests_made
        self.buffer.reserve(lane, bytes_max)
        wait_ms: float = self._settings.fetch_max_wait_ms
        if lane.is_beside:
            first = self._in_flight[lane._replace(is_beside=False)]
            wait_ms = max(first.since_ms + first.wait_ms - WAITS_AFTER_MS - now_ms, 0.0)
        self._in_flight[lane] = _InFlight(wanted, now_ms, wait_ms)
        for one in wanted:
            one.is_asked = True
        ids = TopicIds.of((one.partition for one in wanted), self._metadata.view)
        return UnsentRequest(
            api=ApiKey.FETCH,
            build=partial(self._build, wanted, ids, bytes_max, int(wait_ms)),
            to=lane.node_id,
            is_beside=lane.is_beside,
            then=partial(self._answered, lane, {one.partition: one for one in wanted}, ids),
            timeout_ms=self._settings.request_timeout_ms,
            versions=ids.versions(*VERSIONS),
        )

    def _build(
        self, wanted: Sequence[PartitionPosition], ids: TopicIds, bytes_max: int, wait_ms: int, version: int
    ) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for one in wanted:  # in this order: the first ones get the bytes
            known = self._metadata.view.partition(one.partition)
            epoch = known.leader_epoch if known is not None else NO_EPOCH
            is_from_leader = one.read_replica is None and epoch >= 0  # a follower may lack what was read
            topics.setdefault(one.partition.topic, []).append(
                FetchPartition(
                    partition=one.partition.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=one.position.offset,
                    last_fetched_epoch=one.position.leader_epoch if is_from_leader else NO_EPOCH,
                    partition_max_bytes=self._settings.max_partition_fetch_bytes,
                )
            )
        return FetchRequest(
            replica_id=NO_REPLICA,
            max_wait_ms=wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=bytes_max,
            isolation_level=self._isolation_level,
            session_epoch=NO_SESSION_EPOCH,
            rack_id=self._settings.client_rack,
            topics=[
                FetchTopic(topic=topic, topic_id=ids.id_of(topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    # Answers.

    def _answered(
        self,
        lane: FetchLane,
        asked: Mapping[TopicPartition, PartitionPosition],
        ids: TopicIds,
        response: ClientResponse,
    ) -> None:
        now_ms, node_id = response.received_ms, lane.node_id
        del self._in_flight[lane]
        self.buffer.release(lane)
        current = {at: one for at, one in asked.items() if self._positions.is_current(one)}
        for one in asked.values():
            one.is_asked = False
        if response.failure is not None:
            self._unanswered(node_id, list(current.values()), response)
            return
        self._failing.pop(node_id, None)
        answers = _by_partition(response.body, ids)
        fetched: list[FetchedData] = []
        reported: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition, one in current.items():
            answer = answers.get(partition, _MISSING)
            code = response.body.error_code or answer.error_code
            if answer.diverging_epoch.epoch >= 0:
                self._diverged(one, answer.diverging_epoch, now_ms)
            elif code == ErrorCode.NONE:
                fetched += self._take(one, answer, now_ms)
            elif self._refused(one, node_id, code, answer, now_ms):
                reported[code].append(partition)
        for code, partitions in reported.items():
            names = partition_names(*partitions, most=len(partitions))
            self._emit(ErrorEvent(error=KafkaError(code, f"node {node_id} refuses records of {names}")))
        if fetched:
            self._emit(FetchResponseEvent(data=fetched))

    def _take(self, one: PartitionPosition, answer: PartitionData, now_ms: float) -> list[FetchedData]:
        """Take what a node answered for a partition: a follower to ask, or records and the end of the log."""
        replica = answer.preferred_read_replica
        if replica >= 0 and replica not in self._metadata.view.nodes:
            self._metadata.refresh(now_ms, f"a leader named node {replica} to read from, which is not known")
            self._hold_back(one, now_ms)
        else:
            one.failures = None
            if replica >= 0:
                one.read_replica = replica, now_ms + self._settings.metadata_max_age_ms
        ends = answer.high_watermark, answer.last_stable_offset
        if not answer.records and ends == one.told_end:
            return []
        one.told_end = ends
        data = FetchedData(
            partition=one.partition,
            position=one.position,
            records=answer.records or b"",
            aborted=tuple(
                (transaction.producer_id, transaction.first_offset)
                for transaction in answer.aborted_transactions or ()
            ),
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.last_stable_offset,
        )
        if data.records:
            self.buffer.add(one.partition, len(data.records))
            offset, leader_epoch = fetched_to(data.records, one.position)
            one.is_damaged = offset == one.position.offset
            self._positions.fetched(one, offset, leader_epoch)
            self._positions.rotate(one)
        return [data]

    def _diverged(self, one: PartitionPosition, at: EpochEndOffset, now_ms: float) -> None:
        """Go back to where the leader's log parts from what was read, once all that was fetched is read."""
        self._hold_back(one, now_ms)
        if not self.buffer.holds(one.partition):
            self._positions.diverged(one, min(at.end_offset, one.position.offset), at.epoch)

    def _hold_back(self, one: PartitionPosition, now_ms: float) -> None:
        """Ask for a partition later, and later each time until it succeeds."""
        one.failures = one.failures or self._backoff()
        one.next_ms = now_ms + one.failures.next_ms()

    def _refused(
        self, one: PartitionPosition, node_id: int, code: int, answer: PartitionData, now_ms: float
    ) -> bool:
        """Act on an error of a partition. Returns whether the application is to be told, which it is once."""
        leader = answer.current_leader
        if code in MOVED and self._metadata.update_leader(
            one.partition, leader.leader_id, leader.leader_epoch
        ):
            return False
        is_first = one.failures is None
        self._hold_back(one, now_ms)
        if one.read_replica is not None:
            one.read_replica = None  # the leader knows better
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not self.buffer.holds(one.partition):  # what was fetched before is read first
                self._positions.out_of_range(one)
        elif code in MOVED:
            name = partition_names(one.partition)
            self._metadata.refresh(now_ms, f"node {node_id} answered {error_name(code)} for {name}")
        else:
            return is_first and code not in PASSING
        return False

    def _unanswered(
        self, node_id: int, current: Sequence[PartitionPosition], response: ClientResponse
    ) -> None:
        """Leave a node alone for a while, and ask whether it still leads."""
        now_ms, failure = response.received_ms, response.failure
        assert failure is not None
        words = f"no records from node {node_id}: {response.words or failure.value}"
        is_first = node_id not in self._failing
        backoff = self._backoff() if is_first else self._failing[node_id][0]
        self._failing[node_id] = backoff, now_ms + backoff.next_ms()
        for one in current:
            one.read_replica = None
        self._metadata.refresh(now_ms, words)
        if is_first and failure is RequestFailure.UNSUPPORTED_VERSION:
            self._emit(ErrorEvent(error=KafkaError(ErrorCode.UNSUPPORTED_VERSION, words)))

    def _backoff(self) -> Backoff:
        return retry_backoff(self._settings, self._env)


_NOT_FAILING: Final = (None, 0.0)

_MISSING: Final = PartitionData(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
"""Stands for a partition that the answer does not mention."""


def _by_partition(body: FetchResponse, ids: TopicIds) -> dict[TopicPartition, PartitionData]:
    return {
        TopicPartition(ids.name_of(topic.topic_id, topic.topic), one.partition_index): one
        for topic in body.responses
        for one in topic.partitions
    }
