"""The push protocol's messages: schemas, framing and bounds (seed 004).

A frame is a four-byte size, which does not count itself, and that many bytes. Requests begin with their type;
answers have neither type nor number, so they are matched with requests by their order on the connection. Our
names: the seed's "ConnectRequest" is Register, its "PintResponse" PingResponse. Its lookup request was elided
and is {size, request_type_id, group_id} here.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, TypeVar

from wire.decoding import decoder
from wire.encoding import encoder
from wire.errors import ErrorCode, MalformedFrame
from wire.schema import Message, array_of, boolean, int16, int32, int64, message, nested, string

FRAME_BYTES_MAX = 4 << 20
"""Bytes of a frame: enough for the most partitions with the longest names."""
TEXT_BYTES_MAX = 249
"""Bytes of any string: the longest name of a topic in Kafka."""
ELEMENTS_MAX = 10_000
"""Elements of any array: partitions of one consumer, brokers of a cluster."""
I16_MAX = 32_767
PING_INTERVAL_MS = range(10, 3_600_001)
PING_RETRIES = range(101)

_type_id = Struct(">h")
_length = Struct(">i")


class RequestType(IntEnum):
    """Types of the first request on a connection. 8 is left to OffsetCommit, whose header begins with it."""

    REGISTER = 0
    LOOKUP = 1


class CommandType(IntEnum):
    """Types of the coordinator's requests."""

    PING = 0
    STOP = 1
    START = 2


@message(versions="0")
class LookupRequest(Message):
    request_type_id: int = int16("0", default=RequestType.LOOKUP)
    group_id: str = string("0")


@nested
class Broker(Message):
    creator_id: str = string("0")
    id: int = int32("0")
    host: str = string("0")
    port: int = int32("0")


@message(versions="0")
class LookupResponse(Message):
    error_code: int = int16("0")
    coordinator_id: int = int16("0", default=-1)
    brokers_info: list[Broker] = array_of(Broker, "0")


@message(versions="0")
class RegisterRequest(Message):
    """Register: no response; the consumer expects Stop or Ping within `ping_interval_ms`."""

    request_type_id: int = int16("0", default=RequestType.REGISTER)
    group_id: str = string("0")
    consumer_id: str = string("0")
    auto_commit: bool = boolean("0")
    auto_offset_reset: str = string("0", default="smallest")
    ping_interval_ms: int = int32("0", default=3_000)
    max_ping_retries: int = int16("0", default=3)


@message(versions="0")
class PingRequest(Message):
    request_type_id: int = int16("0", default=CommandType.PING)
    num_retries: int = int16("0")


@nested
class PartitionOffset(Message):
    """A partition with an offset; -1 in Start: none is committed. For `partition` see `partition_name`."""

    topic: str = string("0+")
    partition: str = string("0+")
    offset: int = int64("0+", default=-1)


@message(versions="0-1")
class PingResponse(Message):
    """The answer to Ping. Version 1 is that of consumers with auto_commit: only it has `offset_info`."""

    num_partition: int = int16("0+")
    offset_info: list[PartitionOffset] = array_of(PartitionOffset, "1+")


@message(versions="0")
class StopRequest(Message):
    request_type_id: int = int16("0", default=CommandType.STOP)


@message(versions="0")
class StartRequest(Message):
    request_type_id: int = int16("0", default=CommandType.START)
    assigned_parts: list[PartitionOffset] = array_of(PartitionOffset, "0")


@message(versions="0")
class CommandResponse(Message):
    """The answer to Stop and to Start."""

    error_code: int = int16("0")


Request = LookupRequest | RegisterRequest
Command = PingRequest | StopRequest | StartRequest
Answer = PingResponse | CommandResponse

REQUESTS: dict[int, type[Request]] = {
    RequestType.REGISTER: RegisterRequest,
    RequestType.LOOKUP: LookupRequest,
}
COMMANDS: dict[int, type[Command]] = {
    CommandType.PING: PingRequest,
    CommandType.STOP: StopRequest,
    CommandType.START: StartRequest,
}

M = TypeVar("M", bound=Message)


def frame(body: Message, version: int = 0) -> bytes:
    """The frame of a message. Raises wire.errors.Unencodable."""
    buffer = bytearray(_length.size)
    encoder(type(body), version)(body, buffer)
    _length.pack_into(buffer, 0, len(buffer) - _length.size)
    return bytes(buffer)


def decode_request(payload: bytes) -> Request:
    """The request in a frame without its size. Raises MalformedFrame."""
    request = _of_type(REQUESTS, payload)
    if not request.group_id:
        raise MalformedFrame("group_id", "is empty")
    if isinstance(request, RegisterRequest):
        if not request.consumer_id:
            raise MalformedFrame("consumer_id", "is empty")
        if request.auto_offset_reset not in ("smallest", "largest"):
            raise MalformedFrame("auto_offset_reset", "is neither smallest nor largest")
        for name, bounds in (("ping_interval_ms", PING_INTERVAL_MS), ("max_ping_retries", PING_RETRIES)):
            if getattr(request, name) not in bounds:
                raise MalformedFrame(name, f"is not in {bounds.start} to {bounds.stop - 1}")
    return request


def decode_command(payload: bytes) -> Command:
    """The coordinator's request in a frame without its size. Raises MalformedFrame."""
    return _of_type(COMMANDS, payload)


def decode_answer(asked: CommandType, payload: bytes, *, auto_commit: bool) -> Answer:
    """The answer to the oldest request of a connection that is not answered. Raises MalformedFrame."""
    if asked is CommandType.PING:
        return _decode(PingResponse, int(auto_commit), payload)
    return _decode(CommandResponse, 0, payload)


def decode_lookup_response(payload: bytes) -> LookupResponse:
    """The answer to a lookup. Raises MalformedFrame."""
    return _decode(LookupResponse, 0, payload)


def lookup_response(coordinator_id: int | None, brokers: list[Broker]) -> LookupResponse:
    """The answer to a lookup; COORDINATOR_NOT_AVAILABLE if there is none, or its id is no i16."""
    if coordinator_id is None or not 0 <= coordinator_id <= I16_MAX:
        return LookupResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, brokers_info=brokers)
    return LookupResponse(coordinator_id=coordinator_id, brokers_info=brokers)


def check_coordinator_id(broker_id: int) -> None:
    """Raises ValueError for an id that no lookup response can carry."""
    if not 0 <= broker_id <= I16_MAX:
        raise ValueError(
            f"node id {broker_id} does not fit the push protocol, whose coordinator_id is an i16: give the "
            f"node an id from 0 to {I16_MAX}, or leave the push listener off"
        )


def partition_name(broker_id: int, partition: int) -> str:
    """The seed's name of a partition, which "already contains the broker id"."""
    return f"{broker_id}-{partition}"


def partition_number(name: str) -> int:
    """The partition in a name; the broker in it may have changed since. Raises MalformedFrame."""
    broker, _, number = name.partition("-")
    if not (broker.isascii() and broker.isdigit() and number.isascii() and number.isdigit()):
        raise MalformedFrame("partition", "is not a broker id, a hyphen and a number")
    return int(number)


def _of_type(classes: dict[int, type[M]], payload: bytes) -> M:
    try:
        (type_id,) = _type_id.unpack_from(payload)
    except StructError:
        raise MalformedFrame("request_type_id", f"only {len(payload)} bytes") from None
    if type_id not in classes:
        raise MalformedFrame("request_type_id", f"{type_id} is none of {sorted(map(int, classes))}")
    return _decode(classes[type_id], 0, payload)


def _decode(cls: type[M], version: int, payload: bytes) -> M:
    body: M = decoder(cls, version, bounded=True)(payload, 0)
    _check_bounds(body)
    return body


def _check_bounds(body: Message) -> None:
    """Raises MalformedFrame for a string or an array above its bound."""
    for name, _ in body.SCHEMA.fields:
        item: Any = getattr(body, name)
        if isinstance(item, str) and len(item.encode()) > TEXT_BYTES_MAX:
            raise MalformedFrame(name, f"has more than {TEXT_BYTES_MAX} bytes")
        if isinstance(item, list):
            if len(item) > ELEMENTS_MAX:
                raise MalformedFrame(name, f"has more than {ELEMENTS_MAX} elements")
            for element in item:
                _check_bounds(element)
