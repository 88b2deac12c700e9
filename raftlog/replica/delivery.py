"""The work after a commit: the state machine applies the entries, and is told of them.

Entries are applied in slices of `load_slice_ms`, the rest in later turns. Invariants:

- The machine is told only of entries that it has applied and that are committed, of ever more of them.
- It becomes ready once the first entry of this node's term is applied, and never while the replica stops.
- A snapshot is started only here, between two slices.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.consensus.core import RaftCore
from raftlog.env.host import Host
from raftlog.env.state_machine import StateMachine
from raftlog.replica.applier import Applier
from raftlog.replica.replica_state import ReplicaEvent, ReplicaState, ReplicaStatus
from raftlog.storage.journal import Journal
from raftlog.storage.snapshotter import Snapshotter


class CommitDelivery:
    """Takes one replica's state machine along with the commit index, from its load (`begin`) to its end."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        machine: StateMachine,
        applier: Applier,
        status: ReplicaStatus,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host = host
        self._journal = journal
        self._machine = machine
        self._applier = applier
        self._status = status
        self._fail = fail
        self._raft: RaftCore | None = None
        self._snapshotter: Snapshotter | None = None
        self._is_level: Callable[[int], bool] = lambda applied: False
        self._is_queued = False
        self._is_stopping = False
        self._told_index = 0
        self.is_current = False
        """Whether the machine was level with the cluster once, and the replica has not been halted since."""

    def begin(self, raft: RaftCore, snapshotter: Snapshotter) -> None:
        """The log is loaded."""
        self._raft, self._snapshotter = raft, snapshotter

    def compare_with_peers(self, is_level: Callable[[int], bool]) -> None:
        """Become current once `is_level(applied index)`; a node without peers becomes so as leader."""
        self._is_level = is_level

    def stop(self) -> None:
        """The replica stops: entries are delivered still, but the machine does not become ready any more."""
        self._is_stopping = True

    def advance(self) -> None:
        """Apply a slice of what is committed and notify the machine; the rest follows in later turns."""
        self._is_queued = False
        raft, applier = self._raft, self._applier
        if raft is None or self._status.state is ReplicaState.DOWN or applier.is_rebuilding:
            return
        assert self._snapshotter is not None
        try:
            applier.apply(raft.commit_index)
            self._tell(raft, applier.applied_index)
            self._snapshotter.start_if_due(applier.applied_index)
        except Exception as error:
            self._fail(error)
            return
        if applier.applied_index < min(raft.commit_index, self._journal.durable_index):
            self.advance_soon()

    def advance_soon(self) -> None:
        """Advance in the next turn of the loop."""
        if not self._is_queued:
            self._is_queued = True
            self._host.call_soon(self.advance)

    def _tell(self, raft: RaftCore, applied: int) -> None:
        """Notify the machine of entries that it has applied and that are committed."""
        state = self._status.state
        if not self.is_current and state is not ReplicaState.HALTED:
            self.is_current = self._is_level(applied)
        known = max(applied, min(raft.commit_index, self._applier.projected_index))
        self._told_index = max(self._told_index, known)  # after a rebuild less may be known again
        self._machine.committed(self._told_index)
        if self._status.state is ReplicaState.CATCH_UP and raft.is_serving(applied) and not self._is_stopping:
            self.is_current = True
            self._status.on(ReplicaEvent.CAUGHT_UP)
            self._machine.ready(raft.term)

    @property
    def applied_everywhere(self) -> int:
        """The last entry that every node, in contact or not, has applied, as far as this leader knows."""
        if self._raft is None:
            return self._told_index
        applied = (peer.applied_index for peer in self._raft.progress.peers.values())
        return min([self._told_index, *applied])
