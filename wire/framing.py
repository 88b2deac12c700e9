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

    __slots__ = ("_frame_bytes_max", "_rest", "_wanted_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self._frame_bytes_max = max_frame_bytes
        self._rest = bytearray()
        self._wanted_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are in no frame that was handed out."""
        return len(self._rest)

    def feed(self, data: bytes, most: int = sys.maxsize) -> list[bytes]:
        """The payloads, without their length, that `data` completes; MalformedFrame if one is too big.

        No more than `most` of them; the others come with the next call, which may bring no bytes.
        """
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._wanted_bytes:
                return []
            data = bytes(rest)
            rest.clear()
        frames: list[bytes] = []
        start, size = 0, len(data)
        wanted = LENGTH_BYTES
        while size - start >= LENGTH_BYTES and len(frames) < most:
            (length,) = _length(data, start)
            if not 0 <= length <= self._frame_bytes_max:
                raise MalformedFrame("frame", f"length {length} is outside 0 to {self._frame_bytes_max}")
            wanted = LENGTH_BYTES + length
            if size - start < wanted:
                break
            frames.append(data[start + LENGTH_BYTES : start + wanted])
            start += wanted
            wanted = LENGTH_BYTES
        if start < size:
            rest += data[start:]
            self._wanted_bytes = wanted
        return frames
