"""Old history comes back from a peer: only what the hash chain leads from, at every crash point."""

from __future__ import annotations

import pytest

from raftlog.archive import ARCHIVE, read_manifest, read_segment
from raftlog.backfill import adopt_segment, missing_before
from raftlog.errors import Refused
from raftlog.install import SnapshotSink
from raftlog.reader import ShardReader
from raftlog.segments import LogIdentity
from raftlog.simfiles import Crash, SimFiles
from tests.report import count_fault

from .logs import HOME, MEMBER, frames, member_disk, open_log
from .nodes import PATH
from .test_follower_log import Follower

LOG = MEMBER.log(0)


def _peer() -> Follower:
    """A node with the whole history."""
    peer = Follower()
    for first in range(1, 800, 50):
        peer.take(frames(first, first + 49, term=1))
        peer.commit(first + 49)
    return peer


def _installed(peer: Follower) -> SimFiles:
    """A new disk with the peer's snapshot."""
    disk = SimFiles()
    member_disk(disk)
    journal = open_log(disk)
    sink = SnapshotSink(disk, HOME, "token")
    sink.take(0, peer.disk.read(f"{HOME}/snapshot"))
    journal.adopt_snapshot(sink.finish(LOG))
    return disk


def _segments(peer: Follower) -> list[tuple[bytes, bytes]]:
    """The peer's archived segments, newest first, with the chain before each."""
    manifest = read_manifest(peer.disk, f"{HOME}/{ARCHIVE}")
    kept = manifest.segments
    found = [(read_segment(peer.disk, HOME, one.first_index)[1], one.chain_before) for one in kept]
    return found[::-1]


def test_the_whole_history_comes_back() -> None:
    peer = _peer()
    disk = _installed(peer)
    last = missing_before(disk, HOME)
    assert last == peer.journal.base_index > 500
    for segment, chain in _segments(peer):
        adopt_segment(disk, HOME, LOG, segment, chain)
        assert ShardReader(PATH, 0, disk).verify() == []
    assert missing_before(disk, HOME) == 0
    ours, theirs = ShardReader(PATH, 0, disk).frames(), ShardReader(PATH, 0, peer.disk).frames(to_index=last)
    assert [one.encode() for one in ours] == [one.encode() for one in theirs]


def test_what_is_not_the_missing_history_is_refused() -> None:
    peer = _peer()
    disk = _installed(peer)
    before = disk.listdir(f"{HOME}/{ARCHIVE}")
    newest, older, *_ = _segments(peer)
    with pytest.raises(Refused, match="a segment that ends with entry"):
        adopt_segment(disk, HOME, LOG, *older)
    with pytest.raises(Refused, match="does not lead to what is known here"):
        adopt_segment(disk, HOME, LOG, newest[0], older[1])
    with pytest.raises(Refused, match="belongs to"):
        adopt_segment(disk, HOME, LogIdentity(cluster_id="x", shard=0, num_shards=1), *newest)
    for at in range(0, len(newest[0]), 17):
        flipped = newest[0][:at] + bytes([newest[0][at] ^ 4]) + newest[0][at + 1 :]
        with pytest.raises(Refused):
            adopt_segment(disk, HOME, LOG, flipped, newest[1])
    assert disk.listdir(f"{HOME}/{ARCHIVE}") == before
    adopt_segment(disk, HOME, LOG, *newest)


def test_every_crash_point_keeps_what_was_there() -> None:
    peer = _peer()
    disk = _installed(peer)
    reached = [missing_before(disk, HOME)]
    points = 0
    failures: list[BaseException] = []

    def at_call(number: int, operation: str, path: str, done: bool) -> None:
        nonlocal points
        for how in Crash:
            points += 1
            try:
                left = disk.crash(how, seed=points)
                journal = open_log(left)
                assert journal.base_index == peer.journal.base_index
                assert missing_before(left, HOME) in reached
                assert ShardReader(PATH, 0, left).verify() == []
                kept = {one.first_index for one in read_manifest(left, f"{HOME}/{ARCHIVE}").segments}
                names = left.listdir(f"{HOME}/{ARCHIVE}")
                assert {int(name[:20]) for name in names if name[0].isdigit()} == kept
            except Exception as failure:
                failure.add_note(f"{how} {'after' if done else 'before'} call {number}, {operation} {path}")
                failures.append(failure)

    disk.on_call = at_call
    for segment, chain in _segments(peer)[:3]:
        first = missing_before(disk, HOME)
        reached = [first, first - _count(segment)]
        adopt_segment(disk, HOME, LOG, segment, chain)
        assert missing_before(disk, HOME) == reached[1]
    count_fault("raftlog", "crash point", points)
    for failure in failures[:1]:
        raise failure
    assert points >= 200


def _count(segment: bytes) -> int:
    return segment.count(b"QFR1")
