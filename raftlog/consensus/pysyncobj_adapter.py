"""pysyncobj prepared for `raft`: a pinned release, on the host's clock, with our journal, over our links.

`createJournal` returns our journal, `monotonicTime` reads the host's clock, randomness is the host's; the
library has no poller, threads, files or sockets of its own.
"""

from __future__ import annotations

from typing import Any, Protocol

from pysyncobj import syncobj
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from raftlog.consensus.messages import Vote, VoteRequest
from raftlog.env.host import Host
from raftlog.storage.journal import Journal

PINNED_VERSION = "0.3.17"
"""The overrides use private names of exactly this release."""

if VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {VERSION} is installed, but the overrides were audited against {PINNED_VERSION}: "
        f"install pysyncobj=={PINNED_VERSION}"
    )

LogEntry = tuple[bytes, int, int]
"""The library's form of an entry: (command, index, term).  Commands stay on disk, so it is empty."""


class HostClock:
    """Replaces the library's clock: reads that of the host whose node is calling the library."""

    host: Host

    def __call__(self) -> float:
        return self.host.monotonic_ms() / 1000


CLOCK = HostClock()


def _own_journal(journal: object) -> LibraryJournal:
    if not isinstance(journal, LibraryJournal):
        raise TypeError(f"the journal is always ours, not {journal!r}")
    return journal


syncobj.monotonicTime = CLOCK
syncobj.createJournal = _own_journal


class TermStore(Protocol):
    """Stores term and vote; `save_term` returns when they are synced."""

    term: int
    vote: str | None

    def save_term(self, term: int, vote: str | None) -> None: ...


class RaftOwner(TermStore, Protocol):
    """The replica, as the engine sees it."""

    def open_term(self, index: int, term: int) -> None:
        """Append the first entry of the own new term."""

    def send(self, node_id: int, payload: bytes) -> bool:
        """Queue a message for a peer; False when there is no link."""

    def replicate(self) -> None:
        """Send the entries that peers lack, or heartbeats."""

    def truncate_after(self, index: int) -> None:
        """Remove entries that a leader of a later term does not have."""

    def on_elected(self) -> None:
        """This node leads; its term's first entry is appended."""

    def no_longer_leads(self) -> None:
        """A later term began, or the majority is out of contact."""


class LogView(LibraryJournal):  # type: ignore[misc]
    """The journal as the library sees it: (b"", index, term) from the snapshot's last entry on.

    Inherited methods raise: truncating and clearing come from peers' messages, which never reach the library.
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
        """Append the library's only own entry, the no-op of a new leader: it becomes our term start."""
        self._owner.open_term(idx, term)

    def getRaftCommitIndex(self) -> int:
        return self._journal.base_index

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Not stored: frames carry it, and a start must not believe one beyond the entries it holds (D6)."""

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        self._owner.save_term(term, votedForNodeId)

    def getCurrentTerm(self) -> int:
        return self._owner.term

    def getVotedForNodeId(self) -> str | None:
        return self._owner.vote

    def _destroy(self) -> None:
        """Does nothing: the replica closes its files."""


class VoteTransport(Transport):  # type: ignore[misc]
    """Override 8: the library sends only votes and vote requests; they go out as messages of ours."""

    def __init__(self, owner: RaftOwner) -> None:
        super().__init__(None, None, [])
        self._owner = owner
        self.is_transfer = False

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Node, message: dict[str, Any]) -> None:
        """Queue a vote or a vote request; without a link it is lost, as on any network."""
        if message["type"] == "request_vote":
            last_index, last_term = message["last_log_index"], message["last_log_term"]
            payload = VoteRequest(message["term"], last_index, last_term, self.is_transfer).encode()
        else:
            assert message["type"] == "response_vote", message["type"]
            payload = Vote(message["term"]).encode()
        self._owner.send(int(node.id), payload)

    def destroy(self) -> None:
        """Does nothing: links belong to the node."""


class NoPoller:
    """Replaces the library's poller of sockets: ours belong to the host's loop."""

    def poll(self, timeout_s: float) -> None:
        """Return at once; there is nothing to wait for."""
