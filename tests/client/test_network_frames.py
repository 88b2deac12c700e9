"""Answers in any pieces; a bad length is refused at once; a large answer costs no more than its size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.core.network.frames import ResponseFrames
from wire.errors import MalformedFrame

FRAME_BYTES_MAX = 1000


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=12), st.lists(st.integers(0, 800), max_size=20))
def test_any_split_of_the_stream_gives_the_same_frames(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, payloads))
    ends = [min(cut, len(stream)) for cut in sorted(cuts)] + [len(stream)]
    frames, start, received = ResponseFrames(FRAME_BYTES_MAX), 0, []
    for end in ends:
        received += frames.feed(stream[start:end])
        start = end
    assert received == payloads


def test_byte_by_byte() -> None:
    frames = ResponseFrames(FRAME_BYTES_MAX)
    payloads = [b"", b"a", b"x" * FRAME_BYTES_MAX, b"bc"]
    stream = b"".join(map(framed, payloads))
    assert [frame for byte in stream for frame in frames.feed(bytes((byte,)))] == payloads


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_a_bad_length_is_refused_when_its_bytes_are_there(length: int) -> None:
    frames = ResponseFrames(FRAME_BYTES_MAX)
    head = length.to_bytes(4, "big", signed=True)
    assert frames.feed(framed(b"good") + head[:3]) == [b"good"]
    with pytest.raises(MalformedFrame, match="outside 0 to 1000"):
        frames.feed(head[3:])


def test_a_frame_that_came_in_one_piece_per_byte_is_joined_once() -> None:
    """Quadratic buffering would copy 2 × 10^10 bytes here."""
    size = 200_000
    frames = ResponseFrames(size)
    frames.feed(size.to_bytes(4, "big"))
    received = [frame for _ in range(size) for frame in frames.feed(b"x")]
    assert received == [b"x" * size]
