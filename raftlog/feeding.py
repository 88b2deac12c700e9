"""Feeding a follower whose next entry is not in the live log any more: from the archive, or by snapshot.

A follower with a log of its own gets archived frames as long as the archive has its next entry, so that its
history stays whole; one with an empty log, or too far behind, gets the snapshot in chunks.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.host import Host
from raftlog.journal import Journal
from raftlog.messages import SnapshotAck, SnapshotChunk
from raftlog.progress import Peer
from raftlog.raft import Raft
from raftlog.settings import LogSettings


class Feeding:
    """Both ends of it, for one replica."""

    def __init__(
        self,
        host: Host,
        journal: Journal,
        raft: Raft,
        settings: LogSettings,
        send: Callable[[int, bytes], bool],
        home: str,
    ) -> None:
        self._host = host
        self._journal = journal
        self._raft = raft
        self._settings = settings
        self._send = send
        self._home = home

    def feed(self, peer: Peer) -> None:
        """Send a follower the next of what it lacks."""

    def drop(self, node_id: int) -> None:
        """The link to a follower is gone."""

    def stop(self) -> None:
        """Nothing is fed or received any more."""

    def received(self, leader: int, message: SnapshotChunk, *, is_joining: bool) -> None:
        """A chunk of the leader's snapshot."""

    def acknowledged(self, peer: Peer, message: SnapshotAck) -> None:
        """A follower has a chunk."""
