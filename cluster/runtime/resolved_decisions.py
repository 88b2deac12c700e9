"""The position up to which a group shard has followed the decisions about transactions, from its log.

Every node reads this from its own copy of the shard's log. The one that leads the metadata shard completes
transactions by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from coordinator.shard import GroupShard
from records import RawRecord

if TYPE_CHECKING:
    from cluster.runtime.shard_runtime import ShardRuntime

HURRY_MS: Final = 1_000
"""The commit is sent to the other nodes at once; how long this node then watches whether they have it."""


class ResolvedDecisions:
    """The newest decision that one shard has followed (`LogListener`)."""

    def __init__(self, shard: ShardRuntime[GroupShard, Any]) -> None:
        self._shard = shard
        self.decided = 0

    def restored(self, raws: Iterable[RawRecord], index: int) -> None:
        """Do nothing: what was restored counts once its index is committed."""

    def applied(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Do nothing, see `restored`."""

    def committed(self, index: int) -> None:
        shard = self._shard
        decided = shard.machine.projection.resolved_by(index)
        if decided > self.decided:
            self.decided = decided
            shard.node.decisions_followed(shard.shard, decided)
            if shard.is_ready and not shard.is_alone:
                shard.replica.leadership.when_everywhere(index, HURRY_MS, _nothing)

    def reset(self) -> None:
        """Do nothing: what was committed stays so."""

    def observe_horizon(self) -> None:
        """Do nothing: only the catalog has an age."""


def _nothing() -> None:
    """Do nothing when the other nodes have the commit."""
