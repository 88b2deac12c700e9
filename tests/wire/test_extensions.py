"""The private APIs, byte by byte: nobody else implements them, so the bytes are written out by hand.

docs/protocol-extensions.md shows the same exchange; a test keeps the two equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import consumer_group_install_assignment as install
from wire.messages import consumer_group_prepare_assignment as prepare
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import TopicPartitions
from wire.protocol import decode_request, decode_response, encode_request, encode_response

T = bytes(range(16))
TOPIC = "000102030405060708090a0b0c0d0e0f"
DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol-extensions.md"

HEARTBEAT = extended.ExtendedConsumerGroupHeartbeatRequest(
    group_id="g",
    member_id="m1",
    rebalance_timeout_ms=60_000,
    subscribed_topic_names=["orders"],
    client_assignors=[
        extended.Assignor(
            name="warm", minimum_version=1, maximum_version=2, metadata_version=2, metadata_bytes=b"\x0a"
        )
    ],
    topic_partitions=[],
)
TOLD_TO_COMPUTE = extended.ExtendedConsumerGroupHeartbeatResponse(
    member_id="m1",
    member_epoch=1,
    should_compute_assignment=True,
    heartbeat_interval_ms=1_000,
    assignment=extended.Assignment(metadata_version=-1),
)
PREPARE = prepare.ConsumerGroupPrepareAssignmentRequest(group_id="g", member_id="m1", member_epoch=1)
PREPARED = prepare.ConsumerGroupPrepareAssignmentResponse(
    group_epoch=2,
    assignor_name="warm",
    assignor_version=2,
    members=[
        prepare.Member(
            member_id="m1",
            member_epoch=1,
            subscribed_topic_ids=[T],
            metadata_version=2,
            metadata_bytes=b"\x0a",
        )
    ],
    topics=[prepare.Topic(topic_id=T, topic_name="orders", num_partitions=2)],
)
INSTALL = install.ConsumerGroupInstallAssignmentRequest(
    group_id="g",
    member_id="m1",
    member_epoch=1,
    group_epoch=2,
    members=[
        install.Member(
            member_id="m1",
            topic_partitions=[TopicPartitions(topic_id=T, partitions=[0, 1])],
            metadata_version=2,
            metadata_bytes=b"\xff",
        )
    ],
)
INSTALLED = install.ConsumerGroupInstallAssignmentResponse()
GIVEN = extended.ExtendedConsumerGroupHeartbeatResponse(
    member_id="m1",
    member_epoch=2,
    heartbeat_interval_ms=1_000,
    assignment=extended.Assignment(
        assigned_topic_partitions=[extended.AssignedTopicPartitions(topic_id=T, partitions=[0])],
        pending_topic_partitions=[TopicPartitions(topic_id=T, partitions=[1])],
        metadata_version=2,
        metadata_bytes=b"\xff",
    ),
)

NONE = "00000000 0000 00"  # throttled for 0 ms, error 0, no message
ONE_MEMBER = "03 6d31"  # "m1"

EXCHANGE: list[tuple[int, bool, Any, str]] = [
    (
        20_068,
        True,
        HEARTBEAT,
        (
            f"4e64 0000 00000001 0007 71756f72617465 00  02 67  {ONE_MEMBER}  00000000  00  00  0000ea60  "
            "02 07 6f7264657273  00  00  02 05 7761726d 0001 0002 00 0002 02 0a 00  01  00"
        ),
    ),
    (
        20_068,
        False,
        TOLD_TO_COMPUTE,
        f"00000001 00  {NONE}  {ONE_MEMBER}  00000001  01  000003e8  01 00 01 01 ffff 01 00  00",
    ),
    (20_101, True, PREPARE, f"4e85 0000 00000002 0007 71756f72617465 00  02 67  {ONE_MEMBER}  00000001  00"),
    (
        20_101,
        False,
        PREPARED,
        (
            f"00000002 00  {NONE}  00000002  05 7761726d  0002  02 {ONE_MEMBER} 00000001 00 00 02 {TOPIC} "
            f"00 0002 02 0a 01 00  02 {TOPIC} 07 6f7264657273 00000002 00  00"
        ),
    ),
    (
        20_102,
        True,
        INSTALL,
        (
            f"4e86 0000 00000003 0007 71756f72617465 00  02 67  {ONE_MEMBER}  00000001  00000002  "
            f"02 {ONE_MEMBER} 00 02 {TOPIC} 03 00000000 00000001 00 0002 02 ff 00  00"
        ),
    ),
    (20_102, False, INSTALLED, f"00000003 00  {NONE}  00"),
    (
        20_068,
        False,
        GIVEN,
        (
            f"00000004 00  {NONE}  {ONE_MEMBER}  00000002  00  000003e8  "
            f"01 00 02 {TOPIC} 02 00000000 00 02 {TOPIC} 02 00000001 00 0002 02 ff 00  00"
        ),
    ),
]


@pytest.mark.parametrize(("api_key", "is_request", "body", "written"), EXCHANGE)
def test_the_exchange_in_bytes(api_key: int, is_request: bool, body: Any, written: str) -> None:
    payload = bytes.fromhex(written)
    length = len(payload).to_bytes(4, "big")
    if is_request:
        header, decoded = decode_request(payload)
        assert (header.api_key, header.client_id, decoded) == (api_key, "quorate", body)
        assert encode_request(api_key, 0, header.correlation_id, "quorate", body) == length + payload
    else:
        correlation_id, decoded = decode_response(api_key, 0, payload)
        assert decoded == body
        assert encode_response(api_key, 0, correlation_id, body) == length + payload


def test_fencing_tokens_are_added_in_version_1() -> None:
    asked = extended.ExtendedConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", fencing_tokens=True)
    request = encode_request(20_068, 1, 1, None, asked)
    assert request.endswith(b"\1\0")  # true, no tags
    assert decode_request(request[4:])[1] == asked
    partitions = extended.AssignedTopicPartitions(topic_id=T, partitions=[0, 3], fencing_tokens=[7, -1])
    given = extended.ExtendedConsumerGroupHeartbeatResponse(
        assignment=extended.Assignment(assigned_topic_partitions=[partitions])
    )
    response = encode_response(20_068, 1, 1, given)
    assert bytes.fromhex("03 0000000000000007 ffffffffffffffff") in response
    assert decode_response(20_068, 1, response[4:])[1] == given


def test_the_document_shows_the_same_bytes() -> None:
    shown = "".join(DOCUMENT.read_text().split())
    for _, _, _, written in EXCHANGE:
        assert "".join(written.split()) in shown


def test_the_numbers_are_the_documented_ones() -> None:
    text = DOCUMENT.read_text()
    for key in ApiKey:
        if key >= 20_000:
            assert f"| {int(key)} | {key.name} |" in text
    assert f"INVALID_ASSIGNMENT ({int(ErrorCode.INVALID_ASSIGNMENT)})" in text
