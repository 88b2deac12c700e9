"""A child's request and result in pieces: the packed value comes out again, and no piece takes long to write
or to read."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from cluster.host import pieces
from cluster.host.pieces import (
    DEPTH_MAX,
    ELEMENTS_AT_ONCE,
    KEYS_MAX,
    PIECE_BYTES_MAX,
    pack,
    parts,
    unpack,
)

MIB = 1 << 20
LONG: dict[str, Any] = {
    "an assignment": {
        "members": {f"member-{n}": {"topic": list(range(300)), "more": [n]} for n in range(3_000)},
        "error": None,
    },
    "one member with everything": {"members": {"a": {b"t" * 16: list(range(400_000))}}},
    "many small values": {"values": [None] * MIB, "numbers": dict.fromkeys(range(200000))},
    "lists in lists": [[[n] * 200_000] for n in range(3)],
}


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
def test_what_is_long_comes_in_pieces_and_is_the_same(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = pack(value)
    assert len(reply) > PIECE_BYTES_MAX
    decoded: list[int] = []
    take = pieces._decoded
    monkeypatch.setattr(pieces, "_decoded", lambda data: (decoded.append(len(data)), take(data))[1])
    assert unpack(reply) == value
    assert max(decoded) <= PIECE_BYTES_MAX
    assert len(decoded) > 2


LARGEST: dict[str, Any] = {
    **LONG,
    "many members": {"members": [(f"member-{n}", 0, {b"t" * 16: (n,)}, None, None) for n in range(10_000)]},
    "racks": {"topics": [(b"t", "t", 500, [(n, ("a", "b", "c")) for n in range(500)]) for _ in range(50)]},
    "names": {"names": tuple(f"{n:0200}" for n in range(100_000)), "fresh": [], "stale": ["a"]},
}


@pytest.mark.parametrize("value", LARGEST.values(), ids=LARGEST)
def test_a_long_question_is_msgpack_made_a_part_at_a_time(value: Any) -> None:
    made = list(parts(value))
    assert b"".join(made) == msgpack.packb(value)
    assert max(map(len, made)) <= 20 * ELEMENTS_AT_ONCE
    assert len(made) > 2


def test_a_short_question_is_made_at_once() -> None:
    for value in (None, 7, "a", {"a": [1, (2, {})]}, list(range(ELEMENTS_AT_ONCE - 1))):
        assert list(parts(value)) == [msgpack.packb(value)]


def test_what_is_short_is_msgpack_as_ever() -> None:
    for value in (None, 7, {"a": [1, 2]}, {1: {2: b"x"}}):
        assert pack(value) == msgpack.packb(value)
        assert unpack(pack(value)) == value


def _nested(depth: int) -> bytes:
    return b"\xc1" + b"\x03\x00\x00\x00\x00" * depth + b"\x00\x01\x00\x00\x00\xc0"


@pytest.mark.parametrize(
    "reply",
    [
        msgpack.packb([None] * MIB),
        b"\xc1",
        b"\xc1\x00\xff\xff\xff\xff",
        b"\xc1\x00" + (MIB).to_bytes(4, "little") + msgpack.packb([None] * (MIB - 5)),
        pack(LONG["an assignment"])[:-1],
        pack(LONG["an assignment"]) + b"\xc0",
        b"\xc1\x01\x01\x00\x00\x00\x01\x00\x01\x00\x00\x00\xc0",
        _nested(DEPTH_MAX),
        pack(dict.fromkeys(range(KEYS_MAX + 1))),
    ],
    ids=["one piece", "empty", "no end", "long leaf", "cut", "more", "no run", "deep", "keys"],
)
def test_anything_else_is_refused(reply: bytes) -> None:
    with pytest.raises(ValueError, match=r"piece|list|nested"):
        unpack(reply)


def test_nesting_within_the_bound_is_taken() -> None:
    value = unpack(_nested(DEPTH_MAX - 1))
    for _ in range(DEPTH_MAX - 1):
        (value,) = value  # type: ignore[misc]
    assert value is None
