"""A stream may come in any pieces; the frames are the same, and a bad length is refused at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.errors import MalformedFrame
from wire.framing import Framer

FRAME_BYTES_MAX = 1000


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_split_of_the_stream_gives_the_same_frames(data: st.DataObject) -> None:
    payloads = data.draw(st.lists(st.binary(max_size=60), max_size=12))
    stream = b"".join(map(framed, payloads))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    framer = Framer(FRAME_BYTES_MAX)
    frames = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        frames += framer.feed(stream[start:end])
    assert frames == payloads
    assert len(framer.rest) == 0


def test_byte_by_byte() -> None:
    framer = Framer(FRAME_BYTES_MAX)
    payloads = [b"", b"a", b"x" * FRAME_BYTES_MAX, b"bc"]
    frames = [frame for byte in b"".join(map(framed, payloads)) for frame in framer.feed(bytes((byte,)))]
    assert frames == payloads


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
@pytest.mark.parametrize("pieces", [1, 2], ids=["whole", "split"])
def test_a_bad_length_is_refused_when_its_bytes_are_there(length: int, pieces: int) -> None:
    head = length.to_bytes(4, "big", signed=True)
    framer = Framer(FRAME_BYTES_MAX)
    if pieces == 2:
        assert framer.feed(framed(b"good") + head[:3]) == [b"good"]
        head = head[3:]
    with pytest.raises(MalformedFrame, match="outside 0 to 1000"):
        framer.feed(head)


def test_no_more_is_kept_than_one_frame() -> None:
    framer = Framer(FRAME_BYTES_MAX)
    assert framer.feed((FRAME_BYTES_MAX).to_bytes(4, "big")) == []
    for _ in range(FRAME_BYTES_MAX - 1):
        assert framer.feed(b"x") == []
    assert len(framer.rest) == FRAME_BYTES_MAX + 3
    assert framer.feed(b"x" + framed(b"next") + b"\0\0") == [b"x" * FRAME_BYTES_MAX, b"next"]
    assert len(framer.rest) == 2
