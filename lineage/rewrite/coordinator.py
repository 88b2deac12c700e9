"""The coordinator of seed 000: what both of its variants decide alike.

Decisions are pure: they read the groups' records, keep the rest in memory (`lineage.rewrite.groups`), and
return results. The caller applies the records of each result before it asks for the next decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lineage.rewrite.bounds import RewriteSettings, bytes_of_others, shared_out, subscription_bytes
from lineage.rewrite.commits import offsets_of
from lineage.rewrite.deadlines import SessionDeadlines
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import (
    LiveGroup,
    Now,
    RewriteOrigin,
    RewriteResult,
    RewriteSession,
    Round,
    Waiting,
    answer_of,
    differences,
    partitions_of,
    refusal,
    wanted,
)
from lineage.rewrite.machines import RewriteEvent, RewriteState, Table
from lineage.rewrite.messages import (
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
from lineage.rewrite.strategies import STRATEGIES, Assignment, checked
from lineage.shard import NO_TOPIC, NoOtherGroups, OtherGroups, Topic, Topics
from records import (
    Cause,
    Phases,
    Reason,
    ReasonKind,
    Record,
    RewriteConsumer,
    RewriteGroupKey,
    RewriteGroupValue,
    RewritePartitions,
    Trigger,
    encode_record,
)
from wire.schema import Message


class RewriteCoordinator(ABC):
    """The groups of one shard. `groups` are their records by key, and may hold other keys too.

    `topics` is the catalog. `locate` names the coordinator of a group, None if there is none. `others` are
    the groups of other kinds. `taken` counts the transitions of the variant's table.
    """

    TABLE: ClassVar[Table]

    def __init__(
        self,
        groups: Mapping[Any, Any],
        topics: Topics,
        fresh_id: Callable[[], str],
        locate: Callable[[str], RewriteBroker | None],
        settings: RewriteSettings | None = None,
        others: OtherGroups | None = None,
    ) -> None:
        self._records, self._topics, self._fresh_id, self._locate = groups, topics, fresh_id, locate
        self._others = NoOtherGroups() if others is None else others
        self._settings = RewriteSettings() if settings is None else settings
        self._groups: dict[str, LiveGroup] = {}
        self._deadlines = SessionDeadlines()
        self._jobs = 0
        """Number of the last job; it never starts again, so that a late answer fits no other round."""
        self.state = RewriteState.DOWN
        self.taken: Counter[tuple[RewriteState, RewriteEvent]] = Counter()

    # The life of the shard.

    def elected(self) -> None:
        self.state = self._step(self.state, RewriteEvent.ELECTED)

    def loading(self, now: Callable[[], Now]) -> Iterator[None]:
        """Load the groups, one with each step, and begin to serve with the last one; nothing is written.

        Every consumer gets a full session, and topics are compared with the records. Topics that change
        meanwhile are to be told with `topics_changed` at the end."""
        for key, value in list(self._records.items()):
            if isinstance(key, RewriteGroupKey) and value.consumers:
                self._load(key.group_id, value, now())
                yield
        self.state = self._step(self.state, RewriteEvent.LOADED)

    def _load(self, group_id: str, value: RewriteGroupValue, now: Now) -> None:
        group = self._groups[group_id] = LiveGroup()
        for one in value.consumers:
            self._open(group_id, group, one.consumer_id, one.session_timeout_ms, now)
        if new := differences(value, self._topics):
            self._prepare(group_id, group, RewriteEvent.GROWN, now, *new)

    def loaded(self, now: Now) -> None:
        """Load all groups at once."""
        for _ in self.loading(lambda: now):
            pass

    def demoted(self) -> None:
        """Another node leads: forget what is in memory only; requests that wait get no answer."""
        for group in self._groups.values():
            self._step(group.state, RewriteEvent.DEMOTED)
        self._groups.clear()
        self._deadlines = SessionDeadlines()
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
            return [refusal(request, origin, self._unavailable(request, self.state))]
        if isinstance(request, JoinGroupRequest):
            return self._join(request, origin, now)
        if isinstance(request, OffsetCommitRequest):
            return [self._commit(request, origin, now)]
        group = self._groups.get(request.group_id)
        if group is None or request.consumer_id not in group.sessions:
            return [refusal(request, origin, RewriteError.UNKNOWN_CONSUMER)]
        group.sessions[request.consumer_id].connection = origin.connection
        error = self._heartbeat(request, group, now)
        results = [RewriteResult(request.group_id, answers=((origin, HeartbeatResponse(error_code=error)),))]
        return results + self._go_on(request.group_id, group, now)

    def put_off(self, request: Message, origin: RewriteOrigin) -> RewriteResult:
        """Answer as while loading: the consumer asks again. For times in which nothing can be written."""
        assert isinstance(request, JoinGroupRequest | HeartbeatRequest | OffsetCommitRequest)
        return refusal(request, origin, self._unavailable(request, RewriteState.CATCH_UP))

    def tick(self, now: Now) -> list[RewriteResult]:
        """Find the consumers dead whose deadline has passed; see `next_deadline_ms`."""
        results: list[RewriteResult] = []
        touched: dict[str, LiveGroup] = {}
        for group_id, consumer_id in self._deadlines.passed(now, self._session):
            group = touched[group_id] = self._groups[group_id]
            session = group.sessions[consumer_id]
            connection = self._found_dead(group_id, group, consumer_id, session, now)
            if connection is not None:
                results.append(RewriteResult(group_id, closes=(connection,)))
        for group_id, group in touched.items():
            results += self._go_on(group_id, group, now)
        return results

    @property
    def next_deadline_ms(self) -> float | None:
        """Monotonic ms at which `tick` may have work; it may also find none."""
        return self._deadlines.next_ms

    def topics_changed(self, now: Now) -> list[RewriteResult]:
        """Compare every group with the catalog, one whose strategy is asked when its round ends."""
        results: list[RewriteResult] = []
        for group_id, group in list(self._groups.items()):
            if group.asked is not None:
                if group.asked.topics != self._topics_of(group.asked.joined):
                    group.state = self._step(group.state, RewriteEvent.GROWN)
                continue
            value = self._record(group_id)
            new = [one for one in differences(value, self._topics) if one not in group.reasons]
            if new:
                self._prepare(group_id, group, RewriteEvent.GROWN, now, *new)
                results += self._go_on(group_id, group, now)
        return results

    def strategy_ended(
        self, group_id: str, number: int, answer: Assignment | None, error: str | None, now: Now
    ) -> list[RewriteResult]:
        """End the round of a job with the strategy's answer, or with an error if there is none.

        The number of a round that is over, or of a coordinator before the failover, changes nothing."""
        group = self._groups.get(group_id)
        round_ = group.asked if group is not None else None
        if group is None or round_ is None or round_.number != number:
            return []
        if (taken := self._refusal_of_id(group_id, group)) is not RewriteError.NONE:
            return [self._give_up(group_id, group, round_, taken)]
        late, newcomers = group.late, group.late_newcomers
        group.late, group.late_newcomers = {}, []
        try:
            if answer is None:
                raise ValueError(error or "no answer")
            owned = checked(answer, round_.topics_of, round_.counts)
        except ValueError as failure:
            value = self._record(group_id)
            result = self._strategy_failed(group_id, group, round_, late, str(failure), now)
        else:
            value, result = self._complete(group_id, group, round_, owned, late, now)
        for consumer_id, one in late.items():
            reason = Reason(ReasonKind.SUBSCRIPTION_CHANGED, consumer_id)
            self._prepare(group_id, group, RewriteEvent.CHANGED, now, reason)
            group.wait(consumer_id, one)
        for one in newcomers:
            self._prepare(group_id, group, RewriteEvent.JOINED, now)
            group.newcomers.append(one)
        if new := [one for one in differences(value, self._topics) if one not in group.reasons]:
            self._prepare(group_id, group, RewriteEvent.GROWN, now, *new)
        if not (group.sessions or group.newcomers):  # a new group, whose first round failed
            del self._groups[group_id]
            return [result]
        return [result, *self._go_on(group_id, group, now, value)]

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
        error = self._join_error(request, group)
        if error is not RewriteError.NONE:
            return [refusal(request, origin, error)]
        if self._answers_again(request, group):
            group.state = self._step(group.state, RewriteEvent.REJOINED)
            self._arm(group_id, group, consumer_id, now)
            return [RewriteResult(group_id, answers=((origin, self._answer(group_id, consumer_id)),))]
        closes = group.given_up_for(consumer_id, origin.connection)
        results = [RewriteResult(group_id, closes=closes)] if closes else []
        if group.asked is not None:
            event = group.join_meanwhile(group.asked, consumer_id, Waiting(origin, request, now))
            group.state = self._step(group.state, event)
            return results
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
        group.wait(consumer_id, Waiting(origin, request, now))
        return results + self._go_on(group_id, group, now)

    def _join_error(self, request: JoinGroupRequest, group: LiveGroup) -> RewriteError:
        settings, consumer_id = self._settings, request.consumer_id
        size = subscription_bytes(request.topics, request.partitions)
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
        if (taken := self._refusal_of_id(request.group_id, group)) is not RewriteError.NONE:
            return taken
        if not consumer_id and group.size >= settings.consumers_max:
            return RewriteError.GROUP_TOO_LARGE
        others_size = bytes_of_others(self._record(request.group_id), group, consumer_id)
        if size + others_size > settings.subscriptions_bytes_max:
            return RewriteError.GROUP_TOO_LARGE
        if self._is_inconsistent(request, group):
            return RewriteError.INCONSISTENT_PARTITIONING_STRATEGY
        return RewriteError.NONE

    def _refusal_of_id(self, group_id: str, group: LiveGroup) -> RewriteError:
        """The error if a group without consumers cannot have its id."""
        refused = self._others.refusal(group_id) if not group.sessions else None
        if refused is None:
            return RewriteError.NONE
        is_taken = refused.is_taken
        return RewriteError.INCONSISTENT_PARTITIONING_STRATEGY if is_taken else RewriteError.GROUP_TOO_LARGE

    def _give_up(self, group_id: str, group: LiveGroup, round_: Round, error: RewriteError) -> RewriteResult:
        """Refuse the consumers of a new group: another kind took its id while the strategy was asked."""
        self._step(group.state, RewriteEvent.FAILED)
        del self._groups[group_id]
        refused = JoinGroupResponse(error_code=error)
        waiting = (*round_.joined.values(), *group.late_newcomers)
        return RewriteResult(group_id, answers=tuple((one.origin, refused) for one in waiting))

    def _asks_the_same(self, request: JoinGroupRequest, before: RewriteConsumer) -> bool:
        has_strategy = self._record(request.group_id).strategy == request.partition_assignment_strategy
        return has_strategy and wanted(request) == (before.topics, before.fixed)

    def _is_removed(self, group: LiveGroup, consumer_id: str) -> bool:
        """Whether the generation that is being made will not have the consumer."""
        return group.asked is not None and consumer_id in group.dead

    def _is_inconsistent(self, request: JoinGroupRequest, group: LiveGroup) -> bool:
        """Whether another consumer has another strategy, the other kind of list, or one of the partitions."""
        others = group.others(request.consumer_id)
        seen: list[tuple[str, Sequence[TopicNumbers | RewritePartitions]]] = [
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

    def _go_on(
        self, group_id: str, group: LiveGroup, now: Now, before: RewriteGroupValue | None = None
    ) -> list[RewriteResult]:
        """End the rebalance, or ask its strategy, if every consumer that is alive has joined.

        `before` is the group's record if it is not applied yet."""
        if group.state is not RewriteState.PREPARING or group.asked or not group.has_all_joined:
            return []
        named = [
            *group.waiting.items(),
            *((f"{group_id}-{self._fresh_id()}", one) for one in group.newcomers),
        ]
        joined = dict(sorted(named))
        strategy = next((one.request.partition_assignment_strategy for one in joined.values()), "")
        topics = self._topics_of(joined)
        counts = shared_out(topics, self._settings.partitions_max)
        round_ = Round(strategy, joined, topics, counts, self._jobs + 1)
        before = before or self._record(group_id)
        job = round_.job(group_id, before)
        if job is None:
            return [self._complete(group_id, group, round_, self._assign(round_), {}, now, before)[1]]
        self._jobs, group.asked = round_.number, round_
        group.state = self._step(group.state, RewriteEvent.ASKED)
        return [RewriteResult(group_id, job=job)]

    def _complete(
        self,
        group_id: str,
        group: LiveGroup,
        round_: Round,
        owned: Assignment,
        late: Mapping[str, Waiting],
        now: Now,
        before: RewriteGroupValue | None = None,
    ) -> tuple[RewriteGroupValue, RewriteResult]:
        """Write the generation and answer its consumers, but for those whose JoinGroup another replaced."""
        joined = round_.joined
        before = before or self._record(group_id)
        value = round_.value(before.generation + 1, owned, self._settings.client_id_bytes_max)
        new = [id_ for id_ in joined if id_ not in group.sessions]
        group.reasons.update({Reason(ReasonKind.MEMBER_JOINED, id_): None for id_ in new})
        cause = Cause(
            trigger=Trigger.GENERATION_COMPLETED,
            reasons=tuple(group.reasons),
            expiries=tuple(group.expiries),
            phases=Phases(group.began.wall, now.wall),
        )
        answers = tuple((one.origin, answer_of(value, id_)) for id_, one in joined.items() if id_ not in late)
        record = encode_record(Record(RewriteGroupKey(group_id=group_id), value))
        way = () if before.consumers else self._others.records_that_make_way(group_id)
        self._end(group_id, group, joined, now)
        return value, RewriteResult(group_id, cause, (*way, record), answers)

    def _end(self, group_id: str, group: LiveGroup, joined: dict[str, Waiting], now: Now) -> None:
        if group.asked is None:
            group.state = self._step(group.state, RewriteEvent.ALL_JOINED)
        if group.asked is not None or group.state is RewriteState.REBALANCING:
            group.state = self._step(group.state, RewriteEvent.WRITTEN)
        group.end_round()
        group.sessions = {}
        for id_, one in joined.items():
            self._open(
                group_id, group, id_, one.request.session_timeout, now
            ).connection = one.origin.connection
        if not joined:
            del self._groups[group_id]

    def _topics_of(self, joined: dict[str, Waiting]) -> dict[str, Topic]:
        """Every topic that is asked for, or of which partitions are; it need not exist yet."""
        asked = [wanted(one.request) for one in joined.values()]
        names = {topic for topics, _ in asked for topic in topics}
        names |= {one.topic for _, fixed in asked for one in fixed}
        return {name: self._topics.get(name, NO_TOPIC) for name in sorted(names)}

    def _assign(self, round_: Round) -> Assignment:
        """The result of a built-in strategy, or nothing but what is fixed."""
        if round_.has_fixed:
            return {
                id_: sorted(
                    one for one in partitions_of(one.request.partitions) if one[1] < round_.counts[one[0]]
                )
                for id_, one in round_.joined.items()
            }
        strategy = STRATEGIES.get(round_.strategy)
        if strategy is None:  # a user's: it would have nothing to share out
            return {id_: [] for id_ in round_.joined}
        return strategy(round_.topics_of, round_.counts)

    def _strategy_failed(
        self,
        group_id: str,
        group: LiveGroup,
        round_: Round,
        late: Mapping[str, Waiting],
        error: str,
        now: Now,
    ) -> RewriteResult:
        """Answer the round's JoinGroups; its consumers have a session from now on to send another one."""
        failed = JoinGroupResponse(error_code=RewriteError.UNKNOWN)
        answers = tuple((one.origin, failed) for id_, one in round_.joined.items() if id_ not in late)
        for consumer_id in group.waiting:
            group.told.add(consumer_id)
            self._arm(group_id, group, consumer_id, now)
        group.waiting, group.newcomers, group.asked = {}, [], None
        group.state = self._step(group.state, RewriteEvent.FAILED)
        failure = f"Strategy {round_.strategy} failed for group {group_id}: {error}"
        return RewriteResult(group_id, answers=answers, failure=failure)

    def _answer(self, group_id: str, consumer_id: str) -> JoinGroupResponse:
        return answer_of(self._record(group_id), consumer_id)

    # OffsetCommit.

    def _commit(self, request: OffsetCommitRequest, origin: RewriteOrigin, now: Now) -> RewriteResult:
        group = self._groups.get(request.group_id)
        is_known = group is not None and request.consumer_id in group.sessions
        error = self._commit_error(request, group) if group and is_known else RewriteError.UNKNOWN_CONSUMER
        if error is not RewriteError.NONE:
            return refusal(request, origin, error)
        if sum(len(topic.partitions) for topic in request.topics) > self._settings.commit_partitions_max:
            return refusal(request, origin, RewriteError.INVALID_COMMIT_OFFSET_SIZE)
        value, bytes_max = self._record(request.group_id), self._settings.metadata_bytes_max
        records, topics = offsets_of(request, value, self._topics, bytes_max, now)
        if sum(len(one.key) + len(one.value or b"") for one in records) > self._settings.commit_bytes_max:
            return refusal(request, origin, RewriteError.INVALID_COMMIT_OFFSET_SIZE)
        cause = Cause(
            trigger=Trigger.OFFSETS_COMMITTED,
            member_id=request.consumer_id,
            member_epoch=request.group_generation_id,
        )
        answers = ((origin, OffsetCommitResponse(topics=topics)),)
        return RewriteResult(request.group_id, cause if records else None, tuple(records), answers)

    # Sessions.

    def _session(self, group_id: str, consumer_id: str) -> RewriteSession | None:
        group = self._groups.get(group_id)
        return None if group is None else group.sessions.get(consumer_id)

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
        self._deadlines.arm(group_id, consumer_id, group.sessions[consumer_id], now)

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
