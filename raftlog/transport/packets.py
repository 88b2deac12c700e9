"""Packets of a session: messages of all shards to one peer, framed, numbered and sealed.

    packet   u32 bytes of the body, 16 bytes MAC, body           (little endian; body at most 32 MiB)
    MAC      keyed BLAKE2b over the packet's number (u64) and the body; each direction has its own key
    body     messages: i32 shard or control kind, u32 bytes, the bytes

Invariants: nothing of a packet is delivered before its MAC is verified, so one that is forged, cut,
repeated or out of order ends the connection; no more than one packet is ever buffered.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterator
from typing import Final

PACKET_BYTES_MAX: Final = 32 << 20
"""At most this many bytes per packet: twice the largest entry; a chunk of a snapshot is far smaller."""

MAC_BYTES: Final = 16
MESSAGE_HEAD = struct.Struct("<iI")

_LENGTH = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_HEAD_BYTES: Final = _LENGTH.size + MAC_BYTES

PAYLOAD_BYTES_MAX: Final = PACKET_BYTES_MAX - MESSAGE_HEAD.size


class BadPacket(Exception):
    """The bytes are not what the peer of this session sent; the connection cannot go on."""


class Sealer:
    """Makes the heads of outgoing packets."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
        self._number = 0

    def head(self, *parts: bytes) -> bytes:
        """The bytes in front of a packet whose body is `parts`, one after another."""
        mac = self._keyed.copy()
        mac.update(_NUMBER.pack(self._number))
        self._number += 1
        length = 0
        for part in parts:
            mac.update(part)
            length += len(part)
        return _LENGTH.pack(length) + mac.digest()


class Opener:
    """Turns incoming bytes, however they are split, into messages."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)
        self._number = 0
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(shard or control kind, payload) of every packet that is complete now; raises BadPacket.

        The iterator must be exhausted, unless the connection ends.
        """
        whole: bytes | bytearray = data
        if self._rest:
            self._rest += data
            whole = self._rest
        position = 0
        view = memoryview(whole)
        try:
            while len(view) - position >= _HEAD_BYTES:
                (length,) = _LENGTH.unpack_from(view, position)
                if length > PACKET_BYTES_MAX:
                    raise BadPacket(f"a packet of {length} bytes; the maximum is {PACKET_BYTES_MAX}")
                end = position + _HEAD_BYTES + length
                if end > len(view):
                    break
                yield from self._messages(view[position:end])
                position = end
        finally:
            view.release()
        if whole is self._rest:
            del self._rest[:position]
        elif position < len(data):
            self._rest += data[position:] if position else data

    def _messages(self, packet: memoryview) -> Iterator[tuple[int, bytes]]:
        body = packet[_HEAD_BYTES:]
        mac = self._keyed.copy()
        mac.update(_NUMBER.pack(self._number))
        mac.update(body)
        if not hmac.compare_digest(mac.digest(), packet[_LENGTH.size : _HEAD_BYTES]):
            raise BadPacket(f"the MAC of packet {self._number} does not match")
        self._number += 1
        position, end = 0, len(body)
        while position < end:
            if end - position < MESSAGE_HEAD.size:
                raise BadPacket("a message is truncated")
            kind, length = MESSAGE_HEAD.unpack_from(body, position)
            position += MESSAGE_HEAD.size
            if length > end - position:
                raise BadPacket("a message is longer than its packet")
            yield kind, bytes(body[position : position + length])
            position += length
