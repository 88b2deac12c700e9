"""Old history is fetched from a peer: only what fits the hash chain is adopted, at every crash point."""

from __future__ import annotations

import dataclasses

import pytest

from raftlog.catch_up import archive_pieces
from raftlog.catch_up.archive_pieces import (
    HistorySource,
    adopt,
    find_gap,
    remove_asides,
    request_of,
    run,
    sealed_of,
    segment_aside,
    write_chunk,
)
from raftlog.consensus.messages import BadMessage, HistoryChunk, HistoryRequest, decode
from raftlog.env.errors import PeerMessageRefused
from raftlog.env.settings import MIB, LogSettings
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.archive import ARCHIVE, Manifest, apply_retention, read_manifest
from raftlog.storage.segments import LogIdentity, encode_header
from raftlog.storage.snapshot_install import SnapshotSink
from tests.raftlog.logs import SNAPPING, Follower
from tests.report import count_fault
from tests.support.single_replica import PATH

from .logs import HOME, MEMBER, SMALL, frames, member_disk, open_log
from .orphans import left_aside, sleeping_jobs

LOG = MEMBER.log(0)
CHUNK = 1000


def _peer(settings: LogSettings = SNAPPING, last: int = 800) -> Follower:
    """Return a node with the whole history."""
    peer = Follower(settings)
    for first in range(1, last, 50):
        peer.take(frames(first, first + 49, term=1))
        peer.commit(first + 49)
    return peer


def _installed(peer: Follower) -> SimFiles:
    """Return a new disk with the peer's snapshot."""
    disk = SimFiles()
    member_disk(disk)
    journal = open_log(disk)
    sink = SnapshotSink(disk, HOME, "token")
    sink.take(0, peer.disk.read(f"{HOME}/snapshot"))
    assert journal.hold()
    journal.adopt_snapshot(sink.finish(LOG))
    return disk


def _manifest(disk: SimFiles) -> Manifest:
    return read_manifest(disk, f"{HOME}/{ARCHIVE}")


def _missing(disk: SimFiles) -> int:
    return _manifest(disk).dropped_index


def _segment(peer: Follower, before_index: int) -> tuple[bytes, bytes]:
    """Fetch the peer's segment that ends at this index in chunks; return it with the hash chain before it."""
    source = HistorySource(peer.disk, HOME)
    data = b""
    while True:
        chunk = source.answer(before_index, len(data), CHUNK)
        data += chunk.data
        if len(data) == chunk.size:
            source.close()
            return data, chunk.chain_before


def _adopt(disk: SimFiles, segment: bytes, chain: bytes, identity: LogIdentity = LOG) -> None:
    """Adopt a whole segment, or raise PeerMessageRefused."""
    gap = find_gap(disk, HOME)
    assert gap is not None
    for offset in range(0, len(segment), CHUNK):
        write_chunk(disk, segment_aside(HOME, "token"), offset, segment[offset : offset + CHUNK])
    try:
        sealed = sealed_of(run(request_of(HOME, "token", identity, gap, chain), disk))
        adopt(disk, HOME, "token", sealed)
    except PeerMessageRefused:
        remove_asides(disk, HOME, "token")
        raise


def _fill(disk: SimFiles, peer: Follower) -> None:
    while _missing(disk):
        _adopt(disk, *_segment(peer, _missing(disk)))
        assert ShardReader(PATH, 0, disk).verify() == []


def test_the_whole_history_comes_back() -> None:
    peer = _peer()
    disk = _installed(peer)
    last = _missing(disk)
    assert last == peer.journal.base_index > 500
    _fill(disk, peer)
    ours, theirs = ShardReader(PATH, 0, disk).frames(), ShardReader(PATH, 0, peer.disk).frames(to_index=last)
    assert [one.encode() for one in ours] == [one.encode() for one in theirs]


def test_a_peer_whose_segments_end_elsewhere_gives_a_part_of_one() -> None:
    peer = _peer()
    other = _peer(dataclasses.replace(SNAPPING, segment_bytes=MIB, snapshot_tail_records=300), last=1600)
    ends = {one.last_index for one in _manifest(other.disk).segments}
    disk = _installed(peer)
    assert _missing(disk) not in ends
    assert _missing(disk) < max(ends)
    last = _missing(disk)
    _fill(disk, other)
    assert [one.index for one in ShardReader(PATH, 0, disk).frames()] == list(range(1, last + 1))


def test_what_is_not_the_missing_history_is_refused() -> None:
    peer = _peer()
    disk = _installed(peer)
    before = disk.listdir(f"{HOME}/{ARCHIVE}")
    newest = _segment(peer, _missing(disk))
    older = _segment(peer, _manifest(peer.disk).segments[-2].last_index)
    with pytest.raises(PeerMessageRefused, match="it ends with entry"):
        _adopt(disk, *older)
    with pytest.raises(PeerMessageRefused, match="does not end at the hash that this node knows"):
        _adopt(disk, newest[0], older[1])
    with pytest.raises(PeerMessageRefused, match="continues from the end of a stride"):
        _adopt(disk, newest[0], b"short")
    with pytest.raises(PeerMessageRefused, match="continues from the end of a stride"):
        _adopt(disk, encode_header(LOG, 7) + newest[0][-200:], newest[1])
    with pytest.raises(PeerMessageRefused, match="belongs to"):
        _adopt(disk, *newest, LogIdentity(cluster_id="x", shard=0, num_shards=1))
    for at in range(0, len(newest[0]), 17):
        count_fault("raftlog", "flipped bit")
        flipped = newest[0][:at] + bytes([newest[0][at] ^ 4]) + newest[0][at + 1 :]
        with pytest.raises(PeerMessageRefused):
            _adopt(disk, flipped, newest[1])
    assert disk.listdir(f"{HOME}/{ARCHIVE}") == before
    _adopt(disk, *newest)


def test_every_crash_point_keeps_what_was_there() -> None:
    peer = _peer()
    disk = _installed(peer)
    reached = [_missing(disk)]
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
                assert _missing(left) in reached
                assert ShardReader(PATH, 0, left).verify() == []
                kept = {one.first_index for one in _manifest(left).segments}
                names = left.listdir(f"{HOME}/{ARCHIVE}")
                assert {int(name[:20]) for name in names if name.endswith(".log")} == kept
                assert not any(name.endswith(".tmp") for name in names)
            except Exception as failure:
                failure.add_note(f"{how} {'after' if done else 'before'} call {number}, {operation} {path}")
                failures.append(failure)

    disk.on_call = at_call
    for _ in range(3):
        first = _missing(disk)
        segment, chain = _segment(peer, first)
        reached = [first, first - segment.count(b"QFR1")]
        _adopt(disk, segment, chain)
        assert _missing(disk) == reached[1]
    count_fault("raftlog", "crash point", points)
    for failure in failures[:1]:
        raise failure
    assert points >= 200


def test_a_job_that_outlives_its_node_leaves_nothing_but_what_the_next_start_removes() -> None:
    """The next start cleans up and fetches the same segment, at each moment of the job."""
    peer = _peer()
    disk = _installed(peer)
    gap = find_gap(disk, HOME)
    assert gap is not None
    segment, chain = _segment(peer, gap.before_index)
    write_chunk(disk, segment_aside(HOME, "orphan"), 0, segment)
    request = request_of(HOME, "orphan", LOG, gap, chain)

    def next_start(disk: SimFiles) -> None:
        open_log(disk)
        _adopt(disk, segment, chain)

    for left in sleeping_jobs(archive_pieces, request, disk, next_start):
        assert all("orphan" in name for name in left_aside(left, f"{HOME}/{ARCHIVE}"))
        _fill(left, peer)
        open_log(left)
        assert left_aside(left, f"{HOME}/{ARCHIVE}") == []
        assert ShardReader(PATH, 0, left).verify() == []


def test_a_gap_that_was_filled_or_moved_meanwhile_is_not_filled_again() -> None:
    peer = _peer()
    disk = _installed(peer)
    gap = find_gap(disk, HOME)
    assert gap is not None
    segment, chain = _segment(peer, gap.before_index)
    write_chunk(disk, segment_aside(HOME, "late"), 0, segment)
    late = sealed_of(run(request_of(HOME, "late", LOG, gap, chain), disk))
    _adopt(disk, segment, chain)
    with pytest.raises(PeerMessageRefused, match="no longer holds"):
        adopt(disk, HOME, "late", late)
    remove_asides(disk, HOME, "late")
    _fill(disk, peer)


def test_retention_would_not_remove_what_is_fetched() -> None:
    """History that retention has removed is never fetched again."""
    peer = _peer()
    kept_bytes = sum(one.log_bytes for one in _manifest(peer.disk).segments) // 2
    settings = dataclasses.replace(SMALL, log_archive_retention_bytes=kept_bytes, disk_free_bytes_min=0)
    disk = _installed(peer)
    while (gap := find_gap(disk, HOME)) is not None and gap.before_index:
        segment, chain = _segment(peer, gap.before_index)
        if not gap.has_room(settings, len(segment), 1000, 1000):
            break
        _adopt(disk, segment, chain)
    assert 0 < _missing(disk) < peer.journal.base_index
    before = _manifest(disk)
    assert apply_retention(disk, HOME, kept_bytes, -1, 1000) == before
    assert gap is not None
    aged = dataclasses.replace(SMALL, log_archive_retention_ms=500, disk_free_bytes_min=0)
    assert gap.has_room(aged, 1, newest_ms=1000, now_ms=1500)
    assert not gap.has_room(aged, 1, newest_ms=999, now_ms=1500)
    full = dataclasses.replace(SMALL, disk_free_bytes_min=gap.free_bytes)
    assert not gap.has_room(full, 1, 1000, 1000)


def test_a_source_reads_on_what_retention_removes_and_then_has_nothing() -> None:
    peer = _peer()
    last = _missing(_installed(peer))
    source = HistorySource(peer.disk, HOME)
    first = source.answer(last, 0, CHUNK)
    apply_retention(peer.disk, HOME, 0, -1, 1000)
    assert len(source.answer(last, CHUNK, CHUNK).data) == min(CHUNK, first.size - CHUNK)
    source.close()
    assert source.answer(last, 0, CHUNK).size == 0
    assert source.answer(last + 1_000_000, 0, CHUNK).size == 0


@pytest.mark.parametrize("value", [-1, 1 << 63, 1.5, None, "1", True, [1]])
def test_requests_and_chunks_of_other_types_are_no_messages(value: object) -> None:
    for good in (HistoryChunk(1, 2, 3, bytes(16), 0, b"x"), HistoryRequest(1, 2, 3)):
        assert decode(good.encode()) == good
        for name in good.__slots__:
            if (name, value) == ("newest_ms", -1):
                continue  # a time, which may lie before 1970
            bad = dataclasses.replace(good)
            setattr(bad, name, value)
            with pytest.raises(BadMessage):
                decode(bad.encode())
