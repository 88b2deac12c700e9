"""Held replies are sent once each, in order of their indexes, after the commit, and none is held for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.runtime.answers import CODES, Unavailable, code_for
from cluster.runtime.pending_replies import NO_PROOF, PendingReplies, PendingReply
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

HEARTBEAT = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


def pending(answers: list[object]) -> PendingReply:
    return PendingReply(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, HEARTBEAT, answers.append)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40)), max_size=60))
def test_every_reply_goes_once_in_order_and_not_before_its_commit_and_proof(
    steps: list[tuple[int, int]],
) -> None:
    held, answers = PendingReplies(100), []
    now_ms, index, committed, proven_ms = 0.0, 0, 0, NO_PROOF
    asked: list[int] = []
    for kind, amount in steps:
        if kind == 0:
            index += amount
            asked.append(index)
            held.hold(index, now_ms, pending(answers), ("durable", index, NO_PROOF))
        elif kind == 1:
            asked.append(index)
            held.hold(index, now_ms, pending(answers), ("proven", index, now_ms), now_ms)
        elif kind == 2:
            committed = max(committed, min(index, committed + amount))
        elif kind == 3:
            proven_ms = max(proven_ms, now_ms - amount)
        else:
            now_ms += amount
            held.expire(now_ms)
        before = len(answers)
        held.release(committed, proven_ms)
        for answer in answers[before:]:
            assert answer[1] <= committed
            assert answer[2] <= proven_ms
    told = [answer[1] for answer in answers if isinstance(answer, tuple)]
    assert told == sorted(told)
    held.fail(Unavailable.STOPPED)
    assert len(answers) == len(asked)
    assert len(held) == 0


def test_a_reply_waits_for_the_time_out_and_no_longer() -> None:
    held, answers = PendingReplies(5000), []
    held.hold(7, 1000.0, pending(answers), "durable")
    assert held.next_deadline_ms == 6000.0
    assert held.expire(5999.9) == 0
    assert held.expire(6000.0) == 1
    assert answers[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[attr-defined]
    held.release(7)
    assert len(answers) == 1


def test_a_gap_of_the_loop_moves_the_deadline() -> None:
    held, answers = PendingReplies(5000), []
    held.hold(7, 0.0, pending(answers), "durable")
    held.shift_deadlines(60_000)
    assert held.expire(60_000) == 0
    assert held.expire(65_000) == 1


def test_a_reply_that_cannot_be_handed_over_keeps_none_back() -> None:
    def broken(_response: object) -> None:
        raise RuntimeError("the connection's code failed")

    held, answers = PendingReplies(5000), []
    held.hold(1, 0.0, PendingReply(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, HEARTBEAT, broken), "one")
    held.hold(1, 0.0, pending(answers), "two")
    held.release(1)
    assert answers == ["two"]


def test_a_reply_may_ask_again_from_within() -> None:
    held, answers = PendingReplies(5000), []

    def again(response: object) -> None:
        answers.append(response)
        held.hold(2, 0.0, pending(answers), "next")

    held.hold(1, 0.0, PendingReply(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, HEARTBEAT, again), "first")
    held.release(1)
    assert answers == ["first"]
    held.release(2)
    assert answers == ["first", "next"]


def test_codes_are_those_that_each_kind_of_client_understands() -> None:
    assert set(CODES) == set(Unavailable)
    assert code_for(Unavailable.TIMED_OUT, ApiKey.OFFSET_COMMIT) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_for(Unavailable.TIMED_OUT, ApiKey.CREATE_TOPICS) == ErrorCode.REQUEST_TIMED_OUT
    assert code_for(Unavailable.DEPOSED, ApiKey.OFFSET_COMMIT) == ErrorCode.NOT_COORDINATOR
    assert code_for(Unavailable.DEPOSED, ApiKey.DELETE_TOPICS) == ErrorCode.REQUEST_TIMED_OUT
    assert code_for(Unavailable.LOADING, ApiKey.OFFSET_FETCH) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert all(
        code.retriable for why, codes in CODES.items() if why is not Unavailable.FAILED for code in codes
    )


def test_refusals_have_the_shape_of_the_api() -> None:
    answers: list[object] = []
    create = CreateTopicsRequest(topics=[CreatableTopic(name="orders")])
    PendingReply(ApiKey.CREATE_TOPICS, 7, create, answers.append).refuse(Unavailable.TIMED_OUT)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    PendingReply(ApiKey.OFFSET_FETCH, 9, fetch, answers.append).refuse(Unavailable.NOT_LEADER)
    created, fetched = answers
    assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT  # type: ignore[attr-defined]
    assert fetched.groups[0].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
