"""Subroutines 20 to 40 of the thread: each transition, who is asked for what, and what is ignored."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from lineage.rewrite.consumer import RewriteConsumerCore, RewriteConsumerSettings
from lineage.rewrite.fetching import FETCH_APIS, PARTITIONS_MAX, Fetching, FetchRules, FetchSend
from lineage.rewrite.machines import FETCHING, THREAD_CONSUMER, FetchResult, Subroutine
from wire.errors import ErrorCode
from wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from wire.protocol import decode_request, decode_response, encode_request, encode_response

COORDINATOR, LEADER = 1, 2
T0, T1 = ("t", 0), ("t", 1)
BACKOFF_MS, TIMEOUT_MS = 200, 1_000
RANGE = ErrorCode.OFFSET_OUT_OF_RANGE
REFUSED = ErrorCode.NOT_LEADER_OR_FOLLOWER


def topics_of(send: FetchSend) -> Any:
    request: Any = send.request
    return request.topics


class Fetched:
    """The fetches of one consumer; requests and answers pass as bytes. A test answers each request."""

    def __init__(self, *owned: tuple[str, int], unreadable: bytes = b"bad", **rules: Any) -> None:
        self.core = RewriteConsumerCore(THREAD_CONSUMER, RewriteConsumerSettings(group_id="g"))
        self.core.coordinator = COORDINATOR
        self.own(1, *(owned or (T0,)))
        self.given: list[tuple[Any, int, bytes]] = []
        self._unreadable = unreadable
        given = {"backoff_ms": BACKOFF_MS, "timeout_ms": TIMEOUT_MS} | rules
        self.fetching = Fetching(self.core, "g", FetchRules(**given), self._take)
        self.at_ms = 0.0

    def own(self, generation: int, *owned: tuple[str, int]) -> None:
        core = self.core
        core.consumer_id, core.generation, core.owned = "g-1", generation, frozenset(owned)
        core.is_consuming = True

    def _take(self, partition: Any, offset: int, records: bytes) -> int:
        if records == self._unreadable:
            return offset
        self.given.append((partition, offset, records))
        return offset + len(records)

    def poll(self) -> FetchSend | None:
        send = self.fetching.poll(self.at_ms)
        if send is not None:
            api, version = FETCH_APIS[type(send.request)]
            _, decoded = decode_request(encode_request(api, version, send.number, "c", send.request)[4:])
            assert type(decoded) is type(send.request)
        return send

    def expect(self, kind: type, to: int | None) -> FetchSend:
        send = self.poll()
        assert send is not None
        assert (type(send.request), send.to) == (kind, to)
        return send

    def answer(self, send: FetchSend, code: int = 0, **fields: Any) -> None:
        """Answer for every partition of the request."""
        api, version = FETCH_APIS[type(send.request)]
        bytes_of = encode_response(api, version, send.number, response(send.request, code, fields))
        number, decoded = decode_response(api, version, bytes_of[4:])
        self.fetching.answered(number, decoded, self.at_ms)

    def pass_backoff(self) -> None:
        assert self.poll() is None
        assert self.fetching.next_deadline_ms == self.at_ms + BACKOFF_MS
        self.at_ms += BACKOFF_MS

    def find_leader(self) -> None:
        self.answer(self.expect(MetadataRequest, None))

    def find_place(self, offset: int = 5) -> None:
        self.find_leader()
        self.answer(self.expect(OffsetFetchRequest, COORDINATOR), offset=offset)


def response(request: Any, code: int, fields: dict[str, Any]) -> Any:
    offset = fields.get("offset", 0)
    if isinstance(request, MetadataRequest):
        leader = fields.get("leader", LEADER)
        parts = [
            MetadataResponsePartition(partition_index=n, error_code=code, leader_id=leader) for n in range(2)
        ]
        topics = [MetadataResponseTopic(name=one.name, partitions=parts) for one in request.topics or ()]
        brokers = [MetadataResponseBroker(node_id=n, host=f"node-{n}", port=9092) for n in (1, 2, 3)]
        return MetadataResponse(brokers=brokers, topics=topics)
    if isinstance(request, OffsetFetchRequest):
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=one.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=n, committed_offset=offset, error_code=code
                        )
                        for n in one.partition_indexes
                    ],
                )
                for one in request.topics or ()
            ]
        )
    if isinstance(request, ListOffsetsRequest):
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=one.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=offset, error_code=code
                        )
                        for each in one.partitions
                    ],
                )
                for one in request.topics
            ]
        )
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=one.topic,
                partitions=[
                    PartitionData(
                        partition_index=each.partition,
                        error_code=code,
                        aborted_transactions=None,
                        records=fields.get("records"),
                    )
                    for each in one.partitions
                ],
            )
            for one in request.topics
        ]
    )


def fetch_works() -> Fetched:
    """20, the committed offset, and 40 twice."""
    one = Fetched()
    one.find_place(5)
    send = one.expect(FetchRequest, LEADER)
    assert topics_of(send)[0].partitions[0].fetch_offset == 5
    one.answer(send, records=b"abc")
    assert (one.given, one.fetching.positions) == ([(T0, 5, b"abc")], {T0: 8})
    send = one.expect(FetchRequest, LEADER)
    assert topics_of(send)[0].partitions[0].fetch_offset == 8
    one.answer(send)
    assert one.fetching.positions == {T0: 8}
    return one


def offset_is_found() -> Fetched:
    """40a, then 30a."""
    one = Fetched()
    one.find_place(5)
    one.answer(one.expect(FetchRequest, LEADER), RANGE)
    send = one.expect(ListOffsetsRequest, LEADER)
    assert topics_of(send)[0].partitions[0].timestamp == -2
    one.answer(send, offset=70)
    assert topics_of(one.expect(FetchRequest, LEADER))[0].partitions[0].fetch_offset == 70
    return one


def everything_fails() -> Fetched:
    """20b, 30b and 40b: by an error, by a lost connection, and by no answer in time."""
    one = Fetched()
    one.answer(one.expect(MetadataRequest, None), ErrorCode.LEADER_NOT_AVAILABLE)
    one.pass_backoff()
    one.answer(one.expect(MetadataRequest, None), leader=-1)
    one.pass_backoff()
    one.fetching.lost(one.expect(MetadataRequest, None).number, one.at_ms)
    one.pass_backoff()
    one.find_place(5)
    one.answer(one.expect(FetchRequest, LEADER), REFUSED)
    one.pass_backoff()
    one.find_leader()
    one.answer(one.expect(FetchRequest, LEADER), RANGE)
    one.answer(one.expect(ListOffsetsRequest, LEADER), REFUSED)
    one.pass_backoff()
    one.find_leader()
    one.answer(one.expect(FetchRequest, LEADER), RANGE)
    one.answer(one.expect(ListOffsetsRequest, LEADER), offset=-1)
    one.pass_backoff()
    one.find_leader()
    late = one.expect(FetchRequest, LEADER)
    assert one.fetching.next_deadline_ms == one.at_ms + TIMEOUT_MS
    one.at_ms += TIMEOUT_MS
    one.pass_backoff()
    one.answer(late, records=b"abc")
    assert (one.given, one.fetching.positions) == ([], {T0: 5})
    assert one.expect(MetadataRequest, None)
    return one


def test_every_transition_of_the_subroutines_is_taken() -> None:
    taken: Counter[tuple[Subroutine, FetchResult]] = Counter()
    for case in (fetch_works, offset_is_found, everything_fails):
        taken.update(case().fetching.taken)
    assert taken.keys() == FETCHING.keys()


@pytest.mark.parametrize(("reset", "timestamp"), [("smallest", -2), ("largest", -1)])
def test_a_group_without_offsets_begins_where_auto_offset_reset_says(reset: str, timestamp: int) -> None:
    one = Fetched(offset_reset=reset)
    one.find_place(-1)
    send = one.expect(ListOffsetsRequest, LEADER)
    assert topics_of(send)[0].partitions[0].timestamp == timestamp


def test_a_coordinator_that_refuses_the_offset_is_asked_again_after_the_leader() -> None:
    one = Fetched()
    one.find_leader()
    one.answer(one.expect(OffsetFetchRequest, COORDINATOR), ErrorCode.NOT_COORDINATOR)
    assert one.fetching.positions == {}
    one.pass_backoff()
    one.core.coordinator = 3
    one.find_leader()
    assert one.expect(OffsetFetchRequest, 3)


def test_batches_that_cannot_be_read_are_fetched_again_after_the_backoff() -> None:
    one = Fetched()
    one.find_place(5)
    one.answer(one.expect(FetchRequest, LEADER), records=b"bad")
    assert one.fetching.taken[Subroutine.FETCH, FetchResult.FAILED] == 1
    one.pass_backoff()
    one.find_leader()
    one.answer(one.expect(FetchRequest, LEADER), records=b"good")
    assert one.given == [(T0, 5, b"good")]


def test_one_request_is_outstanding_for_each_broker_and_has_all_its_partitions() -> None:
    one = Fetched(T0, T1)
    one.find_place(5)
    send = one.expect(FetchRequest, LEADER)
    assert [each.partition for each in topics_of(send)[0].partitions] == [0, 1]
    assert one.poll() is None
    one.core.owned |= {("u", 0)}
    one.find_leader()  # while the broker of the others is busy
    one.answer(one.expect(OffsetFetchRequest, COORDINATOR), offset=1)
    assert one.poll() is None
    one.answer(send)
    assert [each.topic for each in topics_of(one.expect(FetchRequest, LEADER))] == ["t", "u"]


def test_partitions_beyond_those_of_one_request_are_in_the_next() -> None:
    many = [("t", number) for number in range(PARTITIONS_MAX + 1)]
    one = Fetched(*many)
    first = one.expect(MetadataRequest, None)
    assert one.poll() is None
    one.answer(first, ErrorCode.LEADER_NOT_AVAILABLE)
    assert one.expect(MetadataRequest, None)
    assert sum(one.fetching.taken.values()) == PARTITIONS_MAX


def test_a_partition_that_is_taken_away_is_forgotten_and_late_answers_about_it_ignored() -> None:
    one = Fetched(T0, T1)
    one.find_place(5)
    send = one.expect(FetchRequest, LEADER)
    one.core.owned = frozenset({T1})
    one.answer(send, records=b"abc")
    assert (one.given, one.fetching.positions) == ([(T1, 5, b"abc")], {T1: 8})
    assert one.fetching.runs == {T1: Subroutine.FETCH}


def test_a_new_generation_asks_for_the_offsets_again_and_ignores_answers_to_the_last() -> None:
    """In between another consumer may have had the partition."""
    one = Fetched()
    one.find_place(5)
    late = one.expect(FetchRequest, LEADER)
    one.own(2, T0)
    one.answer(late, records=b"abc")
    assert (one.given, one.fetching.positions) == ([], {})
    one.find_place(9)
    assert one.fetching.positions == {T0: 9}


def test_who_has_stopped_fetches_nothing_takes_nothing_and_keeps_positions_to_commit() -> None:
    one = Fetched()
    one.find_place(5)
    late = one.expect(FetchRequest, LEADER)
    one.core.is_consuming = False
    one.answer(late, records=b"abc")
    assert (one.given, one.fetching.positions) == ([], {T0: 5})
    assert (one.poll(), one.fetching.next_deadline_ms) == (None, None)
    one.core.is_consuming = True  # in the same generation: the rebalance was cancelled
    one.answer(one.expect(FetchRequest, LEADER), records=b"abc")
    assert one.given == [(T0, 5, b"abc")]


@pytest.mark.parametrize("wrong", [{"offset_reset": "latest"}, {"wait_max_ms": 0}, {"wait_max_ms": 30_000}])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"auto\.offset\.reset|fetch\.wait\.max\.ms"):
        FetchRules(**wrong)
