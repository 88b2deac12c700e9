"""The coordinator of seed 000: what both of its variants decide alike.

Decisions are pure: they read the groups' records, keep the rest in memory (`lineage.rewrite.groups`), and
return results. The caller applies the records of each result before it asks for the next decision.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import (
    LiveGroup,
    Now,
    RewriteOrigin,
    RewriteResult,
    RewriteSession,
    Waiting,
    by_topic,
    differences,
    partitions_of,
)
from lineage.rewrite.machines import RewriteEvent, RewriteState, Table
from lineage.rewrite.messages import (
    CommittedPartition,
    CommittedTopic,
    ConsumerMetadataRequest,
    ConsumerMetadataResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    RewriteBroker,
    TopicNumbers,
)
from lineage.rewrite.sizes import size_of_commit, size_of_wishes
from lineage.rewrite.strategies import STRATEGIES, Assignment, Strategy, checked
from records import (
    Cause,
    OffsetCommitKey,
    OffsetCommitValue,
    Phases,
    Reason,
    ReasonKind,
    Record,
    RewriteConsumer,
    RewriteGroupKey,
    RewriteGroupValue,
    RewritePartitions,
    RewriteTopic,
    Trigger,
    encode_record,
)
from wire.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteSettings:
    """Server-side settings. The bounds keep what a decision writes well below the 16 MiB of an entry.

    `subscription_bytes_max` bounds what one consumer asks for with its client id, `group_bytes_max` all of a
    group's together. An OffsetCommit has at most `commit_partitions_max` partitions and writes about
    `commit_bytes_max` bytes."""

    max_session_timeout_ms: int = 30_000
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: STRATEGIES)
    consumers_max: int = 1_000
    subscription_bytes_max: int = 8_192
    group_bytes_max: int = 1 << 20
    group_id_bytes_max: int = 1_024
    metadata_bytes_max: int = 4_096
    commit_partitions_max: int = 10_000
    commit_bytes_max: int = 8 << 20


class RewriteCoordinator(ABC):
    """The groups of one shard. `groups` are their records by key, and may hold other keys too.

    `counts` is the catalog: topic → number of partitions. `locate` names the coordinator of a group, None if
    there is none. `taken` counts the transitions of the variant's table.
    """

    TABLE: ClassVar[Table]

    def __init__(
        self,
        groups: Mapping[Any, Any],
        counts: Mapping[str, int],
        fresh_id: Callable[[], str],
        locate: Callable[[str], RewriteBroker | None],
        settings: RewriteSettings | None = None,
    ) -> None:
        self._records, self._counts, self._fresh_id, self._locate = groups, counts, fresh_id, locate
        self._settings = RewriteSettings() if settings is None else settings
        self._groups: dict[str, LiveGroup] = {}
        self._timers: list[tuple[float, str, str]] = []
        self.state = RewriteState.DOWN
        self.taken: Counter[tuple[RewriteState, RewriteEvent]] = Counter()

    # The life of the shard.

    def elected(self) -> None:
        self.state = self._step(self.state, RewriteEvent.ELECTED)

    def loaded(self, now: Now) -> list[RewriteResult]:
        """Begin to serve: every consumer gets a full session, and topics are compared with the records."""
        self.state = self._step(self.state, RewriteEvent.LOADED)
        for key, value in list(self._records.items()):
            if isinstance(key, RewriteGroupKey) and value.consumers:
                group = self._groups[key.group_id] = LiveGroup()
                for one in value.consumers:
                    self._open(key.group_id, group, one.consumer_id, one.session_timeout_ms, now)
        return self.topics_changed(now)

    def demoted(self) -> None:
        """Another node leads: forget what is in memory only; requests that wait get no answer."""
        for group in self._groups.values():
            self._step(group.state, RewriteEvent.DEMOTED)
        self._groups.clear()
        self._timers.clear()
        self.state = RewriteState.DOWN

    # Inputs.

    def handle(self, request: Message, origin: RewriteOrigin, now: Now) -> list[RewriteResult]:
        """Decide on a request of `lineage.rewrite.messages`."""
        if isinstance(request, ConsumerMetadataRequest):
            broker = self._locate(request.group_id)
            none = 0 if broker is not None else RewriteError.COORDINATOR_NOT_AVAILABLE
            answer = ConsumerMetadataResponse(error_code=none, coordinator=broker or RewriteBroker())
            return [RewriteResult(request.group_id, answers=((origin, answer),))]
        assert isinstance(request, JoinGroupRequest | HeartbeatRequest | OffsetCommitRequest)
        if self.state is not RewriteState.READY:
            return [_refusal(request, origin, self._unavailable(request, self.state))]
        if isinstance(request, JoinGroupRequest):
            return self._join(request, origin, now)
        if isinstance(request, OffsetCommitRequest):
            return [self._commit(request, origin, now)]
        group = self._groups.get(request.group_id)
        if group is None or request.consumer_id not in group.sessions:
            return [_refusal(request, origin, RewriteError.UNKNOWN_CONSUMER)]
        group.sessions[request.consumer_id].connection = origin.connection
        error = self._heartbeat(request, group, now)
        results = [RewriteResult(request.group_id, answers=((origin, HeartbeatResponse(error_code=error)),))]
        return results + self._go_on(request.group_id, group, now)

    def put_off(self, request: Message, origin: RewriteOrigin) -> RewriteResult:
        """Answer as while loading: the consumer asks again. For times in which nothing can be written."""
        assert isinstance(request, JoinGroupRequest | HeartbeatRequest | OffsetCommitRequest)
        return _refusal(request, origin, self._unavailable(request, RewriteState.CATCH_UP))

    def tick(self, now: Now) -> list[RewriteResult]:
        """Find the consumers dead whose deadline has passed; see `next_deadline_ms`."""
        results: list[RewriteResult] = []
        touched: dict[str, LiveGroup] = {}
        while self._timers and self._timers[0][0] <= now.monotonic:
            queued_ms, group_id, consumer_id = heapq.heappop(self._timers)
            group = self._groups.get(group_id)
            session = group.sessions.get(consumer_id) if group is not None else None
            if group is None or session is None or session.queued_ms != queued_ms:
                continue
            session.queued_ms = None
            if session.deadline_ms is not None and session.deadline_ms <= now.monotonic:
                connection = self._found_dead(group_id, group, consumer_id, session, now)
                if connection is not None:
                    results.append(RewriteResult(group_id, closes=(connection,)))
                touched[group_id] = group
            else:
                self._queue(group_id, consumer_id, session)
        for group_id, group in touched.items():
            results += self._go_on(group_id, group, now)
        return results

    @property
    def next_deadline_ms(self) -> float | None:
        """Monotonic ms at which `tick` may have work; it may also find none."""
        return self._timers[0][0] if self._timers else None

    def topics_changed(self, now: Now) -> list[RewriteResult]:
        """Compare every group with the catalog."""
        results: list[RewriteResult] = []
        for group_id, group in list(self._groups.items()):
            value = self._record(group_id)
            new = [one for one in differences(value, self._counts) if one not in group.reasons]
            if new:
                self._prepare(group_id, group, RewriteEvent.GROWN, now, *new)
                results += self._go_on(group_id, group, now)
        return results

    def group_state(self, group_id: str) -> RewriteState:
        group = self._groups.get(group_id)
        return group.state if group is not None else self.state

    # What the variants decide.

    @abstractmethod
    def _unavailable(self, request: Message, state: RewriteState) -> RewriteError:
        """The error of a coordinator that is not Ready."""

    @abstractmethod
    def _heartbeat(self, request: HeartbeatRequest, group: LiveGroup, now: Now) -> RewriteError: ...

    @abstractmethod
    def _commit_error(self, request: OffsetCommitRequest, group: LiveGroup) -> RewriteError: ...

    @abstractmethod
    def _answers_again(self, request: JoinGroupRequest, group: LiveGroup) -> bool: ...

    @abstractmethod
    def _began(self, group_id: str, group: LiveGroup, now: Now) -> None: ...

    @abstractmethod
    def _found_dead(
        self, group_id: str, group: LiveGroup, consumer_id: str, session: RewriteSession, now: Now
    ) -> object: ...

    # JoinGroup.

    def _join(self, request: JoinGroupRequest, origin: RewriteOrigin, now: Now) -> list[RewriteResult]:
        group_id, consumer_id = request.group_id, request.consumer_id
        group = self._groups.get(group_id) or LiveGroup()
        error = self._join_error(request, group, origin.header.client_id or "")
        if error is not RewriteError.NONE:
            return [_refusal(request, origin, error)]
        if self._answers_again(request, group):
            group.state = self._step(group.state, RewriteEvent.REJOINED)
            self._arm(group_id, group, consumer_id, now)
            return [RewriteResult(group_id, answers=((origin, self._answer(group_id, consumer_id)),))]
        self._groups[group_id] = group
        if not consumer_id:
            self._prepare(group_id, group, RewriteEvent.JOINED, now)
            group.newcomers.append(Waiting(origin, request, now))
            return self._go_on(group_id, group, now)
        before = next(one for one in self._record(group_id).consumers if one.consumer_id == consumer_id)
        changed = not self._asks_the_same(request, before)
        kind = ReasonKind.SUBSCRIPTION_CHANGED if changed else ReasonKind.MEMBER_REJOINED
        reasons = [Reason(kind, consumer_id)] if changed or group.state is not RewriteState.PREPARING else []
        self._prepare(
            group_id, group, RewriteEvent.CHANGED if changed else RewriteEvent.REJOINED, now, *reasons
        )
        session = group.sessions[consumer_id]
        session.deadline_ms, session.connection, session.heard = None, origin.connection, now
        group.dead.discard(consumer_id)
        group.waiting[consumer_id] = Waiting(origin, request, now)
        return self._go_on(group_id, group, now)

    def _join_error(self, request: JoinGroupRequest, group: LiveGroup, client_id: str) -> RewriteError:
        settings, consumer_id = self._settings, request.consumer_id
        size = size_of_wishes(request.topics, request.partitions, client_id)
        group_id_bytes = len(request.group_id.encode())
        if (
            not 0 < group_id_bytes <= settings.group_id_bytes_max
            or request.session_timeout <= 0
            or size > settings.subscription_bytes_max
            or any(number < 0 for one in request.partitions for number in one.partitions)
        ):
            return RewriteError.INVALID_REQUEST
        if request.session_timeout > settings.max_session_timeout_ms:
            return RewriteError.SESSION_TIMEOUT_TOO_HIGH
        if request.partition_assignment_strategy not in settings.strategies:
            return RewriteError.UNKNOWN_PARTITIONING_STRATEGY
        if consumer_id and (consumer_id not in group.sessions or self._is_removed(group, consumer_id)):
            return RewriteError.UNKNOWN_CONSUMER
        if not consumer_id and len(group.sessions) + len(group.newcomers) >= settings.consumers_max:
            return RewriteError.GROUP_TOO_LARGE
        if size + self._size_without(consumer_id, request.group_id, group) > settings.group_bytes_max:
            return RewriteError.GROUP_TOO_LARGE
        if self._is_inconsistent(request, group):
            return RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
        return RewriteError.NONE

    def _size_without(self, consumer_id: str, group_id: str, group: LiveGroup) -> int:
        """What all other consumers of the group ask for, in bytes."""
        waiting = [one for id_, one in group.waiting.items() if id_ != consumer_id]
        others = group.alive - group.waiting.keys() - {consumer_id}
        return sum(
            size_of_wishes(one.request.topics, one.request.partitions, one.origin.header.client_id or "")
            for one in (*group.newcomers, *waiting)
        ) + sum(
            size_of_wishes(one.topics, one.fixed, one.client_id)
            for one in self._record(group_id).consumers
            if one.consumer_id in others
        )

    def _asks_the_same(self, request: JoinGroupRequest, before: RewriteConsumer) -> bool:
        has_strategy = self._record(request.group_id).strategy == request.partition_assignment_strategy
        return has_strategy and wanted(request) == (before.topics, before.fixed)

    def _is_removed(self, group: LiveGroup, consumer_id: str) -> bool:
        return False

    def _is_inconsistent(self, request: JoinGroupRequest, group: LiveGroup) -> bool:
        """Whether another consumer has another strategy, the other kind of list, or one of the partitions."""
        others = [one.request for one in group.newcomers]
        others += [one.request for id_, one in group.waiting.items() if id_ != request.consumer_id]
        seen: list[tuple[str, Sequence[RewritePartitions | TopicNumbers]]] = [
            (one.partition_assignment_strategy, one.partitions) for one in others
        ]
        value = self._record(request.group_id)
        rest = group.alive - group.waiting.keys() - {request.consumer_id}
        for one in value.consumers:
            if one.consumer_id in rest:
                seen.append((value.strategy, one.fixed))
        topics, fixed = wanted(request)
        mine = partitions_of(fixed)
        return bool(topics and fixed) or any(
            strategy != request.partition_assignment_strategy
            or any(one.partitions for one in their_fixed) != bool(fixed)
            or not mine.isdisjoint((one.topic, number) for one in their_fixed for number in one.partitions)
            for strategy, their_fixed in seen
        )

    # A rebalance.

    def _prepare(
        self, group_id: str, group: LiveGroup, event: RewriteEvent, now: Now, *reasons: Reason
    ) -> None:
        is_new = group.state is not RewriteState.PREPARING
        group.state = self._step(group.state, event)
        if is_new:
            group.began = now
            self._began(group_id, group, now)
        group.reasons.update(dict.fromkeys(reasons))

    def _go_on(self, group_id: str, group: LiveGroup, now: Now) -> list[RewriteResult]:
        """End the rebalance if every consumer that is alive has joined."""
        if group.state is not RewriteState.PREPARING or not group.has_all_joined:
            return []
        named = [
            *group.waiting.items(),
            *((f"{group_id}-{self._fresh_id()}", one) for one in group.newcomers),
        ]
        joined = dict(sorted(named))
        counts = self._counts_of(joined)
        strategy = next((one.request.partition_assignment_strategy for one in joined.values()), "")
        try:
            owned = self._assign(strategy, joined, counts)
        except Exception:  # a user's strategy: its consumers are told, and may try again
            return [self._strategy_failed(group_id, group, now)]
        value = RewriteGroupValue(
            generation=self._record(group_id).generation + 1,
            strategy=strategy,
            topics=tuple(RewriteTopic(num_partitions=count, name=name) for name, count in counts.items()),
            consumers=tuple(
                RewriteConsumer(
                    session_timeout_ms=one.request.session_timeout,
                    consumer_id=id_,
                    client_id=one.origin.header.client_id or "",
                    client_host=one.origin.host,
                    topics=wanted(one.request)[0],
                    fixed=wanted(one.request)[1],
                    owned=by_topic(owned[id_]),
                )
                for id_, one in joined.items()
            ),
        )
        before = group.sessions.keys()
        group.reasons.update(
            {Reason(ReasonKind.MEMBER_JOINED, id_): None for id_ in joined if id_ not in before}
        )
        cause = Cause(
            trigger=Trigger.GENERATION_COMPLETED,
            reasons=tuple(group.reasons),
            expiries=tuple(group.expiries),
            phases=Phases(group.began.wall, now.wall),
        )
        answers = tuple((one.origin, _joined(value, id_)) for id_, one in joined.items())
        record = encode_record(Record(RewriteGroupKey(group_id=group_id), value))
        self._end(group_id, group, joined, now)
        return [RewriteResult(group_id, cause, (record,), answers)]

    def _end(self, group_id: str, group: LiveGroup, joined: dict[str, Waiting], now: Now) -> None:
        group.state = self._step(group.state, RewriteEvent.ALL_JOINED)
        if group.state is RewriteState.REBALANCING:
            group.state = self._step(group.state, RewriteEvent.WRITTEN)
        group.end_round()
        group.sessions = {}
        for id_, one in joined.items():
            self._open(
                group_id, group, id_, one.request.session_timeout, now
            ).connection = one.origin.connection
        if not joined:
            del self._groups[group_id]

    def _counts_of(self, joined: dict[str, Waiting]) -> dict[str, int]:
        """The partitions of every topic that is asked for; a topic need not exist yet."""
        names = {topic for one in joined.values() for topic in wanted(one.request)[0]}
        return {name: self._counts.get(name, 0) for name in sorted(names)}

    def _assign(self, strategy: str, joined: dict[str, Waiting], counts: dict[str, int]) -> Assignment:
        asked = {id_: wanted(one.request) for id_, one in joined.items()}
        if any(fixed for _, fixed in asked.values()):
            return {
                id_: sorted(one for one in partitions_of(fixed) if one[1] < self._counts.get(one[0], 0))
                for id_, (_, fixed) in asked.items()
            }
        topics_of = {id_: topics for id_, (topics, _) in asked.items()}
        if not topics_of:
            return {}
        return checked(self._settings.strategies[strategy](topics_of, counts), topics_of, counts)

    def _strategy_failed(self, group_id: str, group: LiveGroup, now: Now) -> RewriteResult:
        failed = JoinGroupResponse(error_code=RewriteError.UNKNOWN)
        waiting = [*group.waiting.values(), *group.newcomers]
        for consumer_id in group.waiting:
            self._arm(group_id, group, consumer_id, now)
        group.waiting.clear()
        group.newcomers.clear()
        return RewriteResult(group_id, answers=tuple((one.origin, failed) for one in waiting))

    def _answer(self, group_id: str, consumer_id: str) -> JoinGroupResponse:
        return _joined(self._record(group_id), consumer_id)

    # OffsetCommit.

    def _commit(self, request: OffsetCommitRequest, origin: RewriteOrigin, now: Now) -> RewriteResult:
        group = self._groups.get(request.group_id)
        is_known = group is not None and request.consumer_id in group.sessions
        error = self._commit_error(request, group) if group and is_known else RewriteError.UNKNOWN_CONSUMER
        if error is RewriteError.NONE and not self._is_small(request):
            error = RewriteError.INVALID_REQUEST
        if error is not RewriteError.NONE:
            return _refusal(request, origin, error)
        records, topics = [], []
        for topic in request.topics:
            partitions = []
            for one in topic.partitions:
                code = RewriteError.NONE
                if not 0 <= one.partition < self._counts.get(topic.topic, 0):
                    code = RewriteError.UNKNOWN_TOPIC_OR_PARTITION
                elif len((one.metadata or "").encode()) > self._settings.metadata_bytes_max:
                    code = RewriteError.OFFSET_METADATA_TOO_LARGE
                else:
                    key = OffsetCommitKey(
                        group_id=request.group_id, topic=topic.topic, partition=one.partition
                    )
                    at_ms = one.timestamp if one.timestamp >= 0 else now.wall
                    value = OffsetCommitValue(
                        offset=one.offset, commit_timestamp_ms=at_ms, metadata=one.metadata or ""
                    )
                    records.append(encode_record(Record(key, value)))
                partitions.append(CommittedPartition(partition=one.partition, error_code=code))
            topics.append(CommittedTopic(topic=topic.topic, partitions=partitions))
        cause = Cause(
            trigger=Trigger.OFFSETS_COMMITTED,
            member_id=request.consumer_id,
            member_epoch=request.group_generation_id,
        )
        answers = ((origin, OffsetCommitResponse(topics=topics)),)
        return RewriteResult(request.group_id, cause if records else None, tuple(records), answers)

    def _is_small(self, request: OffsetCommitRequest) -> bool:
        settings = self._settings
        count, size = size_of_commit(request)
        return count <= settings.commit_partitions_max and size <= settings.commit_bytes_max

    # Sessions.

    def _record(self, group_id: str) -> RewriteGroupValue:
        value: RewriteGroupValue | None = self._records.get(RewriteGroupKey(group_id=group_id))
        return value or RewriteGroupValue(generation=0, strategy="", topics=(), consumers=())

    def _open(
        self, group_id: str, group: LiveGroup, consumer_id: str, timeout_ms: int, now: Now
    ) -> RewriteSession:
        session = group.sessions[consumer_id] = RewriteSession(timeout_ms, now, now, None)
        self._arm(group_id, group, consumer_id, now)
        return session

    def _arm(self, group_id: str, group: LiveGroup, consumer_id: str, now: Now) -> None:
        session = group.sessions[consumer_id]
        session.armed, session.deadline_ms = now, now.monotonic + session.timeout_ms
        if session.queued_ms is None or session.queued_ms > session.deadline_ms:
            self._queue(group_id, consumer_id, session)

    def _queue(self, group_id: str, consumer_id: str, session: RewriteSession) -> None:
        if session.deadline_ms is not None:
            heapq.heappush(self._timers, (session.deadline_ms, group_id, consumer_id))
            session.queued_ms = session.deadline_ms

    def _note_dead(self, group: LiveGroup, consumer_id: str, session: RewriteSession) -> Reason:
        group.dead.add(consumer_id)
        session.deadline_ms = None
        group.expiries.append(session.expiry(consumer_id))
        is_told = consumer_id in group.told
        return Reason(ReasonKind.JOIN_TIMED_OUT if is_told else ReasonKind.SESSION_EXPIRED, consumer_id)

    def _step(self, state: RewriteState, event: RewriteEvent) -> RewriteState:
        to = self.TABLE[state, event]
        self.taken[state, event] += 1
        return to


def wanted(request: JoinGroupRequest) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """The topics and the fixed partitions that a consumer asks for, as its record has them."""
    return tuple(sorted(set(request.topics))), by_topic(partitions_of(request.partitions))


def _joined(value: RewriteGroupValue, consumer_id: str) -> JoinGroupResponse:
    one = next(one for one in value.consumers if one.consumer_id == consumer_id)
    return JoinGroupResponse(
        group_generation_id=value.generation,
        consumer_id=consumer_id,
        partitions_to_own=[
            TopicNumbers(topic=each.topic, partitions=[*each.partitions]) for each in one.owned
        ],
    )


def _refusal(
    request: JoinGroupRequest | HeartbeatRequest | OffsetCommitRequest,
    origin: RewriteOrigin,
    error: RewriteError,
) -> RewriteResult:
    """The answer that reports an error, which changes nothing."""
    answer: Message
    if isinstance(request, JoinGroupRequest):
        answer = JoinGroupResponse(error_code=error, consumer_id=request.consumer_id)
    elif isinstance(request, HeartbeatRequest):
        answer = HeartbeatResponse(error_code=error)
    else:
        answer = OffsetCommitResponse(
            topics=[
                CommittedTopic(
                    topic=topic.topic,
                    partitions=[
                        CommittedPartition(partition=one.partition, error_code=error)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
    return RewriteResult(request.group_id, answers=((origin, answer),))
