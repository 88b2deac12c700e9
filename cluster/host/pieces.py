"""A child's request and answer in pieces, so that neither keeps the loop waiting.

msgpack encodes and decodes in one call, and no other thread runs meanwhile: 8 MiB of the smallest values take
85 ms to decode, the request about a group of a million partitions 20 ms to encode. The request is one value
to the child, which may take its time; here it is encoded a few elements at a time. An answer longer than
`PIECE_BYTES_MAX` comes as pieces that are decoded one by one, milliseconds each.

    a short answer      msgpack
    a long one          b"\\xc1" (which no msgpack begins with), then pieces: kind u8, length u32, payload
        LEAF            payload: any value
        LIST, MAP       payload: how many runs follow, each a list or a map; together they are the value
        ITEM            no payload; the next value is the one item of a list
        PAIR            payload: a key; the next value is the one under it in a map of one

Invariants, even of a malformed answer: no piece is longer than `PIECE_BYTES_MAX`, no map larger than
`KEYS_MAX`, nothing nested deeper than `DEPTH_MAX`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, Final

import msgpack

PIECE_BYTES_MAX: Final = 256 * 1024
"""Bytes of an answer that are decoded at once: 3 ms at worst."""

DEPTH_MAX: Final = 16
"""Depth to which long lists and maps may be nested; answers need three."""

KEYS_MAX: Final = 500_000
"""Keys of a map, far more than a group has members: growing a map is a single call too."""

ELEMENTS_AT_ONCE: Final = 4_000
"""Elements of a request that are encoded at once: some 0.1 ms."""

_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
_IN_PIECES: Final = b"\xc1"
_HEAD: Final = struct.Struct("<BI")


class _Kind(IntEnum):
    LEAF = 0
    LIST = 1
    MAP = 2
    ITEM = 3
    PAIR = 4


def parts(question: object) -> Iterator[bytes]:
    """Yield `msgpack.packb(question)` in parts; on a thread, which lets others run between them."""
    return _parts(question, msgpack.Packer())


def _parts(value: Any, packer: msgpack.Packer) -> Iterator[bytes]:
    if _weight(value) <= ELEMENTS_AT_ONCE:
        yield packer.pack(value)
    elif isinstance(value, dict):
        yield packer.pack_map_header(len(value))
        for key, item in value.items():
            yield packer.pack(key)
            yield from _parts(item, packer)
    else:
        yield packer.pack_array_header(len(value))
        for item in value:
            yield from _parts(item, packer)


def _weight(value: Any) -> int:
    """Return the number of elements, nested ones included; beyond ELEMENTS_AT_ONCE only a lower bound."""
    if not isinstance(value, list | tuple | dict):
        return 1
    weight = 1 + len(value)
    items = value.values() if isinstance(value, dict) else value
    if weight <= ELEMENTS_AT_ONCE and not _PLAIN.issuperset(map(type, items)):
        for item in items:
            weight += _weight(item)
            if weight > ELEMENTS_AT_ONCE:
                break
    return weight


def pack(value: object) -> bytes:
    """Return an answer as bytes; in the child."""
    short: bytes = msgpack.packb(value)
    return short if len(short) <= PIECE_BYTES_MAX else _IN_PIECES + b"".join(_pieces(value))


def _pieces(value: Any) -> Iterator[bytes]:
    data: bytes = msgpack.packb(value)
    if len(data) <= PIECE_BYTES_MAX or not isinstance(value, list | tuple | dict):
        yield _piece(_Kind.LEAF, data)
        return
    is_map = isinstance(value, dict)
    runs = list(_runs(value.items() if isinstance(value, dict) else value))
    yield _piece(_Kind.MAP if is_map else _Kind.LIST, msgpack.packb(len(runs)))
    for run in runs:
        if len(run) > 1:
            yield from _pieces(dict(run) if is_map else run)
        elif is_map:
            yield _piece(_Kind.PAIR, msgpack.packb(run[0][0]))
            yield from _pieces(run[0][1])
        else:
            yield _piece(_Kind.ITEM)
            yield from _pieces(run[0])


def _runs(items: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield lists of items that form a leaf together; an item that is too long is alone."""
    run: list[Any] = []
    size = 0
    for item in items:
        length = len(msgpack.packb(item))
        if run and size + length > PIECE_BYTES_MAX // 2:  # the run has a header of its own
            yield run
            run, size = [], 0
        run.append(item)
        size += length
    if run:
        yield run


def _piece(kind: _Kind, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def unpack(reply: bytes) -> object:
    """Return the decoded answer; on a thread, which lets others run between the pieces.

    Raises ValueError, TypeError and msgpack.UnpackException for a malformed one.
    """
    if not reply.startswith(_IN_PIECES):
        return _decoded(reply)
    reader = _Reader(reply)
    value = reader.value(DEPTH_MAX)
    if reader.at != len(reply):
        raise ValueError(f"{len(reply) - reader.at} bytes follow the last piece")
    return value


def _decoded(data: bytes) -> Any:
    if len(data) > PIECE_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes in one piece, more than {PIECE_BYTES_MAX}")
    return msgpack.unpackb(data, strict_map_key=False)


class _Reader:
    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self.at = len(_IN_PIECES)

    def value(self, depth: int) -> Any:
        if not depth:
            raise ValueError(f"nested deeper than {DEPTH_MAX} pieces")
        if self.at + _HEAD.size > len(self._reply):
            raise ValueError("a piece is missing")
        kind, length = _HEAD.unpack_from(self._reply, self.at)
        start = self.at + _HEAD.size
        self.at = start + length
        if self.at > len(self._reply):
            raise ValueError("a piece is truncated")
        if kind == _Kind.ITEM:
            return [self.value(depth - 1)]
        payload = _decoded(self._reply[start : self.at])
        if kind == _Kind.LEAF:
            return payload
        if kind == _Kind.PAIR:
            return {payload: self.value(depth - 1)}
        whole: Any = {} if kind == _Kind.MAP else []
        add = whole.update if kind == _Kind.MAP else whole.extend
        for _ in range(payload):
            run = self.value(depth - 1)
            if type(run) is not type(whole):
                raise ValueError(f"a part of a {type(whole).__name__} is a {type(run).__name__}")
            add(run)
            if kind == _Kind.MAP and len(whole) > KEYS_MAX:
                raise ValueError(f"a map of more than {KEYS_MAX} keys, in pieces")
        return whole
