"""The push protocol's bytes: as the seed lays them out, and hostile ones."""

from __future__ import annotations

import random

import pytest

from lineage.push.messages import (
    ELEMENTS_MAX,
    TEXT_BYTES_MAX,
    Broker,
    CommandResponse,
    CommandType,
    LookupRequest,
    LookupResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterRequest,
    StartRequest,
    StopRequest,
    check_coordinator_id,
    decode_answer,
    decode_command,
    decode_lookup_response,
    decode_request,
    frame,
    lookup_response,
    partition_name,
    partition_number,
)
from wire.errors import ErrorCode, MalformedFrame

REGISTER = RegisterRequest(
    group_id="g",
    consumer_id="c",
    auto_commit=True,
    auto_offset_reset="largest",
    ping_interval_ms=3_000,
    max_ping_retries=3,
)
OFFSET = PartitionOffset(topic="t", partition="1-0", offset=7)
BROKER = Broker(creator_id="b", id=1, host="h", port=9)


@pytest.mark.parametrize(
    ("body", "version", "expected"),
    [
        (LookupRequest(group_id="g"), 0, "00000005 0001 0001 67"),
        (
            lookup_response(1, [BROKER]),
            0,
            "00000016 0000 0001 00000001 0001 62 00000001 0001 68 00000009",
        ),
        (REGISTER, 0, "00000018 0000 0001 67 0001 63 01 0007 6c617267657374 00000bb8 0003"),
        (PingRequest(num_retries=2), 0, "00000004 0000 0002"),
        (PingResponse(num_partition=1), 0, "00000002 0001"),
        (
            PingResponse(num_partition=1, offset_info=[OFFSET]),
            1,
            "00000016 0001 00000001 0001 74 0003 312d30 0000000000000007",
        ),
        (StopRequest(), 0, "00000002 0001"),
        (
            StartRequest(assigned_parts=[OFFSET]),
            0,
            "00000016 0002 00000001 0001 74 0003 312d30 0000000000000007",
        ),
        (CommandResponse(error_code=5), 0, "00000002 0005"),
    ],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_the_layout_is_the_seeds(body: object, version: int, expected: str) -> None:
    assert frame(body, version) == bytes.fromhex(expected)


def test_what_is_encoded_is_decoded() -> None:
    for request in (LookupRequest(group_id="g"), REGISTER):
        assert decode_request(frame(request)[4:]) == request
    for command in (PingRequest(num_retries=2), StopRequest(), StartRequest(assigned_parts=[OFFSET])):
        assert decode_command(frame(command)[4:]) == command
    pong = PingResponse(num_partition=1, offset_info=[OFFSET])
    assert decode_answer(CommandType.PING, frame(pong, 1)[4:], auto_commit=True) == pong
    assert decode_lookup_response(frame(lookup_response(1, [BROKER]))[4:]).brokers_info == [BROKER]


def test_a_ping_reply_has_offsets_with_auto_commit_only() -> None:
    with_offsets = frame(PingResponse(num_partition=1, offset_info=[OFFSET]), 1)[4:]
    with pytest.raises(MalformedFrame):
        decode_answer(CommandType.PING, with_offsets, auto_commit=False)
    with pytest.raises(MalformedFrame, match="offset_info"):
        decode_answer(CommandType.PING, frame(PingResponse(num_partition=0))[4:], auto_commit=True)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"group_id": ""}, "group_id"),
        ({"consumer_id": ""}, "consumer_id"),
        ({"consumer_id": "c" * (TEXT_BYTES_MAX + 1)}, "consumer_id"),
        ({"auto_offset_reset": "latest"}, "auto_offset_reset"),
        ({"ping_interval_ms": 9}, "ping_interval_ms"),
        ({"ping_interval_ms": 3_600_001}, "ping_interval_ms"),
        ({"max_ping_retries": -1}, "max_ping_retries"),
        ({"max_ping_retries": 101}, "max_ping_retries"),
        ({"request_type_id": 2}, "request_type_id"),
    ],
)
def test_a_register_out_of_bounds_is_refused_with_its_field(changed: dict, field: str) -> None:
    values = {name: getattr(REGISTER, name) for name, _ in REGISTER.SCHEMA.fields} | changed
    with pytest.raises(MalformedFrame, match=field):
        decode_request(frame(RegisterRequest(**values))[4:])


def test_too_many_elements_are_refused() -> None:
    offsets = [PartitionOffset(topic="a topic", partition=f"1-{one}") for one in range(ELEMENTS_MAX + 1)]
    with pytest.raises(MalformedFrame, match="assigned_parts"):
        decode_command(frame(StartRequest(assigned_parts=offsets))[4:])
    assert decode_command(frame(StartRequest(assigned_parts=offsets[:-1]))[4:])


def test_hostile_bytes_are_malformed_frames_and_nothing_else() -> None:
    chance = random.Random(4)
    valid = [
        frame(REGISTER)[4:],
        frame(LookupRequest(group_id="g"))[4:],
        frame(StartRequest(assigned_parts=[OFFSET, OFFSET]))[4:],
        frame(PingResponse(num_partition=1, offset_info=[OFFSET]), 1)[4:],
        frame(lookup_response(1, [BROKER]))[4:],
    ]
    decoders = [
        decode_request,
        decode_command,
        decode_lookup_response,
        lambda data: decode_answer(CommandType.PING, data, auto_commit=True),
        lambda data: decode_answer(CommandType.PING, data, auto_commit=False),
        lambda data: decode_answer(CommandType.STOP, data, auto_commit=True),
    ]
    num_refused = 0
    for _ in range(3_000):
        data = bytearray(chance.choice(valid))
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        for decode in decoders:
            try:
                decode(bytes(data))
            except MalformedFrame:
                num_refused += 1
    assert num_refused > 3_000


def test_the_coordinator_id_is_checked_to_fit_i16() -> None:
    check_coordinator_id(32_767)
    with pytest.raises(ValueError, match="i16"):
        check_coordinator_id(32_768)
    with pytest.raises(ValueError, match="i16"):
        check_coordinator_id(-1)
    refused = LookupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, brokers_info=[BROKER])
    assert lookup_response(70_000, [BROKER]) == refused
    assert lookup_response(None, [BROKER]) == refused


def test_a_partitions_name_contains_the_broker_id() -> None:
    assert partition_name(2, 11) == "2-11"
    assert partition_number("2-11") == 11
    for name in ("", "11", "2-", "-11", "a-1", "1-a", "1--1", "1-١"):
        with pytest.raises(MalformedFrame):
            partition_number(name)
