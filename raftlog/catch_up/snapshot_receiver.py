"""Receiving the leader's snapshot: chunks into a temporary file, then the snapshot and an empty log after it.

    resting --first chunk--> receiving --last chunk--> finishing (disk thread) --> adopting --> resting
                  ^               |                         |
                  +--- another snapshot, refused file ------+

Invariants: nothing is appended from the last chunk on until the snapshot is adopted; while its file
is put in place the journal begins no group (`Journal.hold`), and this node makes no snapshot of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from raftlog.consensus.messages import SnapshotAck, SnapshotChunk
from raftlog.env.errors import PeerMessageRefused
from raftlog.env.host import Host
from raftlog.env.state_machine import SnapshotHeader
from raftlog.storage.journal import Journal
from raftlog.storage.snapshot_install import SnapshotSink
from raftlog.storage.snapshotter import Snapshotter

LOG = logging.getLogger("quorate.raftlog")
LOOK_AGAIN_MS = 5.0
"""Milliseconds between attempts while a group is in flight or an own snapshot is put in place."""


class SnapshotReceiver:
    """A follower's side of an installation."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        snapshotter: Snapshotter,
        adopt: Callable[[SnapshotHeader], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._host = host
        self._journal = journal
        self._snapshotter = snapshotter
        self._adopt = adopt
        self._fail = fail
        self._sink: SnapshotSink | None = None
        self._source: tuple[int, int, int, int] | None = None
        self._is_stopped = False
        self.is_on_disk = False
        """Whether files of the log are being replaced, so that it cannot be closed."""
        self.has_replaced_log = False
        """Whether they were replaced after the node had stopped; the next start completes the install."""
        self.is_finishing = False
        """Whether the file is complete: entries of the leader are not taken until it is adopted."""

    def stop(self) -> None:
        """Stop with the node; a partly received file is removed."""
        self._is_stopped = True
        if self._sink is not None and not self.is_on_disk:
            self._sink.abandon()

    def take(self, leader: int, message: SnapshotChunk, *, is_joining: bool) -> SnapshotAck:
        """Store a chunk that the leader of the current term sent; returns the answer to it."""
        # Snapshots with equal last entries may differ in bytes: each node decides which tombstones it keeps.
        source = leader, message.term, message.last_index, message.size
        if not self.is_finishing:
            self._store(message, source)
        sink = self._sink
        is_ours = sink is not None and self._source == source
        offset = sink.offset if sink is not None and is_ours else 0
        is_refused = offset < message.offset + len(message.data)
        return SnapshotAck(message.term, message.last_index, offset, message.sent_ms, is_joining, is_refused)

    def _store(self, message: SnapshotChunk, source: tuple[int, int, int, int]) -> None:
        if message.offset == 0 and (self._sink is None or self._source != source):
            if self._sink is not None:
                self._sink.abandon()
            LOG.info("%s: receiving the snapshot up to entry %d", self._journal.home, message.last_index)
            self._sink = SnapshotSink(self._host.files, self._journal.home, self._host.fresh_id())
            self._source = source
        sink = self._sink
        if sink is None or self._source != source or sink.offset != message.offset:
            return
        sink.take(message.offset, message.data)
        if sink.offset >= message.size:
            self.is_finishing = True
            self._finish()

    def _finish(self) -> None:
        """Check the file and put it in place, on the disk thread, as soon as no other work prevents it."""
        if self._is_stopped:
            return
        if not self._journal.hold() or not self._snapshotter.hold():
            self._host.call_later(LOOK_AGAIN_MS, self._finish)
            return
        sink = self._sink
        assert sink is not None
        self.is_on_disk = True
        self._host.run_on_disk(lambda: sink.finish(self._journal.identity), self._finished)

    def _finished(self, header: object | None, error: BaseException | None) -> None:
        self.is_on_disk = False
        if self._is_stopped:
            self.has_replaced_log = error is None
            return
        self._sink = None
        self.is_finishing = False
        if isinstance(error, PeerMessageRefused):
            LOG.warning("%s: %s; the snapshot will be sent again", self._journal.home, error)
            self._journal.release()
            self._snapshotter.release()
            return
        if error is not None:
            self._fail(error)
            return
        assert isinstance(header, SnapshotHeader)
        try:
            self._adopt(header)
        except Exception as failure:
            self._fail(failure)
