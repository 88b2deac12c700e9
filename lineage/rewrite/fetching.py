"""Subroutines 20 to 40 of the thread: what a consumer of seed 000 fetches, and from whom.

For each partition that the consumer owns one subroutine runs, by the table FETCHING. The requests are Kafka's
own. Like the consumer, this has no socket and no clock: the caller asks `poll` for requests until there is
none, sends them, and reports each answer (`answered`) or that there will be none (`lost`).

Invariants: one request at a time is outstanding for each broker, and so for each partition. What is answered
after the consumer has stopped, or for a partition or generation that it no longer has, is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple

from lineage.rewrite.consumer import RewriteConsumerCore
from lineage.rewrite.machines import FETCHING, FetchResult, Subroutine
from lineage.rewrite.strategies import Partition
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.schema import Message

PARTITIONS_MAX: Final = 1_000
"""Partitions in one request; the others are in the next one."""

TIMESTAMPS: Final = {"smallest": -2, "largest": -1}
"""`auto.offset.reset` → the time that stands for this offset in ListOffsets."""

FETCH_APIS: Final[dict[type[Message], tuple[ApiKey, int]]] = {
    MetadataRequest: (ApiKey.METADATA, 4),  # the first that can ask without creating the topic
    ListOffsetsRequest: (ApiKey.LIST_OFFSETS, 1),
    OffsetFetchRequest: (ApiKey.OFFSET_FETCH, 1),
    FetchRequest: (ApiKey.FETCH, 4),
}
"""Request → API and version. All have version 1 of the request header."""

Take = Callable[[Partition, int, bytes], int]
"""Gives the application the messages of a partition from an offset on, out of the record batches that were
fetched. Returns the offset to go on from: the same one if the batches cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRules:
    """Kafka 0.8's `auto.offset.reset`, `refresh.leader.backoff.ms`, `socket.timeout.ms`, `fetch.wait.max.ms`
    and `fetch.message.max.bytes`.

    Raises ValueError for another reset than smallest and largest, or a wait that is not below the timeout."""

    offset_reset: str = "smallest"
    backoff_ms: int = 200
    timeout_ms: int = 30_000
    wait_max_ms: int = 100
    partition_bytes_max: int = 1 << 20

    def __post_init__(self) -> None:
        if self.offset_reset not in TIMESTAMPS:
            raise ValueError(f"auto.offset.reset is {self.offset_reset}, it must be smallest or largest")
        if not 0 < self.wait_max_ms < self.timeout_ms:
            raise ValueError(
                f"fetch.wait.max.ms is {self.wait_max_ms}, it must be 1 to {self.timeout_ms - 1}"
            )


class FetchSend(NamedTuple):
    """A request to send: to the broker `to`, or to any (None). `number` identifies it."""

    number: int
    to: int | None
    request: Message


class _Flight(NamedTuple):
    number: int
    partitions: tuple[Partition, ...]
    lost_ms: float


class _Place:
    """One partition: the subroutine that runs, and what the earlier ones found."""

    __slots__ = ("asked", "due_ms", "leader", "position", "runs")

    def __init__(self, now_ms: float) -> None:
        self.runs = Subroutine.FIND_LEADER
        self.leader: int | None = None
        self.position: int | None = None
        self.due_ms = now_ms
        self.asked = 0
        """Number of the outstanding request; 0 without one."""


class Fetching:
    """The fetching of `consumer`. `taken` counts transitions; `brokers` are host and port by node id."""

    def __init__(self, consumer: RewriteConsumerCore, group_id: str, rules: FetchRules, take: Take) -> None:
        self._consumer, self._group_id, self._rules, self._take = consumer, group_id, rules, take
        self._generation = "", -1
        self._places: dict[Partition, _Place] = {}
        """Those that were asked about longest ago come first."""
        self._flights: dict[int | None, _Flight] = {}
        self._number = 0
        self.brokers: dict[int, tuple[str, int]] = {}
        self.taken: Counter[tuple[Subroutine, FetchResult]] = Counter()

    @property
    def positions(self) -> dict[Partition, int]:
        """The offsets of the next messages, which the consumer commits."""
        return {one: place.position for one, place in self._places.items() if place.position is not None}

    @property
    def runs(self) -> dict[Partition, Subroutine]:
        """The subroutine that runs for each partition."""
        return {one: place.runs for one, place in self._places.items()}

    @property
    def next_deadline_ms(self) -> float | None:
        """Monotonic ms at which `poll` has something to do."""
        times = [flight.lost_ms for flight in self._flights.values()]
        if self._consumer.is_consuming:
            times += [
                place.due_ms
                for place in self._places.values()
                if not place.asked and self._next_of(place)[1] not in self._flights
            ]
        return min(times, default=None)

    def poll(self, now_ms: float) -> FetchSend | None:
        """The next request to send now, if any."""
        for flight in [one for one in self._flights.values() if now_ms >= one.lost_ms]:
            self.lost(flight.number, now_ms)
        self._follow(now_ms)
        for place in self._places.values() if self._consumer.is_consuming else ():
            kind, to = wanted = self._next_of(place)
            if not self._is_due(place, now_ms) or to in self._flights:
                continue
            same = (
                one
                for one, other in self._places.items()
                if self._is_due(other, now_ms) and self._next_of(other) == wanted
            )
            return self._send(kind, to, tuple(islice(same, PARTITIONS_MAX)), now_ms)
        return None

    def lost(self, number: int, now_ms: float) -> None:
        """The request will not be answered: its connection is closed, or it took too long."""
        self._end(number, {}, now_ms)

    def answered(self, number: int, response: Message, now_ms: float) -> None:
        """The answer to a request; a late one to a request that was given up is ignored."""
        if isinstance(response, MetadataResponse):
            self.brokers = {one.node_id: (one.host, one.port) for one in response.brokers}
        self._end(number, _by_partition(response), now_ms)

    def _follow(self, now_ms: float) -> None:
        """Forget what the consumer no longer owns, and begin with what it has got.

        In a new generation all begin anew: in between somebody else may have had a partition."""
        consumer = self._consumer
        generation = consumer.consumer_id, consumer.generation
        if generation != self._generation:
            self._generation = generation
            self._places.clear()
        for gone in self._places.keys() - consumer.owned:
            del self._places[gone]
        for new in sorted(consumer.owned - self._places.keys()):
            self._places[new] = _Place(now_ms)

    @staticmethod
    def _is_due(place: _Place, now_ms: float) -> bool:
        return not place.asked and place.due_ms <= now_ms

    def _next_of(self, place: _Place) -> tuple[type[Message], int | None]:
        """The request to send for a partition, and to whom.

        The thread does not say where a new owner begins to fetch: at the offset that was committed."""
        match place.runs:
            case Subroutine.FIND_LEADER:
                return MetadataRequest, None
            case Subroutine.FIND_OFFSET:
                return ListOffsetsRequest, place.leader
            case Subroutine.FETCH if place.position is None:
                return OffsetFetchRequest, self._consumer.coordinator
        return FetchRequest, place.leader

    def _send(
        self, kind: type[Message], to: int | None, asked: tuple[Partition, ...], now_ms: float
    ) -> FetchSend:
        self._number += 1
        for one in asked:
            place = self._places[one] = self._places.pop(one)
            place.asked = self._number
        self._flights[to] = _Flight(self._number, asked, now_ms + self._rules.timeout_ms)
        return FetchSend(self._number, to, self._request(kind, sorted(asked)))

    def _request(self, kind: type[Message], asked: Sequence[Partition]) -> Message:
        rules = self._rules
        topics = [(name, [number for _, number in group]) for name, group in groupby(asked, itemgetter(0))]
        if kind is MetadataRequest:
            return MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name, _ in topics],
                allow_auto_topic_creation=False,
            )
        if kind is OffsetFetchRequest:
            return OffsetFetchRequest(
                group_id=self._group_id,
                topics=[
                    OffsetFetchRequestTopic(name=name, partition_indexes=those) for name, those in topics
                ],
            )
        if kind is ListOffsetsRequest:
            when = TIMESTAMPS[rules.offset_reset]
            return ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[ListOffsetsPartition(partition_index=n, timestamp=when) for n in those],
                    )
                    for name, those in topics
                ],
            )
        return FetchRequest(
            max_wait_ms=rules.wait_max_ms,
            min_bytes=1,
            max_bytes=rules.partition_bytes_max,
            topics=[
                FetchTopic(topic=name, partitions=[self._wanted(name, number) for number in those])
                for name, those in topics
            ],
        )

    def _wanted(self, topic: str, number: int) -> FetchPartition:
        position = self._places[topic, number].position
        assert position is not None
        most = self._rules.partition_bytes_max
        return FetchPartition(partition=number, fetch_offset=position, partition_max_bytes=most)

    def _end(self, number: int, answers: dict[Partition, Any], now_ms: float) -> None:
        flights = self._flights.items()
        found = next(((to, one) for to, one in flights if one.number == number), None)
        if found is None:
            return
        to, flight = found
        del self._flights[to]
        self._follow(now_ms)
        for one in flight.partitions:
            place = self._places.get(one)
            if place is None or place.asked != number:
                continue
            place.asked = 0
            if not self._consumer.is_consuming:
                continue
            result = self._result(one, place, answers.get(one))
            self.taken[place.runs, result] += 1
            place.runs = FETCHING[place.runs, result]
            if result is FetchResult.FAILED:
                place.due_ms = now_ms + self._rules.backoff_ms

    def _result(self, one: Partition, place: _Place, answer: Any) -> FetchResult:
        """The result of the request for a partition; records that were found are kept."""
        if answer is None or answer.error_code:
            is_outside = answer is not None and answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            is_fetch = place.runs is Subroutine.FETCH
            return FetchResult.OUT_OF_RANGE if is_outside and is_fetch else FetchResult.FAILED
        if place.runs is Subroutine.FIND_LEADER:
            place.leader = answer.leader_id
            return FetchResult.DONE if answer.leader_id in self.brokers else FetchResult.FAILED
        if place.runs is Subroutine.FIND_OFFSET:
            if answer.offset < 0:
                return FetchResult.FAILED
            place.position = answer.offset
        elif place.position is None:
            if answer.committed_offset < 0:
                return FetchResult.OUT_OF_RANGE  # nothing is committed: begin where auto.offset.reset says
            place.position = answer.committed_offset
        elif answer.records:
            before = place.position
            place.position = self._take(one, before, answer.records)
            return FetchResult.DONE if place.position > before else FetchResult.FAILED
        return FetchResult.DONE


def _by_partition(response: Any) -> dict[Partition, Any]:
    if isinstance(response, FetchResponse):
        return {
            (topic.topic, one.partition_index): one
            for topic in response.responses
            for one in topic.partitions
        }
    return {(topic.name, one.partition_index): one for topic in response.topics for one in topic.partitions}
