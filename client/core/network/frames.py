"""Splits what a node sends into answers, for answers of many megabytes.

`wire.framing.Framer` serves servers, whose frames are small and many in one read. An answer to Fetch comes in
hundreds of pieces: they are kept as they are and joined once, when the last one is there. No memory is
allocated for an answer before its bytes have arrived.
"""

from __future__ import annotations

from typing import Final

from wire.errors import MalformedFrame

LENGTH_BYTES: Final = 4


class ResponseFrames:
    """The bytes of one connection as frames without their lengths.

    After MalformedFrame, the stream cannot be used any more."""

    __slots__ = ("_bytes_max", "_missing", "_pieces")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pieces: list[bytes] = []
        """The beginning of the current frame, or of its length."""
        self._missing = 0
        """The bytes of it that have not arrived; 0 while its length is not known."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that `data` completes.

        Raises MalformedFrame if a length is negative or too large."""
        frames: list[bytes] = []
        start = 0
        if self._missing:
            if len(data) < self._missing:
                self._pieces.append(data)
                self._missing -= len(data)
                return frames
            start = self._missing
            self._pieces.append(data[:start])
            frames.append(b"".join(self._pieces))
            self._pieces, self._missing = [], 0
        elif self._pieces:
            data = self._pieces.pop() + data
        while (begin := start + LENGTH_BYTES) <= len(data):
            length = int.from_bytes(data[start:begin], "big", signed=True)
            if not 0 <= length <= self._bytes_max:
                raise MalformedFrame("frame", f"length {length} is outside 0 to {self._bytes_max}")
            end = begin + length
            if end > len(data):
                self._pieces, self._missing = [data[begin:]], end - len(data)
                return frames
            frames.append(data[begin:end])
            start = end
        if start < len(data):
            self._pieces = [data[start:]]
        return frames
