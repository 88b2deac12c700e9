"""pysyncobj 0.3.17 as the Raft engine, with every override that makes it safe to stand on.

The library decides terms, votes and leadership.  Everything that it was shown to lose data by is replaced
here, numbered as in the audit; D numbers are the defects that an override answers.  With no peers, 3 to 7
apply:

3.  `__applyLogEntries`: the owner applies by (index, term), a bounded slice per turn, and stops the node
    when applying fails, instead of retrying a half-applied entry for ever (D4).
4.  Durable acknowledgements: the commit index comes from what this journal has synced, for entries of the
    own term only, in O(1) per sync.  The library's own commit loop counts the node itself as soon as an entry
    is in memory and walks the whole log in every tick of a leader (D18).  It is kept from both: a node that
    is alone does not tick while it leads, `__onBecomeLeader` waits for the end of the tick that won the
    election, and `__getEntries` shows nothing that is not synced.
5.  `_checkCommandsToApply` does nothing: no command queue, no pipe (D14), no callbacks to lose (D5, D15).
    The replica appends under `propose`.
6.  The load barrier is `is_serving`: leader, and its own term's first entry applied; not a one-shot flag
    (D15).
7.  The journal: term and vote are synced before they count; the commit index is never stored, a start knows
    only its snapshot's (D6); `__tryLogCompaction` does nothing and no dump file is configured, so that the
    library neither forks (D17) nor clears or rewrites a journal (D7, D8, D12).

The seams: `createJournal` gives back our journal, `monotonicTime` reads the host's clock, election jitter
comes from the host's randomness; no poller, no threads.  `Peerless` is the transport of a node that is
alone; overrides 1, 2, 8 and 9 come with one that has peers.
"""

from __future__ import annotations

from typing import Any, Protocol

import pysyncobj
from pysyncobj import SyncObjConf, syncobj
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from raftlog.host import Host
from raftlog.journal import Journal
from raftlog.settings import LogSettings

PINNED_VERSION = "0.3.17"
"""The overrides go by private names of exactly this release."""

if VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {VERSION} is installed, but the overrides were audited against {PINNED_VERSION}: "
        f"install pysyncobj=={PINNED_VERSION}"
    )

LogEntry = tuple[bytes, int, int]
"""The library's idea of an entry: (command, index, term).  Commands stay on disk, so it is empty."""

NEVER_S = float("inf")


class _HostClock:
    """Stands in for the library's clock: the host of whichever node is in the library right now."""

    host: Host

    def __call__(self) -> float:
        return self.host.monotonic_ms() / 1000


_CLOCK = _HostClock()


def _own_journal(journal: object) -> LibraryJournal:
    if not isinstance(journal, LibraryJournal):
        raise TypeError(f"the journal is always ours, not {journal!r}")
    return journal


syncobj.monotonicTime = _CLOCK
syncobj.createJournal = _own_journal


class TermStore(Protocol):
    """Where term and vote are kept; `save_term` returns when they are synced."""

    term: int
    vote: str | None

    def save_term(self, term: int, vote: str | None) -> None: ...


class RaftOwner(TermStore, Protocol):
    """The replica, as the engine sees it."""

    def open_term(self, index: int, term: int) -> None:
        """Append the first entry of the own new term."""

    def apply_committed(self, applied_index: int, commit_index: int) -> int:
        """Apply a slice of what is committed; the new applied index."""


class LogView(LibraryJournal):  # type: ignore[misc]
    """The journal as the library sees it: (b"", index, term) from the snapshot's last entry on.

    What it inherits raises: truncating and clearing come from messages of peers, and there are none.
    """

    def __init__(self, journal: Journal, owner: RaftOwner) -> None:
        self._journal = journal
        self._owner = owner

    def __len__(self) -> int:
        return 1 + self._journal.last_index - self._journal.base_index

    def __getitem__(self, item: int | slice) -> LogEntry | list[LogEntry]:
        places = range(len(self))[item]
        return self._entry(places) if isinstance(places, int) else [self._entry(place) for place in places]

    def _entry(self, place: int) -> LogEntry:
        index = self._journal.base_index + place
        term = self._journal.term_at(index)
        assert term is not None
        return b"", index, term

    def add(self, command: bytes, idx: int, term: int) -> None:
        """The library's one own entry, the no-op of a new leader: it becomes our term start."""
        self._owner.open_term(idx, term)

    def getRaftCommitIndex(self) -> int:
        return self._journal.base_index

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Not stored: frames carry it, and a start must not believe one beyond what it holds (D6)."""

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        self._owner.save_term(term, votedForNodeId)

    def getCurrentTerm(self) -> int:
        return self._owner.term

    def getVotedForNodeId(self) -> str | None:
        return self._owner.vote

    def _destroy(self) -> None:
        """The replica closes its files."""


class Peerless(Transport):  # type: ignore[misc]
    """The transport of a node that is alone."""

    def __init__(self) -> None:
        super().__init__(None, None, [])

    @property
    def ready(self) -> bool:
        return True

    def destroy(self) -> None:
        """Nothing to close."""


class _NoPoller:
    """The library polls sockets at the end of a tick; ours belong to the host's loop."""

    def poll(self, timeout_s: float) -> None:
        """Nothing to wait for."""


class Raft(syncobj.SyncObj):  # type: ignore[misc]
    """One shard's Raft engine; ticks when the replica says so."""

    def __init__(
        self, host: Host, node_id: int, journal: Journal, owner: RaftOwner, settings: LogSettings
    ) -> None:
        self._host = host
        self._log = journal
        self._owner = owner
        self._has_won = False
        _CLOCK.host = host
        conf = SyncObjConf(
            autoTick=False,
            journalFile=LogView(journal, owner),
            fullDumpFile=None,
            dynamicMembershipChange=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=settings.raft_heartbeat_ms / 1000,
            raftMinTimeout=settings.raft_min_timeout_ms / 1000,
            raftMaxTimeout=settings.raft_max_timeout_ms / 1000,
            leaderFallbackTimeout=settings.raft_min_timeout_ms / 1000,
            pollerType="select",
        )
        super().__init__(Node(str(node_id)), [], conf, transport=Peerless())
        self._poller = _NoPoller()
        self._SyncObj__raftLastApplied = journal.base_index
        self._SyncObj__raftElectionDeadline = 0.0  # alone: campaign at once

    # What the replica asks

    @property
    def term(self) -> int:
        """The current term."""
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        """The last entry known to be committed."""
        return int(self._SyncObj__raftCommitIndex)

    @property
    def applied_index(self) -> int:
        """The last entry applied, by the owner or by whoever proposed it."""
        return int(self._SyncObj__raftLastApplied)

    @property
    def is_leader(self) -> bool:
        """This node leads the shard in `term`."""
        return bool(self._isLeader())

    @property
    def is_serving(self) -> bool:
        """Override 6: leading, and everything before the own term is applied."""
        first = self._SyncObj__noopIDx
        return self.is_leader and first is not None and self.applied_index >= first

    def next_deadline_ms(self) -> float | None:
        """When the next tick is due, on the host's clock; None when nothing but events moves this node."""
        if self.is_leader:
            return None  # heartbeats are for peers
        return float(self._SyncObj__raftElectionDeadline) * 1000

    def tick(self) -> None:
        """Let the library look at its deadlines."""
        _CLOCK.host = self._host
        self.doTick(0)
        if self._has_won:
            self._has_won = False
            super()._SyncObj__onBecomeLeader()

    def advance(self) -> None:
        """Override 4: commit what a majority has synced, then apply a slice of it."""
        index = majority([self._log.durable_index])
        if self.is_leader and index > self.commit_index and self._log.term_at(index) == self.term:
            self._SyncObj__raftCommitIndex = index
        self._SyncObj__applyLogEntries()

    # What the library asks: overrides of its private methods

    def _SyncObj__onBecomeLeader(self) -> None:
        self._has_won = True

    def _SyncObj__applyLogEntries(self) -> bool:
        if self.commit_index > self.applied_index:
            self._SyncObj__raftLastApplied = self._owner.apply_committed(
                self.applied_index, self.commit_index
            )
        return False

    def _SyncObj__getEntries(
        self,
        fromIDx: int | None,
        count: int | None = None,
        maxSizeBytes: int | None = None,
    ) -> Any:
        visible = self._log.durable_index + 1 - (fromIDx or 0)
        return super()._SyncObj__getEntries(fromIDx, max(0, min(count or visible, visible)), maxSizeBytes)

    def _SyncObj__generateRaftTimeout(self) -> float:
        return self._host.rng.uniform(self.conf.raftMinTimeout, self.conf.raftMaxTimeout)

    def _SyncObj__tryLogCompaction(self) -> None:
        """Override 7: snapshots are made from sealed segments by a job of ours."""

    def _checkCommandsToApply(self) -> None:
        """Override 5: entries are appended under `Replica.propose`."""


def majority(indexes: list[int]) -> int:
    """The highest index that more than half of the nodes have reached, given each node's."""
    return sorted(indexes, reverse=True)[len(indexes) // 2]


__all__ = ["Raft", "majority", "pysyncobj"]
