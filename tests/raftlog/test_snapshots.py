"""Snapshots: snapshot + tail is the whole log, at any seal point; failing jobs; retention; the file."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from raftlog.env.errors import Corrupt
from raftlog.env.files import OsFiles
from raftlog.env.simulated_files import Crash, SimFiles
from raftlog.env.state_machine import SnapshotHeader
from raftlog.offline.reader import ShardReader
from raftlog.storage import merge
from raftlog.storage.snapshots import BLOCK_RECORDS, SnapshotFile, write_snapshot
from records import Stamped
from tests.support.manual_host import Stopped
from tests.support.single_replica import PATH, SETTINGS, KeyValues, SingleReplica, formatted, record

from .orphans import left_aside, sleeping_jobs

HOME = f"{PATH}/shard-0"
SNAPPING = dataclasses.replace(SETTINGS, snapshot_tail_records=100)


def _filled(settings: object, entries: int, seed: int = 0) -> SingleReplica:
    """Return a node that wrote `entries` with overwrites and tombstones."""
    disk = SimFiles(seed)
    formatted(disk)
    node = SingleReplica(disk, settings).start()  # type: ignore[arg-type]
    rng = random.Random(seed)
    for _ in range(entries):
        pairs = [
            (f"key-{rng.randrange(40)}", None if rng.random() < 0.2 else f"value-{rng.random()}")
            for _ in range(rng.randrange(1, 4))
        ]
        node.put(*pairs)
        if rng.random() < 0.5:
            node.host.run()
    node.host.run()
    return node


def _disk(node: SingleReplica) -> SimFiles:
    assert isinstance(node.host.files, SimFiles)
    return node.host.files


def _replayed(disk: SimFiles) -> KeyValues:
    """Replay the whole log, archive included, entry by entry."""
    machine = KeyValues()
    for frame in ShardReader(PATH, 0, disk).frames():
        machine.apply_frame(frame.index, frame.term, frame.timestamp_ms, frame.body)
    return machine


def _written(node: SingleReplica) -> dict[tuple[int, bytes], bytes]:
    """Return the values that the test wrote, without those that every start writes."""
    return {key: value for key, value in node.machine.values.items() if key[0] != 1000}


@pytest.mark.parametrize("retention_ms", [0, 86_400_000])
def test_live_state_is_replay_is_snapshot_and_tail(retention_ms: int) -> None:
    for seed in range(6):
        settings = dataclasses.replace(
            SNAPPING, delete_retention_ms=retention_ms, snapshot_tail_records=60 + 37 * seed
        )
        node = _filled(settings, 400, seed)
        assert node.replica.status()["snapshots_made"] >= 2
        disk = _disk(node)
        assert ShardReader(PATH, 0, disk).verify() == []
        assert _replayed(disk).values == node.machine.values
        again = SingleReplica(disk.crash(Crash.LOST), settings, boot=2).start()
        assert again.machine.restored > 0
        assert _written(again) == _written(node)
        assert again.replica.status()["tail_records"] < 400


def test_tombstones_are_kept_for_their_time_only() -> None:
    keeping = _filled(dataclasses.replace(SNAPPING, delete_retention_ms=86_400_000), 300)
    dropping = _filled(dataclasses.replace(SNAPPING, delete_retention_ms=0), 300)
    kept = ShardReader(PATH, 0, _disk(keeping)).snapshot()
    dropped = ShardReader(PATH, 0, _disk(dropping)).snapshot()
    assert kept is not None
    assert dropped is not None
    assert any(raw.value is None for raw in kept.records)
    assert all(raw.value is not None for raw in dropped.records)


def test_a_failed_job_changes_nothing_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: object, files: object) -> object:
        raise OSError(28, "no space for a snapshot")

    with monkeypatch.context() as patched:
        patched.setattr(merge, "run", broken)
        node = _filled(SNAPPING, 300)
    assert len(node.host.jobs) == 1
    assert not _disk(node).exists(f"{HOME}/snapshot")
    node.host.advance(SNAPPING.snapshot_retry_ms + 1)
    assert node.replica.status()["snapshots_made"] == 1
    assert ShardReader(PATH, 0, _disk(node)).verify() == []


def test_one_job_at_a_time_and_the_node_serves_meanwhile() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk, SNAPPING).start()
    node.host.hold_jobs = True
    for number in range(500):
        node.put_synced((f"k{number}", "v"))
    assert len(node.host.jobs) == 1
    node.host.hold_jobs = False
    node.host.release_jobs()
    node.host.run()
    for number in range(200):
        node.put_synced((f"k{number}", "w"))
    assert node.replica.status()["snapshots_made"] >= 2
    assert ShardReader(PATH, 0, disk).verify() == []


def test_segments_that_ended_by_size_are_sealed_without_a_snapshot() -> None:
    node = _filled(dataclasses.replace(SETTINGS, segment_bytes=10_000), 500)
    disk = _disk(node)
    logs = [name for name in disk.listdir(HOME) if name.endswith(".log")]
    indexes = [name for name in disk.listdir(HOME) if name.endswith(".index")]
    assert len(logs) >= 3
    assert [name[:20] for name in indexes] == [name[:20] for name in logs[:-1]]
    assert ShardReader(PATH, 0, disk).verify() == []
    disk.unlink(f"{HOME}/{indexes[1]}")  # as the message about a damaged index advises
    again = SingleReplica(
        disk.crash(Crash.KEPT), dataclasses.replace(SETTINGS, segment_bytes=10_000), boot=2
    ).start()
    assert again.host.files.exists(f"{HOME}/{indexes[1]}")


def test_a_segment_that_changed_before_it_was_sealed_stops_the_node() -> None:
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk, SNAPPING).start()
    node.host.hold_jobs = True
    for number in range(200):
        node.put_synced((f"k{number}", "v"))
    disk.damage(f"{HOME}/00000000000000000001.log", 3000)
    node.host.release_jobs()
    with pytest.raises(Stopped, match=r"00000000000000000001\.log: byte \d+: no complete frame"):
        node.host.run()


def test_a_state_that_does_not_follow_from_its_records_is_refused() -> None:
    """A non-deterministic apply: the hash captured live is not that of the restored records."""
    disk = SimFiles()
    formatted(disk)
    node = SingleReplica(disk, SNAPPING).start()
    node.machine.state_hash = lambda: 12345  # type: ignore[method-assign]
    for number in range(200):
        node.put_synced((f"k{number}", "v"))
    with pytest.raises(Stopped, match="the state does not follow from its records"):
        SingleReplica(disk.crash(Crash.KEPT), SNAPPING, boot=2).start()


@pytest.mark.parametrize(("size", "age", "kept"), [(-1, -1, None), (15_000, -1, 15_000), (-1, 0, 0)])
def test_retention_drops_the_oldest_archived_segments(size: int, age: int, kept: int | None) -> None:
    disk = SimFiles()
    formatted(disk)
    settings = dataclasses.replace(SNAPPING, log_archive_retention_bytes=size, log_archive_retention_ms=age)
    node = SingleReplica(disk, settings).start()
    for number in range(1000):
        node.host.now_ms += 10
        node.put_synced((f"k{number % 9}", "v"))
    archive = [name for name in disk.listdir(f"{HOME}/archive") if name.endswith(".log")]
    total = sum(disk.size(f"{HOME}/archive/{name}") for name in archive)
    indexes = [frame.index for frame in ShardReader(PATH, 0, disk).frames()]
    assert indexes == list(range(indexes[0], 1002))
    if kept is None:
        assert indexes[0] == 1
    else:
        assert total <= max(kept, 12_000)
        assert indexes[0] > 500
        with pytest.raises(KeyError, match="no longer kept"):
            node.replica.log.read(1, 100)
    assert ShardReader(PATH, 0, disk).verify() == []
    SingleReplica(disk.crash(Crash.LOST), settings, boot=2).start()


def _header(count: int) -> SnapshotHeader:
    return SnapshotHeader(
        cluster_id="c",
        shard=0,
        num_shards=4,
        last_index=64,
        last_term=2,
        last_timestamp_ms=99,
        chain_hash=bytes(range(16)),
        state_hash=2**64 - 1,
        catalog_version=5,
        record_count=count,
    )


@pytest.mark.parametrize("count", [0, 1, BLOCK_RECORDS, BLOCK_RECORDS + 1, 2 * BLOCK_RECORDS])
def test_the_file_holds_what_was_written(count: int) -> None:
    disk = SimFiles()
    stamped = [
        Stamped(number, 10 * number, record(f"k{number}", None if number % 3 else "v"))
        for number in range(count)
    ]
    write_snapshot(disk, "/s", _header(count), stamped)
    file = SnapshotFile(disk, "/s")
    assert file.header == _header(count)
    assert list(file.stamped()) == stamped


def test_a_snapshot_cut_anywhere_is_damaged() -> None:
    disk = SimFiles()
    write_snapshot(disk, "/s", _header(3), [Stamped(1, 1, record(f"k{n}", "v")) for n in range(3)])
    for size in range(disk.size("/s")):
        shorter = disk.crash(Crash.KEPT)
        shorter.open("/s", "w").pwrite(disk.read("/s"), 0)
        shorter.open("/s", "w").truncate(size)
        with pytest.raises(Corrupt):
            list(SnapshotFile(shorter, "/s").blocks())


def test_the_job_works_as_a_process_of_its_own(tmp_path: Path) -> None:
    """msgpack in, msgpack out, from a directory with a user's own `records.py` in it."""
    files = OsFiles()
    home = str(tmp_path / "node")
    formatted(files, home)
    node = SingleReplica(files, SNAPPING, path=home).start()
    node.host.hold_jobs = True
    for number in range(200):
        node.put_synced((f"k{number % 9}", "v"))
    (module, request), *_ = node.host.jobs
    (tmp_path / "records.py").write_text("raise SystemExit('not this one')")
    ran = subprocess.run(
        [sys.executable, "-P", "-m", module],
        input=msgpack.packb(request),
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert msgpack.unpackb(ran.stdout)["records"] == 10
    shard = tmp_path / "node" / "shard-0"
    made = {path.name.split(".")[0] for path in shard.glob("*.tmp")}
    assert made == {"00000000000000000001", "snapshot"}
    assert not (shard / "snapshot").exists(), "the job renames nothing"


def test_a_failed_job_is_tried_again_also_when_its_remains_cannot_be_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(request: Any, files: Any) -> object:
        files.open(merge.aside(f"{HOME}/snapshot", request["token"]), "w").close()
        files.fail = lambda _number, operation, _path: OSError(5, "stuck") if operation == "unlink" else None
        raise OSError(28, "no space for a snapshot")

    with monkeypatch.context() as patched:
        patched.setattr(merge, "run", broken)
        node = _filled(SNAPPING, 300)
    _disk(node).fail = None
    node.host.advance(SNAPPING.snapshot_retry_ms + 1)
    assert node.replica.status()["snapshots_made"] == 1


def test_a_job_that_outlives_its_node_does_not_disturb_the_next_start() -> None:
    """The next start cleans up, makes snapshots and archives the job's files, at each moment of the job."""
    settings = dataclasses.replace(SNAPPING, segment_bytes=6_000, snapshot_tail_records=200)
    node = _filled(settings, 300)
    assert node.replica.status()["snapshots_made"] > 0
    node.host.hold_jobs = True
    node.host.jobs.clear()
    while not node.host.jobs or not node.host.jobs[-1][1]["snapshot"]:
        node.host.release_jobs()
        node.host.run()
        node.put_synced(("key-1", "before"))
    _, request = node.host.jobs[-1]
    assert len(request["segments"]) > 1
    nodes: list[SingleReplica] = []

    def next_start(disk: SimFiles) -> None:
        following = SingleReplica(disk, settings, boot=2).start()
        for number in range(200):
            following.put_synced((f"key-{number % 40}", "after"))
        assert following.replica.status()["snapshots_made"] > 0
        nodes.append(following)

    for disk in sleeping_jobs(merge, request, _disk(node), next_start):
        following = nodes.pop()
        assert all(request["token"] in name for name in left_aside(disk, HOME))
        for number in range(200):
            following.put_synced((f"key-{number % 40}", "and on"))
        assert ShardReader(PATH, 0, disk).verify() == []
        assert _replayed(disk).values == following.machine.values
        following.stop()
        again = SingleReplica(disk, settings, boot=3).start()
        assert left_aside(disk, HOME) == []
        assert _written(again) == _written(following)
