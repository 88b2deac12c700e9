"""A node's shipper: sealed segments to an object store, one job after the other, off the loop.

    waiting --time--> shipping (a child process) --done--> waiting, or at once again while segments are left
                                                 --failed--> waiting twice as long as before

Invariants: one job at a time; nothing that the node acknowledges waits for it; a job that fails or is killed
is repeated and goes on from what the store has; a damaged segment does not stop the node, since the log's own
readers decide that.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from raftlog.env.host import ChildProcess, Host, Timer
from records import METADATA_SHARD

LOG = logging.getLogger("quorate.shipping")

JOB_MODULE: Final = "raftlog.storage.shipping"

LOOK_MS: Final = 10_000
"""Pause between two looks for new segments, which are sealed every few minutes at most."""

CHANGING_MS: Final = 300_000.0
"""Files that change (notes, the metadata shard's live segment) are shipped again after this, whole."""

RETRY_MS_MAX: Final = 300_000
"""Pauses after failures double up to this: a store that comes back is found within five minutes."""

JOB_MS_MAX: Final = 900_000
"""A job that takes longer is killed: sixteen segments of the default size on a slow line take less."""


class Shipper:
    """Ships the segments of one node's directory."""

    def __init__(self, host: Host, path: str, url: str, committed: Callable[[], int] = lambda: 0) -> None:
        """`committed` returns the last committed entry of the metadata shard."""
        self._host = host
        self._path = path
        self._committed = committed
        self._changing_ms = -CHANGING_MS
        self._url = url
        self._timer: Timer | None = None
        self._job: ChildProcess | None = None
        self._pause_ms = LOOK_MS
        self._stopped = False
        self._shipped = self._shipped_bytes = self._failures = 0
        self._left = self._left_bytes = self._lost = 0
        self._last_error = ""

    def start(self) -> None:
        """Look for segments to ship, now and then."""
        self._timer = self._host.call_later(LOOK_MS, self._begin)

    def stop(self) -> None:
        """Start no more jobs; a running one is killed."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.cancel()

    def status(self) -> dict[str, Any]:
        """Counts since the start, what is left as of the last job, and its error; ready for JSON."""
        return {
            "url": self._url,
            "segments_shipped": self._shipped,
            "bytes_shipped": self._shipped_bytes,
            "segments_left": self._left,
            "bytes_left": self._left_bytes,
            "segments_lost": self._lost,  # gaps in what the store has
            "failures": self._failures,
            "last_error": self._last_error,
        }

    def _begin(self) -> None:
        self._timer = None
        committed = None
        if self._host.monotonic_ms() - self._changing_ms >= CHANGING_MS:
            committed = [[METADATA_SHARD, self._committed()]]
        request = {"path": self._path, "url": self._url, "committed": committed}
        done = functools.partial(self._done, with_changing=committed is not None)
        self._job = self._host.spawn_job(JOB_MODULE, request, done, low_priority=True, deadline_ms=JOB_MS_MAX)

    def _done(
        self, result: object | None, error: BaseException | None, *, with_changing: bool = False
    ) -> None:
        self._job = None
        if self._stopped:
            return
        found = result if isinstance(result, dict) else {"failed": str(error)}
        if "shipped" in found:
            if with_changing:
                self._changing_ms = self._host.monotonic_ms()
            self._succeeded(found)
        else:
            self._failed(str(found.get("failed") or found.get("corrupt")))

    def _succeeded(self, found: dict[str, Any]) -> None:
        if self._last_error:
            LOG.info("segments are shipped to %s again", self._url)
        self._last_error = ""
        self._shipped += found["shipped"]
        self._shipped_bytes += found["shipped_bytes"]
        self._left, self._left_bytes = found["left"], found["left_bytes"]
        self._lost = found["lost"]
        self._pause_ms = LOOK_MS
        self._timer = self._host.call_later(0 if self._left else LOOK_MS, self._begin)

    def _failed(self, what: str) -> None:
        self._failures += 1
        if what != self._last_error:
            LOG.warning("segments are not shipped to %s, and will be tried again: %s", self._url, what)
        self._last_error = what
        self._timer = self._host.call_later(self._pause_ms, self._begin)
        self._pause_ms = min(2 * self._pause_ms, RETRY_MS_MAX)
