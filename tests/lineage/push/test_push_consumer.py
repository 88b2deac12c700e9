"""The consumer of the push protocol by itself: finding the coordinator, obeying it, and losing it."""

from __future__ import annotations

import random

import pytest

from lineage.push.consumer import (
    LOOKUP_BACKOFF_MS,
    Action,
    AskBroker,
    CloseConnection,
    GiveUp,
    PushConsumerCore,
    RegisterAt,
    SendAnswer,
)
from lineage.push.machines import ConsumerState
from lineage.push.messages import (
    CommandResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    StartRequest,
    StopRequest,
    frame,
    lookup_response,
)
from tests.support.push_world import BROKERS, KNOWN, PING_MS, register_of
from wire.schema import Message

FOUND = lookup_response(1, BROKERS)
NO_COORDINATOR = lookup_response(None, BROKERS)
PART = PartitionOffset(topic="t", partition="1-0", offset=4)


def obey(core: PushConsumerCore, command: Message, now_ms: int = 0) -> list[Action]:
    return core.received(frame(command)[4:], now_ms)


def registered(*, auto_commit: bool = True, known: tuple = KNOWN[:1]) -> PushConsumerCore:
    core = PushConsumerCore(register_of("c", auto_commit=auto_commit), known)
    assert [type(one) for one in core.begin()] == [AskBroker]
    (action,) = core.looked_up(FOUND, 0)
    assert action == RegisterAt(KNOWN[1], register_of("c", auto_commit=auto_commit))
    return core


def consuming(*, auto_commit: bool = True) -> PushConsumerCore:
    core = registered(auto_commit=auto_commit)
    obey(core, StopRequest())
    obey(core, StartRequest(assigned_parts=[PART]))
    assert core.positions == {("t", "1-0"): 4}
    return core


def test_a_consumer_answers_ping_stop_and_start() -> None:
    core = registered()
    assert obey(core, PingRequest()) == [SendAnswer(PingResponse(num_partition=0), version=1)]
    assert obey(core, StopRequest()) == [SendAnswer(CommandResponse())]
    assert obey(core, StartRequest(assigned_parts=[PART])) == [SendAnswer(CommandResponse())]
    assert obey(core, PingRequest()) == [
        SendAnswer(PingResponse(num_partition=1, offset_info=[PART]), version=1)
    ]
    obey(core, StopRequest())
    assert (core.state, core.positions) == (ConsumerState.WAITING, {})


def test_without_auto_commit_a_ping_reply_has_no_offsets() -> None:
    core = consuming(auto_commit=False)
    assert obey(core, PingRequest()) == [SendAnswer(PingResponse(num_partition=1))]


def test_neither_stop_nor_ping_within_the_interval_makes_it_register_again() -> None:
    core = consuming()
    obey(core, PingRequest(), 1_000)
    assert core.next_ms == 1_000 + PING_MS
    assert core.time_passed(1_000 + PING_MS - 1) == []
    actions = core.time_passed(1_000 + PING_MS)
    assert [type(one) for one in actions] == [CloseConnection, AskBroker]
    assert core.positions, "it goes on consuming"
    (again,) = core.looked_up(FOUND, 2_000)
    assert isinstance(again, RegisterAt)
    silent = registered()
    assert [type(one) for one in silent.time_passed(PING_MS)] == [CloseConnection, AskBroker]


def test_a_start_that_is_repeated_after_a_failover_keeps_positions() -> None:
    core = consuming()
    core.positions["t", "1-0"] = 9
    core.closed(0)
    core.looked_up(FOUND, 0)
    other = PartitionOffset(topic="t", partition="1-1", offset=2)
    obey(core, StartRequest(assigned_parts=[PART, other]))
    assert core.positions == {("t", "1-0"): 9, ("t", "1-1"): 2}
    core.closed(0)
    core.looked_up(FOUND, 0)
    parts = [PartitionOffset(topic="t", partition=name, offset=2) for name in ("7-0", "7-1")]
    obey(core, StartRequest(assigned_parts=parts))  # another broker has other names for them
    assert core.positions == {("t", "7-0"): 9, ("t", "7-1"): 2}


def test_a_start_with_a_name_that_is_no_partitions_closes_the_connection() -> None:
    core = registered()
    part = PartitionOffset(topic="t", partition="nonsense", offset=0)
    (closed,) = obey(core, StartRequest(assigned_parts=[part]))
    assert isinstance(closed, CloseConnection)


def test_a_registration_that_is_refused_is_repeated_after_a_pause() -> None:
    core = registered()  # at 0
    assert core.closed(20) == []
    assert core.next_ms == LOOKUP_BACKOFF_MS
    assert [type(one) for one in core.time_passed(core.next_ms)] == [AskBroker]
    late = registered()
    assert [type(one) for one in late.closed(LOOKUP_BACKOFF_MS)] == [AskBroker]


def test_all_known_brokers_gone_is_an_error_with_a_sentence() -> None:
    core = PushConsumerCore(register_of("c"), KNOWN[:2])
    core.begin()
    (second,) = core.looked_up(None, 0)
    assert second.address == KNOWN[1]
    (gone,) = core.looked_up(None, 0)
    assert isinstance(gone, GiveUp)
    assert "no known broker of group g can be reached (b0:9, b1:9)" in gone.why
    assert core.state is ConsumerState.FAILED
    assert [type(one) for one in core.begin()] == [AskBroker]


def test_brokers_that_know_no_coordinator_are_asked_again_after_a_pause() -> None:
    core = PushConsumerCore(register_of("c"), KNOWN[:1])
    core.begin()
    addresses = []
    actions: list[Action] = core.looked_up(NO_COORDINATOR, 50)  # names two brokers more
    while actions:
        addresses.append(actions[0].address)
        actions = core.looked_up(None, 50)
    assert addresses == list(KNOWN[1:])
    assert core.next_ms == 50 + LOOKUP_BACKOFF_MS
    (again,) = core.time_passed(50 + LOOKUP_BACKOFF_MS)
    assert again.address == KNOWN[0]


def test_a_coordinator_whose_address_is_not_named_is_not_found() -> None:
    core = PushConsumerCore(register_of("c"), KNOWN)
    core.begin()
    (following,) = core.looked_up(lookup_response(7, BROKERS), 0)
    assert isinstance(following, AskBroker)


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00\x07", frame(StartRequest(assigned_parts=[PART]))[4:]],
    ids=["nothing", "unknown type", "Start without a Stop"],
)
def test_a_coordinator_that_breaks_the_protocol_is_left(payload: bytes) -> None:
    core = consuming()
    actions = core.received(payload, 0)
    assert [type(one) for one in actions] == [CloseConnection, AskBroker]


def test_quitting_closes_the_connection_which_is_the_leave() -> None:
    core = consuming()
    assert core.quit() == [CloseConnection()]
    assert (core.state, core.positions, core.next_ms) == (ConsumerState.DOWN, {}, None)
    looking = PushConsumerCore(register_of("c"), KNOWN)
    looking.begin()
    assert looking.quit() == []
    assert looking.looked_up(FOUND, 0) == [], "an answer that comes too late"


def test_quitting_after_giving_up_or_before_the_start_changes_nothing() -> None:
    core = PushConsumerCore(register_of("c"), KNOWN[:1])
    assert core.quit() == []
    for _ in range(2):
        core.begin()
        assert [type(one) for one in core.looked_up(None, 0)] == [GiveUp]
    assert core.quit() == core.quit() == []
    assert core.state is ConsumerState.DOWN
    assert [type(one) for one in core.begin()] == [AskBroker]


def test_a_consumer_needs_a_broker() -> None:
    with pytest.raises(ValueError, match="broker"):
        PushConsumerCore(register_of("c"), ())


def test_what_comes_without_a_registered_connection_is_ignored() -> None:
    core = PushConsumerCore(register_of("c"), KNOWN[:1])
    assert obey(core, StopRequest()) == core.closed(0) == []
    core.begin()
    assert obey(core, StopRequest()) == core.closed(0) == []
    core.looked_up(None, 0)
    assert obey(core, StopRequest()) == core.closed(0) == []
    assert core.state is ConsumerState.FAILED


def test_hostile_frames_never_break_a_consumer() -> None:
    chance = random.Random(8)
    frames = [frame(one)[4:] for one in (PingRequest(), StopRequest(), StartRequest(assigned_parts=[PART]))]
    core = consuming()
    seen = set()
    for _ in range(3_000):
        data = bytearray(chance.choice(frames))
        if chance.random() < 0.5:
            data[chance.randrange(len(data))] = chance.randrange(256)
        for action in core.received(bytes(data), 0):
            seen.add(type(action))
        if core.state is ConsumerState.LOOKING_UP:
            core.looked_up(FOUND, 0)
    assert seen == {SendAnswer, CloseConnection, AskBroker}
