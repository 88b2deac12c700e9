"""What a replica drives, and how it refuses: the seam between the log and whoever keeps the projection.

Order of calls, on the loop, never from inside `propose`: `restore` (zero or more chunks of one snapshot),
then `apply_frame` and `committed` with rising indexes, `ready` when the own term's first frame is committed
and applied, `deposed` when leadership is lost.  After `reset`, `restore` and `apply_frame` begin again from
the first entry; `committed` does not go back.  A node that is alone leads from its start to its end: it never
hears `leading`, `deposed`, `proven`, `reset` and `followed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raftlog.obstacles import Obstacle
from records import RawRecord


class NotLeader(Exception):
    """This replica does not lead its shard (any more, or not yet): nothing was appended."""


class LogFull(Exception):
    """The bound on uncommitted bytes or the floor of free disk space is reached: nothing was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """What a snapshot stands for: the state after the entry `last_index`.

    `chain_hash` is the 16-byte chain over all frames up to there, `state_hash` the machine's own (u64),
    `catalog_version` the newest Raft index of the metadata shard that the state relies on.
    """

    cluster_id: str
    shard: int
    num_shards: int
    last_index: int
    last_term: int
    last_timestamp_ms: int
    chain_hash: bytes
    state_hash: int
    catalog_version: int
    record_count: int


class StateMachine(Protocol):
    """The projection behind a replica."""

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        """Take the next chunk of a snapshot, records in the order of their last writes."""

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        """Apply a committed entry: at load, on followers, and this node's own term start.

        Never called for what this node proposed itself in its present term: that is applied already.
        """

    def committed(self, index: int) -> None:
        """Entries up to `index` are durable and decided: their replies may go."""

    def leading(self, term: int) -> None:
        """This node was elected; `ready` follows when it has applied what was before."""

    def followed(self, leader_id: int | None) -> None:
        """The known leader changed: this node itself, another, or nobody that is in contact."""

    def proven(self, proven_ms: float) -> None:
        """Who asked for proof (`Replica.ask_proof`): this node led at least until that monotonic time."""

    def reset(self) -> None:
        """Forget everything: entries that were applied are not in the log any more, or a snapshot replaces
        them."""

    def ready(self, term: int) -> None:
        """This node leads and has applied everything committed before its term."""

    def deposed(self, reason: str) -> None:
        """Leadership is lost: the outcome of what is not committed is unknown."""

    def obstacle(self) -> Obstacle:
        """The reason, apart from log and disk, for which this node has not been able to serve for a while."""

    def state_hash(self) -> int:
        """u64 over the projection as of `applied_index`."""

    def applied_index(self) -> int:
        """The last entry in the projection."""

    def catalog_version(self) -> int:
        """The newest catalog version that the projection relies on."""
