"""The hash chain over committed frames: two logs with equal chains hold equal histories.

A stride is `CHAIN_STRIDE` frames.  The digest at the end of stride k is blake2b-128 of the digest before it
followed by the bytes of the frames 64(k-1)+1 ... 64k; within a stride it is the same hash over the frames so
far.  Snapshots and sealed segments end where a stride ends, so that a chain can be continued from 16 bytes;
hashing by strides instead of frame by frame makes a load several times cheaper.
"""

from __future__ import annotations

from hashlib import blake2b

from raftlog.env.files import Buffer
from raftlog.env.settings import CHAIN_STRIDE

DIGEST_BYTES = 16
GENESIS = bytes(DIGEST_BYTES)
"""The chain before the first frame of a log."""


class Chain:
    """The chain's running value; `index` is the last frame in it."""

    __slots__ = ("_before", "_hash", "index")

    def __init__(self, index: int = 0, before: bytes = GENESIS) -> None:
        if index % CHAIN_STRIDE or len(before) != DIGEST_BYTES:
            raise ValueError(f"a chain continues from the end of a stride, not from index {index}")
        self.index = index
        self._before = before
        self._hash = blake2b(before, digest_size=DIGEST_BYTES)

    def add(self, frames: Buffer, last_index: int) -> None:
        """Add the bytes of the next committed frames, up to `last_index`, of one stride only."""
        if last_index <= self.index or (last_index - 1) // CHAIN_STRIDE != self.index // CHAIN_STRIDE:
            raise AssertionError(f"frames up to {last_index} do not follow {self.index} within a stride")
        self._hash.update(frames)
        self.index = last_index
        if not self.index % CHAIN_STRIDE:
            self._before = self._hash.digest()
            self._hash = blake2b(self._before, digest_size=DIGEST_BYTES)

    @property
    def digest(self) -> bytes:
        """The digest (16 bytes) of all frames up to `index`."""
        return self._hash.copy().digest() if self.index % CHAIN_STRIDE else self._before
