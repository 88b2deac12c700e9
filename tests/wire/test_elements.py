"""The elements of a request are bounded by number: its bytes do not bound them, as two make a string."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from wire.apis import ApiKey
from wire.decoding import BATCH_ELEMENT_BYTES, ELEMENT_BYTES, ELEMENTS_MAX, TAGS_MAX
from wire.errors import MalformedFrame
from wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.protocol import decode_request, decode_response, encode_request, encode_response


def decoded(api: ApiKey, version: int, body: Any) -> Any:
    return decode_request(encode_request(api, version, 1, "c", body)[4:])[1]


def keys(count: int, name: str = "") -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[name] * count)


def test_small_elements_are_bounded_by_number() -> None:
    assert decoded(ApiKey.FIND_COORDINATOR, 4, keys(ELEMENTS_MAX)) == keys(ELEMENTS_MAX)
    with pytest.raises(MalformedFrame, match=f"coordinator_keys: {ELEMENTS_MAX + 1} elements"):
        decoded(ApiKey.FIND_COORDINATOR, 4, keys(ELEMENTS_MAX + 1))


def test_record_batches_are_bounded_by_what_they_take_at_least() -> None:
    def produced(size: int, count: int) -> ProduceRequest:
        data = [PartitionProduceData(index=0, records=b"x" * size)] * count
        return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)])

    decoded(ApiKey.PRODUCE, 9, produced(1, ELEMENTS_MAX - 1))
    decoded(ApiKey.PRODUCE, 9, produced(BATCH_ELEMENT_BYTES, ELEMENTS_MAX + 1))
    with pytest.raises(MalformedFrame, match="partition_data: 40001 elements"):
        decoded(ApiKey.PRODUCE, 9, produced(BATCH_ELEMENT_BYTES // 2, ELEMENTS_MAX))


def test_large_ones_are_bounded_by_the_frame() -> None:
    many = keys(ELEMENTS_MAX + 1, "k" * ELEMENT_BYTES)
    assert decoded(ApiKey.FIND_COORDINATOR, 4, many) == many


@pytest.mark.parametrize("version", [5, 6])
def test_those_within_others_count_together(version: int) -> None:
    config = CreatableTopicConfig(name="x", value="y")
    topics = [CreatableTopic(name="t", configs=[config] * (ELEMENTS_MAX // 40)) for _ in range(41)]
    decoded(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=topics[:39]))
    with pytest.raises(MalformedFrame, match="configs"):
        decoded(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=topics))


def test_numbers_cost_nothing_and_do_not_count() -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0] * 5 * ELEMENTS_MAX)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    assert decoded(ApiKey.OFFSET_FETCH, 8, request) == request


def test_the_largest_commit_of_a_client_is_none_too_many() -> None:
    """Forty thousand partitions, with metadata as Kafka's own client has it."""
    row = OffsetCommitRequestPartition(partition_index=1, committed_offset=5, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=f"topic-{n}", partitions=[row] * 1_000) for n in range(39)]
    request = OffsetCommitRequest(group_id="g", topics=topics)
    assert decoded(ApiKey.OFFSET_COMMIT, 9, request) == request


def test_answers_may_have_any_number() -> None:
    brokers = [MetadataResponseBroker(node_id=1, host="", port=1)] * (ELEMENTS_MAX + 1)
    frame = encode_response(ApiKey.METADATA, 12, 1, MetadataResponse(brokers=brokers))
    assert len(decode_response(ApiKey.METADATA, 12, frame[4:])[1].brokers) == ELEMENTS_MAX + 1


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def tagged(in_header: int, in_body: int) -> bytes:
    """A Metadata request for no topic, with unknown tagged fields."""
    header = struct.pack(">hhih", ApiKey.METADATA, 9, 1, 1) + b"c"
    header += varint(in_header) + b"\x01\x00" * in_header
    return header + b"\x01\x00\x00\x00" + varint(in_body) + b"\x01\x00" * in_body


@pytest.mark.parametrize("where", [0, 1], ids=["header", "body"])
def test_unknown_tagged_fields_are_bounded(where: int) -> None:
    some, too_many = [0, 0], [0, 0]
    some[where], too_many[where] = TAGS_MAX, TAGS_MAX + 1
    assert decode_request(tagged(*some))[1].topics == []
    with pytest.raises(MalformedFrame, match="unknown tagged fields"):
        decode_request(tagged(*too_many))
