"""A follower's own history: its snapshots, reads of its archive by others, what its files prove committed."""

from __future__ import annotations

import contextlib
import random

import pytest

from raftlog.env.errors import Damaged
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.archive import ARCHIVE, ArchiveCursor
from raftlog.storage.frames import HEADER, HEADER_BYTES
from raftlog.storage.loader import mark_clean
from raftlog.storage.sync_mark import SYNCED_FILE
from tests.raftlog.logs import Follower
from tests.support.single_replica import PATH, KeyValues

from .logs import HOME, SMALL, chain_of, frame, frames, open_log, snapshot_file


def _frames(first: int, last: int, term: int) -> bytes:
    return b"".join(
        frame(index, term, commit_index=index - 5, text=f"v{index}") for index in range(first, last + 1)
    )


def _state_hash_at(disk: SimFiles, index: int) -> int:
    machine = KeyValues()
    for one in ShardReader(PATH, 0, disk).frames(to_index=index):
        machine.apply_frame(one.index, one.term, one.timestamp_ms, one.body)
    return machine.state_hash()


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_makes_its_own_snapshots(seed: int) -> None:
    """However entries arrive and are committed, a snapshot's hash is that of exactly its index."""
    rng, follower = random.Random(seed), Follower()
    committed = 0
    while follower.journal.last_index < 900:
        first = follower.journal.last_index + 1
        follower.take(_frames(first, first + rng.randrange(1, 100), term=1))
        committed = rng.randrange(committed, follower.journal.last_index + 1)
        follower.commit(committed)
    assert follower.snapshotter.snapshots_made >= 2
    snapshot = ShardReader(PATH, 0, follower.disk).snapshot()
    assert snapshot is not None
    header = snapshot.header
    assert header.last_index == follower.journal.base_index
    assert header.state_hash == _state_hash_at(follower.disk, header.last_index)
    wanted = [frame(n, 1, commit_index=n - 5, text=f"v{n}") for n in range(1, header.last_index + 1)]
    assert header.chain_hash == chain_of(wanted)
    found = ShardReader(PATH, 0, follower.disk.crash(Crash.LOST)).verify()
    assert {one.file for one in found} <= {f"{HOME}/{SYNCED_FILE}"}, "the mark may be torn"


def test_a_point_that_is_truncated_away_is_chosen_anew() -> None:
    follower = Follower()
    follower.take(_frames(1, 200, term=1))
    assert [segment.first_index for segment in follower.journal.segments][-1] == 129
    follower.commit(100)
    follower.truncate(110)
    follower.take(_frames(111, 400, term=2))
    follower.commit(400)
    snapshot = ShardReader(PATH, 0, follower.disk).snapshot()
    assert snapshot is not None
    assert snapshot.header.state_hash == _state_hash_at(follower.disk, snapshot.header.last_index)
    assert snapshot.header.last_term == 2
    assert ShardReader(PATH, 0, follower.disk).verify() == []


def test_no_own_snapshot_is_put_in_place_while_the_leaders_is() -> None:
    follower = Follower()
    follower.host.hold_jobs = True
    follower.take(_frames(1, 300, term=1))
    follower.commit(300)
    assert len(follower.host.jobs) == 1
    assert follower.snapshotter.hold()
    follower.host.release_jobs()
    follower.host.run()
    assert not follower.disk.exists(f"{HOME}/snapshot")
    follower.take(_frames(301, 600, term=1))
    follower.commit(600)
    assert len(follower.host.jobs) == 1, "none is started"
    follower.host.hold_jobs = False
    follower.snapshotter.release()
    follower.host.run()
    follower.commit(600)
    assert follower.snapshotter.snapshots_made == 1
    assert not [name for name in follower.disk.listdir(HOME) if name.endswith(".tmp")]
    assert ShardReader(PATH, 0, follower.disk).verify() == []


def test_a_follower_goes_on_with_snapshots_behind_an_installed_one() -> None:
    follower = Follower()
    follower.take(_frames(1, 70, term=1))
    assert follower.journal.hold()
    assert follower.snapshotter.hold()
    header = snapshot_file(follower.disk, f"{HOME}/snapshot", 640, term=2)
    follower.disk.open(f"{HOME}/installing", "w").close()
    follower.journal.adopt_snapshot(header)
    follower.snapshotter.installed()
    follower.machine.applied = 640
    follower.take(_frames(641, 1000, term=3))
    follower.commit(1000)
    assert follower.snapshotter.snapshots_made >= 1
    found = ShardReader(PATH, 0, follower.disk.crash(Crash.LOST)).verify()
    assert {one.file for one in found} <= {f"{HOME}/{SYNCED_FILE}"}, "the mark may be torn"


# The archive, read for a follower


def _archived() -> Follower:
    follower = Follower()
    for first in range(1, 1000, 50):
        follower.take(_frames(first, first + 49, term=1))
        follower.commit(first + 49)
    assert len(follower.disk.listdir(f"{HOME}/{ARCHIVE}")) > 6
    return follower


def _indexes(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        _, _, length, _, index, _, _, _ = HEADER.unpack_from(data, at)
        found.append(index)
        at += HEADER_BYTES + length
    return found


@pytest.mark.parametrize("start", [1, 2, 64, 65, 300])
@pytest.mark.parametrize("bytes_max", [1, 500, 1 << 20])
def test_the_archive_is_read_on_and_on(start: int, bytes_max: int) -> None:
    follower = _archived()
    last = follower.journal.base_index
    cursor, index, seen = ArchiveCursor(follower.disk, HOME), start, []
    while index <= last:
        data = cursor.frames(index, bytes_max)
        assert len(data) <= max(bytes_max, 200)
        seen += _indexes(data)
        index = seen[-1] + 1
    assert seen == list(range(start, last + 1))
    with pytest.raises(KeyError, match="not in the archive yet"):
        cursor.frames(last + 1, bytes_max)
    cursor.close()


def test_any_archived_entry_is_found_without_reading_its_segment() -> None:
    follower = _archived()
    size_max = 0
    original = type(follower.disk.open(f"{HOME}/snapshot", "r")).pread

    def counted(self: object, size_bytes: int, offset: int) -> bytes:
        nonlocal size_max
        size_max = max(size_max, size_bytes)
        return original(self, size_bytes, offset)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("raftlog.env.simulated_files.SimFile.pread", counted)
        for index in range(1, follower.journal.base_index + 1):
            cursor = ArchiveCursor(follower.disk, HOME)
            assert _indexes(cursor.frames(index, 300))[0] == index
            cursor.close()
    assert size_max <= 1024


def test_damage_in_the_archive_is_not_sent_on() -> None:
    follower = _archived()
    path = f"{HOME}/{ARCHIVE}/00000000000000000001.log"
    follower.disk.damage(path, follower.disk.size(path) // 2)
    cursor, index = ArchiveCursor(follower.disk, HOME), 1
    with contextlib.suppress(Damaged):
        for _ in range(200):
            index = _indexes(cursor.frames(index, 400))[-1] + 1
    assert 10 < index < 128
    with pytest.raises(Damaged, match=f"no complete frame where entry {index} should be"):
        cursor.frames(index, 400)


def test_a_segment_that_retention_removes_meanwhile_is_a_key_error() -> None:
    follower = _archived()
    cursor = ArchiveCursor(follower.disk, HOME)
    cursor.frames(1, 100)
    follower.disk.unlink(f"{HOME}/{ARCHIVE}/00000000000000000129.index")
    with pytest.raises(KeyError, match="retention is removing it"):
        cursor.frames(130, 100)


# What the files of one node prove


def test_a_member_alone_proves_only_what_is_named_as_committed() -> None:
    follower = Follower(SMALL)
    follower.take(frames(1, 200, term=1, commit_index=40))
    assert len(follower.journal.segments) > 2, "ended segments are not all committed"
    reader = ShardReader(PATH, 0, follower.disk)
    assert reader.highest_commit() == 40
    decided = [one.index for one in reader.frames() if one.decided]
    assert decided == list(range(1, 41))
    assert len(list(reader.frames())) == 200
    assert all(one.decided for one in ShardReader(PATH, 0, follower.disk, alone=True).frames())
    follower.commit(130)
    assert reader.highest_commit() == 128, "sealed"
    mark_clean(follower.disk, follower.journal, 150)
    assert reader.highest_commit() == 150
    assert reader.verify() == []
    again = open_log(follower.disk.crash(Crash.LOST))
    assert again.last_index == 200


def test_an_undecided_tail_is_not_damage() -> None:
    follower = Follower()
    follower.take(_frames(1, 500, term=1))
    follower.commit(300)
    follower.take(frames(501, 520, term=4))
    assert ShardReader(PATH, 0, follower.disk).verify() == []
    mark_clean(follower.disk, follower.journal, 300)
    assert ShardReader(PATH, 0, follower.disk).verify() == []
    follower.disk.damage(f"{HOME}/clean", 40)
    assert ShardReader(PATH, 0, follower.disk).verify() != []
