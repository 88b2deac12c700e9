"""Watches whether the disk of a shard has room for more entries."""

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
    """Observes the free space of the disk that `home` is on; writes are refused below `bytes_min`."""

    def __init__(self, host: Host, home: str, bytes_min: int, fail: Callable[[BaseException], None]) -> None:
        self._files = host.files
        self._home = home
        self._bytes_min = bytes_min
        self._fail = fail
        self._observed_ms = float("-inf")
        self.is_full = False
        """Whether the disk was full at the last `observe`."""

    def observe(self, now_ms: float) -> None:
        """Look, at most every `DISK_CHECK_MS`, whether the disk is full."""
        if now_ms - self._observed_ms < DISK_CHECK_MS:
            return
        self._observed_ms = now_ms
        try:
            free_bytes = self._files.free_bytes(self._home)
        except OSError as error:
            self._fail(error)
            return
        least, was_full = self._bytes_min, self.is_full
        self.is_full = free_bytes < (DISK_ROOM_AGAIN * least if was_full else least)
        if self.is_full and not was_full:
            what = (
                "%d bytes are free on the disk of %s, fewer than %d: writes are refused until space is freed"
            )
            LOG.error(what, free_bytes, self._home, least)
        elif was_full and not self.is_full:
            LOG.info("%d bytes are free on the disk of %s: writes are accepted again", free_bytes, self._home)
