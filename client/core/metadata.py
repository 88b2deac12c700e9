"""Keeps what the consumer knows of the cluster: nodes, topics with their ids, partitions and their leaders.

Topics are asked for by name, or by id when an assignment names one that is not known yet; brokers do not take
both in one request. The view is asked for again when somebody says that it is wrong, and when it is as old as
metadata.max.age.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from client.core.backoff import STEADY_ATTEMPTS, doubled, retry_backoff
from client.core.cluster_view import UNKNOWN_CLUSTER, BrokerNode, ClusterView, PartitionView, TopicView
from client.core.env import Environment
from client.core.errors import KafkaError, TimedOut, error_name
from client.core.events import BackgroundEvent, ErrorEvent, UpdateMetadataEvent
from client.core.futures import complete, fail
from client.core.network.addresses import Address
from client.core.network.connection import Purpose
from client.core.network.delegate import NetworkDelegate
from client.core.requests import FOREVER, ClientResponse, Destination, PollResult, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import TopicPartition
from wire.apis import ApiKey
from wire.errors import ErrorCode, is_retriable
from wire.messages.metadata import (
    FIRST_WITH_NULL_NAMES,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

FIRST_ANSWER_MS: Final = 5_000.0
"""Time for an answer before another node is asked; doubled with each failure, up to request.timeout.ms."""

REBOOTSTRAP_AFTER_MS: Final = 300_000.0
"""Time without an answer after which the known nodes are forgotten (KIP-1102)."""

WAITERS_MAX: Final = 1_000
"""Most calls that wait for metadata."""

REFUSALS: Final[dict[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the client is not authorized to read topic {topic!r}",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "{topic!r} is not a valid name of a topic",
}
"""Errors of topics that a person has to mend, with their sentences."""

UNFORESEEN: Final = "Metadata answered for topic {topic!r} with an error that this client cannot handle"
"""The sentence of others that do not pass by themselves. Topics with errors are asked about again."""

_log = logging.getLogger("quorate.consumer")

MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(slots=True)
class _MetadataCall:
    event: UpdateMetadataEvent
    was_asked: bool = False
    """Whether a request that was made after the call is under way; an older answer is no answer to it."""


class MetadataManager:
    """Holds the newest `ClusterView` and asks for newer ones."""

    def __init__(
        self,
        settings: ConsumerSettings,
        env: Environment,
        delegate: NetworkDelegate,
        emit: Callable[[BackgroundEvent], None],
    ) -> None:
        self.view = UNKNOWN_CLUSTER
        """Replaced when something changed; the same object as long as nothing does."""
        self._settings = settings
        self._delegate = delegate
        self._emit = emit
        self._now_ms = env.now_ms
        self._wanted: dict[str, float] = {}
        """Topics to know always, with the time when they were last wanted."""
        self._wanted_ids: frozenset[bytes] = frozenset()
        """Ids whose names are not known yet."""
        self._told: dict[str, int] = {}
        """The topics that were complained of, with their error codes."""
        """Topics whose error was emitted, once."""
        self._waiters: list[_MetadataCall] = []
        self._is_asking = False
        self._refresh_ms = self._ids_ms = env.now_ms()
        """The times at which names, and ids, are asked for next."""
        self._again_ms = -FOREVER
        """The end of the back-off after the last answer; complaints wait for it."""
        self._why = "there was no answer yet"
        self._answered_ms = env.now_ms()
        self._failing = retry_backoff(settings, env)
        self._incomplete = retry_backoff(settings, env, steady=STEADY_ATTEMPTS)
        self._unnamed = retry_backoff(settings, env)
        delegate.lost_listeners.append(self._connection_lost)

    # Calls of other managers.

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it is known."""
        return self.view.names.get(topic_id)

    def want_topics(self, names: Iterable[str]) -> None:
        """Know these topics from now on, too. Those that do not exist are dropped in time."""
        now_ms = self._now_ms()
        wanted = dict.fromkeys(names, now_ms)
        if wanted.keys() - self._wanted.keys():
            self._refresh_ms = min(self._refresh_ms, now_ms)
        self._wanted.update(wanted)

    def want_ids(self, ids: Iterable[bytes]) -> None:
        """Find the names of these topics, in place of those that were wanted before."""
        wanted = frozenset(ids) - self.view.names.keys()
        if wanted - self._wanted_ids:
            self._unnamed.reset()
            self._ids_ms = self._now_ms()
        self._wanted_ids = wanted

    def refresh(self, now_ms: float, why: str) -> None:
        """Ask again soon: the view was wrong about something. Many complaints are one request."""
        self._why = why
        self._refresh_ms = min(self._refresh_ms, max(now_ms, self._again_ms))

    def update_leader(self, partition: TopicPartition, leader_id: int, leader_epoch: int) -> bool:
        """Take a leader that a broker named in place of records (KIP-951). Returns whether it is news."""
        known = self.view.partition(partition)
        if known is None or leader_id not in self.view.nodes or leader_epoch <= known.leader_epoch:
            return False
        topic = self.view.topics[partition.topic]
        leader = known._replace(leader_id=leader_id, leader_epoch=leader_epoch)
        topic = topic._replace(partitions={**topic.partitions, partition.partition: leader})
        self.view = self.view._replace(topics={**self.view.topics, topic.name: topic})
        return True

    def update_metadata(self, event: UpdateMetadataEvent, now_ms: float) -> None:
        """Handle UPDATE_METADATA: know its topics from now on; answer once if somebody waits for it."""
        if event.future is None:
            self.want_topics(event.topics or ())
        elif len(self._waiters) == WAITERS_MAX:
            fail(event.future, TimedOut(f"{WAITERS_MAX} calls are waiting for metadata already"))
        else:
            self._waiters.append(_MetadataCall(event))
            self._refresh_ms = min(self._refresh_ms, now_ms)

    # The manager.

    def poll(self, now_ms: float) -> PollResult:
        """Ask for names or ids, one request at a time."""
        self._expire(now_ms)
        if (
            not self._is_asking
            and now_ms >= self._answered_ms + REBOOTSTRAP_AFTER_MS
            and self._failing.failures
        ):
            self._answered_ms = now_ms
            self._delegate.addresses.set_nodes({})
        requests: list[UnsentRequest] = []
        if not self._is_asking:
            if now_ms >= self._refresh_ms:
                requests.append(self._ask_by_name())
            elif self._wanted_ids and now_ms >= self._ids_ms:
                requests.append(self._ask_by_id())
        self._is_asking = self._is_asking or bool(requests)
        return PollResult(requests, max(0.0, self._next_ms() - now_ms))

    def _next_ms(self) -> float:
        deadlines = [one.event.deadline_ms for one in self._waiters if one.event.deadline_ms is not None]
        if not self._is_asking:
            deadlines.append(self._refresh_ms)
            if self._wanted_ids:
                deadlines.append(self._ids_ms)
        return min(deadlines, default=FOREVER)

    def _expire(self, now_ms: float) -> None:
        waiters = []
        for waiter in self._waiters:
            event = waiter.event
            if event.deadline_ms is not None and now_ms >= event.deadline_ms:
                fail(
                    event.future, TimedOut(f"metadata of {_named(event.topics)} did not arrive: {self._why}")
                )
            else:
                waiters.append(waiter)
        self._waiters = waiters

    def _connection_lost(self, _node_id: int, purpose: Purpose, why: str, now_ms: float) -> None:
        if purpose is Purpose.DATA:
            self.refresh(now_ms, why)

    # Requests.

    def _ask_by_name(self) -> UnsentRequest:
        for waiter in self._waiters:
            waiter.was_asked = True
        named = {name for waiter in self._waiters for name in waiter.event.topics or ()}
        asks_all = any(waiter.event.topics is None for waiter in self._waiters)
        names = None if asks_all else [*self._wanted, *sorted(named - self._wanted.keys())]
        self._refresh_ms = FOREVER
        return self._request(partial(self._build_by_name, names), self._answered_by_name, (1, 13))

    def _ask_by_id(self) -> UnsentRequest:
        ids = sorted(self._wanted_ids)
        self._ids_ms = FOREVER
        versions = (FIRST_WITH_NULL_NAMES, 13)
        return self._request(partial(self._build_by_id, ids), self._answered_by_id, versions)

    def _request(
        self,
        build: Callable[[int], MetadataRequest],
        then: Callable[[ClientResponse], None],
        versions: tuple[int, int],
    ) -> UnsentRequest:
        timeout_ms = doubled(FIRST_ANSWER_MS, self._failing.failures, self._settings.request_timeout_ms)
        return UnsentRequest(
            api=ApiKey.METADATA,
            build=build,
            to=Destination.ANY,
            then=then,
            timeout_ms=timeout_ms,
            versions=versions,
        )

    def _build_by_name(self, names: list[str] | None, version: int) -> MetadataRequest:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        creates = self._settings.allow_auto_create_topics and names is not None
        return MetadataRequest(topics=topics, allow_auto_topic_creation=creates)

    def _build_by_id(self, ids: list[bytes], version: int) -> MetadataRequest:
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    # Answers.

    def _answered_by_name(self, response: ClientResponse) -> None:
        now_ms = response.received_ms
        if not self._take(response):
            self._again_ms = now_ms + self._failing.next_ms()
            self._refresh_ms = min(self._refresh_ms, self._again_ms)
            return
        answer: MetadataResponse = response.body
        view = _merged(self.view, answer)
        self._drop_missing(answer.topics, now_ms)
        self._emit_refusals(answer.topics)
        self._adopt(view)
        self._complete_waiters(view)
        waits = any(waiter.was_asked for waiter in self._waiters)
        if waits or not all(_is_complete(one, self.view.nodes) for one in self.view.topics.values()):
            self._again_ms = next_ms = now_ms + self._incomplete.next_ms()
        else:
            self._incomplete.reset()
            self._again_ms = now_ms + self._settings.retry_backoff_ms
            next_ms = max(self._again_ms, now_ms + self._settings.metadata_max_age_ms)
        self._refresh_ms = min(self._refresh_ms, next_ms)

    def _answered_by_id(self, response: ClientResponse) -> None:
        now_ms = response.received_ms
        if not self._take(response):
            self._ids_ms = min(self._ids_ms, now_ms + self._failing.next_ms())
            return
        for topic in response.body.topics:
            is_wanted = topic.topic_id in self._wanted_ids and topic.name is not None
            if topic.error_code == ErrorCode.NONE and is_wanted:
                self._wanted[topic.name] = now_ms
        view = _merged(self.view, response.body)
        self._wanted_ids -= view.names.keys()
        if self._wanted_ids:
            self._ids_ms = min(self._ids_ms, now_ms + self._unnamed.next_ms())
        self._adopt(view)

    def _take(self, response: ClientResponse) -> bool:
        """Note the nodes of an answer. Returns whether it is usable."""
        self._is_asking = False
        if response.failure is not None:
            self._why = response.words
            return False
        answer: MetadataResponse = response.body
        if answer.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._delegate.addresses.set_nodes({})
        if answer.error_code != ErrorCode.NONE or not answer.brokers:
            self._why = f"Metadata was answered with {error_name(answer.error_code)} and no nodes"
            return False
        nodes = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        self._delegate.addresses.set_nodes(nodes)
        self._answered_ms = response.received_ms
        self._failing.reset()
        return True

    def _adopt(self, view: ClusterView) -> None:
        """Keep the part of a view that is wanted."""
        topics = {name: topic for name, topic in view.topics.items() if name in self._wanted}
        kept = ClusterView.of(view.cluster_id, view.nodes, topics)
        if kept != self.view:
            self.view = kept

    def _drop_missing(self, topics: list[MetadataResponseTopic], now_ms: float) -> None:
        """Want topics no more that do not exist, and that nobody wanted for metadata.max.age.ms."""
        oldest_ms = now_ms - self._settings.metadata_max_age_ms
        for topic in topics:
            if topic.error_code in MISSING and self._wanted.get(topic.name or "", now_ms) < oldest_ms:
                del self._wanted[topic.name or ""]
                self._told.pop(topic.name or "", None)

    def _emit_refusals(self, topics: list[MetadataResponseTopic]) -> None:
        for topic in topics:
            name = topic.name or ""
            code = topic.error_code
            if code == ErrorCode.NONE or (is_retriable(code) and code not in MISSING):
                self._told.pop(name, None)
            elif name in self._wanted and self._told.get(name) != code:
                self._told[name] = code
                if code in MISSING:
                    _log.warning("topic %r does not exist, or not yet: it is waited for", name)
                else:
                    words = REFUSALS.get(code, UNFORESEEN).format(topic=name)
                    self._emit(ErrorEvent(error=KafkaError(code, words)))

    def _complete_waiters(self, view: ClusterView) -> None:
        waiters = []
        for waiter in self._waiters:
            asked = view.topics if waiter.event.topics is None else waiter.event.topics
            topics = [view.topics[name] for name in asked if name in view.topics]
            if waiter.was_asked and not any(
                one.error_code == ErrorCode.LEADER_NOT_AVAILABLE for one in topics
            ):
                complete(waiter.event.future, view)
            else:
                waiters.append(waiter)
        self._waiters = waiters


def _named(topics: frozenset[str] | None) -> str:
    if topics is None:
        return "all topics"
    return f"topics {', '.join(sorted(topics)[:10])}" if topics else "no topics"


def _is_complete(topic: TopicView, nodes: Container[int]) -> bool:
    """Whether there is nothing to ask about a topic again before long."""
    if topic.error_code in REFUSALS:
        return True
    has_leaders = all(partition.leader_id in nodes for partition in topic.partitions.values())
    return topic.error_code == ErrorCode.NONE and has_leaders


def _merged(view: ClusterView, answer: MetadataResponse) -> ClusterView:
    """Return the view with an answer's nodes and topics; a leader of an older epoch is not news."""
    nodes = {one.node_id: BrokerNode(one.node_id, one.host, one.port, one.rack) for one in answer.brokers}
    topics = dict(view.topics)
    for one in answer.topics:
        if one.name is not None:
            topics[one.name] = _topic(one, one.name, topics.get(one.name))
    return ClusterView.of(answer.cluster_id, nodes, topics)


def _topic(answer: MetadataResponseTopic, name: str, known: TopicView | None) -> TopicView:
    is_same = known is not None and known.topic_id == answer.topic_id
    before = known.partitions if known is not None and is_same else {}
    partitions = {}
    for one in answer.partitions:
        new = PartitionView(one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes))
        old = before.get(one.partition_index)
        partitions[one.partition_index] = old if old and 0 <= new.leader_epoch < old.leader_epoch else new
    return TopicView(name, answer.topic_id, answer.error_code, answer.is_internal, partitions)
