"""Sealed segments are shipped to a store: whole, verified, and each once, whatever fails meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from crc32c import crc32c

from raftlog.env.errors import Corrupt
from raftlog.env.files import OsFiles, join
from raftlog.env.object_stores import StoreError
from raftlog.env.store_writing import store_at
from raftlog.offline.reader import ShardReader
from raftlog.offline.verify import verify_node, verify_shard
from raftlog.storage.archive import apply_retention, read_manifest
from raftlog.storage.directory import NODE_FILE, shard_name
from raftlog.storage.evidence import read_evidence
from raftlog.storage.metafile import read_meta, write_meta
from raftlog.storage.segments import first_indexes
from raftlog.storage.shipped_mark import shipped_to
from raftlog.storage.shipping import run, sealed_segments, ship, shipped_manifest
from tests.support.long_story import long_story
from tests.support.object_stores import MemoryStore, client, moto_server

URL = "memory://place"
FILES = OsFiles()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = str(tmp_path_factory.mktemp("node"))
    long_story(home, commits=1000)
    assert len(sealed_segments(FILES, join(home, "shard-0"))) >= 2
    return home


@pytest.fixture
def home(story: str, tmp_path: Path) -> str:
    shutil.copytree(story, tmp_path / "node")
    return str(tmp_path / "node")


def _reads_whole(store: MemoryStore, home: str) -> bool:
    """Check that all that the manifests name is there and right; returns whether that is everything."""
    complete = True
    for shard in ("metadata", "shard-0"):
        there = f"{URL}/node-1/{shard}/archive"
        found = shipped_manifest(store, there).segments
        for one in found:
            log = store.objects[f"{there}/{one.first_index:020d}.log"]
            assert (len(log), crc32c(log)) == (one.log_bytes, one.log_crc)
            assert f"{there}/{one.first_index:020d}.index" in store.objects
        complete &= list(found) == sealed_segments(FILES, join(home, shard))
    return complete


def test_each_segment_is_shipped_once_and_slowly_enough(home: str) -> None:
    store = MemoryStore()
    sealed = sealed_segments(FILES, join(home, "shard-0"))
    done = ship(FILES, home, URL, store)
    assert done.shipped >= len(sealed)
    assert (done.left, done.lost) == (0, 0)
    assert store.paused_s > 0
    assert _reads_whole(store, home)
    assert shipped_to(FILES, join(home, "shard-0")) == done.last_indexes[0] == sealed[-1].last_index
    store.sent.clear()
    assert ship(FILES, home, URL, store).shipped == 0
    assert store.sent == []


def test_a_job_ships_a_bounded_number(home: str) -> None:
    store = MemoryStore()
    counts = []
    while not counts or counts[-1].left:
        counts.append(ship(FILES, home, URL, store, segments_max=1))
    assert {one.shipped for one in counts} == {1}
    assert [one.left for one in counts] == list(range(len(counts) - 1, -1, -1))
    assert _reads_whole(store, home)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_store_that_fails_at_any_call_reads_whole_and_the_next_job_goes_on(
    home: str, is_late: bool
) -> None:
    whole = MemoryStore()
    ship(FILES, home, URL, whole)
    for call in range(whole.calls):
        store = MemoryStore(fails_at=call, is_late=is_late)
        with pytest.raises(StoreError):
            ship(FILES, home, URL, store)
        _reads_whole(store, home)
        ship(FILES, home, URL, store)
        assert _reads_whole(store, home)
        assert store.objects == whole.objects


def test_an_upload_that_arrives_different_does_not_count(home: str) -> None:
    store = MemoryStore()
    store.crc = lambda path: 0  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="other bytes than were sent"):
        ship(FILES, home, URL, store)
    assert not shipped_manifest(store, f"{URL}/node-1/metadata/archive").segments


def test_a_damaged_segment_is_not_shipped(home: str) -> None:
    victim = next(Path(home, "shard-0", "archive").glob("*.log"))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    store = MemoryStore()
    with pytest.raises(Corrupt, match="differs from what its seal says"):
        ship(FILES, home, URL, store)
    assert _reads_whole(store, home) is False


def test_another_disk_or_cluster_does_not_ship_to_the_same_place(home: str) -> None:
    store = MemoryStore()
    ship(FILES, home, URL, store)
    before = dict(store.objects)
    path = join(home, NODE_FILE)
    cluster_id, node_id, _, *rest = read_meta(FILES, path, "node")
    for whose, named in (("disk", (cluster_id, node_id, "new")), ("cluster", ("other", node_id, "new"))):
        write_meta(FILES, path, "node", *named, *rest)
        with pytest.raises(StoreError, match=f"belongs to another {whose}"):
            ship(FILES, home, URL, store)
    assert store.objects == before


def test_age_keeps_what_is_not_shipped_and_size_does_not(home: str, caplog: pytest.LogCaptureFixture) -> None:
    shard = join(home, "shard-0")
    segments = read_manifest(FILES, join(shard, "archive")).segments
    late_ms = segments[-1].timestamp_ms_max + 10
    kept = apply_retention(FILES, shard, -1, 1, late_ms, shipped_index=segments[0].last_index)
    assert kept.segments == segments[1:]
    assert not caplog.records
    kept = apply_retention(FILES, shard, 0, 1, late_ms, shipped_index=segments[0].last_index)
    assert kept.segments == ()
    assert len(caplog.records) == len(segments) - 1
    assert "go unshipped" in caplog.text
    store = MemoryStore()
    ship(FILES, home, URL, store)


def test_segments_that_retention_removed_stay_in_the_store_and_a_gap_is_counted(home: str) -> None:
    shard = join(home, "shard-0")
    segments = read_manifest(FILES, join(shard, "archive")).segments
    assert len(segments) >= 3
    store = MemoryStore()
    ship(FILES, home, URL, store, segments_max=2)
    first = [
        shipped_manifest(store, f"{URL}/node-1/{one}/archive").segments for one in ("metadata", "shard-0")
    ]
    apply_retention(FILES, shard, segments[-1].log_bytes, -1, 0)
    done = ship(FILES, home, URL, store)
    now = shipped_manifest(store, f"{URL}/node-1/shard-0/archive").segments
    assert now[: len(first[1])] == first[1]
    assert segments[-1] in now
    assert done.lost == (1 if first[1] else 0)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with moto_server() as url:
        yield url


def test_the_job_ships_to_s3_and_a_killed_one_leaves_no_part(home: str, bucket: str) -> None:
    url = f"{bucket}/killed"
    request = msgpack.packb({"path": home, "url": url})
    command = [sys.executable, "-c", _KILLS_ITSELF]
    killed = subprocess.run(command, input=request, env=os.environ | {"PYTHONPATH": os.getcwd()}, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    listed = (
        client().list_objects_v2(Bucket=bucket.removeprefix("s3://"), Prefix="killed/").get("Contents", [])
    )
    assert [one["Key"] for one in listed if one["Key"].endswith(".log")] == []
    done = run({"path": home, "url": url}, FILES)
    assert done["left"] == 0
    assert done["shipped"] > 1
    for shard in ("metadata", "shard-0"):
        found = shipped_manifest(store_at(url), f"{url}/node-1/{shard}/archive").segments
        assert list(found) == sealed_segments(FILES, join(home, shard))


_KILLS_ITSELF = """
import os, signal, sys, msgpack
from pyarrow import fs
from raftlog.env import store_writing
from raftlog.env.files import OsFiles
from raftlog.storage import shipping

class Dying(store_writing.PyarrowStore):
    def put(self, path, data):
        if path.endswith(".log"):
            stream = self._filesystem.open_output_stream(self._inner(path))
            stream.write(data)
            os.kill(os.getpid(), signal.SIGKILL)
        super().put(path, data)

shipping.store_at = Dying
shipping.run(msgpack.unpackb(sys.stdin.buffer.read()), OsFiles())
"""


def _committed(home: str) -> dict[int, int]:
    return {shard: ShardReader(home, shard).highest_commit() for shard in (-1, 0)}


def _frames(home: str, shard: int) -> list[tuple[int, bytes, bool]]:
    return [(one.index, bytes(one.body), one.decided) for one in ShardReader(home, shard).frames()]


def _retained(home: str, segments: int) -> None:
    """Let retention remove the oldest archived segments of shard 0."""
    shard = join(home, "shard-0")
    kept = read_manifest(FILES, join(shard, "archive")).segments[segments:]
    apply_retention(FILES, shard, sum(one.log_bytes for one in kept), -1, 0)


def test_a_place_reads_like_the_directory_up_to_what_is_committed(home: str, tmp_path: Path) -> None:
    url, there = f"file://{tmp_path}/place", f"{tmp_path}/place/node-1"
    committed = _committed(home)
    note = msgpack.packb({"kind": "trouble", "at_ms": 5, "group": "g"})
    note = struct.pack("<II", len(note), crc32c(note)) + note
    Path(home, "evidence.0").write_bytes(note + note[:-1])
    run({"path": home, "url": url, "committed": list(committed.items())}, FILES)
    for shard, last in committed.items():
        assert last > shipped_manifest(store_at(url), f"{url}/node-1/{shard_name(shard)}/archive").last_index
        assert ShardReader(there, shard).highest_commit() == last
        assert _frames(there, shard) == [one for one in _frames(home, shard) if one[0] <= last]
        assert verify_shard(FILES, there, shard) == []
    assert verify_node(FILES, there) == []
    assert read_evidence(FILES, there) == read_evidence(FILES, home)
    assert Path(there, "evidence.0").read_bytes() == note


def test_what_changes_is_shipped_again_only_if_it_changed(home: str) -> None:
    store, committed = MemoryStore(), _committed(home)
    ship(FILES, home, URL, store, committed=committed)
    whole = dict(store.objects)
    store.sent.clear()
    ship(FILES, home, URL, store, committed=committed)
    assert store.sent == []
    earlier = MemoryStore()
    ship(FILES, home, URL, earlier, committed={-1: committed[-1], 0: committed[0] - 1})
    earlier.sent.clear()
    ship(FILES, home, URL, earlier, committed=committed)
    live = f"{max(first_indexes(FILES.listdir(join(home, 'shard-0')))):020d}.log"
    assert earlier.sent == [f"{URL}/node-1/shard-0/archive/{live}", f"{URL}/node-1/shipped"]
    assert earlier.objects == whole


def test_a_log_that_retention_cut_before_it_was_shipped_comes_with_its_first_state(
    home: str, tmp_path: Path
) -> None:
    _retained(home, 2)
    url, there = f"file://{tmp_path}/place", f"{tmp_path}/place/node-1"
    assert run({"path": home, "url": url}, FILES)["left"] == 0
    oldest = ShardReader(home, 0).snapshots()[0].last_index
    assert [one.last_index for one in ShardReader(there, 0).snapshots()] == [oldest]
    assert verify_shard(FILES, there, 0) == []


def test_a_gap_in_a_place_comes_with_the_state_after_it_and_is_told(home: str, tmp_path: Path) -> None:
    url, there = f"file://{tmp_path}/place", f"{tmp_path}/place/node-1"
    store = store_at(url)
    ship(FILES, home, url, store, segments_max=2)
    _retained(home, 4)
    assert ship(FILES, home, url, store).lost == 1
    begins = read_manifest(FILES, join(home, "shard-0", "archive")).segments[0].first_index
    states = [one.last_index for one in ShardReader(there, 0).snapshots()]
    assert (
        states
        == [one for one in [h.last_index for h in ShardReader(home, 0).snapshots()] if one >= begins - 1][:1]
    )
    assert f"begins with entry {begins}" in " ".join(one.what for one in verify_shard(FILES, there, 0))


@pytest.mark.parametrize("is_late", [False, True])
def test_files_that_change_are_shipped_after_a_failure_at_any_call(home: str, is_late: bool) -> None:
    whole, committed = MemoryStore(), _committed(home)
    _retained(home, 1)
    ship(FILES, home, URL, whole, committed=committed)
    for call in range(0, whole.calls, 3):
        store = MemoryStore(fails_at=call, is_late=is_late)
        with pytest.raises(StoreError):
            ship(FILES, home, URL, store, committed=committed)
        ship(FILES, home, URL, store, committed=committed)
        assert store.objects == whole.objects


def test_a_folder_is_a_place_too(home: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shipped"
    assert run({"path": home, "url": url}, FILES)["left"] == 0
    here = sealed_segments(FILES, join(home, "shard-0"))
    there = tmp_path / "shipped" / "node-1" / "shard-0" / "archive"
    assert {one.name for one in there.iterdir()} == {
        "manifest",
        *(f"{one.first_index:020d}.log" for one in here),
        *(f"{one.first_index:020d}.index" for one in here),
    }
