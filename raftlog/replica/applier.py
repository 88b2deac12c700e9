"""Applying the log to the machine: loaded entries, newly committed ones, and rebuilding.

Committed entries reach the machine once and in order, in slices of `load_slice_ms`; entries that the machine
already has, because this node proposed them, are only chained.  Invariants:

- Only entries that are committed and synced here are chained; the machine is never ahead of the log.
- The machine may be ahead of the commit index, by its own proposals; if a later leader replaces one of them,
  the whole machine is reset and built again from snapshot and log. Other nodes only truncate their logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from raftlog.consensus.messages import Checkpoint
from raftlog.env.errors import Corrupt
from raftlog.env.files import join
from raftlog.env.host import Host
from raftlog.env.settings import CHAIN_STRIDE, LogSettings
from raftlog.env.state_machine import SnapshotHeader, StateMachine
from raftlog.replica.log_replay import LogReplay
from raftlog.storage.journal import Journal
from raftlog.storage.snapshots import SNAPSHOT_FILE, SnapshotFile

STATE_HINT = "the state does not follow from its records: replay the log with this release and the one before"


class ChainObserver(Protocol):
    """Observes the end of each stride of the hash chain, every `CHAIN_STRIDE` entries."""

    def applied(self, index: int, state_hash: int) -> None:
        """The machine has applied exactly the entries up to `index`; they may not be committed yet."""

    def chained(self, index: int, chain: bytes) -> None:
        """The entries up to `index` are committed, synced here and applied; `chain` is their hash."""

    def truncated(self, index: int) -> None:
        """The entries after `index` were removed; none of them was committed."""


class Applier:
    """Applies the log to the machine of one replica.

    `projected_index` is the last entry in the machine; `applied_index` is the last one that is committed as
    well, and in the hash chain.
    """

    def __init__(self, host: Host, journal: Journal, machine: StateMachine, settings: LogSettings) -> None:
        self._host = host
        self._journal = journal
        self.machine = machine
        self._settings = settings
        self._replay: LogReplay | None = None
        self._loaded_index = 0
        self.projected_index = 0
        self.applied_index = 0
        self.is_rebuilding = False
        self.rebuilds = 0
        self.observers: list[ChainObserver] = []

    # From the snapshot

    def restore(self) -> Iterator[SnapshotHeader]:
        """Restore the machine from the snapshot, if there is one, chunk by chunk.  Raises Corrupt."""
        path = join(self._journal.home, SNAPSHOT_FILE)
        if not self._host.files.exists(path):
            return
        snapshot = SnapshotFile(self._host.files, path)
        header = snapshot.header
        identity = self._journal.identity
        ours = (identity.cluster_id, identity.shard, identity.num_shards)
        try:
            if (header.cluster_id, header.shard, header.num_shards) != ours:
                raise Corrupt(path, 0, f"belongs to shard {header.shard} of cluster {header.cluster_id}")
            for _, records in snapshot.blocks():
                self.machine.restore(records, header)
                yield header
        finally:
            snapshot.close()
        if (state_hash := self.machine.state_hash()) != header.state_hash:
            what = (
                f"its records have the state hash {state_hash:016x}, but its header says "
                f"{header.state_hash:016x}"
            )
            raise Corrupt(path, 0, what, STATE_HINT)
        self.projected_index = header.last_index
        yield header

    def loaded(self) -> None:
        """The journal is open: its entries are applied as they are found to be committed."""
        self.applied_index = self._journal.base_index
        self._loaded_index = self._journal.last_index
        self._replay = self._new_replay(self._loaded_index, chains=True)

    def _new_replay(self, last_index: int, *, chains: bool) -> LogReplay:
        batch_bytes = self._settings.apply_batch_bytes
        return LogReplay(
            self._host, self._journal, self.machine, batch_bytes, last_index, self._applied_one, chains
        )

    # Committed entries

    def apply(self, commit_index: int) -> None:
        """Apply a slice of the entries up to `commit_index`, as far as they are synced here."""
        assert self._replay is not None
        commit_index = min(commit_index, self._journal.durable_index)
        if self.is_rebuilding or self.applied_index >= commit_index:
            return
        deadline_ms = self._host.monotonic_ms() + self._settings.load_slice_ms
        loaded_index = min(self._loaded_index, commit_index)
        if self.applied_index < loaded_index:
            self.applied_index = self._replay.step(self.applied_index, loaded_index, deadline_ms)
            self.projected_index = max(self.projected_index, self.applied_index)
        if self.applied_index >= loaded_index:
            self._take_committed(commit_index, deadline_ms)

    def _take_committed(self, commit_index: int, deadline_ms: float) -> None:
        """Chain the entries in memory, stride by stride, and apply those that this node did not propose."""
        journal = self._journal
        while self.applied_index < commit_index:
            index = min(commit_index, (self.applied_index // CHAIN_STRIDE + 1) * CHAIN_STRIDE)
            journal.take_committed(index, None if self.projected_index >= index else self._visit)
            self.applied_index = index
            if not index % CHAIN_STRIDE:
                self._chained(index)
            if self._host.monotonic_ms() >= deadline_ms:
                break

    def _visit(self, index: int, term: int, timestamp_ms: int, body: bytes) -> None:
        if index > self.projected_index:
            self.machine.apply_frame(index, term, timestamp_ms, body)
            self.projected_index = index
            if not index % CHAIN_STRIDE:
                self._applied_one(index)

    def proposed(self, index: int) -> None:
        """Note that the machine has applied an entry that this node has just appended."""
        self.projected_index = index
        if not index % CHAIN_STRIDE:
            self._applied_one(index)

    def _applied_one(self, index: int) -> None:
        """The machine is exactly at `index`, the end of a stride."""
        chain_index = self._journal.chain.index
        if index < chain_index:
            return  # a rebuild: it was noted before
        state_hash = self.machine.state_hash()
        for observer in self.observers:
            observer.applied(index, state_hash)
        if index == chain_index:
            self._chained(index)

    def _chained(self, index: int) -> None:
        digest = self._journal.chain.digest
        for observer in self.observers:
            observer.chained(index, digest)

    def at_rest(self) -> Checkpoint | None:
        """Both hashes at the end of the log if everything is committed and applied, else None."""
        index = self._journal.last_index
        if self.is_rebuilding or not index == self._journal.chain.index == self.projected_index:
            return None
        return Checkpoint(index, self._journal.chain.digest, self.machine.state_hash())

    # Entries that were replaced

    def truncated(self, index: int) -> bool:
        """Drop the entries after `index`; returns whether the machine had applied one of them."""
        assert self._replay is not None
        for observer in self.observers:
            observer.truncated(index)
        if index < self._loaded_index:
            self._loaded_index = index
            self._replay = self._new_replay(index, chains=True)
        return index < self.projected_index

    def installed(self) -> None:
        """A snapshot replaced the log; the caller calls `rebuild` next."""
        self.applied_index = self._journal.base_index
        self._loaded_index = 0

    def rebuild(self) -> Iterator[None]:
        """Reset the machine and rebuild it up to the last chained entry; a generator, to run in slices."""
        self.is_rebuilding = True
        self.rebuilds += 1
        journal = self._journal
        while True:
            self.machine.reset()
            self.projected_index = 0
            for _ in self.restore():
                yield
            to_index = journal.chain.index  # applied before; from there on as always
            replay = self._new_replay(to_index, chains=False)
            while journal.base_index <= self.projected_index < to_index:
                self.projected_index = replay.step(self.projected_index, to_index, self._host.monotonic_ms())
                yield
            if self.projected_index >= to_index:
                break
        if self._loaded_index > journal.chain.index:
            self._replay = self._new_replay(self._loaded_index, chains=True)
        self.is_rebuilding = False
