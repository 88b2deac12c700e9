"""Headers and whole frames, against bytes written by hand; what is refused, and what start-up may cost."""

import subprocess
import sys
from typing import Any

import pytest

from tests.wire.oracle import Case, all_cases, case_id, message_class
from wire.apis import API_VERSIONS, CLIENT_APIS, ApiKey, api_name, served_apis
from wire.decoding import decoder
from wire.encoding import encoder, uvarint
from wire.errors import ErrorCode, MalformedFrame, Unencodable, UnsupportedApi
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from wire.messages.join_group import JoinGroupRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponseTopic
from wire.messages.offset_fetch import OffsetFetchRequest
from wire.protocol import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)
from wire.schema import version_range

HEARTBEAT_FRAME = bytes.fromhex(
    "0044 0001 0000002a 0003 616263 00"  # key, version, correlation id 42, client id "abc", no tags
    "02 67 02 6d 00000005 00 00 ffffffff 00 00 00"  # g, m, epoch 5; then null, so unchanged
    "02 000102030405060708090a0b0c0d0e0f 03 00000000 00000007 00 00"  # owns partitions 0 and 7 of one topic
)
HEARTBEAT = ConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m",
    member_epoch=5,
    topic_partitions=[TopicPartitions(topic_id=bytes(range(16)), partitions=[0, 7])],
)


def test_a_request_by_hand() -> None:
    header, body = decode_request(HEARTBEAT_FRAME)
    assert header == (68, 1, 42, "abc", 14)
    assert body == HEARTBEAT
    assert encode_request(68, 1, 42, "abc", HEARTBEAT)[4:] == HEARTBEAT_FRAME


def test_a_response_by_hand() -> None:
    body = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.FENCED_MEMBER_EPOCH,
        error_message="no",
        heartbeat_interval_ms=1000,
        assignment=Assignment(topic_partitions=[]),
    )
    frame = bytes.fromhex(
        "0000001b 0000002a 00 00000000 006e 03 6e6f 00 00000000 000003e8 01 01 00 00".replace(" ", "")
    )
    assert encode_response(68, 1, 42, body) == frame
    assert decode_response(68, 1, frame[4:]) == (42, body)


def test_bytes_after_a_body_are_ignored_where_librdkafka_sends_them() -> None:
    """The Metadata 13 body that librdkafka 2.16 sends for all topics: four bytes, and three too many."""
    header = bytes.fromhex("0003 000d 00000002 0000 00")
    _, body = decode_request(header + bytes.fromhex("00000000010000"))
    assert body == MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with pytest.raises(MalformedFrame):
        decode_request(header + bytes.fromhex("000000"))


@pytest.mark.parametrize("case", all_cases(), ids=case_id)
def test_bytes_after_a_body_are_refused_everywhere_else(case: Case) -> None:
    api_key, version, side = case
    message = message_class(case)()
    if side == "response":
        frame = encode_response(api_key, version, 2, message)[4:]
        with pytest.raises(MalformedFrame, match="1 bytes after the end"):
            decode_response(api_key, version, frame + b"\0")
    elif api_key is not ApiKey.METADATA:
        frame = encode_request(api_key, version, 2, "c", message)[4:]
        with pytest.raises(MalformedFrame, match="1 bytes after the end"):
            decode_request(frame + b"\0")


def test_api_versions_answers_with_header_version_0() -> None:
    body = ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=18, max_version=4)],
        supported_features=[SupportedFeatureKey(name="group.version", max_version=1)],
    )
    frame = encode_response(ApiKey.API_VERSIONS, 3, 1, body)
    # Straight after the correlation id comes the error code, not the tagged fields of a flexible header.
    assert frame[4:].hex(" ", -2).startswith("0000 0001 0000 0200 1200")
    assert decode_response(ApiKey.API_VERSIONS, 3, frame[4:]) == (1, body)


def test_tagged_fields_of_headers_are_skipped() -> None:
    at = HEARTBEAT_FRAME.index(b"abc") + 3
    tagged = HEARTBEAT_FRAME[:at] + b"\x01\x05\x02hi" + HEARTBEAT_FRAME[at + 1 :]
    assert decode_request(tagged)[1] == HEARTBEAT
    response = encode_response(68, 1, 42, ConsumerGroupHeartbeatResponse())[4:]
    assert decode_response(68, 1, response[:4] + b"\x01\x05\x02hi" + response[5:])[0] == 42


@pytest.mark.parametrize(
    ("api_key", "version", "name"),
    [
        (ApiKey.DESCRIBE_ACLS, 1, "DESCRIBE_ACLS (29) version 1"),
        (ApiKey.JOIN_GROUP, 10, "JOIN_GROUP (11) version 10"),
        (ApiKey.PRODUCE, 2, "PRODUCE (0) version 2"),
        (ApiKey.API_VERSIONS, 5, "API_VERSIONS (18) version 5"),
        (ApiKey.FETCH, 3, "FETCH (1) version 3"),
        (ApiKey.FETCH, 18, "FETCH (1) version 18"),
        (ApiKey.METADATA, -1, "METADATA (3) version -1"),
        (1234, 0, "API key 1234 version 0"),
        (-1, 0, "API key -1 version 0"),
    ],
)
def test_what_is_not_served_is_named(api_key: int, version: int, name: str) -> None:
    start = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedApi) as caught:
        parse_request_header(start + b"\0\0\0\x07\xff\xff")
    error = caught.value
    assert str(error) == f"{name} is not served"
    assert (error.api_key, error.api_version, error.correlation_id) == (api_key, version, 7)


def test_an_api_that_is_switched_off_is_not_decoded() -> None:
    frame = encode_request(ApiKey.JOIN_GROUP, 9, 7, "c", JoinGroupRequest(group_id="g"))[4:]
    assert decode_request(frame, served_apis(classic=True))[1].group_id == "g"
    for decode in (decode_request, parse_request_header):
        with pytest.raises(UnsupportedApi, match=r"JOIN_GROUP \(11\) version 9 is not served"):
            decode(frame, served_apis())


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0\x12\0\0\0\0\0\x01\0",
        b"\0\x12\0\0\0\0\0\x01\0\x05abc",
        b"\0\x12\0\0\0\0\0\x01\0\x02\xff\xff",
        b"\0\x12\0\x03\0\0\0\x01\0\x01a",
        b"\0\x12\0\x03\0\0\0\x01\0\x01a\x01\x05\x09",
        b"\0\x12\0\x03\0\0\0\x01\0\x01a" + b"\xff" * 6,
    ],
)
def test_bad_headers_are_refused(payload: bytes) -> None:
    with pytest.raises(MalformedFrame, match="request header"):
        parse_request_header(payload)


@pytest.mark.parametrize(
    ("message", "version", "field"),
    [
        (ConsumerGroupHeartbeatRequest(member_epoch=2**31), 1, "member_epoch"),
        (ConsumerGroupHeartbeatRequest(group_id="\ud800"), 1, "group_id"),
        (OffsetCommitRequest(group_id="x" * 32768), 2, "group_id"),
        (OffsetFetchRequest(topics=None), 1, "topics"),
        (OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="\udcff")]), 3, "topics[].name"),
    ],
)
def test_what_the_wire_cannot_carry_is_named(message: Any, version: int, field: str) -> None:
    with pytest.raises(Unencodable) as caught:
        encoder(type(message), version)(message, bytearray())
    assert caught.value.field == f"{type(message).__name__} v{version} {field}"


def test_versions_that_are_not_served_have_no_codec() -> None:
    for codec in (decoder, encoder):
        with pytest.raises(ValueError, match="ConsumerGroupHeartbeatRequest has no version 2"):
            codec(ConsumerGroupHeartbeatRequest, 2)


def test_fields_that_a_version_lacks_have_defaults() -> None:
    data = encode_request(68, 0, 1, None, ConsumerGroupHeartbeatRequest(subscribed_topic_regex="a.*"))
    assert decode_request(data[4:])[1].subscribed_topic_regex is None


def test_version_ranges() -> None:
    assert version_range("3-5") == range(3, 6)
    assert version_range("4") == range(4, 5)
    assert 32767 in version_range("4+")
    assert not version_range(None)


def test_varints() -> None:
    assert [uvarint(value).hex() for value in (0, 127, 128, 300, 2**32 - 1)] == [
        "00",
        "7f",
        "8001",
        "ac02",
        "ffffffff0f",
    ]


def test_the_served_list_is_the_promised_one() -> None:
    promised = {
        "API_VERSIONS": (0, 4),
        "METADATA": (0, 13),
        "FIND_COORDINATOR": (0, 6),
        "CONSUMER_GROUP_HEARTBEAT": (0, 1),
        "CONSUMER_GROUP_DESCRIBE": (0, 1),
        "OFFSET_COMMIT": (2, 10),
        "OFFSET_FETCH": (1, 10),
        "LIST_GROUPS": (0, 5),
        "DESCRIBE_GROUPS": (0, 6),
        "DELETE_GROUPS": (0, 2),
        "OFFSET_DELETE": (0, 0),
        "LEAVE_GROUP": (0, 5),
        "CREATE_TOPICS": (2, 7),
        "CREATE_PARTITIONS": (0, 3),
        "DELETE_TOPICS": (1, 6),
        "DESCRIBE_CONFIGS": (1, 4),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "LIST_CONFIG_RESOURCES": (0, 1),
        "DESCRIBE_TOPIC_PARTITIONS": (0, 0),
        "DESCRIBE_CLUSTER": (0, 2),
        "LIST_OFFSETS": (1, 10),
        "FETCH": (4, 17),
        "PRODUCE": (3, 13),
        "EXTENDED_CONSUMER_GROUP_HEARTBEAT": (0, 1),
        "CONSUMER_GROUP_PREPARE_ASSIGNMENT": (0, 0),
        "CONSUMER_GROUP_INSTALL_ASSIGNMENT": (0, 0),
    }
    served = served_apis()
    assert {key.name: versions for key, versions in API_VERSIONS.items() if key in served} == promised
    assert api_name(ApiKey.FETCH) == "FETCH (1)"


@pytest.mark.parametrize(
    ("features", "promised"),
    [
        (("classic",), {"JOIN_GROUP": (0, 9), "SYNC_GROUP": (0, 5), "HEARTBEAT": (0, 4)}),
        (("log",), {"INIT_PRODUCER_ID": (0, 5), "DELETE_RECORDS": (0, 2)}),
        (
            ("transactions",),
            {
                "INIT_PRODUCER_ID": (0, 5),
                "ADD_PARTITIONS_TO_TXN": (0, 3),
                "ADD_OFFSETS_TO_TXN": (0, 4),
                "TXN_OFFSET_COMMIT": (0, 4),
                "END_TXN": (0, 4),
            },
        ),
    ],
)
def test_a_feature_adds_its_apis(features: tuple[str, ...], promised: dict[str, tuple[int, int]]) -> None:
    more = served_apis(**dict.fromkeys(features, True)) - served_apis()
    assert {key.name: API_VERSIONS[key] for key in more} == promised


def test_all_features_serve_every_api_but_those_of_clients() -> None:
    assert served_apis(classic=True, log=True, transactions=True) == set(API_VERSIONS) - CLIENT_APIS


def test_start_up_loads_no_messages() -> None:
    """Messages are imported, and their codecs written, when an API is first used."""
    script = (
        "import sys, wire.protocol, wire.refusals, wire.framing\n"
        "print([name for name in sys.modules if 'wire.messages' in name])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
