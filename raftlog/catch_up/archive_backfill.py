"""A node that began with a snapshot fetches the archived history before it from its peers, in the background.

    resting --gap found--> asking --offer--> fetching, one chunk at a time --whole--> checking (child process)
       ^                     |                  |                                          |
       +--- no peer has it --+---- link lost ---+--- refused: another peer ---- adopted ---+

The newest missing segment comes first, so that the archive never has holes and an interruption costs one
segment.  Invariants:

- Live traffic never waits: a node fetches at most `CHUNK_BYTES` per `CHUNK_PACE_MS`, all shards together,
  only while it is level with its cluster; files are accessed on the disk thread, segments checked in a child.
- Nothing is adopted that is not proven (`archive_pieces`), nor what this node's own retention would remove
  again.
- Trouble with a peer or with a temporary file never stops the node; damage of its own archive does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from raftlog.catch_up.archive_pieces import (
    JOB_MODULE,
    Gap,
    adopt,
    find_gap,
    remove_asides,
    request_of,
    sealed_of,
    segment_aside,
    write_chunk,
)
from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import HistoryChunk, HistoryRequest
from raftlog.env.errors import PeerMessageRefused
from raftlog.env.files import READ_BYTES_MAX
from raftlog.env.host import ChildProcess, Host, Timer
from raftlog.env.settings import KIB
from raftlog.storage.directory import shard_name
from raftlog.storage.hash_chain import DIGEST_BYTES
from raftlog.storage.journal import Journal
from raftlog.storage.sealed_index import Sealed
from raftlog.transport.shard_links import ShardLinks

LOG = logging.getLogger("quorate.raftlog")
CHUNK_BYTES = 256 * KIB
"""Bytes per chunk: each of reading, sending and writing takes about a millisecond."""
CHUNK_PACE_MS = 20.0
"""Milliseconds per chunk and node.

So at most 13 MB/s, a tenth of a slow network, and a twentieth of the loop's time.
"""
LOOK_MS = 1000.0
"""Milliseconds between checks whether the node is level or a peer in contact: nothing is urgent here."""
LOOK_AGAIN_MS = 30_000.0
"""Milliseconds before asking again if no peer had it: one may come back, or archive its live log."""
ANSWER_MS = 5000.0
"""Milliseconds to wait for an answer, far above a chunk's time; a slower peer is overloaded."""
BARRED_MS = 600_000.0
"""Milliseconds for which a peer that sent wrong history is not asked again: it is damaged."""


@dataclass(slots=True, eq=False)
class _Fetch:
    """A segment being fetched from `peer`."""

    peer: int
    gap: Gap
    token: str
    size: int = 0
    received: int = 0
    chain_before: bytes = b""
    is_asking: bool = False
    job: ChildProcess | None = None
    sealed: Sealed | None = None

    @property
    def is_whole(self) -> bool:
        return 0 < self.size == self.received


@dataclass(slots=True)
class _Peers:
    """The peers to ask, except those without the segment and, for a while, those that sent wrong history."""

    ids: Sequence[int]
    lacking: set[int] = field(default_factory=set)
    barred_until_ms: dict[int, float] = field(default_factory=dict)

    def may_ask(self, peer: int, now_ms: float) -> bool:
        return peer not in self.lacking and self.barred_until_ms.get(peer, 0.0) <= now_ms


class BackfillOwner(Protocol):
    """The replica's peering, as this module sees it."""

    def may_backfill(self) -> bool:
        """Whether the node is level with its cluster, and nothing else changes the archive on the loop."""

    def past_ms(self) -> int:
        """A wall-clock time that has certainly passed."""

    def fail(self, error: BaseException) -> None:
        """Stop the node."""


class ArchiveBackfill:
    """The receiving side of backfilling, for one shard; `archive_sender` is the sending side."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: RaftCore,
        links: ShardLinks,
        owner: BackfillOwner,
    ) -> None:
        self._host = host
        self._journal = journal
        self._settings = journal.settings
        self._name = shard_name(journal.identity.shard)
        self._raft = raft
        self._peers = _Peers(tuple(raft.progress.peers))
        self._links = links
        self._owner = owner
        self._pace_ms = CHUNK_PACE_MS * (journal.identity.num_shards + 1)
        self._gap: Gap | None = None
        self._fetch: _Fetch | None = None
        self._looks = 0
        self._timer: Timer | None = None
        self._is_begun = False
        self._is_stopped = False
        self.fetched_segments = 0
        self.is_on_disk = False
        """Whether the manifest is being changed: the directory cannot be given to another process."""

    def start(self) -> None:
        """Check whether anything is missing; the log is loaded."""
        self._look()

    def restart(self) -> None:
        """Start over after a snapshot was installed: something else is missing now."""
        self._drop()
        self._peers.lacking.clear()
        self._look()

    def stop(self) -> None:
        """Stop; the next start removes a partly received segment."""
        self._is_stopped = True
        self._cancel_timer()
        if self._fetch is not None and self._fetch.job is not None:
            self._fetch.job.cancel()

    def link_down(self, peer: int) -> None:
        """Continue with another peer if a fetch from this one is incomplete."""
        fetch = self._fetch
        if fetch is not None and fetch.peer == peer and not fetch.is_whole:
            self._drop()
            self._later(LOOK_MS, self._look)

    def status(self) -> dict[str, Any]:
        """The last missing entry, segments fetched, and the peer in use; JSON-ready."""
        return {
            "missing_before": 0 if self._gap is None else self._gap.before_index,
            "fetched_segments": self.fetched_segments,
            "from": self._fetch.peer if self._fetch is not None and self._fetch.size else None,
        }

    # Choosing a peer

    def _look(self) -> None:
        self._looks += 1
        look, files, home = self._looks, self._host.files, self._journal.home
        self._host.run_on_disk(
            lambda: find_gap(files, home), lambda gap, error: self._looked(look, gap, error)
        )

    def _looked(self, look: int, gap: object | None, error: BaseException | None) -> None:
        if self._is_stopped or look != self._looks:
            return
        if error is not None:
            self._owner.fail(error)
        elif not isinstance(gap, Gap):
            self._later(LOOK_MS, self._look)
        else:
            self._gap = gap
            if gap.before_index:
                self._choose(gap)
            else:
                self._rest("it is complete")

    def _choose(self, gap: Gap) -> None:
        """Ask the next peer; the leader last, as it has the most to do."""
        linked = [peer for peer in self._peers.ids if self._links.can_send(peer)]
        if not linked or not self._owner.may_backfill():
            self._later(LOOK_MS, self._look)
            return
        now_ms, leader = self._host.monotonic_ms(), self._raft.leader_id
        for peer in sorted(linked, key=lambda one: (one == leader, one)):
            if self._peers.may_ask(peer, now_ms):
                self._fetch = _Fetch(peer, gap, self._host.fresh_id())
                self._ask(self._fetch)
                return
        self._rest("no connected peer has older entries that this node would keep")
        self._peers.lacking.clear()
        self._later(LOOK_AGAIN_MS, self._look)

    def _rest(self, why: str) -> None:
        """Pause: nothing more can be fetched at present."""
        if self._is_begun and self._gap is not None:
            what = "%s: has the history from entry %d on, %d segments of it from peers: %s"
            LOG.info(what, self._name, self._gap.before_index + 1, self.fetched_segments, why)
        self._is_begun = False

    def _lacks(self, fetch: _Fetch) -> None:
        """Ask another peer: this one does not have the segment, at least not now."""
        self._peers.lacking.add(fetch.peer)
        self._drop()
        self._choose(fetch.gap)

    def _bar(self, fetch: _Fetch, why: str) -> None:
        LOG.warning(
            "%s: node %d sent history before entry %d, which was refused: %s",
            self._name,
            fetch.peer,
            fetch.gap.before_index + 1,
            why,
        )
        self._peers.barred_until_ms[fetch.peer] = self._host.monotonic_ms() + BARRED_MS
        self._drop()
        self._choose(fetch.gap)

    def _drop(self) -> None:
        """Abandon the segment being fetched."""
        fetch, self._fetch = self._fetch, None
        self._cancel_timer()
        if fetch is not None:
            if fetch.job is not None:
                fetch.job.cancel()
            self._remove(fetch)

    def _remove(self, fetch: _Fetch) -> None:
        files, home = self._host.files, self._journal.home
        if fetch.received or fetch.size:
            self._host.run_on_disk(lambda: remove_asides(files, home, fetch.token), _ignore)

    # One segment

    def _ask(self, fetch: _Fetch) -> None:
        """Ask for the next chunk; the first request only asks whether the peer has the segment."""
        if not self._owner.may_backfill() or not self._links.can_send(fetch.peer):
            self._later(LOOK_MS, self._ask, fetch)
            return
        fetch.is_asking = True
        bytes_max = CHUNK_BYTES if fetch.size else 0
        request = HistoryRequest(fetch.gap.before_index, fetch.received, bytes_max)
        self._links.send(fetch.peer, request.encode())
        self._later(ANSWER_MS, self._lacks, fetch)

    def answered(self, peer: int, chunk: HistoryChunk) -> None:
        """Take a peer's answer; ignored unless it is the one being waited for."""
        fetch = self._fetch
        if fetch is None or not fetch.is_asking or fetch.peer != peer:
            return
        if (chunk.before_index, chunk.offset) != (fetch.gap.before_index, fetch.received):
            return
        fetch.is_asking = False
        if not chunk.size:
            self._lacks(fetch)
        elif not fetch.size:
            self._take_offer(fetch, chunk)
        elif (chunk.size, chunk.chain_before) != (fetch.size, fetch.chain_before) or not chunk.data:
            self._lacks(fetch)  # the peer has another file there by now
        elif len(chunk.data) > min(CHUNK_BYTES, fetch.size - fetch.received):
            self._bar(fetch, "more data than was requested")
        else:
            self._write(fetch, chunk)

    def _take_offer(self, fetch: _Fetch, chunk: HistoryChunk) -> None:
        if chunk.size > READ_BYTES_MAX or len(chunk.chain_before) != DIGEST_BYTES:
            self._bar(fetch, f"the segment has {chunk.size} bytes")
            return
        now_ms = min(self._journal.last_timestamp_ms, self._owner.past_ms())
        if not fetch.gap.has_room(self._settings, chunk.size, chunk.newest_ms, now_ms):
            self._lacks(fetch)
            return
        if not self._is_begun:
            self._is_begun = True
            what = "%s: fetching the history before entry %d, from node %d first"
            LOG.info(what, self._name, fetch.gap.before_index + 1, fetch.peer)
        fetch.size, fetch.chain_before = chunk.size, chunk.chain_before
        self._later(self._pace_ms, self._ask, fetch)

    def _write(self, fetch: _Fetch, chunk: HistoryChunk) -> None:
        self._cancel_timer()
        files, path = self._host.files, segment_aside(self._journal.home, fetch.token)
        self._host.run_on_disk(
            lambda: write_chunk(files, path, chunk.offset, chunk.data),
            lambda _, error: self._written(fetch, len(chunk.data), error),
        )

    def _written(self, fetch: _Fetch, size: int, error: BaseException | None) -> None:
        if self._is_stopped or fetch is not self._fetch:
            return
        if error is not None:
            self._put_off(fetch, error)
            return
        fetch.received += size
        if fetch.is_whole:
            self._check(fetch)
        else:
            self._later(self._pace_ms, self._ask, fetch)

    def _put_off(self, fetch: _Fetch, error: BaseException) -> None:
        """Try again later after trouble with a temporary file; serious trouble will show in the live log."""
        LOG.warning("%s: fetching history is postponed: %s", self._name, error)
        self._drop()
        self._later(LOOK_AGAIN_MS, self._look)

    def _check(self, fetch: _Fetch) -> None:
        journal = self._journal
        fetch.job = self._host.spawn_job(
            JOB_MODULE,
            request_of(journal.home, fetch.token, journal.identity, fetch.gap, fetch.chain_before),
            lambda result, error: self._checked(fetch, result, error),
            low_priority=True,
            deadline_ms=self._settings.snapshot_deadline_ms,
        )

    def _checked(self, fetch: _Fetch, result: object | None, error: BaseException | None) -> None:
        fetch.job = None
        if self._is_stopped:
            return
        if fetch is not self._fetch:
            self._remove(fetch)  # again: the child may have written since
        elif error is not None:
            self._put_off(fetch, error)
        else:
            try:
                fetch.sealed = sealed_of(result)
            except PeerMessageRefused as refusal:
                self._bar(fetch, str(refusal))
            else:
                self._adopt(fetch)

    def _adopt(self, fetch: _Fetch) -> None:
        """Adopt a checked segment, but not while a snapshot from the leader changes the manifest too."""
        sealed, files, home = fetch.sealed, self._host.files, self._journal.home
        assert sealed is not None
        if not self._owner.may_backfill():
            self._later(LOOK_MS, self._adopt, fetch)
            return
        self.is_on_disk = True
        self._host.run_on_disk(
            lambda: adopt(files, home, fetch.token, sealed), lambda _, error: self._adopted(fetch, error)
        )

    def _adopted(self, fetch: _Fetch, error: BaseException | None) -> None:
        self.is_on_disk = False
        if self._is_stopped:
            return
        if error is not None and not isinstance(error, PeerMessageRefused):
            self._owner.fail(error)
            return
        if fetch is not self._fetch:
            return
        if error is None:
            self.fetched_segments += 1
            self._fetch = None
        self._drop()
        self._peers.lacking.clear()
        self._look()

    # Time

    def _later(self, delay_ms: float, fn: Callable[..., None], *args: object) -> None:
        """Schedule the single next action."""
        self._cancel_timer()
        self._timer = self._host.call_later(delay_ms, self._on_time, fn, *args)

    def _on_time(self, fn: Callable[..., None], *args: object) -> None:
        self._timer = None
        if self._is_stopped:
            return
        try:
            fn(*args)
        except Exception as error:
            self._owner.fail(error)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore(_: object | None, error: BaseException | None) -> None:
    if error is not None:
        LOG.debug("history: %s", error)
