"""Each error of seed 000, its number, and when it is answered; hostile bytes."""

from __future__ import annotations

import random

import pytest

from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings
from lineage.rewrite.errors import RewriteError
from lineage.rewrite.groups import RewriteOrigin
from lineage.rewrite.machines import RewriteConsumerEvent, RewriteConsumerState
from lineage.rewrite.messages import (
    CommitPartition,
    CommittedPartition,
    CommittedTopic,
    CommitTopic,
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
    decode_request,
    encode_request,
    encode_response,
)
from lineage.rewrite.strategies import STRATEGIES
from records import OffsetCommitKey, decode_record
from tests.support.rewrite_playing import VARIANTS
from wire.errors import MalformedFrame, UnsupportedApi

from .rewrite_desk import Desk
from .rewrite_play import RewriteStory

both = pytest.mark.parametrize("variant", VARIANTS)
E = RewriteError


def test_the_layout_is_the_texts() -> None:
    """Written by hand from seed 000, "Request formats"; the header is version 1 of Kafka's."""
    join = JoinGroupRequest(
        group_id="g",
        session_timeout=3_000,
        topics=["t"],
        consumer_id="",
        partition_assignment_strategy="range",
    )
    body = "00016700000bb8000000010001740000000572616e6765"
    assert encode_request(7, "c", join).hex() == "00000022000b000000000007000163" + body
    header, _ = decode_request(encode_request(7, "c", join)[4:])
    joined = JoinGroupResponse(
        group_generation_id=2, consumer_id="g-1", partitions_to_own=[TopicNumbers(topic="t", partitions=[5])]
    )
    answer = "0000000000020003672d31000000010001740000000100000005"
    assert encode_response(header, joined).hex() == "0000001e00000007" + answer
    beat = HeartbeatRequest(group_id="g", group_generation_id=2, consumer_id="g-1")
    assert encode_request(8, "c", beat)[4:].hex() == "000c000000000008000163000167000000020003672d31"
    one = CommitPartition(partition=5, offset=9, timestamp=7, metadata="m")
    commit = OffsetCommitRequest(
        group_id="g",
        group_generation_id=2,
        consumer_id="g-1",
        topics=[CommitTopic(topic="t", partitions=[one])],
    )
    committed = "000167000000020003672d31000000010001740000000100000005"
    tail = "0000000000000009000000000000000700016d"
    assert encode_request(9, "c", commit)[4:].hex() == "0008000100000009000163" + committed + tail


def test_the_numbers_are_kafkas_later_ones() -> None:
    assert (E.ILLEGAL_GENERATION, E.UNKNOWN_CONSUMER, E.NEED_REBALANCE, E.ILLEGAL_PROTOCOL_STATE) == (
        22,
        25,
        27,
        200,
    )
    assert (E.COORDINATOR_STARTUP_NOT_COMPLETE, E.NOT_COORDINATOR_FOR_GROUP) == (14, 16)


@pytest.mark.parametrize(
    ("variant", "state", "join", "others"),
    [
        ("design", "Down", E.NOT_COORDINATOR_FOR_GROUP, E.NOT_COORDINATOR_FOR_GROUP),
        ("design", "CatchUp", E.ILLEGAL_PROTOCOL_STATE, E.COORDINATOR_STARTUP_NOT_COMPLETE),
        ("thread", "Down", E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
        ("thread", "CatchUp", E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_a_coordinator_that_does_not_serve(variant: str, state: str, join: int, others: int) -> None:
    desk = Desk(variant, state)
    assert (desk.join().error_code, desk.beat("x"), desk.commit("x")) == (join, others, others)
    assert desk.ask(ConsumerMetadataRequest(group_id="g")).error_code == E.COORDINATOR_NOT_AVAILABLE


@both
def test_an_unknown_id_is_refused_and_moves_no_consumer(variant: str) -> None:
    desk = Desk(variant)
    assert desk.beat("x") == E.UNKNOWN_CONSUMER  # a first Heartbeat does not open the conversation
    first = desk.join()
    assert (first.error_code, first.group_generation_id, first.consumer_id) == (0, 1, "g-1")
    refused = desk.join("x")
    assert (refused.error_code, desk.beat("x"), desk.commit("x")) == (E.UNKNOWN_CONSUMER,) * 3
    assert desk.beat("g-1") == E.NONE
    assert len(desk.log.entries) == 1


def test_generations_are_checked_by_the_design_only() -> None:
    design, thread = Desk("design"), Desk("thread")
    for desk in (design, thread):
        desk.join()
    for generation in (0, 2):
        assert design.beat("g-1", generation) == design.commit("g-1", generation) == E.ILLEGAL_GENERATION
        assert thread.beat("g-1", generation) == thread.commit("g-1", generation) == E.NONE


@pytest.mark.parametrize(
    ("variant", "code"), [("design", E.ILLEGAL_GENERATION), ("thread", E.NEED_REBALANCE)]
)
def test_a_rebalance_is_told_by_heartbeats_and_commits_go_on(variant: str, code: int) -> None:
    desk = Desk(variant)
    desk.join()
    assert desk.join() is None  # another one, which waits for the first
    assert (desk.beat("g-1"), desk.commit("g-1")) == (code, E.NONE)
    assert desk.join("g-1").group_generation_id == 2
    assert [one.consumer_id for one in desk.log.value.consumers] == ["g-1", "g-2"]


@both
def test_an_empty_id_from_a_known_consumer_costs_a_session(variant: str) -> None:
    desk = Desk(variant)
    desk.join()
    assert desk.join() is None
    assert desk.coordinator.next_deadline_ms == 1_000
    desk.at_ms = 999
    assert desk.coordinator.tick(desk.now) == []
    desk.at_ms = 1_000
    (result,) = [one for one in desk.coordinator.tick(desk.now) if one.cause]
    desk.log.append(result.cause, result.records)
    assert [one.consumer_id for one in desk.log.value.consumers] == ["g-2"]


def test_joining_again_costs_the_design_a_generation_and_the_thread_nothing() -> None:
    for variant, generation in (("design", 2), ("thread", 1)):
        desk = Desk(variant)
        desk.join()
        assert desk.join("g-1").group_generation_id == generation


@both
def test_what_a_join_may_not_ask_for(variant: str) -> None:
    desk = Desk(variant, max_session_timeout_ms=1_000, consumers_max=2, subscription_bytes_max=100)
    fixed = [TopicNumbers(topic="t", partitions=[1])]
    for fields, code in [
        ({"session_timeout": 1_001}, E.SESSION_TIMEOUT_TOO_HIGH),
        ({"session_timeout": 0}, E.INVALID_REQUEST),
        ({"topics": ["x" * 101]}, E.INVALID_REQUEST),
        ({"partition_assignment_strategy": "sticky"}, E.UNKNOWN_PARTITIONING_STRATEGY),
        ({"partitions": fixed}, E.INCONSISTENT_PARTITIONING_STRATEGY),
    ]:
        assert desk.join(**fields).error_code == code
    desk.join()
    for fields in ({"partition_assignment_strategy": "roundrobin"}, {"topics": [], "partitions": fixed}):
        assert desk.join(**fields).error_code == E.INCONSISTENT_PARTITIONING_STRATEGY
    assert desk.join("g-1", partition_assignment_strategy="roundrobin").error_code == E.NONE  # alone it may
    assert desk.join(partition_assignment_strategy="roundrobin") is None
    assert desk.join(partition_assignment_strategy="roundrobin").error_code == E.GROUP_TOO_LARGE


@both
def test_a_commit_that_would_be_no_entry_is_refused(variant: str) -> None:
    desk = Desk(variant, commit_partitions_max=3, commit_bytes_max=200)
    desk.join()

    def commit(*metadata: str) -> set[int]:
        parts = [CommitPartition(partition=0, offset=1, metadata=one) for one in metadata]
        topics = [CommitTopic(topic="t", partitions=parts)]
        request = OffsetCommitRequest(group_id="g", group_generation_id=1, consumer_id="g-1", topics=topics)
        return {one.error_code for one in desk.ask(request).topics[0].partitions}

    assert commit("", "") == commit("x" * 100) == {E.NONE}
    assert commit("", "", "", "") == commit("x" * 200) == {E.INVALID_COMMIT_OFFSET_SIZE}
    assert len(desk.log.entries) == 3


@both
def test_fixed_partitions_are_owned_by_the_one_consumer_that_asks(variant: str) -> None:
    desk = Desk(variant)
    fixed = [TopicNumbers(topic="t", partitions=[1, 9])]
    owned = desk.join(topics=[], partitions=fixed).partitions_to_own
    assert [(one.topic, one.partitions) for one in owned] == [("t", [1])]
    assert desk.join(topics=[], partitions=fixed).error_code == E.INCONSISTENT_PARTITIONING_STRATEGY
    other = [TopicNumbers(topic="t", partitions=[2])]
    assert desk.join(topics=[], partitions=other) is None


@both
def test_commits_keep_their_timestamp_which_is_the_base_of_retention(variant: str) -> None:
    desk = Desk(variant)
    desk.join()
    assert desk.commit("g-1", timestamp=77) == desk.commit("g-1") == E.NONE
    commits = [decode_record(records[0]) for _, records in desk.log.entries[1:]]
    assert [one.value.commit_timestamp_ms for one in commits] == [77, 1_000_000]
    assert commits[0].key == OffsetCommitKey(group_id="g", topic="t", partition=0)
    assert desk.commit("g-1", partition=4) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert desk.commit("g-1", metadata="x" * 5_000) == E.OFFSET_METADATA_TOO_LARGE


@both
def test_a_commit_that_does_not_fit_into_an_entry_is_refused(variant: str) -> None:
    desk = Desk(variant, commit_bytes_max=100)
    desk.join()
    num_entries = len(desk.log.entries)
    assert desk.commit("g-1", metadata="x" * 100) == E.INVALID_COMMIT_OFFSET_SIZE
    assert len(desk.log.entries) == num_entries
    assert desk.commit("g-1") == E.NONE


@both
def test_what_a_consumer_does_when_join_group_fails(variant: str) -> None:
    _, table = VARIANTS[variant]
    states = {state for state, event in table if event is RewriteConsumerEvent.REFUSED}
    for state in states:
        for code, event in (
            (E.UNKNOWN, RewriteConsumerEvent.NOT_READY),
            (E.SESSION_TIMEOUT_TOO_HIGH, RewriteConsumerEvent.REFUSED),
        ):
            consumer = RewriteConsumerCore(table, RewriteConsumerSettings(group_id="g"), ("t",))
            consumer.state = state
            consumer._next = JoinGroupRequest(group_id="g")
            send = consumer.poll(0)
            consumer.answered(send.number, JoinGroupResponse(error_code=code), 0)
            assert consumer.taken[state, event] == 1
            if event is RewriteConsumerEvent.REFUSED:
                assert consumer.state in (RewriteConsumerState.DOWN, RewriteConsumerState.INIT)
                assert (consumer.failure, consumer.consuming, consumer.poll(10**6)) == (
                    code,
                    frozenset(),
                    None,
                )
            else:
                assert isinstance(consumer.poll(100).request, JoinGroupRequest)


def in_group(variant: str) -> RewriteConsumerCore:
    """A consumer that owns t-0 and commits 5 every 200 ms, in generation 1 since ms 0."""
    settings = RewriteConsumerSettings(
        group_id="g", session_timeout_ms=900, commit_interval_ms=200, backoff_ms=50
    )
    consumer = RewriteConsumerCore(VARIANTS[variant][1], settings, ("t",), positions=lambda: {("t", 0): 5})
    consumer.start(0)
    found = ConsumerMetadataResponse(coordinator=RewriteBroker(node_id=1))
    consumer.answered(consumer.poll(0).number, found, 0)
    owned = [TopicNumbers(topic="t", partitions=[0])]
    joined = JoinGroupResponse(group_generation_id=1, consumer_id="g-1", partitions_to_own=owned)
    consumer.answered(consumer.poll(0).number, joined, 0)
    return consumer


def committed(code: int) -> OffsetCommitResponse:
    partitions = [CommittedPartition(partition=0, error_code=code)]
    return OffsetCommitResponse(topics=[CommittedTopic(topic="t", partitions=partitions)])


@both
def test_a_consumer_commits_in_its_interval_and_its_heartbeats_go_on(variant: str) -> None:
    consumer = in_group(variant)
    sent = []
    while consumer.next_deadline_ms <= 600:
        at_ms = consumer.next_deadline_ms
        send = consumer.poll(at_ms)
        sent.append((at_ms, type(send.request)))
        is_commit = isinstance(send.request, OffsetCommitRequest)
        consumer.answered(send.number, committed(E.NONE) if is_commit else HeartbeatResponse(), at_ms)
    commit, beat = OffsetCommitRequest, HeartbeatRequest
    assert sent == [(200, commit), (300, beat), (400, commit), (600, beat), (600, commit)]


@pytest.mark.parametrize(
    ("variant", "code", "state"),
    [
        ("design", E.NOT_COORDINATOR_FOR_GROUP, RewriteConsumerState.REDISCOVER),
        ("design", E.UNKNOWN_CONSUMER, RewriteConsumerState.RESURRECT),
        ("design", E.ILLEGAL_GENERATION, RewriteConsumerState.STOPPED),
        ("design", E.COORDINATOR_STARTUP_NOT_COMPLETE, RewriteConsumerState.PART),
        ("design", E.OFFSET_METADATA_TOO_LARGE, RewriteConsumerState.PART),
        ("thread", E.COORDINATOR_NOT_AVAILABLE, RewriteConsumerState.DISCOVERY),
        ("thread", E.UNKNOWN_CONSUMER, RewriteConsumerState.JOINING),
        ("thread", E.OFFSET_METADATA_TOO_LARGE, RewriteConsumerState.IN_GROUP),
    ],
)
def test_what_a_consumer_does_when_a_commit_fails(variant: str, code: int, state: object) -> None:
    consumer = in_group(variant)
    consumer.answered(consumer.poll(200).number, committed(code), 200)
    assert consumer.state is state
    assert consumer.consumer_id == ("" if code == E.UNKNOWN_CONSUMER else "g-1")


@pytest.mark.parametrize("state", [RewriteConsumerState.IN_GROUP, RewriteConsumerState.JOINING])
def test_the_thread_repeats_a_commit_that_is_refused_after_the_backoff(state: RewriteConsumerState) -> None:
    """Subroutine 10, step 10c."""
    consumer = in_group("thread")
    if state is RewriteConsumerState.JOINING:
        consumer.subscribe(("t", "u"))
    first = consumer.poll(200)
    assert isinstance(first.request, OffsetCommitRequest)
    consumer.answered(first.number, committed(E.OFFSET_METADATA_TOO_LARGE), 200)
    assert (consumer.state, consumer.next_deadline_ms) == (state, 250)
    assert consumer.poll(250).request == first.request
    assert consumer.taken[state, RewriteConsumerEvent.COMMIT_FAILED] == 1


def test_a_heartbeat_frequency_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"heartbeat\.frequency is 0"):
        RewriteConsumerSettings(group_id="g", heartbeat_frequency=0)


def test_strategies_share_out_every_partition_once() -> None:
    topics_of = {"a": ("t", "u"), "b": ("t",), "c": ("u",)}
    counts = {"t": 5, "u": 2}
    for strategy in STRATEGIES.values():
        owned = strategy(topics_of, counts)
        assert sorted(one for part in owned.values() for one in part) == [
            *(("t", n) for n in range(5)),
            *(("u", n) for n in range(2)),
        ]
        assert all(topic in topics_of[one] for one, part in owned.items() for topic, _ in part)


def test_hostile_bytes_raise_nothing_but_our_own_errors() -> None:
    chance = random.Random(5)
    frames = [
        encode_request(1, "c", one)[4:]
        for one in (
            JoinGroupRequest(
                group_id="g", topics=["t", "u"], partitions=[TopicNumbers(topic="t", partitions=[1])]
            ),
            HeartbeatRequest(group_id="g", group_generation_id=1, consumer_id="x"),
            OffsetCommitRequest(
                group_id="g", topics=[CommitTopic(topic="t", partitions=[CommitPartition()])]
            ),
            ConsumerMetadataRequest(group_id="g"),
        )
    ]
    refused = served = 0
    desk = Desk("design")
    for _ in range(5_000):
        frame = bytearray(chance.choice(frames))
        for _ in range(chance.randint(1, 3)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        del frame[chance.choice([len(frame), chance.randrange(len(frame))]) :]
        try:
            header, request = decode_request(bytes(frame))
        except (MalformedFrame, UnsupportedApi):
            refused += 1
            continue
        served += 1
        for result in desk.coordinator.handle(request, RewriteOrigin("x", header), desk.now):
            if result.cause is not None:
                desk.log.append(result.cause, result.records)
            for origin, answer in result.answers:
                encode_response(origin.header, answer)
    assert refused > 1_000
    assert served > 500


@both
def test_joins_of_one_consumer_that_is_asked_twice_are_answered_once(variant: str) -> None:
    story = RewriteStory(variant)
    story.join("a")
    story.join("b")
    story.settle()
    assert len(story.log.value.consumers) == 2
    assert story.messages[JoinGroupRequest] == story.messages[JoinGroupResponse] == 3
