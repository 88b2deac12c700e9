"""The offline reader on logs in use, copied or damaged: what is committed, and exactly where damage is."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from raftlog.env.errors import Torn
from raftlog.env.files import OsFiles
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import Damaged, ShardReader, read_identity, shards
from records import decode_entry
from tests.support.single_replica import IDENTITY, PATH, SETTINGS, SingleReplica, formatted

ROLLING = dataclasses.replace(SETTINGS, segment_bytes=8_000)
HOME = f"{PATH}/shard-0"


@pytest.fixture
def disk() -> SimFiles:
    """A log of at least three segments, after a crash."""
    files = SimFiles()
    formatted(files)
    node = SingleReplica(files, ROLLING).start()
    for number in range(300):
        node.put_synced((f"k{number}", "v"))
    return files.crash(Crash.KEPT)


def test_ranges(disk: SimFiles) -> None:
    reader = ShardReader(PATH, 0, disk)
    every = [frame.index for frame in reader.frames()]
    assert every == list(range(1, 302))
    for first, last in [(1, 1), (64, 66), (65, 65), (250, 400), (301, 301), (302, 303), (1, 301)]:
        wanted = [index for index in every if first <= index <= last]
        assert [frame.index for frame in reader.frames(first, last)] == wanted
    assert all(frame.decided for frame in reader.frames())
    assert len(decode_entry(next(iter(reader.frames(5))).body).records) == 1


def test_it_reads_a_log_that_is_being_written() -> None:
    """Between any two steps of the writer a reader sees a prefix, archive moves included."""
    files = SimFiles()
    formatted(files)
    node = SingleReplica(
        files, dataclasses.replace(SETTINGS, snapshot_tail_records=100, segment_bytes=6_000)
    ).start()
    reader = ShardReader(PATH, 0, files)
    seen = 0
    for number in range(300):
        node.put((f"k{number % 5}", "v"))
        node.host.turn()
        indexes = [frame.index for frame in reader.frames()]
        assert indexes == list(range(1, len(indexes) + 1))
        assert len(indexes) >= seen
        seen = len(indexes)
    assert node.replica.status()["snapshots_made"] >= 2


def test_a_segment_that_moves_while_it_is_looked_for(disk: SimFiles) -> None:
    name = "00000000000000000129.log"
    disk.rename(f"{HOME}/{name}", f"{HOME}/archive/{name}")
    assert len(list(ShardReader(PATH, 0, disk).frames())) == 301


def test_damage_is_told_exactly_and_one_can_go_on_behind_it(disk: SimFiles) -> None:
    reader = ShardReader(PATH, 0, disk)
    broken = next(reader.frames(100, 100))
    disk.damage(broken.file, broken.offset + 60)
    seen: list[int] = []
    with pytest.raises(Damaged) as damage:
        seen.extend(frame.index for frame in reader.frames())
    assert seen == list(range(1, 100))
    assert (damage.value.file, damage.value.offset) == (broken.file, broken.offset)
    assert "entry 100" in damage.value.what
    assert [frame.index for frame in reader.frames(101)] == list(range(101, 302))
    with pytest.raises(Damaged):
        list(reader.frames(100))
    problems = [problem for problem in reader.verify() if problem.index == 100]
    assert [(problem.file, problem.offset) for problem in problems] == [(broken.file, broken.offset)]


def test_several_damages_are_all_listed(disk: SimFiles) -> None:
    reader = ShardReader(PATH, 0, disk)
    frames = {frame.index: frame for frame in reader.frames()}
    for index in (10, 11, 150, 280):
        disk.damage(frames[index].file, frames[index].offset)
    found = {problem.index for problem in reader.verify() if "no complete frame" in problem.what}
    assert found == {10, 150, 280}  # 10 and 11 are one hole


def test_a_missing_segment_is_a_gap(disk: SimFiles) -> None:
    disk.unlink(f"{HOME}/00000000000000000129.log")
    reader = ShardReader(PATH, 0, disk)
    with pytest.raises(Damaged, match="ends with entry 128"):
        list(reader.frames())
    following = int(next(name for name in disk.listdir(HOME) if name > "00000000000000000129.log")[:20])
    assert [frame.index for frame in reader.frames(following)] == list(range(following, 302))
    assert reader.verify()


def test_with_peers_only_what_is_known_to_be_committed_is_decided(disk: SimFiles) -> None:
    frames = list(ShardReader(PATH, 0, disk, alone=False).frames())
    assert [frame.index for frame in frames if not frame.decided] == [301]
    node = SingleReplica(disk, ROLLING, boot=2).start()
    node.stop()
    assert all(frame.decided for frame in ShardReader(PATH, 0, disk, alone=False).frames())


def test_committed_entries_that_are_missing_at_the_end_are_no_torn_tail(disk: SimFiles) -> None:
    """A frame after the damage names them as committed, close enough to have been torn by the same crash."""
    reader = ShardReader(PATH, 0, disk, alone=False)
    last = max(name for name in disk.listdir(HOME) if name.endswith(".log"))
    first = int(last[:-4])
    disk.damage(f"{HOME}/{last}", disk.open(f"{HOME}/{last}", "r").size() // 2)
    whole: list[int] = []
    with pytest.raises(Torn, match=r"no complete frame where entry \d+ should be"):
        whole.extend(frame.index for frame in reader.frames())
    assert first < whole[-1] < 300
    up_to_there = reader.frames(1, whole[-1])
    assert [frame.index for frame in up_to_there] == whole, "nobody asked for what is missing"


def test_committed_entries_that_were_cut_off_are_missing_too(disk: SimFiles) -> None:
    node = SingleReplica(disk, ROLLING, boot=2).start()
    node.stop()  # a clean stop records the commit index
    reader = ShardReader(PATH, 0, disk, alone=False)
    *_, before, last = reader.frames()
    file = disk.open(last.file, "w")
    file.truncate(last.offset)
    file.close()
    with pytest.raises(Torn, match=f"no complete frame where entry {last.index} should be"):
        list(reader.frames())
    assert list(reader.frames(before.index, before.index)) == [before]


def test_nothing_is_written(disk: SimFiles) -> None:
    reader = ShardReader(PATH, 0, disk)
    calls = disk.calls
    list(reader.frames())
    reader.verify()
    reader.snapshot()
    reader.evidence()
    assert disk.calls == calls


def test_identity_and_shards(disk: SimFiles) -> None:
    assert read_identity(PATH, disk) == IDENTITY
    assert shards(PATH, disk) == [-1, 0]
    disk.damage(f"{PATH}/node", 15)
    with pytest.raises(Damaged, match="CRC"):
        read_identity(PATH, disk)
    disk.unlink(f"{PATH}/node")
    with pytest.raises(Damaged, match="give a node's directory"):
        read_identity(PATH, disk)


def test_a_copy_of_one_shard_is_enough(tmp_path: Path) -> None:
    files = OsFiles()
    home = str(tmp_path / "node")
    formatted(files, home)
    settings = dataclasses.replace(SETTINGS, snapshot_tail_records=100)
    node = SingleReplica(files, settings, path=home).start()
    for number in range(200):
        node.put_synced((f"k{number}", "v"))
    node.stop()
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(tmp_path / "node" / "shard-0", copy / "shard-0")
    reader = ShardReader(copy, 0)
    assert reader.verify() == []
    assert [frame.index for frame in reader.frames()] == list(range(1, 202))
    snapshot = reader.snapshot()
    assert snapshot is not None
    assert snapshot.header.record_count == len(snapshot.records)
    assert shards(copy) == [0]


def test_a_damaged_frame_hides_nothing_of_what_is_committed(disk: SimFiles) -> None:
    reader = ShardReader(PATH, 0, disk, alone=False)
    whole = reader.highest_commit()
    assert whole >= 290
    last = max(name for name in disk.listdir(HOME) if name.endswith(".log"))
    disk.damage(f"{HOME}/{last}", disk.open(f"{HOME}/{last}", "r").size() // 2)
    assert reader.highest_commit() == whole
