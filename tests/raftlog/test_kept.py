"""Kept snapshots: a bounded number, evenly spread, each the state at its index; losing one is harmless."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from raftlog.env.errors import Damaged
from raftlog.env.files import join
from raftlog.env.settings import LogSettings
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.offline.reader import ShardReader
from raftlog.storage.retained_snapshots import kept_indexes, kept_path, surplus
from tests.support.single_replica import PATH, SETTINGS, KeyValues, SingleReplica, formatted

HOME = f"{PATH}/shard-0"
KEPT = 4
SNAPPING = dataclasses.replace(SETTINGS, snapshot_tail_records=64, snapshots_kept=KEPT)


def _written(settings: LogSettings, rounds: int = 1_200) -> tuple[SingleReplica, SimFiles]:
    disk = SimFiles(7)
    formatted(disk)
    node = SingleReplica(disk, settings).start()
    rng = random.Random(7)
    for _ in range(rounds):
        node.put((f"key-{rng.randrange(30)}", f"value-{rng.random()}"))
        if rng.random() < 0.3:
            node.host.run()
    node.host.run()
    return node, disk


def _state_at(
    reader: ShardReader, index: int, from_index: int = 0, start: KeyValues | None = None
) -> KeyValues:
    machine = start or KeyValues()
    for frame in reader.frames(from_index + 1, index):
        machine.apply_frame(frame.index, frame.term, frame.timestamp_ms, frame.body)
    return machine


def test_each_is_the_state_at_its_index() -> None:
    node, disk = _written(SNAPPING)
    assert node.replica.status()["snapshots_made"] > 2 * KEPT
    reader = ShardReader(PATH, 0, disk)
    headers = reader.snapshots()
    assert [one.last_index for one in headers] == [*kept_indexes(disk, HOME), headers[-1].last_index]
    assert len(headers) == KEPT + 1
    for header in headers:
        kept = reader.snapshot(header.last_index)
        assert kept is not None
        assert kept.header == header
        restored = KeyValues()
        restored.restore(list(kept.records), header)
        assert restored.values == _state_at(reader, header.last_index).values
    assert reader.verify() == []


def test_they_are_evenly_spread() -> None:
    _, disk = _written(SNAPPING, 4_000)
    bounds = [0, *(one.last_index for one in ShardReader(PATH, 0, disk).snapshots())]
    spans = [after - before for before, after in itertools.pairwise(bounds)]
    assert max(spans) <= 4 * (bounds[-1] / len(spans))


def test_none_are_kept_where_none_are_wanted() -> None:
    _, disk = _written(dataclasses.replace(SNAPPING, snapshots_kept=0))
    assert kept_indexes(disk, HOME) == []
    assert len(ShardReader(PATH, 0, disk).snapshots()) == 1


def test_what_lies_before_retention_goes() -> None:
    settings = dataclasses.replace(SNAPPING, log_archive_retention_bytes=20_000)
    _, disk = _written(settings, 4_000)
    reader = ShardReader(PATH, 0, disk)
    first = next(reader.frames()).index
    assert first > 1
    assert all(index >= first - 1 for index in kept_indexes(disk, HOME))


@pytest.mark.parametrize("crash", list(Crash))
def test_a_node_starts_with_and_without_them(crash: Crash) -> None:
    node, disk = _written(SNAPPING)
    values = node.machine.values
    for index in kept_indexes(disk, HOME)[::2]:
        disk.unlink(kept_path(HOME, index))
    again = SingleReplica(disk.crash(crash), SNAPPING, boot=2).start()
    assert {k: v for k, v in again.machine.values.items() if k[0] != 1000} == {
        k: v for k, v in values.items() if k[0] != 1000
    }


def test_damage_to_one_is_told_and_does_no_harm() -> None:
    _, disk = _written(SNAPPING)
    reader = ShardReader(PATH, 0, disk)
    index = kept_indexes(disk, HOME)[1]
    path = kept_path(HOME, index)
    file = disk.open(path, "r+")
    file.pwrite(b"\xff\xff", file.size() // 2)
    file.close()
    assert [(one.file, one.hint) for one in reader.verify()] == [
        (path, "remove the file: readers of the history do not need it")
    ]
    with pytest.raises(Damaged):
        reader.snapshot(index)
    again = SingleReplica(disk.crash(Crash.KEPT), SNAPPING, boot=2).start()
    assert again.machine.restored > 0


def test_other_files_in_the_archive_are_none() -> None:
    _, disk = _written(SNAPPING)
    before = kept_indexes(disk, HOME)
    for name in ("snapshot-1", "snapshot-", "snapshot-00000000000000000001.tmp"):
        disk.open(join(HOME, "archive", name), "w").close()
    assert kept_indexes(disk, HOME) == before


def test_the_closest_neighbours_go_first() -> None:
    assert surplus([10, 20, 25, 30], 100, 4) == []
    assert surplus([10, 20, 25, 30], 100, 3) == [25]
    assert surplus([10, 20, 25, 30], 100, 0) == [10, 20, 25, 30]
    assert surplus([10, 120], 100, 5) == [120]
