"""The end of the active segment after a crash: truncated if that loses nothing, refused otherwise."""

from __future__ import annotations

import pytest

from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from tests.support.manual_host import Stopped
from tests.support.single_replica import PATH, SingleReplica, formatted

ACTIVE = f"{PATH}/shard-0/00000000000000000001.log"


def _log(groups: list[int]) -> SimFiles:
    """Return a crashed log with groups of these numbers of entries, each group synced."""
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk).start()
    number = 0
    for size in groups:
        for _ in range(size):
            node.put((f"k{number}", "v"))
            number += 1
        node.host.run()
    return disk.crash(Crash.KEPT)


def _offsets(disk: SimFiles) -> list[int]:
    return [frame.offset for frame in ShardReader(PATH, 0, disk).frames()]


def test_a_tail_torn_at_any_byte_is_cut_there() -> None:
    whole = _log([1] * 5)
    last_start, size = _offsets(whole)[-1], whole.size(ACTIVE)
    for end in range(last_start, size):
        disk = whole.crash(Crash.KEPT)
        disk.open(ACTIVE, "w").truncate(end)
        assert [frame.index for frame in ShardReader(PATH, 0, disk).frames()] == [1, 2, 3, 4, 5]
        severities = {problem.severity for problem in ShardReader(PATH, 0, disk).verify()}
        assert severities == ({"torn"} if end > last_start else set())
        node = SingleReplica(disk, boot=2).start()
        assert node.replica.status()["torn_bytes_cut"] == end - last_start
        assert node.replica.last_index == 6
        node.put_synced(("more", "v"))
        assert ShardReader(PATH, 0, disk).verify() == []


def test_a_last_group_torn_in_any_order_is_cut_at_the_first_hole() -> None:
    """Pages of one unsynced group reach the disk in any order: whole frames after a hole prove nothing."""
    whole = _log([1, 1, 6])
    offsets = _offsets(whole)
    for hole in range(3, 9):
        disk = whole.crash(Crash.KEPT)
        file = disk.open(ACTIVE, "w")
        file.pwrite(bytes(30), offsets[hole])
        node = SingleReplica(disk, boot=2).start()
        assert node.replica.last_index == hole + 1
        assert [frame.term for frame in ShardReader(PATH, 0, disk).frames()][-2:] == [1, 2]


@pytest.mark.parametrize("offset", [0, 5, 9, 20, 40, 60])
def test_damage_to_a_committed_entry_stops_the_node(offset: int) -> None:
    """A later frame that names the entry as committed exists only if the entry was once synced."""
    disk = _log([1] * 6)
    place = _offsets(disk)[3]
    disk.damage(ACTIVE, place + offset)
    with pytest.raises(Stopped) as stopped:
        SingleReplica(disk, boot=2).start()
    said = str(stopped.value)
    assert f"{ACTIVE}: byte {place}: no complete frame" in said
    assert "entry 4" in said
    assert "shows it was committed" in said
    assert "restore this file from a copy" in said


def test_nothing_is_cut_after_a_clean_stop() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk).start()
    node.put_synced(("a", "1"))
    node.stop()
    disk.damage(ACTIVE, disk.size(ACTIVE) - 1)
    with pytest.raises(Stopped, match=r"entry 2 should be, though entries up to 2 were synced"):
        SingleReplica(disk, boot=2).start()


def test_zeros_behind_the_end_are_cut() -> None:
    """A file system may leave a file longer than what was written into it."""
    disk = _log([1] * 3)
    size = disk.size(ACTIVE)
    disk.open(ACTIVE, "w").pwrite(bytes(5000), size)
    node = SingleReplica(disk, boot=2).start()
    assert node.replica.status()["torn_bytes_cut"] == 5000
    assert node.replica.last_index == 5


def test_a_segment_of_another_log_stops_the_node() -> None:
    disk = _log([1])
    other = SimFiles()
    formatted(other)
    foreign = other.read(f"{PATH}/metadata/00000000000000000001.log")
    file = disk.open(ACTIVE, "w")
    file.truncate(0)
    file.pwrite(foreign, 0)
    with pytest.raises(Stopped, match="remove it"):
        SingleReplica(disk, boot=2).start()
