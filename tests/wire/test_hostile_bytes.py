"""Bytes from strangers: whatever comes, it decodes or is MalformedFrame with a field, in bounded memory."""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.wire.oracle import Case, Sampler, all_cases, case_id, message_class
from wire.apis import API_VERSIONS, ApiKey
from wire.decoding import decoder
from wire.encoding import encoder, uvarint
from wire.errors import MalformedFrame, UnsupportedApi
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.list_offsets import ListOffsetsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.protocol import decode_request, decode_response, encode_request, encode_response
from wire.schema import Message

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", uvarint(0xFFFFFFFF), uvarint(2**31))
MEMORY_BYTES_MAX = (
    1024 * 1024
)  # Python 3.13 takes 350 KiB for the errors alone; a length obeyed would be 2 GiB
TRACED_SAMPLES = 100  # tracing is slow
# A decoded element is an object with its lists: many times its few bytes on the wire, but no more than this.
BYTES_PER_WIRE_BYTE_MAX = 120


def body(cls: type[Message], version: int, message: Message) -> bytes:
    buffer = bytearray()
    encoder(cls, version)(message, buffer)
    return bytes(buffer)


def full_body(case: Case) -> bytes:
    cls = message_class(case)
    return body(cls, case[1], Sampler(case[1], "full").message(cls))


def decode_or_refuse(case: Case, data: bytes) -> Message | MalformedFrame:
    """Any other exception fails the test that asked."""
    try:
        message: Message = decoder(message_class(case), case[1])(data, 0)
    except MalformedFrame as error:
        refused = error
    else:
        return message
    assert refused.field.startswith(message_class(case).__name__)
    assert refused.why
    return refused


@contextmanager
def memory_at_most(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= limit_bytes


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_every_truncation_is_refused(case: Case) -> None:
    data = full_body(case)
    for end in range(len(data)):
        assert isinstance(decode_or_refuse(case, data[:end]), MalformedFrame)


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_bytes_after_the_end_are_refused(case: Case) -> None:
    refused = decode_or_refuse(case, full_body(case) + b"\0")
    assert isinstance(refused, MalformedFrame)
    assert refused.why == "1 bytes after the end"


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_flipped_bytes_decode_or_are_refused(case: Case) -> None:
    data = full_body(case)
    for at in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            decode_or_refuse(case, data[:at] + bytes((data[at] ^ mask,)) + data[at + 1 :])


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_huge_lengths_allocate_nothing(case: Case) -> None:
    """Any four bytes, and any one byte of a compact length, replaced by a length of up to 2^32 − 1."""
    data = full_body(case)
    hostile = [
        data[:at] + huge + data[at + width :] for at in range(len(data)) for huge in HUGE for width in (4, 1)
    ]
    for bad in hostile:
        decode_or_refuse(case, bad)
    with memory_at_most(MEMORY_BYTES_MAX):
        for bad in hostile[:: 1 + len(hostile) // TRACED_SAMPLES]:
            decode_or_refuse(case, bad)


def test_whole_frames_of_noise_are_refused() -> None:
    """Through the front door: noise instead of a header or behind one, of bytes that lengths are made of."""
    noise = random.Random(848)
    outcomes = {"decoded": 0, "malformed": 0, "unsupported": 0}
    keys = [*range(-1, 80), *list(API_VERSIONS) * 20]
    for round_ in range(30_000):
        api_key = noise.choice(keys).to_bytes(2, "big", signed=True)
        version = noise.randrange(-1, 14).to_bytes(2, "big", signed=True)
        start = noise.randbytes(12) if round_ % 10 == 0 else api_key + version + b"\0\0\0\1\0\0"
        try:
            decode_request(start + bytes(noise.choices(b"\0\0\0\0\1\1\2\x7f\xff", k=noise.randrange(30))))
            outcomes["decoded"] += 1
        except MalformedFrame:
            outcomes["malformed"] += 1
        except UnsupportedApi:
            outcomes["unsupported"] += 1
    assert min(outcomes.values()) >= 20, outcomes


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_truncated_frames_are_refused(case: Case) -> None:
    """Headers included, for both ends of a connection."""
    api_key, version, side = case
    message = Sampler(version, "full").message(message_class(case))
    if side == "request":
        frame = encode_request(api_key, version, 1, "client", message)[4:]
        decode: Callable[[bytes], object] = decode_request
    else:
        decode = partial(decode_response, api_key, version)
        frame = encode_response(api_key, version, 1, message)[4:]
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            decode(frame[:end])


def test_the_smallest_elements_stay_in_proportion() -> None:
    """A frame of nothing but the smallest elements is the worst that a peer can have made of its bytes."""
    count = 10_000
    data = b"\xff\xff\xff\xff" + b"\0" + uvarint(count + 1) + b"\x01\x01\0" * count + b"\0"
    decode = decoder(ListOffsetsRequest, 6)
    with memory_at_most(len(data) * BYTES_PER_WIRE_BYTE_MAX):
        assert len(decode(data, 0).topics) == count


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_unknown_tagged_fields_are_skipped(case: Case) -> None:
    """A newer peer may add tagged fields at any time; they end every flexible message."""
    cls, version = message_class(case), case[1]
    message = cls()
    data = body(cls, version, message)
    if version not in cls.SCHEMA.flexible:
        assert isinstance(decode_or_refuse(case, data + b"\x01\x63\x02xy"), MalformedFrame)
        return
    assert data.endswith(b"\0")
    two_tags = b"\x02\x63\x02xy" + uvarint(1000) + uvarint(200) + bytes(200)
    assert decode_or_refuse(case, data[:-1] + two_tags) == message
    assert isinstance(decode_or_refuse(case, data[:-1] + b"\x01\x63\x03xy"), MalformedFrame)


HEARTBEAT = body(
    ConsumerGroupHeartbeatRequest, 1, ConsumerGroupHeartbeatRequest(group_id="group", member_id="member")
)
COMMIT = OffsetCommitRequest(
    group_id="g",
    topics=[OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=3)])],
)


@pytest.mark.parametrize(
    ("data", "field", "why"),
    [
        (HEARTBEAT.replace(b"group", b"gr\xffup"), "group_id", "not UTF-8: invalid start byte"),
        (b"\0" + HEARTBEAT[6:], "group_id", "null, which this version does not allow"),
        (
            b"\x7f" + HEARTBEAT[1:],
            "group_id",
            f"length 126 exceeds the {len(HEARTBEAT) - 1} bytes that remain",
        ),
        (b"\xff\xff\xff\xff\xff\x01", "group_id", "a varint has more than five bytes"),
        (b"\xff\xff\xff\xff\x7f", "group_id", "a varint has more than 32 bits"),
        (b"\xff\xff\xff", "group_id", "the frame ends before the field does"),
        (HEARTBEAT[:15], "member_epoch", "the frame ends before the field does"),
        (HEARTBEAT[:17], "instance_id", "the frame ends before the field does"),
        (
            HEARTBEAT[:-5] + b"\xff\xff\xff\xff\x0f",
            "subscribed_topic_names",
            "4294967294 elements cannot fit",
        ),
        (HEARTBEAT[:-5] + b"\x02\0\0\0\0\0", "subscribed_topic_names[]", "null within an array"),
        (HEARTBEAT[:-2] + b"\xff\xff\xff\xff\x0f", "topic_partitions", "4294967294 elements cannot fit"),
        (HEARTBEAT[:-2] + b"\x02" + bytes(17) + b"\0", "topic_partitions[].partitions", "null, which"),
        (HEARTBEAT[:-2] + b"\x02" + bytes(17), "topic_partitions", "1 elements cannot fit into the 17 bytes"),
        (b"\x02", "group_id", "length 1 exceeds the 0 bytes that remain"),
        (b"\x04ab", "group_id", "length 3 exceeds the 2 bytes that remain"),
        (HEARTBEAT[:-1] + b"\x01\x05\x09", "tagged fields", "length 9 exceeds the 0 bytes that remain"),
    ],
)
def test_the_field_is_named(data: bytes, field: str, why: str) -> None:
    with pytest.raises(MalformedFrame) as caught:
        decoder(ConsumerGroupHeartbeatRequest, 1)(data, 0)
    assert caught.value.field == f"ConsumerGroupHeartbeatRequest v1 {field}"
    assert caught.value.why.startswith(why)
    assert str(caught.value) == f"{caught.value.field}: {caught.value.why}"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (b"\0\0\0\x01\0\x01t", b"\x7f\xff\xff\xff\0\x01t", "topics"),
        (b"\0\0\0\x01\0\x01t", b"\xff\xff\xff\xff\0\x01t", "topics"),
        (b"\0\x01t", b"\x7f\xfft", "topics[].name"),
        (b"\0\x01t", b"\xff\xfft", "topics[].name"),
        (b"t\0\0\0\x01", b"t\x7f\xff\xff\xff", "topics[].partitions"),
    ],
)
def test_the_field_is_named_in_versions_that_are_not_flexible(old: bytes, new: bytes, field: str) -> None:
    data = body(OffsetCommitRequest, 6, COMMIT)
    assert old in data
    with pytest.raises(MalformedFrame) as caught:
        decoder(OffsetCommitRequest, 6)(data.replace(old, new), 0)
    assert caught.value.field == f"OffsetCommitRequest v6 {field}"


def test_a_tagged_field_must_be_of_its_size() -> None:
    cases = {
        b"\x01\x00\x02\x03ab": "FetchRequest v12 cluster_id",
        b"\x01\x00\x05\x03ab": "FetchRequest v12 tagged fields",
    }
    case = (ApiKey.FETCH, 12, "request")
    cls = message_class(case)
    data = body(cls, 12, Sampler(12, "null").message(cls))
    for tags, field in cases.items():
        refused = decode_or_refuse(case, data[:-1] + tags)
        assert isinstance(refused, MalformedFrame)
        assert refused.field == field
    accepted = decode_or_refuse(case, data[:-1] + b"\x01\x00\x03\x03ab")
    assert getattr(accepted, "cluster_id", None) == "ab"
