"""Inputs of the source: nodes and clusters, archives and snapshots, and the decided part of a log."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import write_log
from history.reading.node import ShardFiles
from history.reading.opening import open_node
from pipeline.errors import InputError
from pipeline.source import inputs, kept
from pipeline.source import plan as plans
from pipeline.source.frames import Bounds
from pipeline.source.inputs import open_input
from pipeline.source.options import parse_options
from pipeline.source.plan import plan
from pipeline.source.reading import read_task
from raftlog.env.files import Files, OsFiles
from raftlog.storage.archive import ARCHIVE, apply_retention, archive_segments
from raftlog.storage.hash_chain import GENESIS
from raftlog.storage.index_build import build_index
from raftlog.storage.retained_snapshots import kept_path
from raftlog.storage.sealed_index import decode_index
from raftlog.storage.segments import SegmentHeader
from raftlog.storage.snapshots import SnapshotFile, write_snapshot
from records import RawRecord
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


def opened_by_planning(monkeypatch: pytest.MonkeyPatch, log: Path) -> list[str]:
    """The list of files whose header or end a plan reads."""
    opened: list[str] = []
    header, end = inputs._header, inputs._end_within

    def look_at_header(files: Files, path: str) -> SegmentHeader | None:
        opened.append(path)
        return header(files, path)

    def look_for_end(files: Files, home: str, bounds: Bounds) -> tuple[int, int] | None:
        opened.append(home)
        return end(files, home, bounds)

    with monkeypatch.context() as patched:
        patched.setattr(inputs, "_header", look_at_header)
        patched.setattr(inputs, "_end_within", look_for_end)
        open_input(str(log))
    return [path for path in opened if Path(path).exists()]


def test_a_second_plan_looks_up_nothing_that_stayed_as_it_was(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SETTLED_NS", -(1 << 62))
    first, shard = opened_by_planning(monkeypatch, archived), archived / "shard-0"
    assert len(first) > len(list(shard.glob("archive/*.log")))
    before = open_input(str(archived)).shards[0].decided_index
    metadata = opened_by_planning(monkeypatch, archived)
    assert [path for path in metadata if "shard-0" in path] == []
    (newest,) = shard.glob("*.log")
    newest.write_bytes(newest.read_bytes()[:-1])
    assert opened_by_planning(monkeypatch, archived) == [*metadata, str(shard), str(newest)]
    assert open_input(str(archived)).shards[0].decided_index == before - 1


def test_what_changed_a_moment_ago_is_looked_up_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a")
    learnt: kept.Kept[bytes] = kept.Kept(1)
    assert learnt.of(str(file), None, file.read_bytes) == b"a"
    file.write_bytes(b"b")  # the same size, perhaps within one tick of the clock
    assert learnt.of(str(file), None, file.read_bytes) == b"b"


def test_what_was_not_learnt_is_asked_again_and_no_more_is_kept_than_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SETTLED_NS", -(1 << 62))
    file = tmp_path / "file"
    asked: list[int] = []
    learnt: kept.Kept[int | None] = kept.Kept(2)

    def ask(about: int, says: int | None) -> int | None:
        def learn() -> int | None:
            asked.append(about)
            return says

        return learnt.of(str(file), about, learn)

    assert (ask(1, 7), ask(1, 8)) == (7, 8)  # it is not there
    file.touch()
    assert (ask(1, None), ask(1, 7), ask(1, 8)) == (None, 7, 7)
    assert (ask(2, 0), ask(3, 0), ask(1, 9)) == (0, 0, 9)
    assert asked == [1, 1, 1, 1, 2, 3, 1]


def test_of_archived_segments_the_manifest_tells_what_need_not_be_opened(archived: Path) -> None:
    first, *_, newest = open_input(str(archived)).shards[0].segments
    assert first.timestamp_ms_min is not None
    assert first.types is not None
    assert 1 in first.types
    assert (newest.last_index, newest.types) == (None, None)
    early = parse_options({"path": str(archived), "shards": "0", "to_time": str(first.timestamp_ms_max)})
    assert [task.bounds.first for task in plan(early) if task.bounds.following is not None] == [1]


def test_the_largest_segments_come_first_those_alike_as_in_the_log(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "ALIKE_BYTES", 1 << 14)
    asked = parse_options({"path": str(archived)})
    tasks = plan(asked)
    steps = [task.size >> 14 for task in tasks]
    assert steps == sorted(steps, reverse=True)
    assert (tasks[0].shard, tasks[-1].shard) == (0, -1)
    alike = [task.bounds.first for task in tasks if task.size >> 14 == steps[0]]
    assert alike == sorted(alike)
    assert len(alike) > 1
    monkeypatch.setattr(plans, "ALIKE_BYTES", 1 << 30)
    firsts = [(task.shard, task.bounds.first) for task in plan(asked)]
    assert firsts == sorted(firsts)


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
    named = ("raft_index", "term", "timestamp_ms", "commit_index", "num_records", "size")
    ours = [tuple(row[name] for name in named) for row in rows_of(mixed_log, rows="entries", shards="0")]
    assert ours == [
        (one.index, one.term, one.timestamp_ms, one.commit_index, one.record_count, one.size)
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
        assert {row["timestamp_ms"] for row in rows} == {snapshot.header.last_timestamp_ms}
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
