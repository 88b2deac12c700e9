"""Fetching in virtual time: from the leaders' logs to the records that a poll returns."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest

from client.core.errors import CorruptRecord, KafkaError, NoOffset, PositionOutOfRange
from client.core.events import FetchResponseEvent, PositionsEvent
from client.core.requests import RequestFailure
from client.core.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from tests.client.data_rig import DataRig, SentRequest, fetch_answer
from tests.support.record_batches import NOW_MS
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.fetch import EpochEndOffset, LeaderIdAndEpoch
from wire.schema import ZERO_UUID

A, B, C = (TopicPartition("orders", number) for number in range(3))


def rig_with(*, leaders: tuple[int, ...] = (1, 1, 1), **settings: Any) -> DataRig:
    rig = DataRig(**settings)
    rig.metadata.lead("orders", dict(enumerate(leaders)))
    return rig


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


def all_values(rig: DataRig, number: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < number:
        records = rig.take()
        assert records
        found += values(records)
    return found


def test_records_are_handed_out_as_they_are_appended() -> None:
    rig = rig_with()
    rig.logs[A].append(b"one", b"two")
    rig.assign({A: 0})
    assert values(rig.take()) == [b"one", b"two"]
    assert rig.take() == []
    rig.logs[A].append(b"three")
    (record,) = rig.take()
    assert (record.offset, record.value) == (2, b"three")
    assert rig.handler.positions[A].offset == 3


def test_a_poll_returns_no_more_than_it_asked_for() -> None:
    rig = rig_with()
    rig.logs[A].append(*[b"%d" % number for number in range(10)])
    rig.assign({A: 4})
    assert values(rig.take(4)) == [b"4", b"5", b"6", b"7"]
    assert rig.handler.positions[A].offset == 8
    assert values(rig.take(4)) == [b"8", b"9"]


def test_partitions_take_turns() -> None:
    rig = rig_with(max_partition_fetch_bytes=200)
    for partition in (A, B):
        for number in range(20):
            rig.logs[partition].append(b"%d" % number * 30)
    rig.assign({A: 0, B: 0})
    taken = [rig.take(1)[0].partition for _ in range(10)]
    assert taken.count(0) in range(4, 7)
    assert len(all_values(rig, 30)) == 30


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_of_fetch_brings_the_records(version: int) -> None:
    rig = DataRig(versions={ApiKey.FETCH: version})
    rig.metadata.lead("orders", {0: 1})
    rig.logs[A].append(b"one")
    rig.assign({A: 0})
    assert values(rig.take()) == [b"one"]
    assert {one.version for one in rig.requests(ApiKey.FETCH)} == {version}


def test_topics_without_known_ids_are_fetched_by_name() -> None:
    rig = DataRig()
    rig.metadata.lead("orders", {0: 1}, topic_id=ZERO_UUID)
    rig.logs[A].append(b"one")
    rig.assign({A: 0})
    assert values(rig.take()) == [b"one"]
    assert rig.requests(ApiKey.FETCH)[0].version == 12


def test_each_leader_has_one_request_in_flight() -> None:
    rig = rig_with(leaders=(1, 2, 2))
    rig.assign({A: 0, B: 0, C: 0})
    rig.run(100)
    assert [(one.to, len(one.body.topics[0].partitions)) for one in rig.requests(ApiKey.FETCH)] == [
        (1, 1),
        (2, 2),
    ]
    rig.run(500)
    assert len(rig.requests(ApiKey.FETCH)) == 4


def test_the_next_response_is_fetched_while_the_application_reads() -> None:
    rig = rig_with(max_partition_fetch_bytes=300)
    for number in range(50):
        rig.logs[A].append(b"%02d" % number * 50)
    rig.assign({A: 0})
    first = rig.take(1)
    rig.run(1_000)
    fetched = sum(
        len(data.records)
        for event in rig.told
        if isinstance(event, FetchResponseEvent)
        for data in event.data
    )
    assert 300 <= fetched <= 600, "one response ahead, no more"
    rest = all_values(rig, 49)
    assert values(first) + rest == [b"%02d" % number * 50 for number in range(50)]


def test_all_responses_together_stay_within_the_fetch_buffer() -> None:
    partitions = [TopicPartition("orders", number) for number in range(20)]
    rig = DataRig(fetch_max_bytes=1_000, max_partition_fetch_bytes=400)
    rig.metadata.lead("orders", {number: number % 4 for number in range(20)})
    for partition in partitions:
        for _ in range(30):
            rig.logs[partition].append(b"x" * 20)
    rig.assign(dict.fromkeys(partitions, 0))
    handed_out = 0
    while handed_out < 600:
        rig.run(10)
        held = sum(rig.sender.buffer.holds(partition) for partition in partitions)
        assert held <= 1_000
        handed_out += len(rig.take(7))


@pytest.mark.parametrize("name", ["max_partition_fetch_bytes", "fetch_max_bytes"])
def test_limits_of_nothing_bring_a_batch_at_a_time(name: str) -> None:
    rig = rig_with(**{name: 0})
    rig.logs[A].append(b"one")
    rig.logs[A].append(b"two")
    rig.assign({A: 0})
    assert all_values(rig, 2) == [b"one", b"two"]


def test_a_short_time_limit_of_calls_does_not_keep_partitions_from_beginning() -> None:
    rig = rig_with(default_api_timeout_ms=0)
    rig.logs[A].append(b"one")
    rig.assign({A: None})
    assert values(rig.take()) == [b"one"]


def test_a_batch_larger_than_every_limit_arrives() -> None:
    rig = rig_with(fetch_max_bytes=100, max_partition_fetch_bytes=50)
    rig.logs[A].append(b"x" * 5_000)
    rig.logs[A].append(b"y")
    rig.assign({A: 0})
    assert values(rig.take()) == [b"x" * 5_000]
    assert values(rig.take()) == [b"y"]


def test_a_paused_partition_is_not_fetched_and_does_not_keep_others_waiting() -> None:
    rig = rig_with(fetch_max_bytes=600, max_partition_fetch_bytes=300)
    for partition in (A, B):
        for _ in range(40):
            rig.logs[partition].append(b"%d" % partition.partition * 100)
    rig.assign({A: 0, B: 0})
    rig.run(10)
    rig.pause([A])
    seen = all_values(rig, 40)
    assert set(seen) == {b"1" * 100}
    asked = len(rig.requests(ApiKey.FETCH))
    rig.run(200)
    assert all(
        part.partition == 1
        for one in rig.requests(ApiKey.FETCH)[asked:]
        for part in one.body.topics[0].partitions
    )
    rig.pause([A], resumes=True)
    assert all_values(rig, 40) == [b"0" * 100] * 40


def test_a_seek_drops_what_was_fetched_for_the_position_before() -> None:
    rig = rig_with()
    rig.logs[A].append(*[b"%d" % number for number in range(10)])
    rig.assign({A: 0})
    rig.take(2)
    rig.seek({A: 7})
    assert values(rig.take()) == [b"7", b"8", b"9"]
    rig.seek({A: -2})
    assert values(rig.take(1)) == [b"0"]
    rig.seek({A: -1})
    assert rig.take() == []
    assert rig.handler.positions[A].offset == 10
    assert rig.sender.buffer.holds(A) == 0


def test_a_response_that_comes_after_a_seek_is_dropped() -> None:
    rig = rig_with()
    rig.assign({A: 0})
    rig.run(100)  # the Fetch at 0 waits for records
    rig.seek({A: 0})
    rig.positions.end([A])
    rig.logs[A].append(b"late")
    rig.run(1_000)
    assert not [
        event for event in rig.told if isinstance(event, FetchResponseEvent) and event.data[0].records
    ]
    assert rig.sender.buffer.holds(A) == 0


def test_a_seek_does_not_wait_for_the_fetch_in_flight() -> None:
    rig = rig_with()
    rig.logs[A].append(b"one")
    rig.assign({A: 1, B: 0, C: 0})
    rig.run(100)  # the Fetch waits for records
    rig.seek({A: 0})
    assert values(rig.take(within_ms=10)) == [b"one"]
    assert [one.unsent.is_beside for one in rig.requests(ApiKey.FETCH)] == [False, True, True]
    rig.run(1_000)
    assert len(rig.requests(ApiKey.FETCH)[-1].body.topics[0].partitions) == 3, "both are one again"
    assert len(rig.requests(ApiKey.FETCH)) < 8


def test_what_has_been_read_does_not_wait_for_partitions_without_records() -> None:
    rig = rig_with(max_partition_fetch_bytes=300)
    for _ in range(50):
        rig.logs[A].append(b"x" * 200)
    rig.assign({A: 0, B: 0})
    began_ms = rig.now_ms
    assert len(all_values(rig, 50)) == 50
    assert rig.now_ms - began_ms < 500


def test_a_partition_that_is_taken_away_leaves_nothing_behind() -> None:
    rig = rig_with()
    rig.logs[A].append(b"one")
    rig.assign({A: 0, B: 0})
    rig.run(10)
    rig.assign({B: 0})
    assert rig.take(within_ms=600) == []
    assert rig.sender.buffer.holds(A) == 0
    assert A not in rig.handler.positions


def test_a_group_begins_at_its_committed_offset_and_new_partitions_at_the_reset() -> None:
    rig = rig_with()
    rig.committed_offsets[A] = OffsetAndMetadata(1, "", 2)
    for partition in (A, B):
        rig.logs[partition].append(b"one", b"two")
    rig.assign({A: None, B: None})
    assert sorted(all_values(rig, 3)) == [b"one", b"two", b"two"]
    (told,) = [
        event.positions for event in rig.told if isinstance(event, PositionsEvent) and A in event.positions
    ]
    assert (told[A].offset, told[A].leader_epoch) == (1, 2)


def test_latest_begins_at_the_end() -> None:
    rig = rig_with(auto_offset_reset="latest")
    rig.logs[A].append(b"old")
    rig.assign({A: None})
    assert rig.take() == []
    rig.logs[A].append(b"new")
    assert values(rig.take()) == [b"new"]


def test_a_consumer_without_a_group_begins_by_the_reset() -> None:
    rig = rig_with(group_id=None)
    rig.logs[A].append(b"one")
    rig.assign({A: None})
    assert values(rig.take()) == [b"one"]
    assert not rig.requests(ApiKey.OFFSET_FETCH)


def test_none_raises_and_waits_for_a_seek() -> None:
    rig = rig_with(auto_offset_reset="none")
    rig.logs[A].append(b"one")
    rig.assign({A: None})
    assert rig.take() == []
    (error,) = rig.errors
    assert isinstance(error, NoOffset)
    assert "partition 0 of topic 'orders' has no committed offset" in str(error)
    rig.seek({A: 0})
    assert values(rig.take()) == [b"one"]


def test_a_position_that_the_log_has_lost_is_reset() -> None:
    rig = rig_with()
    rig.logs[A].start = 5
    rig.logs[A].append(b"five")
    rig.assign({A: 2})
    assert values(rig.take()) == [b"five"]
    assert not rig.errors


def test_a_position_out_of_range_is_an_error_under_none() -> None:
    rig = rig_with(auto_offset_reset="none")
    rig.logs[A].append(b"one")
    rig.assign({A: 9})
    assert rig.take() == []
    (error,) = rig.errors
    assert isinstance(error, PositionOutOfRange)
    assert "has no offset 9, and auto.offset.reset is none" in str(error)


DAY_MS = 86_400_000


def test_a_duration_is_the_time_before_now_at_which_reading_begins() -> None:
    rig = rig_with(auto_offset_reset="by_duration:P1DT0.5S")
    rig.logs[A].append(b"old")
    rig.assign({A: None})
    assert rig.take() == []
    first, second = [one.body.topics[0].partitions[0].timestamp for one in rig.requests(ApiKey.LIST_OFFSETS)]
    assert (first, second) == (NOW_MS - DAY_MS - 500, -1), "no record is as late: at the end"
    rig.logs[A].append(b"new")
    assert values(rig.take()) == [b"new"]


def diverging(request: SentRequest) -> Any:
    """Answer as a leader that has other records from offset 2 on, none of epoch 4."""
    (asked,) = request.body.topics[0].partitions
    if asked.last_fetched_epoch != 4:
        return None
    return fetch_answer(request, diverging_epoch=EpochEndOffset(epoch=3, end_offset=2), high_watermark=9)


@pytest.mark.parametrize("reset", ["latest", "by_duration:PT1H"])
def test_a_log_that_was_truncated_is_read_again_from_where_it_parts(reset: str) -> None:
    rig = rig_with(auto_offset_reset=reset)
    rig.logs[A].append(b"0", b"1", partition_leader_epoch=3)
    rig.logs[A].append(b"2", b"3", partition_leader_epoch=4)
    rig.scripts[ApiKey.FETCH] = diverging
    rig.assign({A: 0})
    assert values(rig.take(1)) == [b"0"]
    rig.run(200)
    rig.logs[A].batches.pop()
    rig.logs[A].append(b"two", partition_leader_epoch=5)
    assert all_values(rig, 4) == [b"1", b"2", b"3", b"two"], "what was fetched is read first"
    assert rig.handler.positions[A][:2] == (3, 5)
    assert not rig.errors


def test_a_truncated_log_is_an_error_under_none() -> None:
    rig = rig_with(auto_offset_reset="none")
    rig.scripts[ApiKey.FETCH] = diverging
    rig.committed_offsets[A] = OffsetAndMetadata(4, "", 4)
    rig.assign({A: None})
    assert rig.take() == []
    (error,) = rig.errors
    assert isinstance(error, PositionOutOfRange)
    assert "was truncated to offset 2, and was read to 4; auto.offset.reset is none: seek()" in str(error)
    rig.logs[A].append(b"0", b"1", b"2")
    rig.seek({A: 2})
    assert values(rig.take()) == [b"2"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.FENCED_LEADER_EPOCH],
)
def test_errors_of_a_wrong_view_ask_for_a_new_one_and_pass(code: ErrorCode) -> None:
    rig = rig_with()
    rig.logs[A].append(b"one")
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(request, error_code=code, high_watermark=-1)
    rig.assign({A: 0})
    assert rig.take(within_ms=3_000) == []
    assert rig.metadata.refreshes
    assert len(rig.requests(ApiKey.FETCH)) < 12, "with back-off"
    assert not rig.errors
    del rig.scripts[ApiKey.FETCH]
    assert values(rig.take()) == [b"one"]


def test_the_leader_that_a_broker_names_is_asked_at_once() -> None:
    rig = rig_with(leaders=(1, 2, 2))
    rig.logs[A].append(b"one")

    def moved(request: SentRequest) -> Any:
        if request.to == 2:
            return None
        return fetch_answer(
            request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1,
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=4),
        )  # fmt: skip

    rig.scripts[ApiKey.FETCH] = moved
    rig.assign({A: 0})
    assert values(rig.take(within_ms=10)) == [b"one"]
    assert not rig.metadata.refreshes


def test_a_refusal_is_told_once_and_tried_again() -> None:
    rig = rig_with()
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(
        request, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, high_watermark=-1
    )
    rig.assign({A: 0, B: 0})
    rig.run(5_000)
    (error,) = rig.errors
    assert isinstance(error, KafkaError)
    assert "orders-0, orders-1 (TOPIC_AUTHORIZATION_FAILED, 29)" in str(error)
    del rig.scripts[ApiKey.FETCH]
    rig.logs[A].append(b"one")
    assert values(rig.take()) == [b"one"]


def test_an_error_code_that_no_table_knows_is_named() -> None:
    rig = rig_with()
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(request, error_code=4_242, high_watermark=-1)
    rig.assign({A: 0})
    rig.run(500)
    assert "(UNKNOWN_ERROR_CODE, 4242)" in str(rig.errors[0])


@pytest.mark.parametrize("failure", [RequestFailure.DISCONNECTED, RequestFailure.TIMED_OUT])
def test_a_node_that_does_not_answer_is_left_alone_for_a_while(failure: RequestFailure) -> None:
    rig = rig_with()
    rig.logs[A].append(b"one")
    rig.scripts[ApiKey.FETCH] = lambda request: failure
    rig.assign({A: 0})
    rig.run(2_000)
    assert len(rig.requests(ApiKey.FETCH)) < 10
    assert rig.metadata.refreshes
    del rig.scripts[ApiKey.FETCH]
    assert values(rig.take()) == [b"one"]


def test_a_broker_that_leaves_a_partition_out_does_not_make_a_busy_loop() -> None:
    rig = rig_with()
    rig.scripts[ApiKey.FETCH] = lambda request: type(fetch_answer(request))(responses=[])
    rig.assign({A: 0})
    rig.run(2_000)
    assert len(rig.requests(ApiKey.FETCH)) < 10


def test_a_follower_in_the_same_rack_is_read_from_until_it_fails() -> None:
    rig = rig_with(leaders=(1, 2, 2), client_rack="r")
    rig.logs[A].append(b"one")

    def prefer(request: SentRequest) -> Any:
        if request.to == 2:
            return None if rig.now_ms < 1_500 else RequestFailure.DISCONNECTED
        return (
            fetch_answer(request, high_watermark=1, preferred_read_replica=2) if rig.now_ms < 1_500 else None
        )

    rig.scripts[ApiKey.FETCH] = prefer
    rig.assign({A: 0})
    assert values(rig.take(within_ms=100)) == [b"one"]
    assert [one.to for one in rig.requests(ApiKey.FETCH)][:2] == [1, 2]
    rig.run(600)
    rig.logs[A].append(b"two")
    assert values(rig.take()) == [b"two"]
    assert rig.requests(ApiKey.FETCH)[-1].to == 1


def test_damage_is_raised_until_the_application_seeks_and_others_go_on() -> None:
    rig = rig_with()
    rig.logs[A].append(b"good")
    rig.logs[A].append(b"bad", crc=1)
    rig.logs[A].append(b"behind")
    rig.assign({A: 0, B: 0})
    assert values(rig.take()) == [b"good"]
    for number in range(3):
        with pytest.raises(CorruptRecord, match="at offset 1"):
            rig.take()
        rig.logs[B].append(b"%d" % number)
        rig.run(600)
        seen: list[bytes] = []
        while not seen:
            try:
                seen = values(rig.take())
            except CorruptRecord:
                continue
        assert seen == [b"%d" % number]
    assert rig.handler.positions[A].offset == 1
    rig.seek({A: 2})
    assert values(rig.take()) == [b"behind"]


def test_a_damaged_length_is_not_fetched_again_and_again() -> None:
    rig = rig_with()
    rig.logs[A].batches.append((5, struct.pack(">qi", 0, 2**30) + bytes(100)))
    rig.assign({A: 0})
    rig.run(3_000)
    asked = rig.requests(ApiKey.FETCH)
    with pytest.raises(CorruptRecord):
        rig.take()
    assert len(asked) == 1


def test_offsets_beyond_the_largest_one_are_damage() -> None:
    rig = rig_with()
    rig.logs[A].append(b"one")
    ((_, batch),) = rig.logs[A].batches
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(
        request, records=struct.pack(">q", 2**63 - 1) + batch[8:], high_watermark=2**63 - 1
    )
    rig.assign({A: 0})
    rig.run(3_000)
    with pytest.raises(CorruptRecord, match="beyond the largest offset"):
        rig.take()
    assert len(rig.requests(ApiKey.FETCH)) == 1


def test_nothing_is_fetched_while_many_events_wait_for_the_application() -> None:
    """A log that grows without records for this application: those of a transaction that stays open."""
    rig, ends = rig_with(), itertools.count()
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(request, high_watermark=next(ends))
    rig.assign({A: 0})
    rig.run(1_000)
    assert len(rig.requests(ApiKey.FETCH)) > 10
    rig.is_busy = True
    rig.run(100)
    asked = len(rig.requests(ApiKey.FETCH))
    rig.run(1_000)
    assert len(rig.requests(ApiKey.FETCH)) == asked
    rig.is_busy = False
    rig.run(1_000)
    assert len(rig.requests(ApiKey.FETCH)) > asked + 10


def test_lag_is_the_distance_to_the_end_of_the_log() -> None:
    rig = rig_with()
    rig.logs[A].append(b"one", b"two", b"three")
    rig.assign({A: 0})
    assert rig.handler.lag(A) is None
    rig.take(1)
    assert rig.handler.lag(A) == 2
    rig.take()
    assert rig.handler.lag(A) == 0
    rig.seek({A: 3})
    rig.run(1_100)
    assert rig.handler.lag(A) == 0, "an empty answer tells the end too"


def test_partitions_without_a_leader_wait_for_the_metadata() -> None:
    rig = rig_with(leaders=(-1, 1, 1))
    rig.logs[A].append(b"one")
    rig.assign({A: 0})
    assert rig.take(within_ms=100) == []
    assert "no leader of orders-0 is known" in rig.metadata.refreshes
    rig.metadata.lead("orders", {0: 1})
    assert values(rig.take()) == [b"one"]


def test_a_follower_that_is_not_known_is_looked_for_without_a_storm() -> None:
    rig = rig_with(client_rack="a")
    rig.scripts[ApiKey.FETCH] = lambda request: fetch_answer(
        request, high_watermark=1, preferred_read_replica=77
    )
    rig.assign({A: 0})
    rig.run(1_000)
    assert len(rig.requests(ApiKey.FETCH)) < 10
    assert any("77" in why for why in rig.metadata.refreshes)
