"""Inputs of the source: nodes and clusters, archives and snapshots, and the decided part of a log."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import write_log
from history.reading.node import ShardFiles
from history.reading.opening import open_node
from quorate.spark.errors import InputError
from quorate.spark.source import inputs
from quorate.spark.source import plan as plans
from quorate.spark.source.inputs import open_input
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan
from quorate.spark.source.reading import read_task
from raftlog.env.files import OsFiles
from raftlog.storage.archive import ARCHIVE, apply_retention, archive_segments
from raftlog.storage.hash_chain import GENESIS
from raftlog.storage.index_build import build_index
from raftlog.storage.retained_snapshots import kept_path
from raftlog.storage.sealed_index import decode_index
from raftlog.storage.snapshots import SnapshotFile, write_snapshot
from records import RawRecord
from tests.pipeline.rows import moment
from tests.pipeline.source_rows import rows_of
from tests.support.recorded_incident import INCIDENT
from tests.support.three_logs import ThreeLogs


@pytest.fixture
def archived(mixed_log: str, tmp_path: Path) -> Path:
    """A log whose sealed segments are in its archive."""
    log = Path(shutil.copytree(mixed_log, tmp_path / "log"))
    home = log / "shard-0"
    sealed = [decode_index(path.read_bytes(), str(path)) for path in sorted(home.glob("*.index"))]
    assert len(sealed) >= 2
    archive_segments(OsFiles(), str(home), sealed)
    assert not list(home.glob("*.index"))
    return log


def test_an_archive_is_read_like_what_was_never_moved(archived: Path, mixed_log: str) -> None:
    assert rows_of(archived) == rows_of(mixed_log)


def test_what_was_remembered_saves_reading_what_stayed_as_it_was(
    archived: Path, read_bytes: list[int]
) -> None:
    first = open_input(str(archived))
    assert sum(read_bytes) > 20_000
    noted = msgpack.packb(first.to_remember())
    read_bytes.clear()
    again = open_input(str(archived), remembered=noted)
    assert again.shards == first.shards
    assert sum(read_bytes) < 4_000
    (newest,) = (archived / "shard-0").glob("*.log")
    newest.write_bytes(newest.read_bytes()[:-1])
    shorter = open_input(str(archived), remembered=noted)
    assert shorter.shards[0].decided_index == first.shards[0].decided_index - 1


def test_a_cluster_that_was_remembered_ends_where_it_ended() -> None:
    first = open_input(str(INCIDENT))
    again = open_input(str(INCIDENT), remembered=msgpack.packb(first.to_remember()))
    assert again.shards == first.shards


@pytest.mark.parametrize(
    "noted", [b"", b"\xc1", b"\x93", {"ends": 3}, {"looked": []}, {"ends": {"": [1, "x"]}}]
)
def test_what_was_remembered_wrongly_only_costs_time(mixed_log: str, noted: Any) -> None:
    assert open_input(mixed_log, remembered=noted).shards == open_input(mixed_log).shards


def test_of_archived_segments_the_manifest_tells_what_need_not_be_opened(archived: Path) -> None:
    first, *_, newest = open_input(str(archived)).shards[0].segments
    assert first.timestamp_ms_min is not None
    assert first.types is not None
    assert 1 in first.types
    assert (newest.last_index, newest.types) == (None, None)
    early = parse_options({"path": str(archived), "shards": "0", "to_time": str(first.timestamp_ms_max)})
    assert [one.first for task in plan(early) for one in task.segments if one.following is not None] == [1]


def test_the_largest_tasks_come_first_those_alike_as_in_the_log(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "ALIKE_BYTES", 1 << 14)
    monkeypatch.setattr(plans, "TASK_BYTES_MIN", 1)
    asked = parse_options({"path": str(archived)})
    tasks = plan(asked)
    steps = [task.size >> 14 for task in tasks]
    assert steps == sorted(steps, reverse=True)
    placed = [(one.shard, one.first) for task in tasks for one in task.segments]
    assert (placed[0][0], placed[-1][0]) == (0, -1)
    alike = [task.segments[0].first for task in tasks if task.size >> 14 == steps[0]]
    assert alike == sorted(alike)
    assert len(alike) > 1
    monkeypatch.setattr(plans, "ALIKE_BYTES", 1 << 30)
    firsts = [(one.shard, one.first) for task in plan(asked) for one in task.segments]
    assert firsts == sorted(firsts)


def test_small_segments_share_a_task_and_large_ones_have_their_own(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = parse_options({"path": str(archived)})
    (one,) = plan(asked)
    assert {place.shard for place in one.segments} == {-1, 0}
    sizes = [place.size for place in one.segments]
    monkeypatch.setattr(plans, "TASK_BYTES_MIN", sizes[0] + sizes[1])
    tasks = plan(asked)
    assert len(tasks) > 1
    assert all(task.size <= sizes[0] + sizes[1] or len(task.segments) == 1 for task in tasks)
    assert sorted(place.first for task in tasks for place in task.segments) == sorted(
        place.first for place in one.segments
    )


def test_only_an_archive_is_enough(archived: Path) -> None:
    home = archived / "shard-0"
    whole = rows_of(archived, shards="0")
    newest = max(int(path.stem) for path in home.glob("*.log"))
    for path in home.glob("*.log"):
        path.unlink()
    rows = rows_of(archived, shards="0")
    assert rows == [row for row in whole if row["raft_index"] < newest]


def test_what_retention_dropped_is_no_damage(archived: Path) -> None:
    home = archived / "shard-0"
    manifest = apply_retention(OsFiles(), str(home), 1, -1, 0)
    begins = manifest.dropped_index + 1
    found = open_input(str(archived)).shards[0]
    assert found.begins_index == begins > 1
    rows = rows_of(archived, shards="0")
    assert min(row["raft_index"] for row in rows) == begins


def test_what_a_sealed_index_leaves_out_is_not_read(archived: Path) -> None:
    """Unwanted bytes are not read: damage to them does not matter."""
    for path in (archived / "shard-0" / ARCHIVE).glob("*.log"):
        path.write_bytes(b"")
    assert rows_of(archived, groups="nobody", shards="0") == []
    assert rows_of(archived, types="77", shards="0") == []


def test_a_log_that_may_not_be_read_is_one_line(mixed_log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", f"{mixed_log}/shard-0")

    monkeypatch.setattr(inputs, "open_node", refuse)
    with pytest.raises(InputError, match=r"cannot be read: .*Permission denied.*shard-0"):
        open_input(mixed_log)


def test_the_end_of_each_shard_is_what_history_says(mixed_log: str) -> None:
    for path in (str(INCIDENT), mixed_log):
        log, found = open_node(path), open_input(path)
        assert set(found.shards) == set(log.shards)
        for number, shard in found.shards.items():
            last = max(frame.index for frame in log.reader(number).frames() if frame.decided)
            assert (shard.decided_index, shard.last_ms) == (last, log.last_ms(number))


def test_a_cluster_is_read_from_its_furthest_node_and_entries_from_all(tmp_path: Path) -> None:
    cluster = ThreeLogs(tmp_path)
    cluster.opens(1, term=1)
    cluster.fill(5)
    cluster.fill(2, 1, 2)
    found = open_input(str(tmp_path))
    assert found.cluster_id == "test"
    assert found.node_ids == (1, 2, 3)
    shard = found.shards[0]
    assert (shard.decided_index, shard.node_id, shard.is_alone) == (8, 1, False)
    assert {row["raft_index"] for row in rows_of(tmp_path, shards="0")} == set(range(1, 9))
    entries = rows_of(tmp_path, rows="entries", shards="0")
    assert sorted((row["node_id"], row["raft_index"]) for row in entries) == [
        *((node, index) for node in (1, 2) for index in range(1, 9)),
        *((3, index) for index in range(1, 7)),
    ]
    by_index: dict[int, set[int]] = {}
    for row in entries:
        by_index.setdefault(row["raft_index"], set()).add(row["crc"])
    assert all(len(crcs) == 1 for crcs in by_index.values())


def test_an_undecided_tail_is_left_out(tmp_path: Path) -> None:
    cluster = ThreeLogs(tmp_path)
    cluster.opens(1, term=1)
    cluster.fill(5)
    cluster.fill(3, 2, commit_index=5)
    assert {row["raft_index"] for row in rows_of(tmp_path, shards="0")} == set(range(1, 7))
    assert max(row["raft_index"] for row in rows_of(tmp_path, rows="entries", shards="0")) == 6
    alone = rows_of(cluster.path(2), shards="0")  # one copy proves only what its frames record as committed
    assert {row["raft_index"] for row in alone} == set(range(1, 6))


def test_entries_are_what_stands_in_the_log(mixed_log: str) -> None:
    frames = list(ShardFiles(mixed_log, 0).frames())
    named = ("raft_index", "term", "timestamp", "commit_index", "num_records", "size")
    ours = [tuple(row[name] for name in named) for row in rows_of(mixed_log, rows="entries", shards="0")]
    assert ours == [
        (one.index, one.term, moment(one.timestamp_ms), one.commit_index, one.record_count, one.size)
        for one in frames
    ]


def test_a_snapshot_is_rows_at_its_last_entry(mixed_log: str) -> None:
    reader = ShardFiles(mixed_log, 0)
    first, second = [header.last_index for header in reader.snapshots()][:2]
    for asked, index in ((second, second), (second - 1, first)):
        snapshot = reader.snapshot(index)
        assert snapshot is not None
        rows = rows_of(mixed_log, rows="snapshot", shards="0", to_index=str(asked), raw="true")
        assert {row["raft_index"] for row in rows} == {index}
        assert {row["timestamp"] for row in rows} == {moment(snapshot.header.last_timestamp_ms)}
        assert [row["sequence"] for row in rows] == list(range(len(rows)))
        assert [
            RawRecord(row["type"], row["version"], row["key_bytes"], row["value_bytes"]) for row in rows
        ] == list(snapshot.records)
        assert {row["trigger"] for row in rows} == {None}
    assert rows_of(mixed_log, rows="snapshot", to_index=str(first - 1)) == []


def test_a_sound_snapshot_with_a_record_that_cannot_be_decoded_is_damage(
    mixed_log: str, tmp_path: Path
) -> None:
    log = Path(shutil.copytree(mixed_log, tmp_path / "log"))
    newest = ShardFiles(str(log), 0).snapshots()[-1].last_index
    path = kept_path(str(log / "shard-0"), newest)
    file = SnapshotFile(OsFiles(), path)
    stamped, header = list(file.stamped()), file.header
    file.close()
    place = len(stamped) // 2
    stamped[place] = replace(stamped[place], record=stamped[place].record._replace(key=b"\xc1"))
    write_snapshot(OsFiles(), path, header, stamped)
    said = f"a record of the snapshot of entry {header.last_index} cannot be decoded"
    with pytest.raises(InputError, match=said):
        rows_of(log, rows="snapshot", shards="0")
    (row,) = [one for one in rows_of(log, rows="snapshot", shards="0", mode="permissive") if one["damage"]]
    assert said in row["damage"]
    assert (row["shard"], row["raft_index"]) == (0, header.last_index)
    unasked = rows_of(log, rows="snapshot", shards="0", columns="type,raft_index")
    assert len(unasked) == header.record_count


def test_a_segment_that_is_sealed_after_the_plan_is_read_as_far_as_planned(
    mixed_log: str, tmp_path: Path
) -> None:
    log = Path(shutil.copytree(mixed_log, tmp_path / "log"))
    home = log / "shard-0"
    *_, before, newest = sorted(home.glob("*.log"))
    data = newest.read_bytes()
    half = data[: data.index(b"QFR1", len(data) // 2)]
    newest.write_bytes(half)
    planned = plan(parse_options({"path": str(log), "shards": "0"}))
    expected = [row for task in planned for batch in read_task(task) for row in batch.to_pylist()]
    newest.write_bytes(data)
    chain = decode_index(before.with_suffix(".index").read_bytes(), "").chain_after
    newest.with_suffix(".index").write_bytes(build_index(data, str(newest), chain or GENESIS)[1])
    assert [row for task in planned for batch in read_task(task) for row in batch.to_pylist()] == expected
    assert len(rows_of(log, shards="0")) > len(expected)


def test_a_log_without_an_identity_says_its_cluster_by_its_segments(tmp_path: Path) -> None:
    write_log(str(tmp_path / "log"), 50, groups=2)
    (tmp_path / "log" / "node").unlink()
    assert open_input(str(tmp_path / "log")).cluster_id == "bench"
    assert {row["cluster_id"] for row in rows_of(tmp_path / "log")} == {"bench"}
