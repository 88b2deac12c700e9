"""A consumer of seed 000, in either variant: a table of transitions, and what its actions do.

It has no socket and no clock. The caller asks `poll` for the next request, sends it, and reports the answer
(`answered`) or that there will be none (`lost`). One request at a time is outstanding, as Kafka's server
demands of a connection. `consuming` are the partitions that the application may work on at this moment.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from lineage.rewrite.errors import EVENT_OF_ERROR
from lineage.rewrite.groups import partitions_of
from lineage.rewrite.machines import (
    ConsumerTable,
    RewriteAction,
    RewriteConsumerEvent,
    RewriteConsumerState,
)
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    TopicNumbers,
)
from lineage.rewrite.strategies import Partition
from wire.schema import Message

_MEMBERS = frozenset({RewriteConsumerState.PART, RewriteConsumerState.IN_GROUP})
_EVENTS_OF_COMMIT = (
    RewriteConsumerEvent.LOST,
    RewriteConsumerEvent.UNKNOWN,
    RewriteConsumerEvent.REBALANCE,
    RewriteConsumerEvent.COMMIT_FAILED,
    RewriteConsumerEvent.NOT_READY,
    RewriteConsumerEvent.COMMITTED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteConsumerSettings:
    """`session.timeout.ms`, `heartbeat.frequency` (heartbeats in a session), and what the text leaves open.

    A round may last as long as the slowest consumer's session, so JoinGroup waits for `join_sessions` of its
    own. A consumer commits every `commit_interval_ms`; with 0 only before it sends JoinGroup. `whitelist` and
    `blacklist` are regular expressions over topic names, used in place of `topics`.
    Raises ValueError for a frequency of 0."""

    group_id: str
    session_timeout_ms: int = 30_000
    heartbeat_frequency: int = 3
    strategy: str = "range"
    backoff_ms: int = 100
    join_sessions: int = 2
    commit_interval_ms: int = 0
    whitelist: str = ""
    blacklist: str = ""

    def __post_init__(self) -> None:
        if self.heartbeat_frequency <= 0:
            raise ValueError(f"heartbeat.frequency is {self.heartbeat_frequency}, it must be 1 or more")
        if self.session_timeout_ms <= 0:
            raise ValueError(f"session.timeout.ms is {self.session_timeout_ms}, it must be 1 or more")


class Send(NamedTuple):
    """A request to send: to the coordinator named `to`, or to any broker (None). `number` identifies it."""

    number: int
    to: int | None
    request: Message


class RewriteConsumerCore:
    """One consumer. `positions` are the offsets to commit, by partition; `table` is the variant's.

    `taken` counts the transitions; `failure` is the error for which JoinGroup was refused for good."""

    def __init__(
        self,
        table: ConsumerTable,
        settings: RewriteConsumerSettings,
        topics: Iterable[str] = (),
        positions: Callable[[], Mapping[Partition, int]] = dict,
        fixed: Iterable[Partition] = (),
    ) -> None:
        self._table, self._settings, self._positions = table, settings, positions
        self.state = next(state for state, event in table if event is RewriteConsumerEvent.STARTED)
        self._topics, self._fixed = tuple(topics), tuple(fixed)
        self._has_news = False
        self.consumer_id, self.generation = "", -1
        self.owned: frozenset[Partition] = frozenset()
        self.is_consuming = False
        self.coordinator: int | None = None
        self.failure: int | None = None
        self.taken: Counter[tuple[RewriteConsumerState, RewriteConsumerEvent]] = Counter()
        self._next: Message | None = None
        self._next_ms = self._beat_ms = self._commit_ms = self._lost_ms = 0.0
        self._sent: Send | None = None
        self._number = 0

    @property
    def consuming(self) -> frozenset[Partition]:
        return self.owned if self.is_consuming else frozenset()

    @property
    def _commits(self) -> bool:
        return self._settings.commit_interval_ms > 0

    @property
    def next_deadline_ms(self) -> float | None:
        """Monotonic ms at which `poll` has something to do."""
        if self._sent is not None:
            return self._lost_ms
        if self._next is not None:
            return self._next_ms
        if self.state not in _MEMBERS:
            return None
        return min(self._beat_ms, self._commit_ms) if self._commits else self._beat_ms

    def start(self, now_ms: float) -> None:
        self._on(RewriteConsumerEvent.STARTED, now_ms)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the list of topics; the next JoinGroup has it, and is sent soon."""
        wanted = tuple(topics)
        if wanted != self._topics:
            self._topics, self._has_news = wanted, True

    def saw_topics(self, names: Iterable[str]) -> None:
        """All topics there are, from TopicMetadata: a consumer with a wildcard picks its own."""
        settings = self._settings
        if settings.whitelist:
            black = re.compile(settings.blacklist) if settings.blacklist else None
            self.subscribe(
                sorted(
                    name
                    for name in names
                    if re.fullmatch(settings.whitelist, name) and not (black and black.fullmatch(name))
                )
            )

    def poll(self, now_ms: float) -> Send | None:
        """The request to send now, if any."""
        if self._sent is not None and now_ms >= self._lost_ms:
            self._sent = None
            self._on(RewriteConsumerEvent.LOST, now_ms)
        if self._sent is not None:
            return None
        if self.state in _MEMBERS and self._has_news and self._next is None:
            self._on(RewriteConsumerEvent.SUBSCRIBED, now_ms)
        if self._next is None and self.state in _MEMBERS and now_ms >= self._beat_ms:
            self._next, self._next_ms = self._heartbeat(), now_ms
        if self._next is None and self.state in _MEMBERS and self._commits and now_ms >= self._commit_ms:
            self._next, self._next_ms = self._commit(), now_ms
            self._commit_ms = now_ms + self._settings.commit_interval_ms
        if self._next is None or now_ms < self._next_ms:
            return None
        request, self._next = self._next, None
        if isinstance(request, JoinGroupRequest):
            request, self._has_news = self._join_group(), False
        to = None if isinstance(request, ConsumerMetadataRequest) else self.coordinator
        self._number += 1
        self._sent = Send(self._number, to, request)
        self._lost_ms = now_ms + self._patience_ms(request)
        if not isinstance(request, OffsetCommitRequest):
            self._beat_ms = now_ms + self._settings.session_timeout_ms / self._settings.heartbeat_frequency
        return self._sent

    def _patience_ms(self, request: Message) -> float:
        """The time that a request waits for its answer."""
        session_ms = self._settings.session_timeout_ms
        if isinstance(request, JoinGroupRequest):
            return session_ms * self._settings.join_sessions
        if isinstance(request, ConsumerMetadataRequest):  # the next broker may answer before the session ends
            return session_ms / self._settings.heartbeat_frequency
        return session_ms

    def lost(self, number: int, now_ms: float) -> None:
        """The request will not be answered: its connection is closed."""
        if self._sent is not None and self._sent.number == number:
            self._sent = None
            self._on(RewriteConsumerEvent.LOST, now_ms)

    def disconnected(self, now_ms: float) -> None:
        """The connection to the coordinator is closed while no request is outstanding."""
        is_asking = self._sent is not None and self._sent.to is None
        if self.state in _MEMBERS and not is_asking:
            self._sent = self._next = None
            self._on(RewriteConsumerEvent.LOST, now_ms)

    def answered(self, number: int, response: Message, now_ms: float) -> None:
        """The answer to a request; a late one to a request that was given up is ignored."""
        if self._sent is None or self._sent.number != number:
            return
        self._sent = None
        if isinstance(response, OffsetCommitResponse):
            self._on_commit(response, now_ms)
            return
        code: int = getattr(response, "error_code", 0)
        if code:
            is_lookup = isinstance(response, ConsumerMetadataResponse)
            refused = (
                RewriteConsumerEvent.REFUSED
                if isinstance(response, JoinGroupResponse)
                else RewriteConsumerEvent.LOST
            )
            event = RewriteConsumerEvent.LOST if is_lookup else EVENT_OF_ERROR.get(code, refused)
            if event is RewriteConsumerEvent.REFUSED:
                self.failure = code
            self._on(event, now_ms)
        elif isinstance(response, ConsumerMetadataResponse):
            self.coordinator = response.coordinator.node_id
            self._on(RewriteConsumerEvent.FOUND, now_ms)
        elif isinstance(response, JoinGroupResponse):
            self.consumer_id, self.generation = response.consumer_id, response.group_generation_id
            self.owned = frozenset(partitions_of(response.partitions_to_own))
            self._on(RewriteConsumerEvent.JOINED, now_ms)
        elif isinstance(response, HeartbeatResponse):
            self._on(RewriteConsumerEvent.ALIVE, now_ms)

    def _on_commit(self, response: OffsetCommitResponse, now_ms: float) -> None:
        """The first event of `_EVENTS_OF_COMMIT` that is an answer's and that the variant has in this state.

        What the variant has no event for is left out: work is repeated."""
        codes = {one.error_code for topic in response.topics for one in topic.partitions}
        events = {EVENT_OF_ERROR.get(code, RewriteConsumerEvent.COMMIT_FAILED) for code in codes if code}
        events.add(RewriteConsumerEvent.COMMITTED)
        event = next(one for one in _EVENTS_OF_COMMIT if one in events and (self.state, one) in self._table)
        self._on(event, now_ms)

    def _on(self, event: RewriteConsumerEvent, now_ms: float) -> None:
        """Take a transition. An answer that the variant does not know is taken for a lost one."""
        if (self.state, event) not in self._table:
            event = RewriteConsumerEvent.LOST
        self.taken[self.state, event] += 1
        self.state, actions = self._table[self.state, event]
        at_ms = now_ms
        for action in actions:
            match action:
                case RewriteAction.STOP:
                    self.is_consuming = False
                case RewriteAction.FORGET:
                    self.consumer_id, self.generation, self.owned = "", -1, frozenset()
                case RewriteAction.BACK_OFF:
                    at_ms = now_ms + self._settings.backoff_ms
                case RewriteAction.OWN:
                    self.is_consuming = True
                    self._commit_ms = now_ms + self._settings.commit_interval_ms
                    self._beat_ms = (
                        now_ms + self._settings.session_timeout_ms / self._settings.heartbeat_frequency
                    )
                case RewriteAction.FAIL:
                    self._next = None
                case RewriteAction.DISCOVER:
                    self._next = ConsumerMetadataRequest(group_id=self._settings.group_id)
                case RewriteAction.COMMIT if self.state in _MEMBERS:
                    self._commit_ms = at_ms  # heartbeats and a changed list of topics come first
                case RewriteAction.COMMIT:
                    self._next = self._commit() or self._join_group()
                case RewriteAction.JOIN:
                    self._next = self._join_group()
                case RewriteAction.BEAT:
                    self._next = self._heartbeat()
        self._next_ms = at_ms

    def _heartbeat(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self._settings.group_id,
            group_generation_id=self.generation,
            consumer_id=self.consumer_id,
        )

    def _join_group(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout=self._settings.session_timeout_ms,
            topics=[*self._topics],
            consumer_id=self.consumer_id,
            partition_assignment_strategy=self._settings.strategy,
            partitions=[
                TopicNumbers(topic=topic, partitions=[number for _, number in group])
                for topic, group in groupby(sorted(self._fixed), key=itemgetter(0))
            ],
        )

    def _commit(self) -> OffsetCommitRequest | None:
        positions = {one: offset for one, offset in self._positions().items() if one in self.owned}
        if not positions or not self.consumer_id:
            return None
        return OffsetCommitRequest(
            group_id=self._settings.group_id,
            group_generation_id=self.generation,
            consumer_id=self.consumer_id,
            topics=[
                CommitTopic(
                    topic=topic,
                    partitions=[
                        CommitPartition(partition=number, offset=positions[topic, number])
                        for _, number in group
                    ],
                )
                for topic, group in groupby(sorted(positions), key=itemgetter(0))
            ],
        )
