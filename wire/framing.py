"""Framing: splits a stream of bytes into Kafka's frames, a four-byte length followed by that many bytes.

No memory is allocated for a frame before its bytes have arrived, and a length beyond the bound is refused as
soon as its four bytes are there. So a peer can make this side keep at most one frame of maximum size and the
bytes of one read.
"""

import sys
from struct import Struct
from typing import Any

from wire.errors import MalformedFrame

LENGTH_BYTES = 4
_length = Struct(">i").unpack_from


class Framer:
    """Splits one connection's bytes into payloads.

    After MalformedFrame, the stream cannot be used any more."""

    __slots__ = ("_frame_bytes_max", "_wanted_bytes", "rest")

    def __init__(self, max_frame_bytes: int) -> None:
        self._frame_bytes_max = max_frame_bytes
        self._wanted_bytes = 0
        self.rest = bytearray()
        """Bytes that do not belong to a returned frame yet."""

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """Return the payloads, without length, that `data` completes.

        Raises MalformedFrame if one is too large.

        Returns at most `most` payloads; the others come with the next call, whose `data` may be empty.
        """
        rest = self.rest
        buffer: bytes | bytearray = data
        if rest:
            rest += data
            if len(rest) < self._wanted_bytes:
                return []
            buffer = rest  # which is not copied: it may be large, and is read in many shares
        # Pieces of `rest` become bytes at the end: a copy of every frame would slow down the common case.
        frames: list[Any] = []
        start, size, length_max = 0, len(buffer), self._frame_bytes_max
        wanted = LENGTH_BYTES
        while (begin := start + LENGTH_BYTES) <= size and len(frames) < most:
            (length,) = _length(buffer, start)
            if not 0 <= length <= length_max:
                raise MalformedFrame("frame", f"length {length} is outside 0 to {length_max}")
            end = begin + length
            if end > size:
                wanted = end - start
                break
            frames.append(buffer[begin:end])
            start = end
        if buffer is rest:
            del rest[:start]
            frames = list(map(bytes, frames))
        elif start < size:
            rest += data[start:]
        self._wanted_bytes = wanted
        return frames
