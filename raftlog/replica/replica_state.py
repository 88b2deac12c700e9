"""The states of a shard's replica on one node, as a table.

A replica that is Following hears a leader, or has just been loaded; one that is Campaigning has asked for
votes and has heard no leader since.  CatchUp and Ready lead; proposals are taken in Ready only.  A node that
is alone campaigns as soon as its log is loaded, and wins at once.

Invariant: the state changes through `ReplicaStatus.on` only, and a change that is not in the table
is refused.  docs/proofs/state-machines.md shows the table; a test keeps the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final


class ReplicaState(Enum):
    """The value is the name that operators see."""

    DOWN = "Down"
    LOADING = "Loading"
    FOLLOWING = "Following"
    CAMPAIGNING = "Campaigning"
    CATCH_UP = "CatchUp"
    READY = "Ready"
    HALTED = "Halted"


class ReplicaEvent(Enum):
    """The cause of a change of state; the value is shown to readers of the table."""

    STARTS = "the node starts and reads its log"
    LOADED = "the log is loaded, and there are other nodes"
    CAMPAIGNS = "no leader is heard, or the leader hands over, or the node is alone: asks for votes"
    FOLLOWS = "a leader is heard"
    ELECTED = "a majority voted for this node"
    CAUGHT_UP = "the first entry of the own term is committed and applied"
    DEPOSED = "a later term began, or no majority answers, or the disk stalls"
    HALTED = "hashes differ, and no majority agrees"
    ENDS = "the node stops, or fails"


_S, _E = ReplicaState, ReplicaEvent

REPLICA_TRANSITIONS: Final[dict[tuple[ReplicaState, ReplicaEvent], ReplicaState]] = {
    (_S.DOWN, _E.STARTS): _S.LOADING,
    (_S.LOADING, _E.LOADED): _S.FOLLOWING,
    (_S.LOADING, _E.CAMPAIGNS): _S.CAMPAIGNING,
    (_S.FOLLOWING, _E.FOLLOWS): _S.FOLLOWING,
    (_S.FOLLOWING, _E.CAMPAIGNS): _S.CAMPAIGNING,
    (_S.FOLLOWING, _E.HALTED): _S.HALTED,
    (_S.CAMPAIGNING, _E.CAMPAIGNS): _S.CAMPAIGNING,
    (_S.CAMPAIGNING, _E.FOLLOWS): _S.FOLLOWING,
    (_S.CAMPAIGNING, _E.ELECTED): _S.CATCH_UP,
    (_S.CATCH_UP, _E.CAUGHT_UP): _S.READY,
    (_S.CATCH_UP, _E.DEPOSED): _S.FOLLOWING,
    (_S.READY, _E.DEPOSED): _S.FOLLOWING,
    **{(state, _E.ENDS): _S.DOWN for state in _S},
}


class ReplicaStatus:
    """The state of one replica, and the wall-clock time (epoch ms) of the latest entry into each."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.state = ReplicaState.DOWN
        self.entered_ms: dict[ReplicaState, int] = {}

    def on(self, event: ReplicaEvent) -> None:
        """Change the state by the table; raises AssertionError for a change that is not in it."""
        state = REPLICA_TRANSITIONS.get((self.state, event))
        if state is None:
            raise AssertionError(f"{event.name} in state {self.state.value}")
        self.state = state
        self.entered_ms[state] = self._wall_ms()
