"""Seed 000's requests and responses as bytes, with Kafka's framing and version 1 of its request header.

The numbers of the APIs are Kafka's, but the messages are not: JoinGroup lists topics and gets partitions.
JoinGroup's version 0 is the text's. Version 1 appends fixed partitions, which a question under the text finds
missing. The text has no OffsetCommitResponse; Kafka's is used.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError

from wire.decoding import ELEMENTS_MAX, decoder
from wire.encoding import encoder
from wire.errors import MalformedFrame, UnsupportedApi
from wire.protocol import RequestHeader
from wire.schema import Message, array_of, int16, int32, int64, message, nested, string, struct_of


class RewriteApi(IntEnum):
    """The requests of the protocol, with Kafka's numbers."""

    OFFSET_COMMIT = 8
    CONSUMER_METADATA = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12


@message(versions="0")
class ConsumerMetadataRequest(Message):
    group_id: str = string("0+")


@nested
class RewriteBroker(Message):
    node_id: int = int32("0+", default=-1)
    host: str = string("0+")
    port: int = int32("0+", default=-1)


@message(versions="0")
class ConsumerMetadataResponse(Message):
    error_code: int = int16("0+")
    coordinator: RewriteBroker = struct_of(RewriteBroker, "0+")


@nested
class TopicNumbers(Message):
    """Partitions of one topic."""

    topic: str = string("0+")
    partitions: list[int] = array_of(int32, "0+")


@message(versions="0-1")
class JoinGroupRequest(Message):
    group_id: str = string("0+")
    session_timeout: int = int32("0+")
    topics: list[str] = array_of(string, "0+")
    consumer_id: str = string("0+")
    partition_assignment_strategy: str = string("0+")
    partitions: list[TopicNumbers] = array_of(TopicNumbers, "1+")


@message(versions="0-1")
class JoinGroupResponse(Message):
    error_code: int = int16("0+")
    group_generation_id: int = int32("0+", default=-1)
    consumer_id: str = string("0+")
    partitions_to_own: list[TopicNumbers] = array_of(TopicNumbers, "0+")


@message(versions="0")
class HeartbeatRequest(Message):
    group_id: str = string("0+")
    group_generation_id: int = int32("0+")
    consumer_id: str = string("0+")


@message(versions="0")
class HeartbeatResponse(Message):
    error_code: int = int16("0+")


@nested
class CommitPartition(Message):
    partition: int = int32("0+")
    offset: int = int64("0+")
    timestamp: int = int64("0+", default=-1)
    metadata: str | None = string("0+", nullable="0+")


@nested
class CommitTopic(Message):
    topic: str = string("0+")
    partitions: list[CommitPartition] = array_of(CommitPartition, "0+")


@message(versions="1")
class OffsetCommitRequest(Message):
    group_id: str = string("0+")
    group_generation_id: int = int32("0+")
    consumer_id: str = string("0+")
    topics: list[CommitTopic] = array_of(CommitTopic, "0+")


@nested
class CommittedPartition(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")


@nested
class CommittedTopic(Message):
    topic: str = string("0+")
    partitions: list[CommittedPartition] = array_of(CommittedPartition, "0+")


@message(versions="1")
class OffsetCommitResponse(Message):
    topics: list[CommittedTopic] = array_of(CommittedTopic, "0+")


def committed_with(request: OffsetCommitRequest, error_code: int) -> OffsetCommitResponse:
    """The answer that has one error code for every partition."""
    return OffsetCommitResponse(
        topics=[
            CommittedTopic(
                topic=topic.topic,
                partitions=[
                    CommittedPartition(partition=one.partition, error_code=error_code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_CLASSES: dict[int, tuple[type[Message], type[Message], range]] = {
    RewriteApi.OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse, range(1, 2)),
    RewriteApi.CONSUMER_METADATA: (ConsumerMetadataRequest, ConsumerMetadataResponse, range(1)),
    RewriteApi.JOIN_GROUP: (JoinGroupRequest, JoinGroupResponse, range(2)),
    RewriteApi.HEARTBEAT: (HeartbeatRequest, HeartbeatResponse, range(1)),
}
"""API → request, response, versions."""

_API_OF = {request: api for api, (request, _, _) in _CLASSES.items()}
_start = Struct(">hhih")
_length = Struct(">i")
_response_start = Struct(">ii")


def decode_request(payload: bytes) -> tuple[RequestHeader, Message]:
    """Decode a request frame without its length.

    Raises MalformedFrame, or UnsupportedApi for an API or a version that the protocol lacks."""
    try:
        key, version, correlation_id, length = _start.unpack_from(payload)
    except StructError:
        raise MalformedFrame("request header", f"only {len(payload)} bytes") from None
    if key not in _CLASSES or version not in _CLASSES[key][2]:
        raise UnsupportedApi(key, version, correlation_id, f"API {key} version {version} is not served")
    end = _start.size + max(length, 0)
    if end > len(payload):
        raise MalformedFrame("client_id", f"length {length} exceeds the bytes that remain")
    try:
        client_id = payload[_start.size : end].decode() if length >= 0 else None
    except UnicodeDecodeError as error:
        raise MalformedFrame("client_id", str(error)) from None
    decode = decoder(_CLASSES[key][0], version, exact=True, bounded=len(payload) > ELEMENTS_MAX)
    body: Message = decode(payload, end)
    return RequestHeader(key, version, correlation_id, client_id, end), body


def encode_request(correlation_id: int, client_id: str, request: Message) -> bytes:
    """Encode a request frame with its length, at the oldest version that has all of it."""
    key = _API_OF[type(request)]
    versions = _CLASSES[key][2]
    has_fixed = isinstance(request, JoinGroupRequest) and bool(request.partitions)
    version = versions[-1] if has_fixed else versions[0]
    name = client_id.encode()
    frame = bytearray(_length.size) + _start.pack(key, version, correlation_id, len(name)) + name
    encoder(type(request), version)(request, frame)
    _length.pack_into(frame, 0, len(frame) - _length.size)
    return bytes(frame)


def encode_response(header: RequestHeader, response: Message) -> bytes:
    """Encode a response frame with its length."""
    frame = bytearray(_response_start.pack(0, header.correlation_id))
    encoder(type(response), header.api_version)(response, frame)
    _length.pack_into(frame, 0, len(frame) - _length.size)
    return bytes(frame)


def decode_response(request: Message, payload: bytes) -> tuple[int, Message]:
    """Decode correlation id and body of the answer to `request`. Raises MalformedFrame."""
    _, response, versions = _CLASSES[_API_OF[type(request)]]
    if len(payload) < _length.size:
        raise MalformedFrame("correlation_id", f"only {len(payload)} bytes")
    (correlation_id,) = _length.unpack_from(payload)
    body: Message = decoder(response, versions[0], exact=True, bounded=False)(payload, _length.size)
    return correlation_id, body
