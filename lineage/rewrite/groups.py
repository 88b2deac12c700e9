"""The state of a group that its coordinator keeps in memory only: sessions, the rebalance under way.

A failover discards it. In particular nothing here says in the log that a consumer was found dead before the
generation without it is written, so that a consumer that is back in time costs no rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lineage.rewrite.errors import RewriteError
from lineage.rewrite.machines import RewriteEvent, RewriteState
from lineage.rewrite.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    TopicNumbers,
    committed_with,
)
from lineage.rewrite.strategies import STRATEGIES, Assignment, Partition, StrategyConsumer, StrategyJob
from lineage.shard import NO_TOPIC, Topic, Topics, is_another_topic
from records import (
    Cause,
    Expiry,
    RawRecord,
    Reason,
    ReasonKind,
    RewriteConsumer,
    RewriteGroupValue,
    RewritePartitions,
    RewriteTopic,
)
from wire.protocol import RequestHeader
from wire.schema import Message


class Now(NamedTuple):
    """The time of a decision, in ms: `monotonic` for timers, `wall` (since the epoch) for records."""

    monotonic: float
    wall: int


NEVER = Now(0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class RewriteOrigin:
    """A request's origin, to which its answer goes; the caller knows what `connection` is."""

    connection: object
    header: RequestHeader
    host: str = ""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A result about one group: an entry for the log, or none, and the answers that wait for it.

    The answers of a result without an entry wait for the entries before it. `closes` are connections of
    consumers that were found dead, and of JoinGroups that another one replaces; they are closed at once.
    `job` is to be started when the entries before it are applied. `failure` is a line for the node's log."""

    group_id: str
    cause: Cause | None = None
    records: tuple[RawRecord, ...] = ()
    answers: tuple[tuple[RewriteOrigin, Message], ...] = ()
    closes: tuple[object, ...] = ()
    job: StrategyJob | None = None
    failure: str = ""


@dataclass(slots=True)
class RewriteSession:
    """The failure detection of a known consumer, in monotonic ms; no deadline while its JoinGroup waits."""

    timeout_ms: int
    armed: Now
    heard: Now
    deadline_ms: float | None
    connection: object = None
    queued_ms: float | None = None
    """The time at which the coordinator looks at the deadline next."""

    def expiry(self, consumer_id: str) -> Expiry:
        """The times that prove that the session has ended."""
        armed_ms = self.armed.wall
        return Expiry(consumer_id, self.timeout_ms, armed_ms, self.heard.wall, armed_ms + self.timeout_ms)


@dataclass(slots=True)
class Waiting:
    """A JoinGroup that waits for its answer."""

    origin: RewriteOrigin
    request: JoinGroupRequest
    at: Now


@dataclass(slots=True)
class Round:
    """A round that every consumer alive has joined: JoinGroups by consumer id, in order of the ids.

    `topics` are those that are asked for, `counts` how many partitions of each are shared out. `number` is
    the job's, if there is one."""

    strategy: str
    joined: dict[str, Waiting]
    topics: dict[str, Topic]
    counts: dict[str, int]
    number: int = 0

    @property
    def topics_of(self) -> dict[str, tuple[str, ...]]:
        return {id_: wanted(one.request)[0] for id_, one in self.joined.items()}

    @property
    def has_fixed(self) -> bool:
        return any(wanted(one.request)[1] for one in self.joined.values())

    def value(self, generation: int, owned: Assignment, client_id_bytes_max: int) -> RewriteGroupValue:
        """The group's record with the generation. Longer client ids are cut."""
        return RewriteGroupValue(
            generation=generation,
            strategy=self.strategy,
            topics=tuple(
                RewriteTopic(num_partitions=count, name=name, topic_id=topic_id)
                for name, (topic_id, count) in self.topics.items()
            ),
            consumers=tuple(
                RewriteConsumer(
                    session_timeout_ms=one.request.session_timeout,
                    consumer_id=id_,
                    client_id=_beginning(one.origin.header.client_id or "", client_id_bytes_max),
                    client_host=one.origin.host,
                    topics=wanted(one.request)[0],
                    fixed=wanted(one.request)[1],
                    owned=by_topic(owned[id_]),
                )
                for id_, one in self.joined.items()
            ),
        )

    def job(self, group_id: str, before: RewriteGroupValue) -> StrategyJob | None:
        """The question to a user's strategy; None if it is built in, or has nothing to share out."""
        counts = {topic: count for topic, count in self.counts.items() if count}
        if self.strategy in STRATEGIES or self.has_fixed or not counts:
            return None
        owned = {
            one.consumer_id: {each.topic: each.partitions for each in one.owned} for one in before.consumers
        }
        return StrategyJob(
            group_id=group_id,
            number=self.number,
            strategy=self.strategy,
            counts=counts,
            consumers={
                id_: StrategyConsumer(tuple(one for one in topics if one in counts), owned.get(id_, {}))
                for id_, topics in self.topics_of.items()
            },
            deadline_ms=min(one.request.session_timeout for one in self.joined.values()),
        )


@dataclass(slots=True)
class LiveGroup:
    """A group as its coordinator sees it, beside its record."""

    state: RewriteState = RewriteState.READY
    sessions: dict[str, RewriteSession] = field(default_factory=dict)
    began: Now = NEVER
    reasons: dict[Reason, None] = field(default_factory=dict)
    expiries: list[Expiry] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    """Consumers that know of the rebalance."""
    dead: set[str] = field(default_factory=set)
    """Consumers of the record that are not waited for."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Known consumers whose JoinGroup has come."""
    newcomers: list[Waiting] = field(default_factory=list)
    """JoinGroups without an id."""
    asked: Round | None = None
    """The round whose strategy is being asked; `waiting` and `newcomers` are its own until it ends."""
    late: dict[str, Waiting] = field(default_factory=dict)
    """JoinGroups for the round after it, of consumers in the round that changed what they ask for."""
    late_newcomers: list[Waiting] = field(default_factory=list)
    """The same without an id."""

    @property
    def alive(self) -> set[str]:
        return self.sessions.keys() - self.dead

    @property
    def has_all_joined(self) -> bool:
        return self.alive <= self.waiting.keys()

    @property
    def size(self) -> int:
        """Consumers that are known or wait to be."""
        return len(self.sessions) + len(self.newcomers) + len(self.late_newcomers)

    def others(self, consumer_id: str) -> list[JoinGroupRequest]:
        """The JoinGroups that wait, without the consumer's own: of each the latest."""
        known = [self.late.get(id_, one) for id_, one in self.waiting.items() if id_ != consumer_id]
        return [one.request for one in (*known, *self.newcomers, *self.late_newcomers)]

    def given_up_for(self, consumer_id: str, connection: object) -> tuple[object, ...]:
        """The connection of the consumer's JoinGroup that waits, if a new one comes on another connection."""
        last = self.late.get(consumer_id) or self.waiting.get(consumer_id)
        is_other = last is not None and last.origin.connection is not connection
        return (last.origin.connection,) if last is not None and is_other else ()

    def wait(self, consumer_id: str, one: Waiting) -> None:
        """Let the JoinGroup of a known consumer wait; its failure detection is paused meanwhile."""
        session = self.sessions[consumer_id]
        session.deadline_ms, session.connection, session.heard = None, one.origin.connection, one.at
        self.dead.discard(consumer_id)
        self.waiting[consumer_id] = one

    @property
    def can_recover(self) -> bool:
        """Whether nobody was told yet, and the only reason is that consumers were found dead."""
        only_dead = all(reason.kind == ReasonKind.SESSION_EXPIRED for reason in self.reasons)
        return only_dead and not (self.told or self.waiting or self.newcomers)

    def join_meanwhile(self, asked: Round, consumer_id: str, one: Waiting) -> RewriteEvent:
        """Let a JoinGroup wait that comes while a strategy is asked; the round ends as it was asked.

        A consumer in the round that repeats its JoinGroup gets the round's answer; any other JoinGroup waits
        for the round after it."""
        if not consumer_id:
            self.late_newcomers.append(one)
            return RewriteEvent.JOINED
        if not are_alike(asked.joined[consumer_id].request, one.request):
            self.late[consumer_id] = one
            return RewriteEvent.CHANGED
        self.late.pop(consumer_id, None)
        self.wait(consumer_id, one)
        asked.joined[consumer_id] = one
        return RewriteEvent.REJOINED

    def end_round(self) -> None:
        """Forget the rebalance that was under way."""
        for part in (self.reasons, self.expiries, self.told, self.dead, self.waiting, self.newcomers):
            part.clear()
        self.asked = None


def wanted(request: JoinGroupRequest) -> tuple[tuple[str, ...], tuple[RewritePartitions, ...]]:
    """The topics and the fixed partitions that a consumer asks for, as its record has them."""
    return tuple(sorted(set(request.topics))), by_topic(partitions_of(request.partitions))


def are_alike(one: JoinGroupRequest, other: JoinGroupRequest) -> bool:
    """Whether two JoinGroups ask for the same."""
    is_same = one.partition_assignment_strategy == other.partition_assignment_strategy
    return is_same and wanted(one) == wanted(other)


def answer_of(value: RewriteGroupValue, consumer_id: str) -> JoinGroupResponse:
    """The answer to a JoinGroup: what the generation gives the consumer."""
    one = next(one for one in value.consumers if one.consumer_id == consumer_id)
    return JoinGroupResponse(
        group_generation_id=value.generation,
        consumer_id=consumer_id,
        partitions_to_own=[
            TopicNumbers(topic=each.topic, partitions=[*each.partitions]) for each in one.owned
        ],
    )


def by_topic(partitions: Iterable[Partition]) -> tuple[RewritePartitions, ...]:
    """Partitions as a record has them."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return tuple(RewritePartitions(topic=topic, partitions=tuple(each)) for topic, each in numbers.items())


def partitions_of(topics: Iterable[RewritePartitions | TopicNumbers]) -> set[Partition]:
    """The same as pairs."""
    return {(one.topic, number) for one in topics for number in one.partitions}


def _beginning(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")


def differences(value: RewriteGroupValue, topics: Topics) -> list[Reason]:
    """The topics that demand another generation: each whose partitions are not those shared out."""
    found = []
    for topic in value.topics:
        topic_id, now = topics.get(topic.name, NO_TOPIC)
        if now and is_another_topic(topic.topic_id, topic_id):
            found.append(Reason(ReasonKind.TOPIC_RECREATED, topic=topic.name))
        elif now != topic.num_partitions:
            created = ReasonKind.TOPIC_CREATED if topic.num_partitions == 0 else ReasonKind.TOPIC_GROWN
            found.append(Reason(created if now else ReasonKind.TOPIC_DELETED, topic=topic.name))
    return found


def refusal(
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
        answer = committed_with(request, error)
    return RewriteResult(request.group_id, answers=((origin, answer),))
