"""Timing of Python's garbage collector: often over young objects, over all objects only while they are few.

The code that serves requests leaves no cycles, so reference counts free nearly everything. But libraries
leave some (asyncio's own transports where there is no uvloop, an HTTP request that ends in an exception), and
whatever is still referenced while the young generation is collected counts as old from then on. So a full
collection runs from time to time. It takes a tenth of a microsecond per object, which is a second for the
millions of a large node: such objects are frozen, and freed by their reference counts only.

Invariants: no collection takes much longer than `LOOK_MS_MAX`; on a node whose state is small enough
for that, garbage is freed within `PAUSE_MS`.
"""

from __future__ import annotations

import gc
from typing import Final

from raftlog.env.host import Host, Timer

YOUNG_THRESHOLDS: Final = (3_000, 4)
"""Thresholds of the two young generations.

Requests create and drop thousands of small objects a second, for which Python's default is too eager. A
collection of the second generation covers five rounds of the first and runs inside some turn of the loop; it
takes up to 12 ms where the objects are lists of a hundred items each.
"""

NEVER: Final = 1_000_000
"""Threshold that keeps Python from starting full collections by itself; `Collector` starts them."""

PAUSE_MS: Final = 30_000.0
LOOK_MS_MAX: Final = 20.0
"""If a full collection took longer than this, the objects that survived it are frozen."""

ROUNDS_MAX: Final = 10
"""At most this many collections of the middle generation between two full ones. More have left too many new
objects for one collection, so these are frozen instead."""


class Collector:
    """Runs a full collection of this process from time to time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._timer: Timer | None = None

    def start(self) -> None:
        """Freeze everything loaded so far, so that it is never collected, and begin."""
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
    """Set the thresholds at which Python collects the young generations by itself."""
    gc.set_threshold(*YOUNG_THRESHOLDS, NEVER)
