"""The coordinator of one push group (seed 004): events in, one entry with its cause and messages out.

What the log knows is record 1011. What only a leader knows is in `PushGroup`: connections, requests without
an answer, times. A round divides the partitions: everyone is sent Stop, and once nobody owns anything
everyone is sent Start. A consumer that registers is sent Stop first too, whatever it may still be consuming.

There is no generation. What orders a consumer's work is its one connection: it is closed before its
partitions are started elsewhere, and what comes from a closed connection is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lineage.push.decisions import (
    ConnectionClosed,
    Event,
    Failover,
    FrameReceived,
    OfferedOffset,
    OffsetsOffered,
    PushDecision,
    PushDecisionBuilder,
    PushGroupView,
    PushMoment,
    PushSettings,
    Registered,
)
from lineage.push.machines import CONSUMER_TRANSITIONS, Turn
from lineage.push.messages import (
    Answer,
    Command,
    CommandResponse,
    CommandType,
    PartitionOffset,
    PingRequest,
    PingResponse,
    StartRequest,
    StopRequest,
    decode_answer,
    partition_name,
    partition_number,
)
from lineage.push.rounds import divide, partitions_of
from lineage.shard import NO_TOPIC, NoOtherGroups, OtherGroups, Topic, is_another_topic
from records import Expiry, PushConsumer, PushPartitions, PushState, ReasonKind, Trigger
from wire.errors import ErrorCode, MalformedFrame

PINGS_EARLY = 10
"""With a Ping that is due go those that are due within ping_interval_ms divided by this.

They wait for one proof that this node leads, and their answers come, and are written, together."""

METADATA_BYTES_MAX = 4_096
"""Kafka's default; bytes of the metadata of one offset."""

_WITH_PARTITIONS = (PushState.STARTING, PushState.STARTED)
_REASONS = {Turn.LEAVES: ReasonKind.MEMBER_LEFT, Turn.FAILS: ReasonKind.SESSION_EXPIRED}


@dataclass(slots=True)
class _Session:
    """A consumer's connection. `asked` are the requests without an answer, each with what is owned then.

    At `due_ms` the newest of them must have been answered; if there is none, the next Ping is due."""

    connection: int
    heard_ms: int
    due_ms: int = 0
    num_failures: int = 0
    asked: deque[tuple[CommandType, tuple[PushPartitions, ...]]] = field(default_factory=deque)


class PushGroup:
    """One group on the leader of its shard. The first event of a new leader is `PushMoment.LOADED`.

    Call `on` for each event, and with `PushMoment.TIME_PASSED` at `next_ms`. The caller applies the records
    of a decision to what `view` reads before the next call. Times are in ms; `wall_ms` only goes into
    records.
    """

    def __init__(
        self, group_id: str, settings: PushSettings, view: PushGroupView, others: OtherGroups | None = None
    ) -> None:
        self.group_id = group_id
        self._settings = settings
        self._view = view
        self._others = NoOtherGroups() if others is None else others
        self._sessions: dict[str, _Session] = {}
        self._consumer_ids: dict[int, str] = {}
        self._absent: dict[str, int] = {}  # consumers of the log that have not registered again → until when
        self._held_until_ms: int | None = None

    def on(self, event: Event, now_ms: int, wall_ms: int) -> PushDecision:
        before = self._view.value()
        builder = PushDecisionBuilder.of(before, now_ms, wall_ms)
        match event:
            case Registered():
                self._register(builder, event)
            case FrameReceived():
                self._receive(builder, event)
            case ConnectionClosed():
                consumer_id = self._consumer_ids.get(event.connection)
                if consumer_id is not None:
                    self._remove(builder, consumer_id, Turn.LEAVES, "closed its connection")
            case OffsetsOffered():
                builder.decision.error = self._commit_offered(builder, event)
            case PushMoment.LOADED:
                self._load(builder)
            case PushMoment.TOPICS_CHANGED:
                self._compare_topics(builder)
            case PushMoment.TIME_PASSED:
                self._look_at_clock(builder)
        self._go_on(builder)
        return builder.build(self.group_id, before, self._others)

    def configure(self, settings: PushSettings) -> None:
        """Follow changed settings; `PushMoment.TOPICS_CHANGED` then compares the topics."""
        self._settings = settings

    @property
    def next_ms(self) -> int | None:
        """The time at which `PushMoment.TIME_PASSED` is due; None if nothing is."""
        times = [session.due_ms for session in self._sessions.values()]
        times += self._absent.values()
        if self._held_until_ms is not None:
            times.append(self._held_until_ms)
        return min(times, default=None)

    def _move(
        self,
        builder: PushDecisionBuilder,
        consumer_id: str,
        turn: Turn,
        owned: tuple[PushPartitions, ...] | None = None,
    ) -> None:
        """Take the transition of the table, and change what the consumer owns unless `owned` is None."""
        one = builder.consumers[consumer_id]
        to = CONSUMER_TRANSITIONS[PushState(one.state), turn]
        if to is None:
            del builder.consumers[consumer_id]
        else:
            builder.consumers[consumer_id] = replace(
                one, state=to, owned=one.owned if owned is None else owned
            )

    def _register(self, builder: PushDecisionBuilder, event: Registered) -> None:
        request, connection = event.request, event.connection
        consumer_id = request.consumer_id
        if consumer_id in self._sessions:
            self._remove(builder, consumer_id, Turn.LEAVES, "registered on another connection")
        if why := self._why_not(builder, consumer_id):
            builder.decision.closes.append((connection, why))
            return
        self._sessions[consumer_id] = _Session(connection, builder.now_ms)
        self._consumer_ids[connection] = consumer_id
        was_known = self._absent.pop(consumer_id, None) is not None
        known = builder.consumers.get(consumer_id)
        state = None if known is None else PushState(known.state)
        turn = Turn.REGISTERS_AGAIN if was_known else Turn.REGISTERS
        to = CONSUMER_TRANSITIONS[state, turn]
        assert to is not None, "whoever registers is in the group"
        builder.consumers[consumer_id] = PushConsumer(
            state=to,
            auto_commit=int(request.auto_commit),
            max_ping_retries=request.max_ping_retries,
            ping_interval_ms=request.ping_interval_ms,
            consumer_id=consumer_id,
            auto_offset_reset=request.auto_offset_reset,
            owned=() if known is None else known.owned,
        )
        if was_known:
            builder.because(Trigger.MEMBER_REJOINED, consumer_id)
            again = {PushState.STOPPING: CommandType.STOP, PushState.STARTING: CommandType.START}
            self._send(builder, consumer_id, again.get(to, CommandType.PING))
            return
        builder.because(Trigger.MEMBER_JOINED, consumer_id)
        self._send(builder, consumer_id, CommandType.STOP)
        builder.add_reason(ReasonKind.MEMBER_JOINED, consumer_id)
        self._stop_all(builder)

    def _why_not(self, builder: PushDecisionBuilder, consumer_id: str) -> str:
        """The reason why the consumer cannot register; empty if it can."""
        if not builder.consumers:
            refused = self._others.refusal(self.group_id)
            return "" if refused is None else refused.why
        if consumer_id in builder.consumers or len(builder.consumers) < self._settings.consumers_max:
            return ""
        return f"the group has {self._settings.consumers_max} consumers, and no more are allowed"

    def _receive(self, builder: PushDecisionBuilder, event: FrameReceived) -> None:
        consumer_id = self._consumer_ids.get(event.connection)
        if consumer_id is None:  # a connection that was closed here: nothing that it says counts
            return
        session, one = self._sessions[consumer_id], builder.consumers[consumer_id]
        if not session.asked:
            self._remove(builder, consumer_id, Turn.LEAVES, "answered what was not asked")
            return
        asked, owned = session.asked.popleft()
        try:
            answer = decode_answer(asked, event.payload, auto_commit=bool(one.auto_commit))
            offsets = _offsets_of(answer)
        except MalformedFrame as error:
            self._remove(builder, consumer_id, Turn.LEAVES, f"sent an answer that cannot be read: {error}")
            return
        session.heard_ms = builder.now_ms
        if not session.asked:
            session.due_ms = builder.now_ms + one.ping_interval_ms // 2
        if isinstance(answer, CommandResponse):
            self._command_answered(builder, consumer_id, asked, answer.error_code)
        elif problem := _problem(answer, offsets, owned, bool(one.auto_commit)):
            self._fail_ping(builder, consumer_id, problem)
        else:
            session.num_failures = 0
            self._commit(builder, consumer_id, offsets)

    def _command_answered(
        self, builder: PushDecisionBuilder, consumer_id: str, asked: CommandType, error_code: int
    ) -> None:
        state = builder.consumers[consumer_id].state
        self._sessions[consumer_id].num_failures = 0
        if error_code:
            detail = f"answered {asked.name.capitalize()} with error {error_code}"
            self._remove(builder, consumer_id, Turn.FAILS, detail)
        elif asked is CommandType.STOP:
            builder.because(Trigger.MEMBER_ACKED, consumer_id, "stopped")
            self._move(builder, consumer_id, Turn.STOPPED, owned=())
        elif state == PushState.STARTING:  # else a Stop has been sent since
            builder.because(Trigger.MEMBER_ACKED, consumer_id, "started")
            self._move(builder, consumer_id, Turn.STARTED)

    def _commit(
        self, builder: PushDecisionBuilder, consumer_id: str, offsets: dict[tuple[str, int], int]
    ) -> None:
        """Commit the offsets that differ from the committed ones; a negative one is no position yet."""
        changed = [
            OfferedOffset(topic, partition, offset)
            for (topic, partition), offset in sorted(offsets.items())
            if offset >= 0 and offset != self._committed(builder, topic, partition)
        ]
        if changed:
            builder.because(Trigger.OFFSETS_COMMITTED, consumer_id)
            builder.offsets += changed

    def _commit_offered(self, builder: PushDecisionBuilder, event: OffsetsOffered) -> ErrorCode:
        one = builder.consumers.get(event.consumer_id)
        if one is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if one.auto_commit or not self._settings.offset_commit:
            return ErrorCode.INVALID_REQUEST
        partitions = {(each.topic, each.partition) for each in event.offsets}
        if len(partitions) < len(event.offsets) or any(each.offset < 0 for each in event.offsets):
            return ErrorCode.INVALID_REQUEST
        if any(len(each.metadata.encode()) > METADATA_BYTES_MAX for each in event.offsets):
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if not partitions <= set(partitions_of(one.owned)):
            return ErrorCode.ILLEGAL_GENERATION  # Kafka's error for work of an earlier assignment
        if event.offsets:
            builder.because(Trigger.OFFSETS_COMMITTED, event.consumer_id)
            builder.offsets += event.offsets
        return ErrorCode.NONE

    def _fail_ping(self, builder: PushDecisionBuilder, consumer_id: str, problem: str) -> None:
        """Count a failed Ping: the next one tells its number, and one too many fails the consumer."""
        session, one = self._sessions[consumer_id], builder.consumers[consumer_id]
        session.num_failures += 1
        if session.num_failures > one.max_ping_retries:
            detail = f"{session.num_failures} pings failed in a row, the last one because {problem}"
            self._remove(builder, consumer_id, Turn.FAILS, detail)
        elif all(asked is CommandType.PING for asked, _ in session.asked):
            self._send(builder, consumer_id, CommandType.PING)

    def _load(self, builder: PushDecisionBuilder) -> None:
        if self._settings.failover is Failover.WAIT:
            builder.because(
                Trigger.READY_CHECK, detail="a new coordinator waits for the consumers to register again"
            )
            builder.consumers.clear()
            self._held_until_ms = builder.now_ms + self._settings.reregister_wait_ms
            return
        for one in builder.consumers.values():
            patience_ms = one.ping_interval_ms * (one.max_ping_retries + 1)
            self._absent[one.consumer_id] = builder.now_ms + patience_ms
        self._compare_topics(builder)

    def _compare_topics(self, builder: PushDecisionBuilder) -> None:
        """Begin a round if the group's topics are not those that were divided."""
        if not any(one.state in _WITH_PARTITIONS for one in builder.consumers.values()):
            return  # a round is under way, and reads the topics when it ends
        before, wanted = builder.topics, self._topics()
        for topic in sorted(before.keys() | wanted.keys()):
            (old_id, had), (new_id, has) = before.get(topic, NO_TOPIC), wanted.get(topic, NO_TOPIC)
            is_new = is_another_topic(old_id, new_id)
            if is_new or had != has:
                builder.because(Trigger.CATALOG_CHANGED)
                kind = ReasonKind.TOPIC_GROWN if has > had else ReasonKind.TOPIC_DELETED
                kind = ReasonKind.TOPIC_RECREATED if is_new else kind
                builder.add_reason(kind, topic=topic, detail=f"{had} to {has} partitions")
                self._stop_all(builder)

    def _look_at_clock(self, builder: PushDecisionBuilder) -> None:
        now_ms = builder.now_ms
        if self._held_until_ms is not None and self._held_until_ms <= now_ms:
            builder.because(Trigger.READY_CHECK, detail="the wait for consumers that register again is over")
            self._held_until_ms = None
        for consumer_id in [one for one, due_ms in self._absent.items() if due_ms <= now_ms]:
            self._remove(builder, consumer_id, Turn.FAILS, "did not register again after a failover")
        for consumer_id, session in list(self._sessions.items()):
            asked = session.asked
            early_ms = 0 if asked else builder.consumers[consumer_id].ping_interval_ms // PINGS_EARLY
            if session.due_ms - early_ms > now_ms:
                pass  # nothing is due, or a Stop that was sent in this loop has moved it
            elif not asked:
                self._send(builder, consumer_id, CommandType.PING)
            elif asked[-1][0] is CommandType.PING:
                self._fail_ping(builder, consumer_id, "no answer came in time")
            else:
                detail = f"did not answer {asked[-1][0].name.capitalize()} in time"
                self._remove(builder, consumer_id, Turn.FAILS, detail)

    def _remove(self, builder: PushDecisionBuilder, consumer_id: str, turn: Turn, detail: str) -> None:
        """Remove a consumer from the group, close its connection, and begin a round."""
        one = builder.consumers[consumer_id]
        session = self._sessions.pop(consumer_id, None)
        self._absent.pop(consumer_id, None)
        if session is not None:
            del self._consumer_ids[session.connection]
            builder.decision.closes.append((session.connection, detail))
        if turn is Turn.FAILS:
            timeout_ms = one.ping_interval_ms * (one.max_ping_retries + 1)
            since_ms = timeout_ms if session is None else builder.now_ms - session.heard_ms
            armed_ms = builder.wall_ms - since_ms
            heard_ms = -1 if session is None else armed_ms  # -1: this coordinator never heard of it
            builder.expiries.append(Expiry(consumer_id, timeout_ms, armed_ms, heard_ms, builder.wall_ms))
        trigger = Trigger.SESSION_EXPIRED if turn is Turn.FAILS else Trigger.MEMBER_LEFT
        builder.because(trigger, consumer_id, detail)
        builder.add_reason(_REASONS[turn], consumer_id, detail=detail)
        self._move(builder, consumer_id, turn)
        self._stop_all(builder)

    def _stop_all(self, builder: PushDecisionBuilder) -> None:
        """Begin a round: send Stop to everyone who has been sent Start and no Stop since."""
        for consumer_id, one in list(builder.consumers.items()):
            if one.state in _WITH_PARTITIONS:
                self._move(builder, consumer_id, Turn.MUST_STOP)
                self._send(builder, consumer_id, CommandType.STOP)

    def _go_on(self, builder: PushDecisionBuilder) -> None:
        """End a round: once nobody owns anything and nobody is missing, everyone is sent Start."""
        consumers = builder.consumers
        is_held = self._held_until_ms is not None or bool(self._absent)
        if not consumers or is_held or any(one.state != PushState.WAITING for one in consumers.values()):
            return
        builder.because(Trigger.TARGET_COMPUTED)
        builder.topics = self._topics()
        numbers = {name: number for name, (_, number) in builder.topics.items()}
        for consumer_id, owned in divide(list(consumers), numbers, self._settings.partitions_max).items():
            self._move(builder, consumer_id, Turn.ASSIGNED, owned=owned)
            self._send(builder, consumer_id, CommandType.START)

    def _topics(self) -> dict[str, Topic]:
        """The group's topics that exist."""
        found = {name: self._view.topic(name) for name in self._settings.topics}
        return {name: topic for name, topic in found.items() if topic is not None}

    def _committed(self, builder: PushDecisionBuilder, topic: str, partition: int) -> int:
        """The committed offset of a partition of the topic that was divided."""
        topic_id, _ = builder.topics.get(topic, NO_TOPIC)
        return self._view.committed(topic, topic_id, partition)

    def _send(self, builder: PushDecisionBuilder, consumer_id: str, kind: CommandType) -> None:
        """Send a command, which must be answered within the consumer's ping_interval_ms."""
        session = self._sessions.get(consumer_id)
        if session is None:  # it has not registered again since the failover, and is asked when it does
            return
        one = builder.consumers[consumer_id]
        command: Command
        match kind:
            case CommandType.PING:
                command = PingRequest(num_retries=session.num_failures)
            case CommandType.STOP:
                command = StopRequest()
            case CommandType.START:
                command = StartRequest(
                    assigned_parts=[
                        PartitionOffset(
                            topic=topic,
                            partition=partition_name(self._settings.broker_id, partition),
                            offset=self._committed(builder, topic, partition),
                        )
                        for topic, partition in partitions_of(one.owned)
                    ]
                )
        session.asked.append((kind, one.owned))
        session.due_ms = builder.now_ms + one.ping_interval_ms
        builder.decision.sends.append((session.connection, command))


def _offsets_of(answer: Answer) -> dict[tuple[str, int], int]:
    return {} if isinstance(answer, CommandResponse) else _by_partition(answer.offset_info)


def _by_partition(offsets: Sequence[PartitionOffset]) -> dict[tuple[str, int], int]:
    """Raises MalformedFrame for a name that is no partition's, and for a partition that comes twice."""
    found = {(one.topic, partition_number(one.partition)): one.offset for one in offsets}
    if len(found) != len(offsets):
        raise MalformedFrame("offset_info", "names a partition twice")
    return found


def _problem(
    answer: PingResponse,
    offsets: dict[tuple[str, int], int],
    owned: tuple[PushPartitions, ...],
    has_offsets: bool,
) -> str:
    """The reason why the answer makes its Ping a failed one; empty if it does not."""
    expected = set(partitions_of(owned))
    if answer.num_partition != len(expected):
        return f"it consumes {answer.num_partition} partitions instead of {len(expected)}"
    if has_offsets and offsets.keys() != expected:
        return "its offsets are not those of its partitions"
    return ""
