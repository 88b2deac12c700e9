"""A stopping node first transfers what it leads, so that no client has to wait for an election timeout.

All shards that it leads are handed over at once, each to the most caught-up peer that answers and can serve
it. If that peer does not take over (it has just been stopped, or another transfer was under way), the next
one is tried. The time is bounded: peers that cannot take over must not keep the node from stopping.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from cluster.runtime.shard_runtime import AnyShardRuntime
from raftlog.env.host import Host

LOG = logging.getLogger("quorate.node")

HAND_OVER_MAX_MS: Final = 800.0
"""Keeps a stop below a second. A transfer takes a few round trips and one sync of the peer."""

TRY_AGAIN_MS: Final = 20.0
"""Delay before the next attempt: some round trips. A transfer already under way ends in about as long."""

FRESH_MS: Final = 200.0
"""A peer that has not answered for this long (four heartbeats) is tried last."""


class HandOver:
    """Transfers every shard of `runtimes` that this node leads, then calls `done` exactly once."""

    def __init__(self, host: Host, runtimes: Iterable[AnyShardRuntime], done: Callable[[], None]) -> None:
        self._host = host
        self._done: Callable[[], None] | None = done
        self._missing = {runtime.shard: runtime for runtime in runtimes if runtime.replica.is_leader}
        self._tried: dict[int, set[int]] = {shard: set() for shard in self._missing}
        self._timer = host.call_later(HAND_OVER_MAX_MS, self._give_up)
        for runtime in list(self._missing.values()):
            self._give(runtime)
        self._look()

    def _give(self, runtime: AnyShardRuntime) -> None:
        """Transfer one shard to the best peer not tried yet, or else to the best of those tried.

        A drained one is only better than those tried.
        """
        if self._done is None:
            return
        target = self._best_peer(runtime)
        if target is None or not runtime.replica.is_leader:
            reason = None if target is not None else "no connected node can serve"
            self._settled(runtime, reason)
            return
        self._tried[runtime.shard].add(target)
        runtime.replica.leadership.transfer(target, partial(self._given, runtime))

    def _best_peer(self, runtime: AnyShardRuntime) -> int | None:
        tried = self._tried[runtime.shard]
        best: tuple[bool, bool, bool, int, int] | None = None
        for row in runtime.replica.leadership.followers():
            if row["in_contact"] and not row["is_joining"] and row["cannot_serve"] is None:
                ago_ms = row["last_ack_ago_ms"]
                is_fresh = ago_ms is not None and ago_ms <= FRESH_MS
                is_wanted = row["node_id"] not in tried, not row["is_drained"]
                rank = (*is_wanted, is_fresh, row["match_index"], -row["node_id"])
                best = rank if best is None else max(best, rank)
        return None if best is None else -best[4]

    def _given(self, runtime: AnyShardRuntime, reason: str | None) -> None:
        if reason is None:
            self._settled(runtime, None)
            return
        LOG.info("leadership of %s is not transferred yet: %s", runtime.name, reason)
        self._host.call_later(TRY_AGAIN_MS, self._give, runtime)

    def _settled(self, runtime: AnyShardRuntime, reason: str | None) -> None:
        if reason is not None:
            LOG.warning("leadership of %s is not transferred: %s", runtime.name, reason)
        self._missing.pop(runtime.shard, None)
        self._look()

    def _give_up(self) -> None:
        for runtime in self._missing.values():
            LOG.warning("leadership of %s was not transferred within %.0f ms", runtime.name, HAND_OVER_MAX_MS)
        self._missing.clear()
        self._look()

    def _look(self) -> None:
        done = self._done
        if done is not None and not self._missing:
            self._done = None
            self._timer.cancel()
            done()
