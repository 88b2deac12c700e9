"""The mark of what was synced: damage to acknowledged entries stops a node, however near to the end; the
remains of a crash, and deliberate truncation, never do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftlog.env.errors import Corrupt
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.group_commit import MARK_EVERY_MS
from raftlog.storage.segments import LAGGING_GROUP_BYTES
from raftlog.storage.sync_mark import Synced, decode_mark, encode_mark, is_whole, read_mark
from tests.report import count_fault
from tests.support.manual_host import Stopped
from tests.support.replica_cluster import PATH as NODE_PATH
from tests.support.replica_cluster import ClusterNode, ReplicaCluster
from tests.support.single_replica import PATH, SingleReplica, formatted

from .logs import HOME, flush, frame, frames, member_disk, open_log

ACTIVE = f"{HOME}/00000000000000000001.log"
MARK = f"{HOME}/synced"
CLUSTER_HOME = f"{NODE_PATH}/shard-0"


@pytest.fixture
def disk() -> SimFiles:
    """A member of three, with an empty log."""
    made = SimFiles()
    member_disk(made)
    return made


# The file


def test_the_newest_whole_slot_counts_and_damage_says_nothing() -> None:
    data = encode_mark(5, 70)
    assert decode_mark(data, 5) == 70
    assert decode_mark(data, 6) == 0, "a copy"
    assert is_whole(data)
    for offset in range(len(data)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << offset % 8
        assert decode_mark(bytes(flipped), 5) == 70, "the other slot says the same"
        assert not is_whole(bytes(flipped))
    for size in range(len(data)):
        assert decode_mark(data[:size], 5) in {0, 70}
        assert not is_whole(data[:size])


def test_a_torn_write_leaves_the_other_slot() -> None:
    for written in range(25):
        files = SimFiles()
        files.mkdir("/home")
        mark = Synced(files, "/home")
        mark.fill(10)
        mark.note(11)
        before = files.read("/home/synced")
        mark.note(12)
        after = files.read("/home/synced")
        slot = 4096 if before[:24] == after[:24] else 0
        file = files.open("/home/synced", "w")
        file.pwrite(before[slot + written : slot + 24], slot + written)
        assert read_mark(files, "/home") in {11, 12}
        assert read_mark(files, "/home") == 12 or written < 24


def test_no_file_says_nothing(disk: SimFiles) -> None:
    """A directory of a release without the file opens as before, and has the file from then on."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 10, term=1))
    flush(journal)
    disk.unlink(MARK)
    assert read_mark(disk, HOME) == 0
    assert ShardReader(PATH, 0, disk).verify() == []
    disk.damage(ACTIVE, journal.offsets[-1] + 20)
    assert open_log(disk).last_index == 9
    assert read_mark(disk, HOME) == 9


def test_a_copy_of_a_running_nodes_directory_is_whole_up_to_its_last_whole_entry(disk: SimFiles) -> None:
    """The log was copied before the mark, which therefore covers more than the copy has."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 10, term=1))
    flush(journal)
    early = disk.read(ACTIVE)
    journal.append_frames(frames(11, 20, term=1))
    flush(journal)
    copy = disk.crash(Crash.KEPT)
    copy.unlink(MARK)
    for path, content in ((ACTIVE, early), (MARK, disk.read(MARK))):
        file = copy.open(path, "w")
        file.truncate(0)
        file.pwrite(content, 0)
    assert ShardReader(PATH, 0, copy).verify() == []
    assert open_log(copy).last_index == 10


# The log


def test_any_damage_to_what_was_synced_stops_the_load(disk: SimFiles) -> None:
    """Every byte of the last two groups; both are far within `LAGGING_GROUP_BYTES`."""
    journal = open_log(disk)
    for index in range(1, 6):
        journal.append_frames(frame(index, 1))
        flush(journal)
    starts = [*journal.offsets, disk.size(ACTIVE)]
    flipped = 0
    for place in (3, 4):
        for offset in range(starts[place], starts[place + 1]):
            damaged = disk.crash(Crash.KEPT)
            damaged.damage(ACTIVE, offset)
            with pytest.raises(
                Corrupt, match=f"entry {place + 1} should be, though entries up to 5"
            ) as stopped:
                open_log(damaged)
            assert (stopped.value.file, stopped.value.offset) == (ACTIVE, starts[place])
            assert "node format --replace" in stopped.value.hint
            assert damaged.size(ACTIVE) == disk.size(ACTIVE), "nothing was cut"
            flipped += 1
    count_fault("raftlog", "flipped byte", flipped)
    with pytest.raises(Corrupt, match="restore this file from a copy"):
        open_log(damaged, is_alone=True)


def test_a_log_that_became_shorter_stops_the_load(disk: SimFiles) -> None:
    """The log is cut at every byte, also between frames, as by a file system that lost its newest blocks."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 4, term=1))
    flush(journal)
    for size in range(journal.offsets[0], disk.size(ACTIVE)):
        shorter = disk.crash(Crash.KEPT)
        shorter.open(ACTIVE, "w").truncate(size)
        assert any(one.severity == "damage" for one in ShardReader(PATH, 0, shorter).verify())
        with pytest.raises(Corrupt, match="though entries up to 4 were synced here"):
            open_log(shorter)


def test_a_newest_segment_that_is_gone_stops_the_load(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 100, term=1))
    flush(journal)
    newest = journal.segments[-1]
    assert newest.first_index == 65
    disk.unlink(newest.path)
    with pytest.raises(Corrupt, match="entry 65 should be, though entries up to 100"):
        open_log(disk)


def test_what_was_not_synced_is_cut_as_ever(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 10, term=1))
    flush(journal)
    journal.append_frames(frames(11, 14, term=1))
    journal.segments[-1].file.pwrite(frames(11, 14, term=1), journal.segments[-1].end)  # and the power goes
    for offset in range(journal.offsets[10], disk.size(ACTIVE)):
        torn = disk.crash(Crash.KEPT)
        torn.damage(ACTIVE, offset)
        assert 10 <= open_log(torn).last_index < 14
        count_fault("raftlog", "torn write")


def _enumerate(disk: SimFiles, act: Callable[[], object], look: Callable[[SimFiles], None]) -> int:
    """Do `act`, and pass `look` the disk of a crash before and after each of its calls."""
    points = 0

    def at_call(number: int, _operation: str, _path: str, _done: bool) -> None:
        nonlocal points
        for how in Crash:
            for seed in range(4 if how is Crash.TORN else 1):
                points += 1
                look(disk.crash(how, seed=number * 7 + seed))

    disk.on_call = at_call
    act()
    disk.on_call = None
    return points


def test_what_is_forgotten_on_purpose_never_stops_a_node(disk: SimFiles) -> None:
    """Tails are cut within a segment and across several, and replaced, with marks that are lost, torn or
    older. The log opens after any crash, and has every entry that may be acknowledged."""
    journal = open_log(disk)
    durable = 0

    def look(left: SimFiles) -> None:
        again = open_log(left)
        assert again.last_index >= durable
        assert read_mark(left, HOME) == again.last_index
        assert ShardReader(PATH, 0, left).verify() == []

    def write(first: int, last: int, term: int) -> None:
        nonlocal durable
        for index in range(first, last + 1):
            journal.append_frames(frame(index, term))
            if index % 7 == 0 or index == last:
                flush(journal)
                durable = index

    def truncate(index: int) -> None:
        nonlocal durable
        durable = index
        journal.truncate_after(index)

    points = _enumerate(disk, lambda: write(1, 150, 1), look)
    points += _enumerate(disk, lambda: truncate(141), look)
    points += _enumerate(disk, lambda: write(142, 160, 2), look)
    points += _enumerate(disk, lambda: truncate(20), look)
    points += _enumerate(disk, lambda: write(21, 30, 3), look)
    points += _enumerate(disk, lambda: truncate(29), look)
    count_fault("raftlog", "crash point", points)
    assert points >= 1_400


def test_without_lowering_it_a_forgotten_tail_would_stop_the_node(
    disk: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ablation: the enumeration above can find a false alarm."""
    monkeypatch.setattr(Synced, "settle", lambda self, index: None)
    journal = open_log(disk)
    journal.append_frames(frames(1, 150, term=1))
    flush(journal)
    journal.truncate_after(20)
    with pytest.raises(Corrupt, match="though entries up to 150 were synced"):
        open_log(disk.crash(Crash.KEPT))


def test_a_failed_sync_claims_nothing(disk: SimFiles) -> None:
    journal = open_log(disk)
    journal.append_frames(frames(1, 5, term=1))
    disk.fail = lambda _number, operation, path: OSError(5, "no", path) if operation == "fdatasync" else None
    with pytest.raises(OSError, match="no"):
        journal.begin_flush()()
    disk.fail = None
    assert read_mark(disk, HOME) == 0
    assert open_log(disk.crash(Crash.LOST)).last_index == 0


def test_a_torn_mark_is_told_as_torn_and_written_anew(disk: SimFiles) -> None:
    """Any power loss may tear the mark; after a clean stop a torn mark is damage (`test_flipped_bytes`)."""
    journal = open_log(disk)
    journal.append_frames(frames(1, 5, term=1))
    flush(journal)
    disk.damage(MARK, 9)
    disk.damage(MARK, 4096 + 9)
    (told,) = ShardReader(PATH, 0, disk).verify()
    assert (told.file, told.severity, told.hint) == (MARK, "torn", "the next start writes it again")
    assert open_log(disk).last_index == 5
    assert read_mark(disk, HOME) == 5
    assert ShardReader(PATH, 0, disk).verify() == []


# The replica


def test_a_burst_is_marked_soon_after_it_and_an_idle_node_writes_nothing() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk).start()
    node.host.advance(MARK_EVERY_MS)
    for number in range(20):
        node.put_synced((f"k{number}", "v"))
    assert read_mark(disk, HOME) < node.replica.last_index
    syncs = node.replica.status()["syncs"]
    node.host.advance(MARK_EVERY_MS)
    assert read_mark(disk, HOME) == node.replica.last_index
    assert node.replica.status()["syncs"] == syncs, "a mark is no sync"
    calls = disk.calls
    node.host.advance(10_000)
    assert disk.calls == calls


def test_a_slow_disk_is_marked_from_the_disk_thread() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk).start()
    node.replica.group_commit.average_ms = 1000.0
    node.host.advance(MARK_EVERY_MS)
    for number in range(3):
        node.put_synced((f"k{number}", "v"))
    node.host.hold_disk = True
    node.host.advance(MARK_EVERY_MS)
    assert read_mark(disk, HOME) < node.replica.last_index
    node.host.do_disk()
    node.host.run()
    assert read_mark(disk, HOME) == node.replica.last_index


def test_a_mark_that_cannot_be_written_stops_the_node() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk).start()
    node.host.advance(MARK_EVERY_MS)
    disk.fail = lambda _number, _operation, path: OSError(5, "no", path) if path == MARK else None
    with pytest.raises(Stopped, match="synced"):
        node.put_synced(("a", "1"))


# Three replicas


def _acknowledged(cluster: ReplicaCluster, count: int) -> int:
    """Write `count` entries that the leader acknowledges, all within the last 256 KiB of every log."""
    leader = cluster.leader
    assert leader is not None
    for number in range(count):
        leader.put((f"k{number}", "acknowledged"))
    cluster.settle()
    cluster.advance(100)
    return leader.replica.last_index


def _damage_the_end(node: ClusterNode, back: int) -> str:
    """Flip a byte of an acknowledged entry near the end of a killed node's log; return the file's path."""
    name = max(name for name in node.files.listdir(CLUSTER_HOME) if name.endswith(".log"))
    path = f"{CLUSTER_HOME}/{name}"
    assert back < LAGGING_GROUP_BYTES
    node.files.damage(path, node.files.size(path) - back)
    count_fault("raftlog", "flipped byte")
    return path


@pytest.mark.parametrize("back", [1, 30, 700, 4_000])
def test_a_member_that_lost_acknowledged_entries_stops_and_the_others_serve(back: int) -> None:
    cluster = ReplicaCluster(seed=back).start()
    cluster.elect()
    last = _acknowledged(cluster, 200)
    hurt = cluster.followers()[0]
    hurt.kill()
    path = _damage_the_end(hurt, back)
    hurt.start()
    cluster.advance(1_000)
    assert not hurt.is_up
    message = hurt.fatal_message or ""
    assert f"{path}: byte " in message
    assert f"though entries up to {last} were synced here" in message
    assert "quorate node format --replace" in message
    leader = cluster.elect()
    leader.put_committed(("still", "served"))
    hurt.wipe()
    hurt.start()
    cluster.assert_equal()
    assert all(len(node.machine.values) == len(leader.machine.values) for node in cluster.running)


def _lose_two(seed: int, *, has_mark: bool) -> ClusterNode:
    """Acknowledge an entry that only two nodes have, end one of them, damage the other's disk, and start this
    one and the third. Return the damaged node."""
    cluster = ReplicaCluster(seed=seed).start()
    leader = cluster.elect()
    away, hurt = cluster.followers()
    away.kill()
    cluster.advance(50)
    leader.put_committed(("only", "on two"))
    cluster.advance(100)
    leader.kill()
    hurt.kill()
    _damage_the_end(hurt, 10)
    if not has_mark:
        hurt.files.unlink(f"{CLUSTER_HOME}/synced")
    hurt.start()
    away.start()
    cluster.advance(3_000)
    return hurt


def test_nothing_acknowledged_is_lost_with_a_damaged_disk_and_another_one_gone() -> None:
    """With the mark no node serves until the operator brings a disk back. Without it the damaged node votes
    for the one that lacks the entry, another is committed in its place, and the cluster detects that."""
    cluster = _lose_two(5, has_mark=True).cluster
    assert cluster.leader is None
    assert "synced here" in str([node.fatal_message for node in cluster.nodes.values()])
    cluster = _lose_two(5, has_mark=False).cluster
    assert "commits another entry" in str([node.fatal_message for node in cluster.nodes.values()])


@pytest.mark.parametrize("crash", [Crash.LOST, Crash.TORN])
def test_a_power_loss_of_all_nodes_in_a_burst_is_no_damage(crash: Crash) -> None:
    for seed in range(12):
        cluster = ReplicaCluster(seed=seed).start()
        leader = cluster.elect()
        for number in range(60):
            leader.put((f"k{number}", "x" * 40))
            if number % 5 == 0:
                cluster.advance(cluster.rng.uniform(0, 12))
        for node in cluster.nodes.values():
            node.kill(crash)
        cluster.start()
        cluster.elect()
        cluster.assert_equal()
        assert [node.fatal_message for node in cluster.nodes.values()] == [None] * 3
