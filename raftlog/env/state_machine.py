"""The interface between the log and the projection behind it, and the ways in which a replica refuses.

Order of calls, on the loop, never from inside `propose`: `restore` (zero or more chunks of one snapshot),
then `apply_frame` and `committed` with rising indexes, `ready` when the own term's first frame is committed
and applied, `deposed` when leadership is lost.  After `reset`, `restore` and `apply_frame` begin again from
the first entry; `committed` does not go back.  A node that is alone leads from its start to its end: its
machine is never called with `leading`, `deposed`, `proven`, `reset` or `followed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raftlog.env.obstacles import Obstacle
from records import RawRecord


class NotLeader(Exception):
    """This replica does not lead its shard (any more, or not yet): nothing was appended."""


class LogFull(Exception):
    """The bound on uncommitted bytes or the floor of free disk space is reached: nothing was appended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """The header of a snapshot: it holds the state after the entry `last_index`.

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
    """The projection that a replica drives."""

    def restore(self, records: list[RawRecord], header: SnapshotHeader) -> None:
        """Take the next chunk of a snapshot, records in the order of their last writes."""

    def apply_frame(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        """Apply a committed entry: at load, on followers, and this node's own term start.

        Never called for entries that this node proposed in its current term: those are applied already.
        """

    def committed(self, index: int) -> None:
        """Entries up to `index` are durable and committed: their replies may be sent."""

    def leading(self, term: int) -> None:
        """This node was elected; `ready` follows once it has applied everything before."""

    def followed(self, leader_id: int | None) -> None:
        """The known leader changed: this node itself, another, or None when none is in contact."""

    def proven(self, proven_ms: float) -> None:
        """The proof that `ask_proof` asked for: this node led at least until that monotonic time."""

    def reset(self) -> None:
        """Forget everything: applied entries were removed from the log, or a snapshot replaces them."""

    def ready(self, term: int) -> None:
        """This node leads and has applied everything committed before its term."""

    def deposed(self, reason: str) -> None:
        """Leadership is lost: the outcome of uncommitted entries is unknown."""

    def observe_obstacles(self, now_ms: float) -> None:
        """Look again at what, apart from log and disk, this node needs to serve; several times a second."""

    def obstacle(self) -> Obstacle:
        """The reason, at the last look, for which this node had been unable to serve for a while."""

    def state_hash(self) -> int:
        """The hash (u64) of the projection as of `applied_index`."""

    def applied_index(self) -> int:
        """The last entry in the projection."""

    def catalog_version(self) -> int:
        """The newest catalog version that the projection relies on."""
