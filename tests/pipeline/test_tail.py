"""The decided part of a growing log: the same as history reports, by reading only the new bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.reading.opening import open_node
from quorate.spark.errors import InputError
from quorate.spark.source.tail import InputTail
from raftlog.env.files import OsFiles
from raftlog.storage.frames import frame_at
from raftlog.storage.loader import CLEAN_FILE, CLEAN_KIND
from raftlog.storage.metafile import write_meta
from raftlog.storage.segments import log_name
from tests.support.three_logs import ThreeLogs

from .growing import SHARD, Growing


def by_history(path: str) -> int:
    """Return the index of the last decided entry according to history."""
    reader = open_node(path).reader(SHARD)
    return max((frame.index for frame in reader.frames() if frame.decided), default=0)


@pytest.mark.parametrize("seed", range(6))
def test_every_look_says_what_history_says(tmp_path: Path, seed: int) -> None:
    cluster = Growing(tmp_path / "cluster", seed=seed)
    folder = InputTail(str(cluster.folder))
    single = {disk.node_id: InputTail(disk.path) for disk in cluster.disks}
    seen = dict.fromkeys((0, *single), 0)
    happened = []
    for _ in range(120):
        happened.append(cluster.step())
        if cluster.rng.random() < 0.6:
            continue  # several steps between two reads
        seen[0] = max(seen[0], by_history(str(cluster.folder)))
        reached = folder.look()[SHARD]
        assert reached.index == seen[0], happened
        if reached.index:
            _, frame = cluster.leader.entries[reached.index - 1]
            assert reached.timestamp_ms == frame_at(memoryview(frame), 0)[4], happened  # type: ignore[index]
            holder = next(disk for disk in cluster.disks if disk.path == reached.member.path)
            assert holder.entries[reached.index - 1] == cluster.leader.entries[reached.index - 1]
        for disk in cluster.disks:
            seen[disk.node_id] = max(seen[disk.node_id], by_history(disk.path))
            assert single[disk.node_id].look()[SHARD].index == seen[disk.node_id], (disk.node_id, happened)
    cluster.settle()
    assert folder.look()[SHARD].index == len(cluster.leader.entries)


@pytest.mark.parametrize("seed", range(3))
def test_one_node_alone_decides_by_itself(tmp_path: Path, seed: int) -> None:
    alone = Growing(tmp_path / "cluster", num_nodes=1, seed=seed)
    tail = InputTail(alone.disks[0].path)
    for _ in range(60):
        alone.step()
        assert tail.look()[SHARD].index == len(alone.leader.entries) == by_history(alone.disks[0].path)


def test_a_look_reads_what_is_new(tmp_path: Path, read_bytes: list[int]) -> None:
    logs = ThreeLogs(tmp_path / "cluster", voters=())
    logs.format(1)
    logs.fill(3_000, 1)
    tail = InputTail(logs.path(1))
    size = logs.file(1).stat().st_size
    assert tail.look()[SHARD].index == 3_000
    assert sum(read_bytes) >= size * 0.9
    read_bytes.clear()
    for _ in range(50):
        tail.look()
    assert not read_bytes
    logs.fill(10, 1)
    assert tail.look()[SHARD].index == 3_010
    assert sum(read_bytes) == logs.file(1).stat().st_size - size


def test_what_is_not_decided_is_read_again_though_the_size_is_the_same(tmp_path: Path) -> None:
    """A follower truncates its tail and receives as many bytes from another leader."""
    cluster = Growing(tmp_path / "cluster")
    cluster.write(10)
    for disk in cluster.disks:
        cluster.replicate(disk)
    cluster.commit()
    cluster.write(5)
    deposed = cluster.leader
    tail = InputTail(str(cluster.folder))
    assert tail.look()[SHARD].index == 10
    size = Path(deposed.home, log_name(1)).stat().st_size
    cluster.leader, cluster.term = cluster.disks[1], 2
    cluster.write(5)
    cluster.replicate(deposed)
    assert Path(deposed.home, log_name(1)).stat().st_size == size
    assert tail.look()[SHARD].index == by_history(str(cluster.folder)) == 15


def test_a_frame_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    alone = Growing(tmp_path / "cluster", num_nodes=1)
    tail = InputTail(alone.disks[0].path)
    alone.write(5)
    path = Path(alone.disks[0].home, log_name(1))
    before = path.read_bytes()
    alone.write(1)
    whole = path.read_bytes()
    for end in range(len(before), len(whole)):
        path.write_bytes(whole[:end])
        assert tail.look()[SHARD].index == 5
    path.write_bytes(whole)
    assert tail.look()[SHARD].index == 6


def test_damage_hides_nothing_that_is_behind_it(tmp_path: Path) -> None:
    """The reader reports the damaged entry; that later entries are decided is known."""
    cluster = Growing(tmp_path / "cluster")
    cluster.write(20)
    cluster.settle()
    cluster.settle()
    disk = cluster.disks[0]
    path = Path(disk.home, log_name(1))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    tail = InputTail(disk.path)
    assert tail.look()[SHARD].index == 21
    cluster.settle()
    assert tail.look()[SHARD].index == 22


def test_the_marker_of_a_clean_stop_names_the_last_entry(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster")
    cluster.write(3)
    for disk in cluster.disks:
        cluster.replicate(disk)
    cluster.commit()
    disk = cluster.disks[1]
    tail = InputTail(disk.path)
    assert tail.look()[SHARD].index == 0
    write_meta(disk_files := OsFiles(), f"{disk.home}/{CLEAN_FILE}", CLEAN_KIND, 3, 1, 0, bytes(16), 3)
    assert disk_files.exists(f"{disk.home}/{CLEAN_FILE}")
    assert tail.look()[SHARD].index == 3


def test_a_directory_that_is_away_for_a_moment_takes_nothing_back(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(7)
    path = Path(cluster.disks[0].path)
    tail = InputTail(str(path))
    assert tail.look()[SHARD].index == 7
    path.rename(path.with_name("away"))
    assert tail.look()[SHARD].index == 7
    path.with_name("away").rename(path)
    cluster.write(1)
    assert tail.look()[SHARD].index == 8


def test_no_log_and_two_clusters_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no shard"):
        InputTail(str(tmp_path / "empty"))
    logs = ThreeLogs(tmp_path / "cluster", voters=())
    logs.format(1)
    logs.format(2, cluster_id="other")
    with pytest.raises(InputError, match="different cluster"):
        InputTail(str(tmp_path / "cluster"))
