"""pysyncobj 0.3.17 decides terms, votes and leadership; this is the only module that knows its private names.

`core` composes a `PysyncobjEngine` and drives it by a few verbs.  Everything in the library that was shown to
lose data is out of its reach or overridden.  D numbers are the defects of the audit that a part answers;
D1, D2, D6, D11 and D15 are answered in `core`, where their parts of the protocol are now.

- `LastEntry`: of the log the library sees only where it ends, which is all that votes need.  It stores no
  entries and cuts none, so a crash while it rewrites a file (D7, D8) and damage that nobody checks for (D9)
  cannot be its doing; a start believes no commit index of its (D6).
- `_Library.__raftCommitIndex`: the library's commit loop counts entries that are only in memory, and walks
  the log in every tick of a leader (D18).  It finds nothing left to commit.
- `_Library.__applyLogEntries`: it applies nothing, so nothing is applied twice after an exception (D4).
- `_Library._checkCommandsToApply`: it has no command queue, so there are no callbacks that hang or name an
  outcome that is still open (D5, D15, D16), and no pipe to fill (D14, also batching is on).
- `_Library.__tryLogCompaction`, and no dump file in its configuration: it neither loads dumps (D10), nor
  loses its state by compacting without one (D12), nor forks a child that inherits sockets (D17).
- `_Library.__onMessageReceived`, `_VoteTransport`: votes are all that it receives and sends, as messages of
  ours over authenticated links: no pickle, no port (D13).
- `_Library.__raftElectionDeadline`: it campaigns when `campaign` says so, after the pre-vote (`election`),
  and never by itself.

Its clock is the time that the caller names; it has no poller, threads, files or sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pysyncobj import SyncObj, SyncObjConf, syncobj
from pysyncobj.journal import Journal as LibraryJournal
from pysyncobj.node import Node
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from raftlog.consensus.messages import Vote, VoteRequest

PINNED_VERSION = "0.3.17"
"""The overrides use private names of exactly this release."""

if VERSION != PINNED_VERSION:
    raise ImportError(
        f"pysyncobj {VERSION} is installed, but the overrides were audited against {PINNED_VERSION}: "
        f"install pysyncobj=={PINNED_VERSION}"
    )

NEVER_S = float("inf")
UNUSED_PERIOD_S = 0.001
"""Seconds between heartbeats for the library, which sends none here.

The library checks its periods against each other.  Those of elections and connections, unused too, keep their
defaults; `leaderFallbackTimeout`, which is used, must be longer than this one.
"""

_FOLLOWER, _LEADER = syncobj._RAFT_STATE.FOLLOWER, syncobj._RAFT_STATE.LEADER


class EngineClock:
    """Replaces the library's clock: the time of the verb that is being carried out."""

    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms / 1000


CLOCK = EngineClock()


def _own_journal(journal: object) -> LibraryJournal:
    if not isinstance(journal, LibraryJournal):
        raise TypeError(f"the journal is always ours, not {journal!r}")
    return journal


syncobj.monotonicTime = CLOCK
syncobj.createJournal = _own_journal


class LogEnd(Protocol):
    """The end of the log, which a voter compares."""

    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...


class EngineOwner(Protocol):
    """The library's decisions, told to `core` while a verb is carried out."""

    def term_changed(self, term: int, vote: str | None) -> None:
        """Sync term and vote before this returns: only then they count."""

    def send_vote(self, node_id: int, message: Vote | VoteRequest) -> None:
        """Send a vote, or ask for one."""

    def leadership_changed(self, *, is_leader: bool) -> None:
        """This node won its election, or leads no longer."""


class PysyncobjEngine:
    """Terms and votes of one shard's replica."""

    def __init__(
        self,
        node_id: int,
        peers: Sequence[int],
        log: LogEnd,
        saved: tuple[int, str | None],
        quorum_timeout_ms: float,
        owner: EngineOwner,
    ) -> None:
        """`saved`: term and vote as they were synced; a leader that no majority answers for
        `quorum_timeout_ms` stops leading."""
        self._nodes = {peer: Node(str(peer)) for peer in peers}
        self._transport = _VoteTransport(owner)
        self.library = _Library(
            Node(str(node_id)),
            list(self._nodes.values()),
            SyncObjConf(
                autoTick=False,
                journalFile=LastEntry(log, saved, owner),
                fullDumpFile=None,
                dynamicMembershipChange=False,
                appendEntriesUseBatch=True,
                appendEntriesPeriod=UNUSED_PERIOD_S,
                leaderFallbackTimeout=quorum_timeout_ms / 1000,
                onStateChanged=lambda before, after: (
                    owner.leadership_changed(is_leader=after == _LEADER)
                    if _LEADER in (before, after)
                    else None
                ),
                pollerType="select",
            ),
            self._transport,
            log,
        )

    def campaign(self, now_ms: float, *, is_transfer: bool) -> None:
        """Begin a term and ask for votes; a node that is alone has won by then."""
        self._transport.is_transfer = is_transfer
        self.library.may_campaign = True
        self._tick(now_ms)
        self.library.may_campaign = False

    def check_quorum(self, now_ms: float) -> None:
        """Stop leading if no majority has answered for the timeout."""
        self._tick(now_ms)

    def _tick(self, now_ms: float) -> None:
        CLOCK.now_ms = now_ms
        self.library.doTick(0)

    def vote_request(self, peer: int, message: VoteRequest, now_ms: float) -> None:
        """Compare the logs, and vote at most once per term."""
        self._receive(
            peer,
            now_ms,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def vote(self, peer: int, term: int, now_ms: float) -> None:
        """Count a vote for this node."""
        self._receive(peer, now_ms, {"type": "response_vote", "term": term})

    def _receive(self, peer: int, now_ms: float, message: dict[str, Any]) -> None:
        CLOCK.now_ms = now_ms
        self.library._SyncObj__onMessageReceived(self._nodes[peer], message)

    def heard(self, peer: int, now_ms: float) -> None:
        """Note that a peer answered this leader."""
        self.library._SyncObj__lastResponseTime[self._nodes[peer]] = now_ms / 1000

    def link(self, peer: int, *, is_up: bool) -> None:
        """Note that the link to a peer came up or went down: without any link there is no campaign."""
        if is_up:
            self._transport._onNodeConnected(self._nodes[peer])
        else:
            self._transport._onNodeDisconnected(self._nodes[peer])

    def set_term(self, term: int, vote: str | None) -> None:
        """Move to a later term, or decide the vote in this one."""
        self.library._SyncObj__setCurrentTerm(term, vote)

    def step_down(self) -> None:
        """Stop leading, or campaigning, in this term."""
        self.library._SyncObj__setState(_FOLLOWER)


class _Library(SyncObj):  # type: ignore[misc]
    """The library, with what it must not do switched off."""

    def __init__(
        self, node: Node, others: list[Node], conf: SyncObjConf, transport: Transport, log: LogEnd
    ) -> None:
        self.may_campaign = False
        self._log_end = log
        super().__init__(node, others, conf, transport=transport)
        self._poller = _NoPoller()

    @property
    def _SyncObj__raftElectionDeadline(self) -> float:
        return -NEVER_S if self.may_campaign else NEVER_S

    @_SyncObj__raftElectionDeadline.setter
    def _SyncObj__raftElectionDeadline(self, deadline_s: float) -> None:
        """Ignored: elections begin in `campaign` only."""

    @property
    def _SyncObj__raftCommitIndex(self) -> int:
        """D18: everything is committed, as far as the library is concerned; `core` knows what really is."""
        return self._log_end.last_index

    @_SyncObj__raftCommitIndex.setter
    def _SyncObj__raftCommitIndex(self, index: int) -> None:
        """Ignored."""

    def _SyncObj__applyLogEntries(self) -> bool:
        return False  # D4

    def _SyncObj__sendAppendEntries(self) -> None:
        """The leader's half of replication sends entries: bounded, and encoded once for all peers."""

    def _SyncObj__onMessageReceived(self, node: Node, message: dict[str, Any]) -> None:
        assert message["type"] in {"request_vote", "response_vote"}  # D13
        super()._SyncObj__onMessageReceived(node, message)

    def _SyncObj__tryLogCompaction(self) -> None:
        """D12, D17: snapshots are made from sealed segments, by a child process of ours."""

    def _checkCommandsToApply(self) -> None:
        """D5, D14: entries are appended under `Replica.propose`."""


class LastEntry(LibraryJournal):  # type: ignore[misc]
    """The log as the library sees it: one entry, (b"", index, term), the last one.

    Inherited methods raise: truncating and clearing come from peers' messages, which never reach the library.
    """

    def __init__(self, log: LogEnd, saved: tuple[int, str | None], owner: EngineOwner) -> None:
        self._log = log
        self._saved = saved
        self._owner = owner

    def __len__(self) -> int:
        return 1

    def __getitem__(self, item: int | slice) -> Any:
        return [(b"", self._log.last_index, self._log.last_term)][item]

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Does nothing: the library's only own entry, the no-op of a new leader, is our term start."""

    def getRaftCommitIndex(self) -> int:
        return 0

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Not stored: frames carry it, and a start must not believe one beyond the entries it holds (D6)."""

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        self._owner.term_changed(term, votedForNodeId)

    def getCurrentTerm(self) -> int:
        return self._saved[0]

    def getVotedForNodeId(self) -> str | None:
        return self._saved[1]

    def _destroy(self) -> None:
        """Does nothing: the replica closes its files."""


class _VoteTransport(Transport):  # type: ignore[misc]
    """Turns the votes and vote requests of the library into messages of ours (D13)."""

    def __init__(self, owner: EngineOwner) -> None:
        super().__init__(None, None, [])
        self._owner = owner
        self.is_transfer = False

    @property
    def ready(self) -> bool:
        return True

    def send(self, node: Node, message: dict[str, Any]) -> None:
        """Send a vote or a vote request; without a link it is lost, as on any network."""
        if message["type"] == "request_vote":
            last_index, last_term = message["last_log_index"], message["last_log_term"]
            request = VoteRequest(message["term"], last_index, last_term, self.is_transfer)
            self._owner.send_vote(int(node.id), request)
        else:
            assert message["type"] == "response_vote", message["type"]
            self._owner.send_vote(int(node.id), Vote(message["term"]))

    def destroy(self) -> None:
        """Does nothing: links belong to the node."""


class _NoPoller:
    """Replaces the library's poller of sockets: ours belong to the host's loop."""

    def poll(self, timeout_s: float) -> None:
        """Return at once; there is nothing to wait for."""
