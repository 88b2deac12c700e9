"""Replies given to the transport, as far as it may still keep them.

A transport keeps a reply whole until its last byte is sent. So what a client leaves unread takes the memory
of all replies that it belongs to: of four megabytes the kernel may have taken half, and no byte is free.

Invariant: never less than what the transport keeps is counted, apart from a reply shorter than `LONG_BYTES`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

LONG_BYTES: Final = 16_384
"""Shorter replies count with their unread bytes alone, so that nothing is noted for most replies."""


class WrittenReplies:
    """The long replies of one connection that may be unread in part."""

    __slots__ = ("_begin", "_ends", "_written")

    def __init__(self) -> None:
        self._written = 0  # bytes of long replies since nothing was left unread
        self._begin = 0  # where the first one begins that may be unread
        self._ends: deque[int] = deque()

    def wrote(self, num_bytes: int) -> None:
        """Note a long reply."""
        self._written += num_bytes
        self._ends.append(self._written)

    def num_kept(self, unread: int) -> int:
        """Return the number of bytes that the transport keeps, of which `unread` are not sent yet."""
        ends = self._ends
        if not ends:
            return unread
        sent = self._written - unread
        while ends and ends[0] <= sent:
            self._begin = ends.popleft()
        if not ends:
            self._written = self._begin = 0
            return unread
        return max(unread, self._written - self._begin)
