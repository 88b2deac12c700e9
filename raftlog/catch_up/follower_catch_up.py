"""Serving a follower whose next entry is no longer in the live log: from the archive, or by snapshot.

A follower with a log of its own gets archived frames as long as the archive has its next entry, so that its
history stays complete.  One whose log is empty, or that is too far behind, gets the snapshot in chunks; the
live log follows.  Both are bounded: `replicate_window_bytes` of frames, or `CHUNKS_UNDER_WAY` chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.consensus.core import RaftCore
from raftlog.consensus.messages import Append, SnapshotAck, SnapshotChunk
from raftlog.consensus.progress import FollowerProgress
from raftlog.env.files import Files
from raftlog.env.host import Host
from raftlog.env.settings import KIB
from raftlog.storage.archive import ArchiveCursor
from raftlog.storage.frames import HEADER, last_in
from raftlog.storage.journal import Journal
from raftlog.storage.snapshot_install import SnapshotSource
from raftlog.transport.shard_links import ShardLinks

CHUNK_BYTES = 256 * KIB
"""Bytes of a snapshot per chunk: about a millisecond of reading here and writing there."""
CHUNKS_UNDER_WAY = 4
"""Chunks in flight: enough to keep both ends busy over a link with some milliseconds of delay."""
SILENCE_MS = 2000
"""Milliseconds without an answer after which chunks are sent again: the follower was still loading."""
ARCHIVE_BATCHES = 8
"""At most this many batches are read from the archive in one turn, a megabyte each by default."""


class _Archive:
    """A reader of the archive for one follower."""

    def __init__(self, files: Files, home: str) -> None:
        self._cursor = ArchiveCursor(files, home)
        self._last_index = -1
        self._last_term = 0

    def batch(self, from_index: int, bytes_max: int) -> tuple[int, bytes, int]:
        """(term of the entry before, frames from `from_index` on, last index in them); raises KeyError."""
        if self._last_index != from_index - 1:
            before = self._cursor.frames(from_index - 1, 1) if from_index > 1 else b""
            self._last_term = HEADER.unpack_from(before)[5] if before else 0
        prev_term = self._last_term
        frames = self._cursor.frames(from_index, bytes_max)
        self._last_index, self._last_term = (
            last_in(frames),
            HEADER.unpack_from(frames, _last_start(frames))[5],
        )
        return prev_term, frames, self._last_index

    def close(self) -> None:
        self._cursor.close()


@dataclass(slots=True)
class _Sending:
    """A snapshot being sent, with the bytes sent and acknowledged so far."""

    source: SnapshotSource
    sent: int = 0
    acknowledged: int = 0
    heard_ms: float = 0.0


class FollowerCatchUp:
    """A leader's work for followers that need entries older than its live log."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: RaftCore,
        links: ShardLinks,
    ) -> None:
        self._host = host
        self._journal = journal
        self._raft = raft
        self._settings = journal.settings
        self._links = links
        self._archives: dict[int, _Archive] = {}
        self._sending: dict[int, _Sending] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any follower is being served."""
        return bool(self._archives or self._sending)

    def serve(self, peer: FollowerProgress) -> None:
        """Send a follower the next part of what it lacks."""
        sending = self._sending.get(peer.node_id)
        if sending is not None and peer.match_index >= sending.source.header.last_index:
            self.drop(peer.node_id)  # installed; the live log begins after a later snapshot by now
        if peer.node_id in self._sending:
            self._send_chunks(peer)
        elif not peer.last_index or not self._send_archive(peer):
            self._begin_snapshot(peer)

    def drop(self, node_id: int) -> None:
        """Stop serving a follower: its link is gone, or it has what it needs."""
        archive = self._archives.pop(node_id, None)
        if archive is not None:
            archive.close()
        sending = self._sending.pop(node_id, None)
        if sending is not None:
            sending.source.close()

    def stop(self) -> None:
        """Stop serving all followers: this node does not lead any more."""
        for node_id in {*self._archives, *self._sending}:
            self.drop(node_id)

    def describe(self, node_id: int) -> str | None:
        """The source that serves a follower, in words; None when it takes the live log."""
        if node_id in self._sending:
            sending = self._sending[node_id]
            return f"snapshot ({100 * sending.acknowledged // max(1, sending.source.size)} %)"
        return "archive" if node_id in self._archives else None

    # The archive

    def _send_archive(self, peer: FollowerProgress) -> bool:
        """Send archived frames; False when the archive does not have the next one."""
        archive = self._archives.get(peer.node_id)
        if archive is None:
            archive = self._archives[peer.node_id] = _Archive(self._host.files, self._journal.home)
        window_bytes, raft = self._settings.replicate_window_bytes, self._raft
        for _ in range(ARCHIVE_BATCHES):
            first = peer.next_index
            has_room = not peer.is_waiting and peer.in_flight_bytes < window_bytes
            if first > self._journal.base_index or not has_room or not self._links.can_send(peer.node_id):
                break
            try:
                prev_term, frames, last = archive.batch(first, self._settings.replicate_batch_bytes)
            except KeyError:
                self.drop(peer.node_id)
                return False
            now_ms = self._host.monotonic_ms()
            message = Append(raft.term, first - 1, prev_term, raft.commit_index, now_ms, frames)
            if not self._links.send(peer.node_id, message.encode()):
                break
            peer.sent(last, len(frames), now_ms)
        return True

    # The snapshot

    def _begin_snapshot(self, peer: FollowerProgress) -> None:
        source = SnapshotSource(self._host.files, self._journal.home)
        self._sending[peer.node_id] = _Sending(source, heard_ms=self._host.monotonic_ms())
        self._send_chunks(peer)

    def _send_chunks(self, peer: FollowerProgress) -> None:
        sending = self._sending[peer.node_id]
        now_ms = self._host.monotonic_ms()
        if now_ms - sending.heard_ms > SILENCE_MS:
            if sending.acknowledged >= sending.source.size:  # all arrived, not in place: refused, or soon
                sending.acknowledged = 0
            sending.sent, sending.heard_ms = sending.acknowledged, now_ms
        header, size, raft = sending.source.header, sending.source.size, self._raft
        while sending.sent < size and sending.sent - sending.acknowledged < CHUNKS_UNDER_WAY * CHUNK_BYTES:
            if not self._links.can_send(peer.node_id):
                break
            data = sending.source.chunk(sending.sent, CHUNK_BYTES)
            message = SnapshotChunk(
                raft.term,
                raft.commit_index,
                self._host.monotonic_ms(),
                header.last_index,
                header.last_term,
                size,
                sending.sent,
                data,
            )
            if not self._links.send(peer.node_id, message.encode()):
                break
            sending.sent += len(data)

    def acknowledged(self, peer: FollowerProgress, message: SnapshotAck) -> None:
        """Continue a snapshot after an answer: a part was stored, or is wanted from another offset."""
        sending = self._sending.get(peer.node_id)
        if sending is None or sending.source.header.last_index != message.last_index:
            return
        sending.heard_ms = self._host.monotonic_ms()
        if message.is_refused:
            sending.sent = sending.acknowledged = message.offset
        else:
            sending.acknowledged = max(sending.acknowledged, message.offset)
            sending.sent = max(sending.sent, sending.acknowledged)
        self._send_chunks(peer)


def _last_start(frames: bytes) -> int:
    """The offset of the last of these whole frames."""
    at, start = 0, 0
    while at < len(frames):
        start = at
        at += HEADER.size + HEADER.unpack_from(frames, at)[2]
    return start
