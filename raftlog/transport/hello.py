"""A node's hello when a connection opens, and the frames of a handshake.

    frame   u32 length of the rest, u8 kind, body        (little endian; at most 4 KiB)
    HELLO   magic, u16 protocol version, msgpack list    (fields are only appended)
    PROOF   32 bytes, see `handshake`
    REFUSED one byte: the reason, so that both sides can log it; a proof, once both hellos are known

Invariants: any bytes decode to a hello or are refused; nothing longer than a frame is kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack

from raftlog.transport.contract import SelfDescription
from raftlog.transport.refusals import HelloRefusal, HelloRefused

PROTOCOL_VERSION: Final = 1
HELLO_BYTES_MAX: Final = 4096
"""At most this many bytes: twenty short fields and nine node ids take 400, but host names may be long."""

NONCE_BYTES: Final = 32

_MAGIC: Final = b"QUORATE-PEER"
_FRAME = struct.Struct("<IB")
_VERSION = struct.Struct("<H")


class HelloFrame(IntEnum):
    """The kinds of frames before the session."""

    HELLO = 1
    PROOF = 2
    REFUSED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A node's claims about itself, not believed before its proof."""

    cluster_id: str
    node_id: int
    to_node_id: int
    """The node that the sender means to talk to; reveals mixed-up addresses."""
    num_shards: int
    voters: tuple[int, ...]
    incarnation: str
    is_replacement: bool
    boot_id: str
    previous_boot_id: str
    attempt: int
    """Counts the dials of one boot, so that the later of two connections wins; 0 from an acceptor."""
    description: SelfDescription
    nonce: bytes
    starting_level: int = 1
    """That of the sender's directory (`NodeIdentity`); 1 from an older release."""


_FIELD_TYPES: Final = (
    *(str, int, int, int, list, str, bool, str, str, int),
    *(str, str, int, str, int, int, int),
    bytes,
)
_DESCRIPTION_AT: Final = 10
_NONCE_AT: Final = 17

LINEAGE_PORTS_MAX: Final = 8
"""At most this many ports of older group protocols; there are two."""


def _pack_description(of: SelfDescription) -> list[object]:
    """The fields of a description that every release sends, in the order in which they travel."""
    return [
        *(of.release, of.kafka_host, of.kafka_port, of.http_host, of.http_port),
        *(of.format_level_max, of.format_level),
    ]


def pack_description(of: SelfDescription) -> bytes:
    """Encode a description that is sent within a session."""
    packed: bytes = msgpack.packb([*_pack_description(of), of.lineage_ports])
    return packed


def _description(fields: list[Any], appended: list[Any]) -> SelfDescription:
    """Read a description; `appended` are the fields that an older release lacks.  Raises ValueError."""
    release, kafka_host, kafka_port, http_host, http_port, format_level_max, format_level = fields
    lineage_ports = appended[0] if appended else []
    if not isinstance(lineage_ports, list) or len(lineage_ports) > LINEAGE_PORTS_MAX:
        raise ValueError("the ports of older protocols are no short list")
    ports = (kafka_port, http_port, *lineage_ports)
    if not all(type(port) is int and 0 <= port < 1 << 16 for port in ports):
        raise ValueError("an advertised port is out of range")
    return SelfDescription(
        release=release,
        kafka_host=kafka_host,
        kafka_port=kafka_port,
        http_host=http_host,
        http_port=http_port,
        format_level_max=format_level_max,
        format_level=format_level,
        lineage_ports=tuple(lineage_ports),
    )


def unpack_description(data: bytes) -> SelfDescription:
    """Decode a description that arrived within a session; raises ValueError."""
    return _description(*_unpack(data, _FIELD_TYPES[_DESCRIPTION_AT:_NONCE_AT]))


def encode_hello(hello: Hello) -> bytes:
    """The body of a HELLO frame."""
    fields = [
        *(hello.cluster_id, hello.node_id, hello.to_node_id, hello.num_shards, hello.voters),
        *(hello.incarnation, hello.is_replacement, hello.boot_id, hello.previous_boot_id, hello.attempt),
        *_pack_description(hello.description),
        hello.nonce,
        hello.description.lineage_ports,
        hello.starting_level,
    ]
    packed: bytes = msgpack.packb(fields)
    return _MAGIC + _VERSION.pack(PROTOCOL_VERSION) + packed


def decode_hello(body: bytes) -> Hello:
    """Decode the body of a HELLO frame; raises HelloRefused: MALFORMED or PROTOCOL."""
    start = len(_MAGIC) + _VERSION.size
    if len(body) < start or not body.startswith(_MAGIC):
        raise HelloRefused(
            HelloRefusal.MALFORMED, "is not a Quorate node: its first bytes are of another protocol"
        )
    (version,) = _VERSION.unpack_from(body, len(_MAGIC))
    if version != PROTOCOL_VERSION:
        raise HelloRefused(
            HelloRefusal.PROTOCOL,
            f"speaks version {version} of the peer protocol, but this release speaks version "
            f"{PROTOCOL_VERSION}; run releases that are closer to each other",
        )
    try:
        fields, appended = _unpack(body[start:], _FIELD_TYPES)
        if not all(type(voter) is int for voter in fields[4]) or len(fields[_NONCE_AT]) != NONCE_BYTES:
            raise ValueError("a field of its hello has the wrong type")
        description = _description(fields[_DESCRIPTION_AT:_NONCE_AT], appended)
        (starting_level,) = appended[1:2] or (1,)
        if type(starting_level) is not int:
            raise ValueError("its starting level is not an int")
    except ValueError as error:
        raise HelloRefused(HelloRefusal.MALFORMED, f"sent a hello that cannot be read: {error}") from None
    return Hello(
        cluster_id=fields[0],
        node_id=fields[1],
        to_node_id=fields[2],
        num_shards=fields[3],
        voters=tuple(fields[4]),
        incarnation=fields[5],
        is_replacement=fields[6],
        boot_id=fields[7],
        previous_boot_id=fields[8],
        attempt=fields[9],
        description=description,
        nonce=fields[_NONCE_AT],
        starting_level=starting_level,
    )


def _unpack(data: bytes, types: tuple[type, ...]) -> tuple[list[Any], list[Any]]:
    """Decode a list that begins with values of `types`; return these, and what was appended since.

    Raises ValueError."""
    try:
        fields = msgpack.unpackb(data, use_list=True)
    except Exception as error:  # msgpack's errors have no common base beside this one
        raise ValueError(f"not msgpack ({type(error).__name__})") from None
    if not isinstance(fields, list) or len(fields) < len(types):
        raise ValueError(f"not a list of {len(types)} fields")
    for number, (field, expected) in enumerate(zip(fields, types, strict=False)):
        if type(field) is not expected:
            raise ValueError(f"field {number} is not a {expected.__name__}")
    return fields[: len(types)], fields[len(types) :]


def frame(kind: HelloFrame, body: bytes) -> bytes:
    """A frame of the handshake."""
    return _FRAME.pack(len(body) + 1, kind) + body


def take_frame(buffer: bytearray) -> tuple[int, bytes] | None:
    """Remove and return the first whole frame (kind, body); raises HelloRefused if the bytes cannot become
    one."""
    if len(buffer) < _FRAME.size:
        return None
    length, kind = _FRAME.unpack_from(buffer)
    if not 1 <= length <= HELLO_BYTES_MAX:
        raise HelloRefused(
            HelloRefusal.MALFORMED, "is not a Quorate node: its first bytes are of another protocol"
        )
    if len(buffer) < _FRAME.size - 1 + length:
        return None
    body = bytes(buffer[_FRAME.size : _FRAME.size - 1 + length])
    del buffer[: _FRAME.size - 1 + length]
    return kind, body
