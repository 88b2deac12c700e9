"""The sending side of `archive_backfill`: peers without history get this node's archive, in chunks.

One chunk at a time per peer, read on the disk thread with memory for that chunk.  Invariants: an
unreadable archive costs the peer its history, but never stops this node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from raftlog.catch_up.archive_backfill import CHUNK_BYTES
from raftlog.catch_up.archive_pieces import HistorySource
from raftlog.consensus.messages import HistoryChunk, HistoryRequest
from raftlog.env.errors import Damaged
from raftlog.env.host import Host
from raftlog.transport.shard_links import ShardLinks

LOG = logging.getLogger("quorate.raftlog")


class ArchiveSender:
    """Reads the archive of the log in `home` for its peers."""

    def __init__(
        self,
        host: Host,
        home: str,
        links: ShardLinks,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host = host
        self._home = home
        self._links = links
        self._fail = fail
        self._sources: dict[int, HistorySource] = {}
        self._reading: set[int] = set()

    def asked(self, peer: int, request: HistoryRequest) -> None:
        """Answer a peer's request for a chunk; ignored while another one is read for it."""
        if peer in self._reading:
            return
        self._reading.add(peer)
        source = self._sources.setdefault(peer, HistorySource(self._host.files, self._home))
        bytes_max = min(request.bytes_max, CHUNK_BYTES)
        self._host.run_on_disk(
            lambda: source.answer(request.before_index, request.offset, bytes_max),
            lambda chunk, error: self._read(peer, request, chunk, error),
        )

    def _read(
        self, peer: int, request: HistoryRequest, chunk: object | None, error: BaseException | None
    ) -> None:
        self._reading.discard(peer)
        if isinstance(error, OSError | Damaged):
            LOG.warning("%s: the archive cannot be read for node %d: %s", self._home, peer, error)
            chunk = HistoryChunk(request.before_index, 0, 0, b"", request.offset, b"")
        elif error is not None:
            self._fail(error)
            return
        assert isinstance(chunk, HistoryChunk)
        if self._links.can_send(peer):
            self._links.send(peer, chunk.encode())

    def link_down(self, peer: int) -> None:
        """Close the peer's file; it asks anew when it comes back."""
        source = self._sources.pop(peer, None)
        if source is not None:
            self._host.run_on_disk(source.close, _closed)

    def stop(self) -> None:
        """Close all open files."""
        for peer in list(self._sources):
            self.link_down(peer)


def _closed(_: object | None, error: BaseException | None) -> None:
    """Ignore an error on closing a file that was only read."""
