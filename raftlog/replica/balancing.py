"""The choice of the node that should lead a shard, and of the one to which a leader hands it over.

Shards are assigned to the nodes round-robin, so that a node's loss costs each of the others its share.
Operators may ask for another leader of a shard, and may drain nodes (`LeaderWish`).  A node that has just
come back is left to catch up first: it leads again when it has been level for `leader_balance_delay_ms`, has
no obstacle to serving, and answers fast enough not to lose leadership before its first entry is committed.
Losing leadership once is an accident; from the second short lead in a row on, that wait doubles, up to
`WAITS_MAX` times the delay.

A leader with an obstacle to serving does not wait: it hands the shard to a peer that can serve it.  Nor does
a drained one, nor one that learns that another was asked for.  A wish never costs availability: a drained
node leads while no other can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raftlog.consensus.progress import FollowerProgress, ReplicationProgress

LOOK_MS: Final = 250.0
"""Milliseconds between a leader's checks whether another node should lead."""
LEVEL_ENTRIES: Final = 10_000
"""A peer behind by at most this many entries, about a batch, is level: it catches up in milliseconds."""
WAITS_MAX: Final = 32
"""The longest wait, as a multiple of the delay.

By the default delay a preferred node that fails repeatedly gets its shard every five minutes; a lead of at
least that long is not short.
"""


@dataclass(frozen=True, slots=True)
class LeaderWish:
    """Requests of operators about one shard: its leader, if any, and the nodes that shall lead nothing."""

    asked: int | None = None
    drained: frozenset[int] = frozenset()


NO_WISH: Final = LeaderWish()


def preferred_node(voters: Sequence[int], shard: int, wish: LeaderWish = NO_WISH) -> int | None:
    """The node that should lead `shard`; without a wish, the metadata shard (-1) is the first node's.

    A drained node's shards are shared out among the others.  None if all nodes are drained.
    """
    able = sorted(set(voters) - wish.drained)
    if wish.asked in able or not able:
        return wish.asked if able else None
    turn, place = divmod(shard + 1, len(voters))
    own = sorted(voters)[place]
    return own if own in able else able[turn % len(able)]


class Balancing:
    """A leader's wait for the preferred node, and every node's record of how long that one led."""

    def __init__(
        self, preferred: int | None, delay_ms: float, far_ms: float, asked: int | None = None
    ) -> None:
        self._preferred = preferred
        self._delay_ms = delay_ms
        self._far_ms = far_ms
        self._short_leads = 0
        self._led_since_ms: float | None = None
        self._look_ms = 0.0
        self._level_since_ms: float | None = None
        self._asked = asked
        self._leader: int | None = None
        self._is_at_once = False

    def prefer(self, node_id: int | None, asked: int | None) -> None:
        """Note which node should lead from now on: as soon as it can, if it has just been asked for."""
        if (node_id, asked) != (self._preferred, self._asked):
            self._is_at_once = asked is not None and asked == node_id != self._leader
        if node_id != self._preferred:
            self._preferred, self._led_since_ms, self._short_leads = node_id, None, 0
            self._level_since_ms = None
        self._asked = asked
        self._look_ms = 0.0

    def leads(self, node_id: int, now_ms: float) -> None:
        """Note that a node leads a new term; whether the preferred one is level with it is not known yet."""
        self._level_since_ms = None
        self._leader = node_id
        since_ms = self._led_since_ms
        if node_id == self._preferred:
            self._is_at_once = False
            self._led_since_ms = now_ms if since_ms is None else since_ms
        elif since_ms is not None:
            is_short = now_ms - since_ms < WAITS_MAX * self._delay_ms
            self._short_leads = self._short_leads + 1 if is_short else 0
            self._led_since_ms = None

    @property
    def _wait_ms(self) -> float:
        doublings = min(max(0, self._short_leads - 1), WAITS_MAX.bit_length() - 1)
        return self._delay_ms * (1 << doublings)

    @property
    def must_move(self) -> bool:
        """Whether an operator asked for another leader than the present one, and it has not led yet."""
        return self._is_at_once

    def successor(
        self,
        now_ms: float,
        progress: ReplicationProgress,
        last_index: int,
        *,
        can_serve: bool,
        is_drained: bool = False,
    ) -> int | None:
        """The node that should lead instead of this one, None for none; called at every heartbeat."""
        if now_ms < self._look_ms:
            return None
        self._look_ms = now_ms + LOOK_MS
        best = progress.best
        if not can_serve:
            return None if best is None else best.node_id
        own = self._preferred
        preferred = None if own is None else progress.peers.get(own)  # None: this node, or none at all
        if preferred is None or not self._is_level(preferred, last_index):
            self._level_since_ms = None
            if not is_drained or best is None or best.node_id in progress.drained:
                return None
            return best.node_id if self._is_level(best, last_index) else None
        if self._level_since_ms is None:
            self._level_since_ms = now_ms
        if not (self._is_at_once or is_drained) and now_ms - self._level_since_ms < self._wait_ms:
            return None
        self._level_since_ms = None
        return own

    def _is_level(self, peer: FollowerProgress, last_index: int) -> bool:
        is_near = not peer.is_probing and peer.round_trip_ms < self._far_ms
        return peer.can_lead and is_near and last_index - peer.match_index <= LEVEL_ENTRIES
