"""From a stream of bytes to frames: Kafka's four-byte length, then that many bytes.

Nothing is set aside for a frame before its bytes have come, and a length beyond the bound is refused when
its four bytes are there: a peer can make this side keep one frame of the bound at most, and one read's bytes.
"""

import sys
from struct import Struct

from wire.errors import MalformedFrame

LENGTH_BYTES = 4
_length = Struct(">i").unpack_from


class Framer:
    """Cuts one connection's bytes into payloads. After MalformedFrame the stream is of no further use."""

    __slots__ = ("_frame_bytes_max", "_wanted_bytes", "rest")

    def __init__(self, max_frame_bytes: int) -> None:
        self._frame_bytes_max = max_frame_bytes
        self._wanted_bytes = 0
        self.rest = bytearray()
        """Bytes that are in no frame that was handed out."""

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """The payloads, without their length, that `data` completes; MalformedFrame if one is too big.

        No more than `most` of them; the others come with the next call, which may bring no bytes.
        """
        rest = self.rest
        if rest:
            rest += data
            if len(rest) < self._wanted_bytes:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[bytes] = []
        start, size, length_max = 0, len(data), self._frame_bytes_max
        wanted = LENGTH_BYTES
        while (begin := start + LENGTH_BYTES) <= size and len(frames) < most:
            (length,) = _length(data, start)
            if not 0 <= length <= length_max:
                raise MalformedFrame("frame", f"length {length} is outside 0 to {length_max}")
            end = begin + length
            if end > size:
                wanted = end - start
                break
            frames.append(data[begin:end])
            start = end
        if start < size:
            rest += data[start:]
            self._wanted_bytes = wanted
        return frames
