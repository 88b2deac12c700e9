"""Which node should lead which shard, and when a leader that is another one gives it back.

Shards are dealt out in turn, so that a node's loss costs each of the others its share.  A node that has just
come back is left to catch up first: it leads again when it has been level for `leader_balance_delay_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.progress import Peer

LOOK_MS = 1000
"""How often a leader asks itself whether the preferred node should lead."""
LEVEL_ENTRIES = 10_000
"""Behind by at most about a batch: a hand-over then takes milliseconds."""


def preferred_node(voters: Sequence[int], shard: int) -> int:
    """The node that should lead `shard`, the metadata shard (-1) being the first node's."""
    return sorted(voters)[(shard + 1) % len(voters)]


class Balancing:
    """A leader's patience with the preferred node."""

    def __init__(self, delay_ms: float) -> None:
        self._delay_ms = delay_ms
        self._look_ms = 0.0
        self._level_since_ms: float | None = None

    def begin_term(self) -> None:
        """This node was elected: how long the preferred one was level under another leader is unknown."""
        self._level_since_ms = None

    def is_due(self, now_ms: float, preferred: Peer, last_index: int) -> bool:
        """Whether the preferred node should get the shard now; asked at every heartbeat."""
        if now_ms < self._look_ms:
            return False
        self._look_ms = now_ms + LOOK_MS
        lag = last_index - preferred.match_index
        is_level = preferred.is_up and not preferred.is_joining and not preferred.is_probing
        if not is_level or lag > LEVEL_ENTRIES:
            self._level_since_ms = None
            return False
        if self._level_since_ms is None:
            self._level_since_ms = now_ms
        if now_ms - self._level_since_ms < self._delay_ms:
            return False
        self._level_since_ms = None
        return True
