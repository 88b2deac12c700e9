"""When Python's collector looks for cycles: often among the young, among all objects only while they are few.

What serves requests leaves no cycles, so reference counts free nearly everything. But libraries leave some
(asyncio's own transports where there is no uvloop, an HTTP request that ends in an exception), and what
happens to be referred to while the young are looked at counts as old from then on. So all old objects are
looked at too, now and then, which takes a tenth of a microsecond each. A large node's millions would take it
a second: those it leaves to their reference counts for good.

What must stay true: no look takes much longer than `LOOK_MS_MAX`; on a node whose state is small enough for
that, whatever becomes garbage is freed within `PAUSE_MS`.
"""

from __future__ import annotations

import gc
from typing import Final

from raftlog.host import Host, Timer

YOUNG_THRESHOLDS: Final = (3_000, 4)
"""Requests make and drop thousands of small objects a second; Python's default is too eager. A look at those
of five rounds is a part of some turn, and takes up to 12 ms where they are lists of a hundred each."""

NEVER: Final = 1_000_000
"""By itself Python looks at all objects only after as many rounds of the young: that is done here."""

PAUSE_MS: Final = 30_000.0
LOOK_MS_MAX: Final = 20.0
"""A look that took longer was the last at these objects."""

ROUNDS_MAX: Final = 10
"""Rounds of the older young between two looks. More have left too many new objects for one look."""


class Collector:
    """Looks at all objects of this process, from time to time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._timer: Timer | None = None

    def start(self) -> None:
        """What was loaded so far stays as it is: it is never looked at."""
        gc.freeze()
        self._timer = self._host.call_later(PAUSE_MS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if gc.get_count()[2] > ROUNDS_MAX:
            gc.freeze()
        begun_ms = self._host.monotonic_ms()
        gc.collect()
        if self._host.monotonic_ms() - begun_ms > LOOK_MS_MAX:
            gc.freeze()
        self._timer = self._host.call_later(PAUSE_MS, self._look)


def look_at_the_young() -> None:
    """Sets how often Python looks by itself."""
    gc.set_threshold(*YOUNG_THRESHOLDS, NEVER)
