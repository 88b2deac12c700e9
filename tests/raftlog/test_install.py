"""A snapshot from another node: in chunks, checked, put in place; a replaced disk; crash points of both."""

from __future__ import annotations

import pytest

from raftlog.env.errors import PeerMessageRefused
from raftlog.env.simulated_files import Crash, SimFile, SimFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import ShardReader
from raftlog.storage import loader
from raftlog.storage.archive import read_manifest
from raftlog.storage.directory import (
    NodeIdentity,
    NotFormatted,
    format_node,
    is_joining,
    joined,
    read_identity,
)
from raftlog.storage.journal import Journal
from raftlog.storage.metafile import write_meta
from raftlog.storage.snapshot_install import INSTALLING_FILE, SnapshotSink, SnapshotSource
from raftlog.storage.snapshots import SNAPSHOT_FILE
from tests.report import count_fault
from tests.support.single_replica import PATH

from .logs import HOME, MEMBER, TERM_MAX, flush, frame, frames, member_disk, open_log, snapshot_file, terms_of

FOLLOWER_CRASH_POINTS_MIN = 1500
CHUNK_BYTES = 100
LOG = MEMBER.log(0)


def _leader(last_index: int = 640, term: int = 5) -> tuple[SimFiles, SnapshotHeader]:
    disk = SimFiles()
    member_disk(disk)
    return disk, snapshot_file(disk, f"{HOME}/{SNAPSHOT_FILE}", last_index, term)


def _send(leader: SimFiles, sink: SnapshotSink) -> None:
    source = SnapshotSource(leader, HOME)
    while data := source.chunk(sink.offset, CHUNK_BYTES):
        sink.take(sink.offset, data)
    assert sink.offset == source.size
    source.close()


def _install(leader: SimFiles, disk: SimFiles, journal: Journal) -> SnapshotHeader:
    sink = SnapshotSink(disk, HOME, "token")
    _send(leader, sink)
    assert journal.hold()
    header = sink.finish(LOG)
    journal.adopt_snapshot(header)
    return header


@pytest.fixture
def disk() -> SimFiles:
    files = SimFiles()
    member_disk(files)
    return files


def test_the_log_goes_on_behind_an_installed_snapshot(disk: SimFiles) -> None:
    leader, header = _leader()
    journal = open_log(disk)
    journal.append_frames(frames(1, 200, term=1))
    flush(journal)
    assert _install(leader, disk, journal) == header
    assert (journal.base_index, journal.last_index, journal.last_term) == (640, 640, 5)
    assert (journal.tail_records, journal.uncommitted_bytes, journal.chain.digest) == (
        0,
        0,
        header.chain_hash,
    )
    journal.append_frames(frames(641, 800, term=5))
    flush(journal)
    journal.take_committed(800)
    for left in (journal, open_log(disk.crash(Crash.LOST))):
        assert (left.base_index, left.last_index, left.term_at(640)) == (640, 800, 5)
    assert read_manifest(disk, f"{HOME}/archive").dropped_index == 640
    assert ShardReader(PATH, 0, disk.crash(Crash.LOST)).verify() == []
    assert [one.index for one in ShardReader(PATH, 0, disk).frames()] == list(range(641, 801))
    assert disk.read(f"{HOME}/snapshot") == leader.read(f"{HOME}/snapshot")


def test_an_installed_snapshot_can_be_cut_back_to_and_its_clock_holds(disk: SimFiles) -> None:
    journal = open_log(disk)
    _install(_leader()[0], disk, journal)
    journal.append_frames(frame(641, 6, time_ms=5_000))
    flush(journal)
    journal.truncate_after(640)
    assert (journal.last_index, journal.last_term, journal.last_timestamp_ms) == (640, 5, 1000)
    journal.append_frames(frame(641, 7, time_ms=1_500))


def test_a_log_that_holds_the_snapshots_end_keeps_its_tail(disk: SimFiles) -> None:
    """The entries after the snapshot may have been acknowledged."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 700, term=5))
    flush(journal)
    sink = SnapshotSink(disk, HOME, "token")
    _send(_leader()[0], sink)
    assert journal.hold()
    header = sink.finish(LOG)
    with pytest.raises(AssertionError, match="holds entry 640 already"):
        journal.adopt_snapshot(header)


def test_a_snapshot_that_is_replaced_while_it_is_sent_arrives_as_it_was() -> None:
    leader, header = _leader()
    source = SnapshotSource(leader, HOME)
    first = source.chunk(0, 50)
    whole = leader.read(f"{HOME}/snapshot")
    snapshot_file(leader, f"{HOME}/newer", 1280, 6, records=50)
    leader.rename(f"{HOME}/newer", f"{HOME}/snapshot")
    assert first + source.chunk(50, 1 << 20) == whole
    assert (source.header, source.chunk(source.size, 10)) == (header, b"")


def test_every_flipped_byte_of_a_snapshot_is_refused_and_changes_nothing(disk: SimFiles) -> None:
    leader, _ = _leader()
    whole, before = leader.read(f"{HOME}/snapshot"), disk.listdir(HOME)
    for at in range(len(whole)):
        sink = SnapshotSink(disk, HOME, "token")
        sink.take(0, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(PeerMessageRefused):
            sink.finish(LOG)
        assert disk.listdir(HOME) == before
    count_fault("raftlog", "flipped byte", len(whole))


def test_a_snapshot_cut_anywhere_or_with_more_behind_it_is_refused(disk: SimFiles) -> None:
    leader, _ = _leader()
    whole, before = leader.read(f"{HOME}/snapshot"), disk.listdir(HOME)
    for size in range(len(whole) + 3):
        if size == len(whole):
            continue
        sink = SnapshotSink(disk, HOME, "token")
        sink.take(0, (whole + b"more")[:size])
        with pytest.raises(PeerMessageRefused):
            sink.finish(LOG)
        assert disk.listdir(HOME) == before


@pytest.mark.parametrize("shard", [1, -1])
def test_a_snapshot_of_another_shard_is_refused(disk: SimFiles, shard: int) -> None:
    sink = SnapshotSink(disk, HOME, "token")
    _send(_leader()[0], sink)
    with pytest.raises(PeerMessageRefused, match="belongs to shard 0 of cluster cluster-a, not to"):
        sink.finish(MEMBER.log(shard))


def test_a_snapshot_that_ends_within_a_link_is_refused(disk: SimFiles) -> None:
    sink = SnapshotSink(disk, HOME, "token")
    _send(_leader(last_index=641)[0], sink)
    with pytest.raises(PeerMessageRefused, match="cannot end with entry 641"):
        sink.finish(LOG)


def test_chunks_come_in_order_and_not_for_ever(disk: SimFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftlog.storage.snapshot_install.SNAPSHOT_BYTES_MAX", 1_000)
    sink = SnapshotSink(disk, HOME, "token")
    sink.take(0, bytes(600))
    for offset in (0, 599, 601):
        with pytest.raises(PeerMessageRefused, match="instead of byte 600"):
            sink.take(offset, b"x")
    with pytest.raises(PeerMessageRefused, match="larger than 1000 bytes"):
        sink.take(600, bytes(401))
    sink.abandon()
    sink.abandon()
    assert not [name for name in disk.listdir(HOME) if name.endswith(".tmp")]
    with pytest.raises(PeerMessageRefused):
        sink.take(600, b"x")


def test_an_interrupted_install_is_no_damage(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 100, term=1))
    flush(journal)
    sink = SnapshotSink(disk, HOME, "token")
    _send(_leader()[0], sink)
    sink.finish(LOG)
    reader = ShardReader(PATH, 0, disk)
    assert [one.severity for one in reader.verify()] == ["torn"]
    assert list(reader.frames()) == []
    assert reader.highest_commit() == 640


# A replaced disk


def test_a_replaced_disk_joins_until_it_says_so() -> None:
    disk = SimFiles()
    replacement = NodeIdentity(
        cluster_id="c", node_id=2, incarnation="second", num_shards=2, voters=(1, 2, 3), is_replacement=True
    )
    format_node(disk, PATH, replacement)
    assert read_identity(disk, PATH) == replacement
    homes = [f"{PATH}/{name}" for name in ("metadata", "shard-0", "shard-1")]
    assert [is_joining(disk, home) for home in homes] == [True] * 3
    joined(disk, homes[1])
    assert [is_joining(disk.crash(Crash.LOST), home) for home in homes] == [True, False, True]


# Crash points


class FollowerRun:
    """A replaced disk: it joins, takes frames in groups, loses a tail twice, gets a snapshot, goes on.

    `logs` are the logs that a crash may leave, as (snapshot's index, terms of the entries after it): the one
    on disk, or a longer or shorter one on the way. `durable` is how many entries of the first must survive.
    `joining` has the values that the shard's joining flag may have.
    """

    def __init__(self, disk: SimFiles) -> None:
        self.disk = disk
        self.formatted = False
        self.logs: list[tuple[int, list[int]]] = [(0, [])]
        self.durable = 0
        self.joining = {True}

    def go(self) -> None:
        """Run all of it."""
        replacement = NodeIdentity(
            cluster_id="cluster-a",
            node_id=1,
            incarnation="second",
            num_shards=1,
            voters=(1, 2, 3),
            is_replacement=True,
        )
        format_node(self.disk, PATH, replacement)
        self.formatted = True
        write_meta(self.disk, f"{HOME}/term", "term", TERM_MAX, None)
        journal = open_log(self.disk)
        self._append(journal, 150, term=1, groups=3)
        self._truncate(journal, 20)
        self._append(journal, 200, term=2, groups=4)
        self._truncate(journal, 70)
        self._append(journal, 30, term=3, groups=1)
        self._install(journal)
        self._append(journal, 100, term=6, groups=2)
        self.joining = {True, False}
        joined(self.disk, HOME)
        self.joining = {False}
        self._append(journal, 20, term=7, groups=2)

    def _append(self, journal: Journal, count: int, term: int, groups: int) -> None:
        base, terms = self.logs[0]
        for _ in range(groups):
            first = journal.last_index + 1
            journal.append_frames(frames(first, first + count // groups - 1, term, commit_index=first + 5))
            terms = [*terms, *[term] * (count // groups)]
            self.logs = [(base, terms)]
            flush(journal)
            self.durable = len(terms)

    def _truncate(self, journal: Journal, index: int) -> None:
        base, terms = self.logs[0]
        self.durable = index - base
        journal.truncate_after(index)
        self.logs = [(base, terms[: index - base])]

    def _install(self, journal: Journal) -> None:
        self.logs.append((640, []))
        _install(_leader()[0], self.disk, journal)
        self.logs = [(640, [])]
        self.durable = 0

    def check(self, left: SimFiles) -> None:
        """Assert that the disk after a crash opens as one of the logs, and does so again."""
        try:
            read_identity(left, PATH)
        except NotFormatted:
            assert not self.formatted
            return
        if not self.formatted:
            return
        assert is_joining(left, HOME) in self.joining
        journal = open_log(left)
        found = (journal.base_index, terms_of(journal))
        durable = self.durable if found[0] == self.logs[0][0] else 0
        assert any(found[0] == base and found[1] == terms[: len(found[1])] for base, terms in self.logs), (
            found
        )
        assert len(found[1]) >= durable, f"{len(found[1])} of {durable} synced entries"
        again = open_log(left.crash(Crash.LOST))
        assert (again.base_index, terms_of(again)) == found
        assert not left.exists(f"{HOME}/{INSTALLING_FILE}")
        write_meta(left, f"{HOME}/term", "term", TERM_MAX, None)  # the crash may have cut this write
        assert ShardReader(PATH, 0, left).verify() == []
        again.append_frames(frames(again.last_index + 1, again.last_index + 3, term=9))
        flush(again)


def _crash_everywhere() -> tuple[int, list[BaseException]]:
    """Return the number of crash points, and the failures at them."""
    points = 0
    failures: list[BaseException] = []
    run = FollowerRun(SimFiles(seed=1))

    def at_call(number: int, operation: str, path: str, done: bool) -> None:
        nonlocal points
        for how in (Crash.KEPT, Crash.LOST, Crash.TORN, Crash.TORN):
            points += 1
            try:
                run.check(run.disk.crash(how, seed=points))
            except Exception as failure:  # the running node must not see it
                failure.add_note(f"{how} {'after' if done else 'before'} call {number}, {operation} {path}")
                failures.append(failure)

    run.disk.on_call = at_call
    run.go()
    return points, failures


def test_every_crash_point_of_a_follower_loads() -> None:
    points, failures = _crash_everywhere()
    print(f"{points} crash points of a follower")
    count_fault("raftlog", "crash point", points)
    for failure in failures[:1]:
        raise failure
    assert points >= FOLLOWER_CRASH_POINTS_MIN


@pytest.mark.parametrize("missing", ["fsync_dir", "fdatasync", "finish_installing"])
def test_the_enumeration_finds_a_missing_safeguard(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablation: without the syncs, or what a start does about an interrupted install, something is lost."""
    if missing == "fsync_dir":
        monkeypatch.setattr(SimFiles, missing, lambda self, path: None)
    elif missing == "fdatasync":
        monkeypatch.setattr(SimFile, missing, lambda self: None)
    else:
        monkeypatch.setattr(loader, missing, lambda files, home: None)
    assert _crash_everywhere()[1]
