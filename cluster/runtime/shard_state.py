"""Down, CatchUp, Ready: the states of a shard on a node, derived from its replica's (`replica_state`).

The state and the times of its changes are shown in the node's status.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from raftlog.replica.replica_state import ReplicaState


class ShardState(Enum):
    DOWN = "Down"
    CATCH_UP = "CatchUp"
    READY = "Ready"


@dataclass(slots=True)
class ShardConditions:
    """The values that determine the state of a shard.

    `is_prepared`: the catalog is new enough and every deadline of this lead is set.
    """

    replica: ReplicaState = ReplicaState.DOWN
    is_stopping: bool = False
    is_prepared: bool = False
    has_known_leader: bool = False


@dataclass(frozen=True, slots=True)
class ShardStateRow:
    state: ShardState
    holds: Callable[[ShardConditions], bool]
    when: str


_OVER: Final = (ReplicaState.DOWN, ReplicaState.HALTED)
_LEADING: Final = (ReplicaState.CATCH_UP, ReplicaState.READY)

SHARD_STATES: Final = (
    ShardStateRow(
        ShardState.DOWN,
        lambda given: given.replica in _OVER or given.is_stopping,
        "its replica is Down or Halted, or the node is stopping",
    ),
    ShardStateRow(
        ShardState.READY,
        lambda given: given.replica is ReplicaState.READY and given.is_prepared,
        "its replica is Ready, the catalog is new enough, and every deadline is set",
    ),
    ShardStateRow(
        ShardState.CATCH_UP,
        lambda given: given.replica in _LEADING,
        "its replica is CatchUp or Ready: this node leads, and something is still to be done",
    ),
    ShardStateRow(
        ShardState.CATCH_UP,
        lambda given: not given.has_known_leader,
        "this node has known no leader since it started",
    ),
    ShardStateRow(ShardState.DOWN, lambda given: True, "another node leads, or none does"),
)


def shard_state(conditions: ShardConditions) -> ShardState:
    """The state given by the first row that holds."""
    return next(row.state for row in SHARD_STATES if row.holds(conditions))


@dataclass(slots=True)
class ShardStatus:
    """The state of one shard on this node, and since when (wall clock, epoch ms).

    `entered_ms` holds the latest entry into each state so far. `began_ms` is the monotonic time at which this
    node began to load the shard, and `load_ms` how long it then took to become Ready.
    """

    conditions: ShardConditions = field(default_factory=ShardConditions)
    state: ShardState = ShardState.DOWN
    since_ms: int = 0
    entered_ms: dict[str, int] = field(default_factory=dict)
    began_ms: float = 0.0
    load_ms: float = 0.0

    def update(self, replica: ReplicaState, wall_ms: int) -> bool:
        """Derive the state anew; returns whether it changed."""
        self.conditions.replica = replica
        state = shard_state(self.conditions)
        if state is self.state:
            return False
        self.state, self.since_ms = state, wall_ms
        self.entered_ms[state.value] = wall_ms
        return True
