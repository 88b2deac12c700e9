"""Down, CatchUp, Ready: the states of a shard on a node, as a table.

Down: another node leads the shard, or none does. CatchUp: this node leads, but the first entry of its own
term is not yet committed and applied, or the catalog is older than the one that the shard's groups were
decided on; also a node that has just started, reads its log and knows of no leader. Ready: it serves. The
state and the times of its changes are shown in the node's status.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class ShardState(Enum):
    DOWN = "Down"
    CATCH_UP = "CatchUp"
    READY = "Ready"


class ShardEvent(Enum):
    LOADING = "loading"  # the node starts and reads its log
    FOLLOWING = "following"  # another node leads
    LEADING = "leading"  # a term has been won by this node
    CAUGHT_UP = "caught up"  # own term committed and applied, catalog new enough
    DEPOSED = "deposed"  # leadership lost, or the node stops


_S, _E = ShardState, ShardEvent

TRANSITIONS: Final[dict[tuple[ShardState, ShardEvent], ShardState]] = {
    (_S.DOWN, _E.LOADING): _S.CATCH_UP,
    (_S.DOWN, _E.FOLLOWING): _S.DOWN,
    (_S.DOWN, _E.LEADING): _S.CATCH_UP,
    (_S.DOWN, _E.DEPOSED): _S.DOWN,
    (_S.CATCH_UP, _E.FOLLOWING): _S.DOWN,
    (_S.CATCH_UP, _E.LEADING): _S.CATCH_UP,
    (_S.CATCH_UP, _E.CAUGHT_UP): _S.READY,
    (_S.CATCH_UP, _E.DEPOSED): _S.DOWN,
    (_S.READY, _E.DEPOSED): _S.DOWN,
}


@dataclass(slots=True)
class ShardStatus:
    """The state of one shard on this node, and since when (wall clock, epoch ms).

    `entered_ms` holds the latest entry into each state so far. `began_ms` is the monotonic time at which this
    node began to load the shard, and `load_ms` how long it then took to become Ready.
    """

    state: ShardState = ShardState.DOWN
    since_ms: int = 0
    entered_ms: dict[str, int] = field(default_factory=dict)
    began_ms: float = 0.0
    load_ms: float = 0.0

    def on(self, event: ShardEvent, wall_ms: int) -> bool:
        """Change the state by the table; return whether it changed. A missing transition is a bug."""
        following = TRANSITIONS[self.state, event]
        if following is self.state:
            return False
        self.state, self.since_ms = following, wall_ms
        self.entered_ms[following.value] = wall_ms
        return True
