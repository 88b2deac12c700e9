"""The frames and bytes read from one connection that are not served yet.

A read may hold thousands of frames. They are split off a share at a time, and the rest stays bytes: objects
for all of them would take a multiple of the memory.

Invariants: frames are served in the order in which they came, and every byte is counted.
"""

from __future__ import annotations

from typing import Final

from wire.framing import Framer

SHARE_REQUESTS: Final = 256
"""A connection's share of a turn is bounded by the clock, and by this many requests: some take less time than
reading the clock, and in simulation no time passes within a turn."""


class UnservedFrames:
    """The frames of the current share, and the bytes behind them."""

    __slots__ = ("_framer", "frames", "has_more", "put_off_bytes", "rest")

    def __init__(self, max_frame_bytes: int) -> None:
        self._framer = Framer(max_frame_bytes)
        self.frames: list[bytes] = []
        self.put_off_bytes = 0
        """The size of `frames`, once they have been put off to a later turn."""
        self.has_more = False
        """Whether `rest` may hold whole frames."""
        self.rest = self._framer.rest
        """The bytes behind the current share, often the beginning of one frame."""

    def read(self, data: bytes) -> bool:
        """Split the next share off everything read, of which `data` is new; return whether it has a frame.

        Raises MalformedFrame.
        """
        self.frames = frames = self._framer.feed(data, SHARE_REQUESTS)
        self.has_more = len(frames) == SHARE_REQUESTS
        return bool(frames)

    def read_behind(self, data: bytes) -> None:
        """Keep what arrives while earlier frames wait to be served."""
        self._framer.feed(data, 0)
        self.has_more = True

    def take(self) -> list[bytes]:
        """Return the frames to be served next.  Raises MalformedFrame."""
        if not self.frames and self.has_more:
            self.read(b"")
        frames, self.frames, self.put_off_bytes = self.frames, [], 0
        return frames

    def put_off(self, frames: list[bytes]) -> None:
        """Keep the frames of the current share that could not be served in this turn."""
        self.frames = frames
        self.put_off_bytes = sum(map(len, frames))

    def drop(self) -> None:
        """Drop the frames, and do not look for more."""
        self.frames, self.put_off_bytes, self.has_more = [], 0, False
