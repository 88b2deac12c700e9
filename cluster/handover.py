"""A node that stops gives away what it leads first, so that nobody has to notice its absence.

Every shard that it leads is handed to the peer that is furthest, all at once, and within a bound: a peer that
cannot take over (there is no quorum, or its disk is slow) must not keep the node from stopping.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from cluster.shard_life import ShardLife
from raftlog.host import Host

LOG = logging.getLogger("quorate.node")

HAND_OVER_MAX_MS: Final = 800.0
"""A stop takes less than a second with it; a hand-over takes a few round trips and one sync of the peer."""


class HandOver:
    """Gives away every shard of `runtimes` that this node leads, then calls `done`, exactly once."""

    def __init__(self, host: Host, runtimes: Iterable[ShardLife], done: Callable[[], None]) -> None:
        self._done: Callable[[], None] | None = done
        self._missing = {runtime.shard: runtime for runtime in runtimes if runtime.replica.is_leader}
        self._timer = host.call_later(HAND_OVER_MAX_MS, self._give_up)
        for runtime in list(self._missing.values()):
            runtime.replica.transfer(None, partial(self._given, runtime))
        self._look()

    def _given(self, runtime: ShardLife, reason: str | None) -> None:
        if reason is not None:
            LOG.warning("%s is not handed over: %s", runtime.name, reason)
        self._missing.pop(runtime.shard, None)
        self._look()

    def _give_up(self) -> None:
        for runtime in self._missing.values():
            LOG.warning("%s is not handed over within %.0f ms", runtime.name, HAND_OVER_MAX_MS)
        self._missing.clear()
        self._look()

    def _look(self) -> None:
        done = self._done
        if done is not None and not self._missing:
            self._done = None
            self._timer.cancel()
            done()
