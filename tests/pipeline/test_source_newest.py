"""The newest segment is read from where the last run ended, with the result of reading all of it."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from benchmarks.mixedlog import hold_back
from quorate.spark.errors import InputError
from quorate.spark.source.buffer_pool import PooledBuffer, pooled_buffer
from quorate.spark.source.following import FollowedInput
from quorate.spark.source.frames import Bounds, scan
from quorate.spark.source.inputs import InputLog, open_input
from quorate.spark.source.listing import ListedFiles
from quorate.spark.source.loading import LoadedSegment, load
from quorate.spark.source.plan import Piece, Task, plan_records
from raftlog.env.files import OsFile, OsFiles
from raftlog.env.object_stores import files_at
from raftlog.storage.frames import FRAME_MAGIC, encode_frame
from raftlog.storage.segments import HEADER_BYTES_MAX, LogIdentity, encode_header, log_name
from tests.pipeline.damage import flip
from tests.pipeline.growing import SHARD, Growing
from tests.support.object_stores import upload

ENTRIES = 60
HARMS = 300
SEED = 20


@dataclass(frozen=True)
class Grown:
    """A log whose newest segment was remembered before its last entries were written."""

    path: str
    file: Path
    noted: bytes
    before: int
    """The last entry that was remembered."""

    def piece(self) -> Piece:
        """The newest segment, with all that was not remembered."""
        return newest(open_input(self.path, remembered=self.noted), self.before + 1)


def newest(log: InputLog, first: int) -> Piece:
    """Return the newest segment of the group shard, to be read from an entry on."""
    (task,) = plan_records(log, {SHARD: (first, log.shards[SHARD].decided_index)})
    (piece,) = Task.of(task.packed()).pieces()
    return piece


@pytest.fixture
def grown(mixed_log: str, tmp_path: Path) -> Grown:
    path = str(shutil.copytree(mixed_log, tmp_path / "log"))
    batches = hold_back(path, ENTRIES, 1)
    log = open_input(path)
    next(batches)
    newest = sorted((tmp_path / "log" / "shard-0").glob("*.log"))[-1]
    return Grown(path, newest, msgpack.packb(log.to_remember()), log.shards[0].decided_index)


def loaded(piece: Piece) -> tuple[Any, ...]:
    """Return all that is read of a piece: entries with their bytes, losses and repairs; or the error."""
    try:
        with pooled_buffer() as memory:
            found: LoadedSegment = load(OsFiles(), memory.read, piece, None)
            frames = found.frames
            bodies = [
                bytes(found.data[start:end]) for start, end in zip(frames.offset, frames.end, strict=True)
            ]
            return frames.offset.tolist(), bodies, found.lost, found.notes
    except InputError as error:
        return (str(error),)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of each read of a segment."""
    found: list[int] = []
    read = PooledBuffer.read

    def noting(self: PooledBuffer, path: str, head: int = 0, begin: int = 0) -> memoryview:
        found.append(begin)
        return read(self, path, head, begin)

    monkeypatch.setattr(PooledBuffer, "read", noting)
    return found


def test_only_new_bytes_are_read(grown: Grown, reads: list[int]) -> None:
    piece = grown.piece()
    offsets, *_ = loaded(piece)
    assert len(offsets) == ENTRIES
    assert reads == [offsets[0]]
    assert offsets[0] > grown.file.stat().st_size // 2
    assert loaded(piece) == loaded(replace(piece, begin=None))


def test_a_batch_of_a_stream_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    """A stream looks for the end of a batch, and again before it reads it; the log grows meanwhile."""
    alone = Growing(tmp_path / "cluster", num_nodes=1)
    following = FollowedInput(alone.disks[0].path)
    last = following.look()[SHARD].index
    for number in range(4):
        alone.write(5)
        end = following.look()[SHARD].index
        alone.write(2)
        piece = newest(following.up_to({SHARD: end}), last + 1)
        assert (piece.begin is None) == (number == 0), "the first batch begins with the segment"
        assert len(loaded(piece)[0]) == end - last
        assert loaded(piece) == loaded(replace(piece, begin=None))
        last = end


def test_a_batch_that_begins_elsewhere_reads_the_segment(grown: Grown) -> None:
    log = open_input(grown.path, remembered=grown.noted)
    for first in (grown.before, grown.before + 2):
        (task,) = plan_records(log, {0: (first, log.shards[0].decided_index)})
        assert [one.begin for one in task.segments] == [None]


def test_a_store_is_asked_for_new_bytes_only(grown: Grown, bucket: str, read_bytes: list[int]) -> None:
    upload(Path(grown.path), f"{bucket}/grown")
    begin = grown.piece().begin
    assert begin is not None
    read_bytes.clear()
    files = files_at(f"{bucket}/grown")
    with pooled_buffer(files) as memory:
        found = memory.read(f"{bucket}/grown/shard-0/{grown.file.name}", HEADER_BYTES_MAX, begin)
        whole = grown.file.read_bytes()
        assert found[begin:] == whole[begin:]
        assert found[:HEADER_BYTES_MAX] == whole[:HEADER_BYTES_MAX]
    assert sum(read_bytes) == HEADER_BYTES_MAX + len(whole) - begin


@pytest.mark.parametrize("seed", range(SEED, SEED + 4))
def test_no_harm_to_the_file_makes_a_difference(grown: Grown, seed: int) -> None:
    """Bytes are wrong, missing or too many, before, in and behind the new entries."""
    piece, whole, rng = grown.piece(), grown.file.read_bytes(), random.Random(seed)
    assert piece.begin is not None
    for _ in range(HARMS):
        near = rng.choice((0, piece.begin, len(whole)))
        at = min(max(near + rng.randrange(-200, 200), 0), len(whole) - 1)
        harmed = bytearray(whole)
        match rng.randrange(4):
            case 0:
                harmed[at] ^= 1 << rng.randrange(8)
            case 1:
                del harmed[at:]
            case 2:
                del harmed[at : at + rng.randrange(1, 400)]
            case 3:
                harmed[at:at] = whole[: rng.randrange(1, 400)]
        grown.file.write_bytes(harmed)
        assert loaded(piece) == loaded(replace(piece, begin=None)), (seed, near, at)


def test_a_segment_with_a_damaged_header_is_read_as_a_whole_from_its_first_entry(tmp_path: Path) -> None:
    """Its first entry counts as lost, whether or not an earlier look found the place where it would begin."""
    alone = Growing(tmp_path / "cluster", num_nodes=1)
    following = FollowedInput(alone.disks[0].path)
    following.look()
    alone.write(3)
    flip(Path(alone.disks[0].home, log_name(1)), 0)
    piece = newest(following.listed(following.look()), 1)
    offsets, _, lost, _ = loaded(piece)
    assert (len(offsets), [gap.goes_on_at for gap in lost]) == (2, [2])
    assert loaded(piece) == loaded(replace(piece, begin=None))


def test_a_batch_begins_directly_behind_the_entry_before_it(tmp_path: Path) -> None:
    """Bytes in between are damage: a look finds the next entry behind them, where the log does not lead."""
    cluster = Growing(tmp_path / "cluster")
    cluster.write(10)
    for disk in cluster.disks:
        cluster.replicate(disk)
    leader = cluster.disks[0]
    file = Path(leader.home, log_name(1))
    behind = file.stat().st_size
    with file.open("ab") as opened:
        opened.write(b"?" * 20)
    cluster.write(1)
    log = open_input(str(cluster.folder))
    assert log.shards[SHARD].decided_index == 10
    for disk in cluster.disks[1:]:
        cluster.replicate(disk)
    again = open_input(str(cluster.folder), remembered=log.to_remember())
    piece = newest(again, 11)
    assert (piece.directory, piece.begin) == (leader.path, behind)
    assert loaded(piece) == loaded(replace(piece, begin=None))


def test_the_last_entry_before_a_batch_is_checked_though_a_magic_follows_its_wrong_length() -> None:
    """A magic in the entry's body is where the next frame would be."""
    length, wrong = 96, 32
    bodies = [b"-" * 50, b"-" * wrong + FRAME_MAGIC.ljust(length - wrong, b"-"), b"-" * 50]
    frames = [encode_frame(at, 1, at - 1, 1_000, 1, body) for at, body in enumerate(bodies, 1)]
    header = encode_header(LogIdentity(cluster_id="c", shard=0, num_shards=1), 1)
    data = bytearray(header + b"".join(frames))
    data[len(header) + len(frames[0]) + 8] ^= length ^ wrong
    found, gaps = scan(bytes(data), "segment", Bounds(first=1, decided=3), unchecked_before=3)
    assert found.index.tolist() == [1, 3]
    assert [(gap.after_index, gap.goes_on_at) for gap in gaps] == [(1, 3)]


def test_an_object_that_became_shorter_while_it_was_read_is_as_long_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "object"
    file.write_bytes(b"x" * 100)
    monkeypatch.setattr(OsFile, "size", lambda _: 120)
    with pooled_buffer(ListedFiles(OsFiles())) as memory:
        assert bytes(memory.read(str(file), 8, 90)[90:]) == b"x" * 10
        assert len(memory.read(str(file), 8, 110)) == 110


def test_a_file_that_grows_beyond_the_beginning_is_read_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount may report an old size."""
    file, look = tmp_path / "file", os.fstat
    file.write_bytes(b"abc")

    def and_then_it_grows(descriptor: int) -> os.stat_result:
        found = look(descriptor)
        file.write_bytes(b"abcdefgh")
        return found

    monkeypatch.setattr(os, "fstat", and_then_it_grows)
    with pooled_buffer() as memory:
        assert bytes(memory.read(str(file), 1, 5)[5:]) == b"fgh"
