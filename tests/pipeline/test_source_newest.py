"""The newest segment is read from where the last run ended, with the result of reading all of it."""

from __future__ import annotations

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
from quorate.spark.source.inputs import open_input
from quorate.spark.source.loading import LoadedSegment, load
from quorate.spark.source.plan import Piece, Task, plan_records
from raftlog.env.files import OsFiles
from raftlog.storage.segments import HEADER_BYTES_MAX
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
        log = open_input(self.path, remembered=self.noted)
        (task,) = plan_records(log, {0: (self.before + 1, log.shards[0].decided_index)})
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


def test_a_batch_that_begins_elsewhere_reads_the_segment(grown: Grown) -> None:
    log = open_input(grown.path, remembered=grown.noted)
    for first in (grown.before, grown.before + 2):
        (task,) = plan_records(log, {0: (first, log.shards[0].decided_index)})
        assert [one.begin for one in task.segments] == [None]


def test_a_store_is_asked_for_new_bytes_only(
    grown: Grown, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raftlog.env.object_stores import StoreFile, files_at

    upload(Path(grown.path), f"{bucket}/grown")
    begin = grown.piece().begin
    assert begin is not None
    asked: list[int] = []
    pread = StoreFile.pread

    def counting(self: StoreFile, size_bytes: int, offset: int) -> bytes:
        data = pread(self, size_bytes, offset)
        asked.append(len(data))
        return data

    monkeypatch.setattr(StoreFile, "pread", counting)
    files = files_at(f"{bucket}/grown")
    with pooled_buffer(files) as memory:
        found = memory.read(f"{bucket}/grown/shard-0/{grown.file.name}", HEADER_BYTES_MAX, begin)
        whole = grown.file.read_bytes()
        assert found[begin:] == whole[begin:]
        assert found[:HEADER_BYTES_MAX] == whole[:HEADER_BYTES_MAX]
    assert sum(asked) == HEADER_BYTES_MAX + len(whole) - begin


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
