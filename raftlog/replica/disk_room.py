"""Whether the disk of a shard has room for more entries."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from raftlog.env.host import Host

LOG = logging.getLogger("quorate.raftlog")
DISK_CHECK_MS: Final = 1000
"""Milliseconds between two checks of free disk space; a disk fills slowly compared to it."""
DISK_ROOM_AGAIN: Final = 1.25
"""A full disk counts as full until this multiple of the floor is free, so that the state does not flap."""


class DiskRoom:
    """Checks the free space of the disk that `home` is on; writes are refused below `bytes_min`."""

    def __init__(self, host: Host, home: str, bytes_min: int, fail: Callable[[BaseException], None]) -> None:
        self._host = host
        self._home = home
        self._bytes_min = bytes_min
        self._fail = fail
        self._checked_ms = float("-inf")
        self.is_full = False

    def check(self) -> bool:
        """Check, at most every `DISK_CHECK_MS`, whether the disk is full."""
        now_ms = self._host.monotonic_ms()
        if now_ms - self._checked_ms < DISK_CHECK_MS:
            return self.is_full
        self._checked_ms = now_ms
        try:
            free_bytes = self._host.files.free_bytes(self._home)
        except OSError as error:
            self._fail(error)
            return self.is_full
        least, was_full = self._bytes_min, self.is_full
        self.is_full = free_bytes < (DISK_ROOM_AGAIN * least if was_full else least)
        if self.is_full and not was_full:
            what = (
                "%d bytes are free on the disk of %s, fewer than %d: writes are refused until space is freed"
            )
            LOG.error(what, free_bytes, self._home, least)
        elif was_full and not self.is_full:
            LOG.info("%d bytes are free on the disk of %s: writes are accepted again", free_bytes, self._home)
        return self.is_full
