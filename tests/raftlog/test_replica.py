"""One replica alone: terms, group commit, the load barrier, bounded slices, stopping on failure."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest

from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.env.state_machine import LogFull, NotLeader
from raftlog.offline.reader import ShardReader
from raftlog.storage.frames import frames_in
from raftlog.storage.metafile import write_meta
from records import RecordType, TermStartValue, TermWhy, Trigger, decode_entry, decode_record
from tests.support.manual_host import Stopped
from tests.support.single_replica import IDENTITY, PATH, SETTINGS, SingleReplica, entry, formatted


@pytest.fixture
def disk() -> SimFiles:
    files = SimFiles()
    formatted(files)
    return files


def test_an_empty_log_opens_a_term_and_serves(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    assert node.machine.ready_terms == [1]
    assert node.machine.frames == [(1, 1)]
    assert node.replica.next_index == 2
    status = node.replica.status()
    assert status["state"] == "Ready"
    times_ms = [*status["state_since_ms"].values(), status["leader_since_ms"]]
    assert all(0 <= node.host.wall_ms() - at_ms < 60_000 for at_ms in times_ms), "wall time, for people"


def test_each_start_takes_a_new_synced_term_and_says_who_and_why(disk: SimFiles) -> None:
    boots = []
    for boot in range(1, 8):
        node = SingleReplica(disk, boot=boot).start()
        boots.append(node.directory.boot_id)
        assert node.directory.previous_boot_id == (boots[-2] if boot > 1 else "")
        assert node.replica.term == boot
        disk = disk.crash(Crash.LOST)
    starts = []
    for frame in ShardReader(PATH, 0, disk).frames():
        opened = decode_entry(frame.body)
        assert opened.cause.trigger == Trigger.TERM_OPENED
        value = decode_record(opened.records[0]).value
        assert isinstance(value, TermStartValue)
        assert (value.term, value.why, value.node_id) == (frame.term, TermWhy.START, IDENTITY.node_id)
        assert value.incarnation == IDENTITY.incarnation
        starts.append(value.boot_id)
    assert starts == boots
    assert len(set(boots)) == 7


def test_a_turn_is_one_write_and_one_sync(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    operations: list[str] = []
    disk.on_call = lambda number, operation, path, done: operations.append(operation) if done else None
    first = node.put(("a", "1"))
    for number in range(50):
        node.put((f"k{number}", "x"))
    assert operations == []
    assert node.machine.committed_index < first
    node.host.run()
    assert operations == ["pwrite", "fdatasync"]
    assert node.machine.committed_index == first + 50


def test_nothing_is_committed_before_the_disk_thread_is_done(disk: SimFiles) -> None:
    """Slow syncs run on the disk thread; entries proposed meanwhile form one further group."""
    node = SingleReplica(disk).start()
    node.host.step_ms = 2.0  # every reading of the clock costs 2 ms, so syncs seem to take 2 ms
    for _ in range(10):
        node.put_synced(("warm", "up"))
    node.host.hold_disk = True
    first = node.put(("a", "1"))
    node.host.run()
    assert len(node.host.disk) == 1
    assert node.machine.committed_index == first - 1
    later = [node.put((f"k{number}", "x")) for number in range(20)]
    node.host.run()
    assert len(node.host.disk) == 1, "one group in flight"
    node.host.do_disk()
    node.host.run()
    assert node.machine.committed_index == first
    node.host.do_disk()
    node.host.run()
    assert node.machine.committed_index == later[-1]


def test_a_backlog_is_committed_in_groups_of_a_bounded_size(
    disk: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = dataclasses.replace(SETTINGS, flush_bytes_max=300)
    node = SingleReplica(disk, settings=bounded).start()
    before = node.replica.last_index
    for number in range(50):
        node.put((f"key-{number}", "x" * 50))
    reached: list[int] = []
    monkeypatch.setattr(node.machine, "committed", reached.append)
    node.host.run()
    assert reached[-1] == node.replica.last_index == before + 50
    steps = [after - at for at, after in pairwise([before, *reached])]
    assert len(steps) > 10
    assert 0 < max(steps) <= 3


def test_syncs_come_back_to_the_loop_when_they_are_fast_again(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    node.host.step_ms = 2.0
    for _ in range(10):
        node.put_synced(("warm", "up"))
    node.host.step_ms = 0.0
    for _ in range(20):
        node.put_synced(("fast", "again"))
    node.host.hold_disk = True
    index = node.put_synced(("a", "1"))
    assert node.machine.committed_index == index
    assert not node.host.disk


def _takes_more(node: SingleReplica) -> bool:
    node.replica.disk_room.observe(node.host.now_ms)
    return node.replica.can_append


def test_proposing_needs_leadership_and_room(disk: SimFiles) -> None:
    small = dataclasses.replace(SETTINGS, uncommitted_bytes_max=500, entry_bytes_max=200)
    node = SingleReplica(disk, small)
    with pytest.raises(NotLeader):
        node.replica.propose(entry(("a", "1")), 1, 0)
    node.start()
    with pytest.raises(LogFull, match="entry_bytes_max"):
        node.replica.propose(bytes(201), 1, 0)
    while _takes_more(node):
        node.put(("a", "1"))
    with pytest.raises(LogFull, match="uncommitted_bytes_max"):
        node.replica.propose(entry(("a", "1")), 1, 0)
    node.host.run()
    assert _takes_more(node)
    node.put_synced(("b", "2"))


def test_a_nearly_full_disk_is_refused_beforehand(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    assert _takes_more(node)
    disk.free = SETTINGS.disk_free_bytes_min - 1
    node.host.advance(1001)
    assert not _takes_more(node)
    disk.free = SETTINGS.disk_free_bytes_min
    node.host.advance(1001)
    assert not _takes_more(node), "the next entry would fill it again"
    disk.free = SETTINGS.disk_free_bytes_min * 5 // 4
    node.host.advance(1001)
    assert _takes_more(node)


def test_a_nearly_full_disk_is_seen_by_who_asks_how_the_node_does(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    disk.free = SETTINGS.disk_free_bytes_min - 1
    node.host.advance(1001)
    assert node.replica.status()["is_disk_full"], "nothing was written meanwhile"


def test_time_never_goes_back(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    node.put_synced(("a", "1"))
    newest = node.replica.last_timestamp_ms
    node.machine.take(node.replica.next_index, entry(("b", "2")))
    node.replica.propose(entry(("b", "2")), 1, newest - 5_000)
    node.host.run()
    stamps = [frame.timestamp_ms for frame in ShardReader(PATH, 0, disk).frames()]
    assert stamps == sorted(stamps)
    restarted = SingleReplica(disk.crash(Crash.KEPT), boot=2)
    restarted.host.wall_offset_ms = 0  # the wall clock jumped back by decades
    restarted.start()
    assert restarted.replica.last_timestamp_ms == newest


def test_the_load_is_sliced_and_nothing_is_served_meanwhile(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    for number in range(3000):
        node.put((f"k{number}", "v"))
    node.host.run()
    again = SingleReplica(disk.crash(Crash.KEPT), boot=2)
    again.host.step_ms = 1.0  # each reading of the clock costs a millisecond
    again.replica.start()
    turns = 0
    while not again.replica.is_ready:
        assert again.machine.ready_terms == []
        before = again.host.now_ms
        again.host.turn()
        assert again.host.now_ms - before < SETTINGS.load_slice_ms * 3
        turns += 1
    assert turns > 15
    assert again.machine.values.keys() >= node.machine.values.keys()


def test_an_entry_that_cannot_be_applied_stops_the_node_once(disk: SimFiles) -> None:
    """D4 of the audit: the library would retry it for ever, and apply its neighbours again."""
    node = SingleReplica(disk).start()
    for number in range(10):
        node.put_synced((f"k{number}", "v"))
    again = SingleReplica(disk.crash(Crash.KEPT), boot=2)
    again.machine.fail_at = 5
    with pytest.raises(Stopped, match="this entry cannot be applied"):
        again.start()
    assert [index for index, _ in again.machine.frames] == [1, 2, 3, 4]
    again.host.advance(10_000)
    assert len(again.machine.frames) == 4
    assert not again.replica.is_ready


def test_after_a_failed_sync_nothing_more_is_acknowledged(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    committed = node.put_synced(("a", "1"))
    disk.fail = lambda number, operation, path: (
        OSError(5, "injected", path) if operation == "fdatasync" else None
    )
    node.put(("b", "2"))
    with pytest.raises(Stopped, match=r"shard-0 of /data/node-1: a file call failed: .*injected"):
        node.host.run()
    disk.fail = None
    node.host.advance(60_000)
    assert node.machine.committed_index == committed
    with pytest.raises(NotLeader):
        node.replica.propose(entry(("c", "3")), 1, 0)


def test_what_a_failed_sync_left_in_the_cache_is_written_again(disk: SimFiles) -> None:
    """The page cache still shows it after the restart, but no later sync would ever write it: after a power
    loss, acknowledged entries would follow a hole."""
    node = SingleReplica(disk).start()
    node.put_synced(("a", "1"))
    disk.fail = lambda number, operation, path: (
        OSError(5, "injected", path) if operation == "fdatasync" else None
    )
    unsure = node.put(("b", "2"))
    with pytest.raises(Stopped):
        node.host.run()
    disk.fail = None
    node.directory.close()
    again = SingleReplica(disk, boot=2).start()
    assert again.replica.term == 2
    acknowledged = again.put_synced(("c", "3"))
    assert acknowledged == unsure + 2
    third = SingleReplica(disk.crash(Crash.LOST), boot=3).start()
    assert third.replica.last_index == acknowledged + 1


def test_a_clean_stop_waits_for_what_was_proposed(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    index = node.put(("a", "1"))
    node.stop()
    assert node.machine.committed_index == index
    assert disk.exists(f"{PATH}/shard-0/clean")
    again = SingleReplica(disk.crash(Crash.LOST), boot=2).start()
    assert again.machine.values == node.machine.values | again.machine.values
    assert not disk.crash(Crash.KEPT).exists(f"{PATH}/shard-0/clean.tmp")


def test_stopping_during_the_load_stops_loading(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    for number in range(500):
        node.put((f"k{number}", "v"))
    node.host.run()
    again = SingleReplica(disk.crash(Crash.KEPT), boot=2)
    again.host.step_ms = 5.0
    again.replica.start()
    again.host.turn()
    again.stop()
    again.host.advance(1000)
    assert again.machine.ready_terms == []
    assert disk.open_files >= 0


def test_the_same_entries_have_the_same_chain(disk: SimFiles) -> None:
    """The chain depends on frames alone, not on groups, segments, restarts of the reader or snapshots."""
    node = SingleReplica(disk, dataclasses.replace(SETTINGS, snapshot_tail_records=130)).start()
    for number in range(300):
        node.put_synced((f"k{number % 7}", "v"))
    live = node.replica.log.chain_hash
    again = SingleReplica(disk.crash(Crash.LOST), SETTINGS, boot=2)
    again.replica.start()
    while again.replica.log.chain_index < 301:
        again.host.turn()
    again.replica.stop(lambda: None)
    plain = SimFiles()
    formatted(plain)
    whole = SingleReplica(plain).start()
    assert whole.replica.log.chain_hash != live
    assert again.replica.status()["snapshot_index"] > 0


def test_read_committed_reads_archive_and_live(disk: SimFiles) -> None:
    settings = dataclasses.replace(SETTINGS, snapshot_tail_records=130, segment_bytes=8_000)
    node = SingleReplica(disk, settings).start()
    for number in range(400):
        node.put_synced((f"k{number % 7}", f"v{number}"))
    unsynced = node.put(("not", "yet"))
    assert node.replica.status()["snapshot_index"] > 64
    index, seen = 1, []
    while frames := frames_in(node.replica.log.read(index, 2_000)):
        assert sum(len(frame.body) for frame in frames) < 4_000
        seen += [frame.index for frame in frames]
        index = seen[-1] + 1
    assert seen == list(range(1, unsynced))
    assert node.replica.log.read(unsynced, 2_000) == b""
    whole = {frame.index: frame.encode() for frame in ShardReader(PATH, 0, disk).frames()}
    for index in (1, 64, 65, 200, unsynced - 1):
        assert frames_in(node.replica.log.read(index, 1))[0].encode() == whole[index]


def test_bodies_come_back_byte_for_byte(disk: SimFiles) -> None:
    node = SingleReplica(disk).start()
    body = entry(("a", None), ("b", "x" * 100_000))
    node.machine.take(2, body)
    node.replica.propose(body, 2, 0)
    node.host.run()
    frame = frames_in(node.replica.log.read(2, 1))[0]
    assert frame.body == body
    assert frame.record_count == 2
    assert [raw.type for raw in decode_entry(frame.body).records] == [RecordType.GROUP_CONFIG] * 2


def test_a_term_file_older_than_the_log_stops_the_node(disk: SimFiles) -> None:
    for boot in range(1, 4):
        SingleReplica(disk, boot=boot).start().stop()
    write_meta(disk, f"{PATH}/shard-0/term", "term", 1, None)
    node = SingleReplica(disk, boot=4)
    with pytest.raises(Stopped, match=r"shard-0/term: byte 0: the stored term is 1, but .* of term 3"):
        node.start()
