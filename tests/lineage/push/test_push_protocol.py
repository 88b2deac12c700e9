"""The push coordinator, event by event: rounds, pings, failover, and the answers to the seed's holes."""

from __future__ import annotations

import random

import pytest

from coordinator.limits import DECISION_BYTES_MAX
from coordinator.oldgroups import HeldId
from lineage.push.decisions import (
    TOPICS_MAX,
    ConnectionClosed,
    Failover,
    FrameReceived,
    OfferedOffset,
    OffsetsOffered,
    PushDecision,
    PushMoment,
    PushSettings,
    Registered,
)
from lineage.push.messages import (
    ELEMENTS_MAX,
    FRAME_BYTES_MAX,
    CommandResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    StartRequest,
    StopRequest,
    decode_command,
    frame,
    partition_name,
)
from lineage.push.protocol import PushGroup
from lineage.push.rounds import consumer_list, divide, partition_list
from records import (
    GroupMetadataKey,
    PushConsumer,
    PushGroupKey,
    PushGroupValue,
    PushState,
    PushTopic,
    RawRecord,
    ReasonKind,
    Record,
    Trigger,
    encode_record,
    offset_commit_key,
)
from tests.support.push_world import (
    GROUP,
    PING_MS,
    RETRIES,
    TOPIC,
    WAIT_MS,
    WALL_MS,
    ProjectedPushGroup,
    register_of,
)
from wire.errors import ErrorCode
from wire.framing import Framer
from wire.schema import Message

PATIENCE_MS = PING_MS * (RETRIES + 1)
STOP, START, PING = StopRequest, StartRequest, PingRequest


class PushStory:
    """One coordinator, driven by hand. Connections have the number that the test gives them."""

    def __init__(self, num_partitions: int = 4, **settings: object) -> None:
        self.view = ProjectedPushGroup({TOPIC: num_partitions})
        self.settings = PushSettings(**{"topics": (TOPIC,), **settings})
        self.now_ms = 0
        self.group = PushGroup("g", self.settings, self.view)
        self.tell(PushMoment.LOADED)

    def tell(self, event: object) -> PushDecision:
        decision = self.group.on(event, self.now_ms, WALL_MS + self.now_ms)
        self.view.write(decision)
        return decision

    def fail_over(self, **settings: object) -> PushDecision:
        self.settings = PushSettings(**{"topics": (TOPIC,), **settings})
        self.group = PushGroup("g", self.settings, self.view)
        return self.tell(PushMoment.LOADED)

    def wait(self, until_ms: int) -> list[PushDecision]:
        """Let time pass up to a moment, with every timer on the way."""
        decisions = []
        while self.group.next_ms is not None and self.group.next_ms <= until_ms:
            self.now_ms = self.group.next_ms
            decisions.append(self.tell(PushMoment.TIME_PASSED))
        self.now_ms = until_ms
        return decisions

    def register(self, connection: int, consumer_id: str, *, auto_commit: bool = True) -> PushDecision:
        return self.tell(Registered(connection, register_of(consumer_id, auto_commit=auto_commit)))

    def answer(self, connection: int, body: Message | None = None, version: int = 0) -> PushDecision:
        return self.tell(FrameReceived(connection, frame(body or CommandResponse(), version)[4:]))

    def pong(self, connection: int, **offsets: int) -> PushDecision:
        """Answer a Ping; the keywords are p0=…, p1=… for partitions 0, 1, …"""
        info = [
            PartitionOffset(topic=TOPIC, partition=f"0-{name[1:]}", offset=offset)
            for name, offset in offsets.items()
        ]
        return self.answer(connection, PingResponse(num_partition=len(info), offset_info=info), 1)

    def ping(self, connection: int) -> None:
        """Let time pass until the connection has been sent a Ping."""
        for decision in self.wait(self.now_ms + PING_MS // 2):
            if any(number == connection and isinstance(one, PING) for number, one in decision.sends):
                return
        raise AssertionError("no Ping came")

    def start(self, *consumer_ids: str) -> PushStory:
        """Register consumers on connections 1, 2, … and play the round to its end."""
        for connection, consumer_id in enumerate(consumer_ids, 1):
            self.register(connection, consumer_id)
        for connection in range(1, len(consumer_ids) + 1):
            self.answer(connection)
        for connection in range(1, len(consumer_ids) + 1):
            self.answer(connection)
        assert set(self.states.values()) == {PushState.STARTED}
        return self

    @property
    def states(self) -> dict[str, int]:
        return {one.consumer_id: one.state for one in consumer_list(self.view.value())}

    @property
    def owners(self) -> dict[int, str]:
        return {partition: owner for (_, partition), owner in partition_list(self.view.value()).items()}


def kinds(decision: PushDecision) -> list[tuple[int, type]]:
    return [(connection, type(command)) for connection, command in decision.sends]


def test_a_round_stops_everyone_and_then_starts_everyone() -> None:
    story = PushStory()
    joined = story.register(1, "a")
    assert kinds(joined) == [(1, STOP)]
    assert joined.cause.trigger == Trigger.MEMBER_JOINED
    assert [one.kind for one in joined.cause.reasons] == [ReasonKind.MEMBER_JOINED]
    started = story.answer(1)
    assert kinds(started) == [(1, START)]
    assert story.owners == dict.fromkeys(range(4), "a")
    story.answer(1)
    assert kinds(story.register(2, "b")) == [(2, STOP), (1, STOP)]
    assert kinds(story.answer(2)) == [], "a has not stopped"
    assert story.owners == dict.fromkeys(range(4), "a"), "who is stopping still owns"
    assert kinds(story.answer(1)) == [(1, START), (2, START)]
    assert story.owners == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_a_consumer_that_dies_between_stop_and_start_does_not_stop_the_round() -> None:
    story = PushStory().start("a", "b")
    story.register(3, "c")
    story.answer(1)
    story.answer(3)
    closed = story.tell(ConnectionClosed(2))
    assert kinds(closed) == [(1, START), (3, START)]
    assert closed.cause.trigger == Trigger.MEMBER_LEFT
    assert story.owners == {0: "a", 1: "a", 2: "c", 3: "c"}


def test_a_join_while_others_start_stops_them_again_and_their_late_answers_change_nothing() -> None:
    story = PushStory()
    story.register(1, "a")
    story.answer(1)
    assert kinds(story.register(2, "b")) == [(2, STOP), (1, STOP)]
    assert story.answer(1).records == [], "the answer to Start, after Stop was sent"
    story.answer(2)
    assert kinds(story.answer(1)) == [(1, START), (2, START)]


def test_the_groups_topics_are_a_setting() -> None:
    story = PushStory(topics=("t", "u", "missing"))
    story.view.topics["u"] = 1
    story.start("a")
    assert sorted(partition_list(story.view.value())) == [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)]


def test_topics_that_grow_or_go_begin_a_round() -> None:
    story = PushStory().start("a")
    assert story.tell(PushMoment.TOPICS_CHANGED).cause is None, "nothing changed"
    story.view.topics[TOPIC] = 5
    grown = story.tell(PushMoment.TOPICS_CHANGED)
    assert kinds(grown) == [(1, STOP)]
    assert [one.kind for one in grown.cause.reasons] == [ReasonKind.TOPIC_GROWN]
    story.answer(1)
    assert len(story.owners) == 5
    del story.view.topics[TOPIC]
    gone = story.tell(PushMoment.TOPICS_CHANGED)
    assert [one.kind for one in gone.cause.reasons] == [ReasonKind.TOPIC_DELETED]


def test_the_ping_reply_is_the_commit_and_start_begins_at_it() -> None:
    story = PushStory(num_partitions=2).start("a")
    story.ping(1)
    committed = story.pong(1, p0=7, p1=-1)
    assert committed.cause.trigger == Trigger.OFFSETS_COMMITTED
    assert (story.view.position(TOPIC, 0), story.view.position(TOPIC, 1)) == (7, -1)
    story.ping(1)
    assert story.pong(1, p0=7, p1=-1).records == [], "nothing new"
    story.register(2, "b")
    story.answer(2)
    sends = dict(story.answer(1).sends)
    assert [(one.partition, one.offset) for one in sends[1].assigned_parts] == [("0-0", 7)]
    assert [(one.partition, one.offset) for one in sends[2].assigned_parts] == [("0-1", -1)]


def test_pings_that_fail_in_a_row_are_numbered_and_one_too_many_fails_the_consumer() -> None:
    story = PushStory().start("a", "b")
    sent = story.wait(story.now_ms + PING_MS // 2)
    assert [one.num_retries for decision in sent for _, one in decision.sends] == [0, 0]
    story.pong(2, p2=1, p3=1)
    retried = story.wait(story.now_ms + PING_MS)
    numbers = [one.num_retries for decision in retried for number, one in decision.sends if number == 1]
    assert numbers == [1]
    story.pong(2, p2=1, p3=1)
    (failed,) = [one for one in story.wait(story.now_ms + PING_MS) if one.closes]
    assert [connection for connection, _ in failed.closes] == [1]
    assert failed.cause.trigger == Trigger.SESSION_EXPIRED
    (expiry,) = failed.cause.expiries
    assert (expiry.member_id, expiry.timeout_ms) == ("a", PATIENCE_MS)
    assert expiry.deadline_ms == WALL_MS + PING_MS // 2 + PATIENCE_MS
    assert (2, STOP) in kinds(failed), "its partitions go to others by a round"


@pytest.mark.parametrize(("apart_ms", "go_together"), [(PING_MS // 10, True), (PING_MS // 10 + 1, False)])
def test_pings_that_are_due_soon_go_with_the_first(apart_ms: int, *, go_together: bool) -> None:
    story = PushStory().start("a", "b")
    story.wait(story.now_ms + PING_MS // 2)
    story.pong(1, p0=1, p1=1)
    story.now_ms += apart_ms
    story.pong(2, p2=1, p3=1)
    sent = [kinds(one) for one in story.wait(story.now_ms + PING_MS // 2) if one.sends]
    assert sent == ([[(1, PING), (2, PING)]] if go_together else [[(1, PING)], [(2, PING)]])


def test_a_late_answer_to_the_first_ping_ends_the_row_of_failures() -> None:
    story = PushStory(num_partitions=1).start("a")
    story.ping(1)
    story.wait(story.now_ms + PING_MS)
    story.pong(1, p0=1)
    story.pong(1, p0=2)
    assert story.view.position(TOPIC, 0) == 2
    story.ping(1)
    assert "a" in story.states


@pytest.mark.parametrize(
    "body",
    [
        PingResponse(num_partition=2, offset_info=[]),
        PingResponse(num_partition=0, offset_info=[]),
        PingResponse(num_partition=1, offset_info=[PartitionOffset(topic=TOPIC, partition="0-1", offset=3)]),
        PingResponse(num_partition=1, offset_info=[]),
    ],
    ids=["too many", "too few", "another's partition", "no offsets"],
)
def test_a_wrong_num_partition_is_a_failed_ping(body: PingResponse) -> None:
    story = PushStory(num_partitions=1).start("a")
    story.ping(1)
    again = story.answer(1, body, 1)
    assert [one.num_retries for _, one in again.sends] == [1]
    assert again.records == []
    failed = story.answer(1, body, 1)
    assert failed.closes
    assert "2 pings failed in a row" in failed.cause.detail
    assert story.states == {}
    assert story.view.position(TOPIC, 1) == -1


@pytest.mark.parametrize("has_stopped", [False, True], ids=["Stop", "Start"])
def test_stop_and_start_must_be_answered_in_time_and_without_error(has_stopped: bool) -> None:
    for answer in (None, CommandResponse(error_code=9)):
        story = PushStory()
        story.register(1, "a")
        if has_stopped:
            story.answer(1)
        failed = story.answer(1, answer) if answer else story.wait(PING_MS)[-1]
        assert failed.closes
        assert failed.cause.trigger == Trigger.SESSION_EXPIRED
        assert story.view.value() is None


def test_what_comes_from_a_closed_connection_counts_for_nothing() -> None:
    """There is no generation: the connection is closed before the partitions start elsewhere."""
    story = PushStory(num_partitions=1).start("a", "b")
    story.register(3, "a")  # on another connection: the first one is closed
    closes = [one for one in story.view.log if one[0].trigger == Trigger.MEMBER_LEFT]
    assert len(closes) == 1
    before = story.view.projection.state_hash
    assert story.pong(1, p0=99) == PushDecision()
    assert story.tell(ConnectionClosed(1)) == PushDecision()
    assert story.view.projection.state_hash == before


def test_an_answer_that_was_not_asked_and_garbage_end_the_connection() -> None:
    story = PushStory().start("a", "b")
    unasked = story.answer(1)
    assert [why for _, why in unasked.closes] == ["answered what was not asked"]
    garbled = story.tell(FrameReceived(2, b"\xff"))
    assert "cannot be read" in garbled.closes[0][1]
    assert story.view.value() is None


def test_hostile_frames_end_connections_and_never_break_the_group() -> None:
    """Each decision is applied, so the world's checks of entries hold too."""
    chance = random.Random(3)
    story = PushStory()
    valid = [frame(CommandResponse())[4:], frame(PingResponse(num_partition=0), 1)[4:], b"", b"\x00"]
    num_closed = connection = 0
    for _ in range(2_000):
        if len(story.states) < 3:
            connection += 1
            story.register(connection, f"c{connection % 5}", auto_commit=bool(connection % 2))
        data = bytearray(chance.choice(valid))
        if data and chance.random() < 0.3:
            data[chance.randrange(len(data))] = chance.randrange(256)
        number = connection - chance.randrange(4)
        num_closed += len(story.tell(FrameReceived(number, bytes(data))).closes)
        if chance.random() < 0.3:
            num_closed += sum(len(one.closes) for one in story.wait(story.now_ms + 50))
    assert num_closed > 200
    assert len(story.view.log) > 500
    story.view.cut(len(story.view.log))


def test_without_auto_commit_offsets_are_committed_by_offset_commit_or_not_at_all() -> None:
    offsets = [OfferedOffset(TOPIC, 0, 5, 1_234, "half way")]
    story = PushStory(num_partitions=2)
    story.register(1, "a", auto_commit=False)
    story.answer(1)
    story.answer(1)
    story.wait(PING_MS // 2)
    assert story.answer(1, PingResponse(num_partition=2)).records == []
    assert story.tell(OffsetsOffered("a", offsets)).error is ErrorCode.NONE
    assert story.view.position(TOPIC, 0) == 5
    committed = story.view.projection.offsets.get(offset_commit_key(GROUP, TOPIC, 0))
    assert (committed.commit_timestamp_ms, committed.metadata) == (1_234, "half way")
    assert story.tell(OffsetsOffered("b", offsets)).error is ErrorCode.UNKNOWN_MEMBER_ID
    foreign = [OfferedOffset(TOPIC, 2, 5)]
    assert story.tell(OffsetsOffered("a", foreign)).error is ErrorCode.ILLEGAL_GENERATION
    for garbage in ([*offsets, *offsets], [OfferedOffset(TOPIC, 0, -1)]):
        assert story.tell(OffsetsOffered("a", garbage)).error is ErrorCode.INVALID_REQUEST
    long = [OfferedOffset(TOPIC, 0, 6, metadata="ü" * 2_049)]
    assert story.tell(OffsetsOffered("a", long)).error is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert story.view.position(TOPIC, 0) == 5
    story.fail_over(offset_commit=False)
    assert story.tell(OffsetsOffered("a", offsets)).error is ErrorCode.INVALID_REQUEST


def test_an_offset_commit_of_a_consumer_with_auto_commit_is_refused() -> None:
    story = PushStory(num_partitions=1).start("a")
    offsets = [OfferedOffset(TOPIC, 0, 5)]
    assert story.tell(OffsetsOffered("a", offsets)).error is ErrorCode.INVALID_REQUEST
    assert story.view.position(TOPIC, 0) == -1


def test_after_a_failover_from_the_log_nothing_stops() -> None:
    story = PushStory().start("a", "b")
    entries = len(story.view.log)
    assert story.fail_over().cause is None
    assert kinds(story.register(11, "a")) == [(11, PING)]
    assert kinds(story.register(12, "b")) == [(12, PING)]
    story.pong(11, p0=-1, p1=-1)
    story.pong(12, p2=-1, p3=-1)
    assert len(story.view.log) == entries, "no round, and no entry"
    assert set(story.states.values()) == {PushState.STARTED}


def test_a_consumer_of_the_log_that_does_not_return_in_time_fails() -> None:
    story = PushStory().start("a", "b")
    story.fail_over()
    story.register(11, "a")
    decisions = story.wait(story.now_ms + PING_MS // 2)
    assert not decisions
    story.pong(11, p0=-1, p1=-1)
    while "b" in story.states:
        story.now_ms = story.group.next_ms
        last = story.tell(PushMoment.TIME_PASSED)
        if any(isinstance(one, PING) for _, one in last.sends):
            story.pong(11, p0=-1, p1=-1)
    assert "did not register again" in last.cause.detail
    assert story.now_ms == PATIENCE_MS
    assert (11, STOP) in kinds(last)


def test_a_failover_within_a_round_goes_on_where_the_log_is() -> None:
    story = PushStory().start("a", "b")
    story.register(3, "c")
    story.answer(1)
    story.fail_over()
    assert kinds(story.register(12, "b")) == [(12, STOP)]
    assert kinds(story.register(13, "c")) == [(13, STOP)]
    story.answer(12)
    assert kinds(story.answer(13)) == [], "a has stopped, and has not registered again"
    started = story.register(11, "a")
    assert kinds(started) == [(11, PING), (11, START), (12, START), (13, START)]
    story.fail_over()
    assert kinds(story.register(21, "b")) == [(21, START)], "it may not have been told"
    assert story.answer(21).cause.trigger == Trigger.MEMBER_ACKED


def test_a_failover_as_in_the_seed_waits_for_all_to_register_again_and_stops_them() -> None:
    story = PushStory().start("a", "b")
    loaded = story.fail_over(failover=Failover.WAIT, reregister_wait_ms=WAIT_MS)
    assert loaded.cause.trigger == Trigger.READY_CHECK
    assert story.view.value() is None
    assert kinds(story.register(11, "a")) == [(11, STOP)]
    assert kinds(story.answer(11)) == [], "others may come"
    began_ms = story.now_ms
    while not story.owners:
        story.now_ms = story.group.next_ms
        decision = story.tell(PushMoment.TIME_PASSED)
        if any(isinstance(one, PING) for _, one in decision.sends):
            story.pong(11)
    assert story.now_ms == began_ms + WAIT_MS
    assert kinds(decision)[-1] == (11, START)
    assert set(story.owners.values()) == {"a"}


def test_a_group_that_is_full_closes_the_connection_of_one_more() -> None:
    story = PushStory(consumers_max=2).start("a", "b")
    refused = story.register(3, "c")
    assert (refused.closes, refused.records) == (
        [(3, "the group has 2 consumers, and no more are allowed")],
        [],
    )
    assert story.answer(3) == PushDecision()
    story.register(4, "b")
    assert set(story.states) == {"a", "b"}


def test_a_consumer_gets_no_more_partitions_than_a_start_can_carry() -> None:
    (share,) = divide(["a"], {"t" * 249: ELEMENTS_MAX + 5}, 2 * ELEMENTS_MAX).values()
    parts = [
        PartitionOffset(topic=one.topic, partition=partition_name(32_767, number))
        for one in share
        for number in one.partitions
    ]
    assert len(parts) == ELEMENTS_MAX
    (payload,) = Framer(FRAME_BYTES_MAX).feed(frame(StartRequest(assigned_parts=parts)))
    assert len(decode_command(payload).assigned_parts) == ELEMENTS_MAX


def test_the_broker_id_of_a_coordinator_is_checked() -> None:
    with pytest.raises(ValueError, match="i16"):
        PushSettings(topics=(TOPIC,), broker_id=40_000)


def test_partitions_are_divided_into_ranges_that_differ_by_one_at_most() -> None:
    for num_consumers in range(1, 8):
        shares = divide([f"c{one}" for one in range(num_consumers)], {"u": 3, "t": 4}, 100)
        sizes = [sum(len(one.partitions) for one in share) for share in shares.values()]
        assert sum(sizes) == 7
        assert max(sizes) - min(sizes) <= 1
    assert divide(["b", "a"], {"t": 3}, 100) == divide(["a", "b"], {"t": 3}, 100)


def test_partitions_beyond_the_bound_have_no_owner_and_begin_no_round() -> None:
    story = PushStory(num_partitions=7, partitions_max=5).start("a", "b")
    assert sorted(partition_list(story.view.value())) == [(TOPIC, number) for number in range(5)]
    assert story.tell(PushMoment.TOPICS_CHANGED).cause is None
    assert story.fail_over(partitions_max=5).cause is None
    with pytest.raises(ValueError, match="1000 topics"):
        PushSettings(topics=tuple(f"t{one}" for one in range(TOPICS_MAX + 1)))


def test_the_largest_record_fits_into_one_entry() -> None:
    settings = PushSettings(topics=tuple(f"{one:0249}" for one in range(TOPICS_MAX)))
    names = [f"{one:0249}" for one in range(settings.consumers_max)]
    numbers = dict.fromkeys(settings.topics, settings.partitions_max)
    consumers = tuple(
        PushConsumer(
            state=PushState.STARTED,
            auto_commit=1,
            max_ping_retries=100,
            ping_interval_ms=3_600_000,
            consumer_id=consumer_id,
            auto_offset_reset="smallest",
            owned=owned,
        )
        for consumer_id, owned in divide(names, numbers, settings.partitions_max).items()
    )
    each = settings.partitions_max // settings.consumers_max
    assert {sum(len(one.partitions) for one in consumer.owned) for consumer in consumers} == {each}
    topics = tuple(
        PushTopic(topic_id=bytes(16), num_partitions=settings.partitions_max, name=name)
        for name in settings.topics
    )
    raw = encode_record(
        Record(PushGroupKey(group_id="g" * 249), PushGroupValue(consumers=consumers, topics=topics))
    )
    names_again = 2 * TOPICS_MAX * 260  # if each consumer's range began in another topic
    assert len(raw.key) + len(raw.value) + names_again < DECISION_BYTES_MAX // 2


def test_a_topic_that_was_created_again_begins_a_round_and_its_offsets_begin_anew() -> None:
    story = PushStory(num_partitions=2).start("a")
    story.ping(1)
    story.pong(1, p0=5, p1=6)
    old_id, _ = story.view.topic(TOPIC)
    story.ping(1)
    story.view.recreate(TOPIC)
    decision = story.tell(PushMoment.TOPICS_CHANGED)
    assert [one.kind for one in decision.cause.reasons] == [ReasonKind.TOPIC_RECREATED]
    late = story.pong(1, p0=9, p1=6)  # of the Ping before the Stop: offsets of the old topic
    assert [one.value.topic_id for one in late.records] == [old_id]
    started = story.answer(1)
    ((_, start),) = [one for one in started.sends if isinstance(one[1], START)]
    assert [one.offset for one in start.assigned_parts] == [-1, -1]
    story.answer(1)
    story.ping(1)
    again = story.pong(1, p0=9, p1=6)
    new_id, _ = story.view.topic(TOPIC)
    assert {one.value.topic_id for one in again.records} == {new_id}
    assert len(again.records) == 2


def test_a_topic_that_was_created_again_during_a_failover_is_noticed() -> None:
    story = PushStory(num_partitions=2).start("a")
    story.view.recreate(TOPIC)
    reasons = story.fail_over().cause.reasons
    assert [one.kind for one in reasons] == [ReasonKind.TOPIC_RECREATED]


class Neighbours:
    """The ids that groups of other kinds have."""

    def __init__(self, refusal: object = None, way: tuple[RawRecord, ...] = ()) -> None:
        self.refused, self.way = refusal, way

    def refusal(self, group_id: str) -> object:
        return self.refused

    def records_that_make_way(self, group_id: str) -> tuple[RawRecord, ...]:
        return self.way


def test_an_id_that_another_kind_of_group_has_is_refused_by_closing_the_connection() -> None:
    story = PushStory()
    others = Neighbours(HeldId(True, "Group g is a classic group with members."))
    story.group = PushGroup("g", story.settings, story.view, others)
    decision = story.register(1, "a")
    assert decision == PushDecision(closes=[(1, "Group g is a classic group with members.")])
    others.refused = None
    story.register(2, "a")
    others.refused = HeldId(False, "full")  # a group that exists goes on
    assert not story.register(3, "b").closes


def test_what_makes_way_comes_first_in_the_entry_with_the_first_consumer() -> None:
    story = PushStory()
    way = encode_record(Record(GroupMetadataKey(group_id="g"), None))
    story.group = PushGroup("g", story.settings, story.view, Neighbours(way=(way,)))
    first, second = story.register(1, "a"), story.register(2, "b")
    assert [encode_record(one).type for one in first.records] == [2, 1011]
    assert [encode_record(one).type for one in second.records] == [1011]
