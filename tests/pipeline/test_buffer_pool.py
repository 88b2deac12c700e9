"""Pooled read buffers: a read returns the file's bytes, and no two readers hold a buffer at the same time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from quorate.spark.source import buffer_pool as memory
from quorate.spark.source import plan as plans
from quorate.spark.source.buffer_pool import pooled_buffer
from quorate.spark.source.loading import load
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan
from quorate.spark.source.reading import read_task
from quorate.spark.source.segment import segment_rows
from raftlog.env.files import OsFiles


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_spare", [])


def test_a_file_is_read_whole_after_any_other_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in (b"", b"abc", b"x" * 100_000, b"", b"yz"):
        file.write_bytes(content)
        with pooled_buffer() as mine:
            assert bytes(mine.read(str(file))) == content
    with pooled_buffer() as mine, pytest.raises(FileNotFoundError):
        mine.read(str(tmp_path / "none"))


def test_one_after_the_other_have_the_same_memory_and_two_at_a_time_their_own(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1" * 5_000)
    (tmp_path / "other").write_bytes(b"2" * 4_000)
    with pooled_buffer() as first:
        found = first.read(str(tmp_path / "one"))
        with pooled_buffer() as second:
            assert bytes(second.read(str(tmp_path / "other"))) == b"2" * 4_000
            assert second.memory is not first.memory
        assert bytes(found) == b"1" * 5_000
    with pooled_buffer() as again:
        assert again.memory is second.memory
    assert len(memory._spare) == 1


def test_more_than_is_kept_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "KEPT_BYTES_MAX", 1_000)
    (tmp_path / "large").write_bytes(b"1" * 1_001)
    with pooled_buffer() as mine:
        mine.read(str(tmp_path / "large"))
    assert memory._spare == []


def test_a_file_that_grows_meanwhile_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    look = os.fstat

    def and_then_it_grows(descriptor: int) -> os.stat_result:
        found = look(descriptor)
        with file.open("ab") as behind:
            behind.write(b"def")
        return found

    monkeypatch.setattr(os, "fstat", and_then_it_grows)
    for _ in range(2):
        before = file.stat().st_size
        with pooled_buffer() as mine:
            assert bytes(mine.read(str(file))) == file.read_bytes()
        assert file.stat().st_size > before


@pytest.mark.parametrize("options", [{}, {"raw": "true"}, {"rows": "entries"}])
def test_nothing_that_is_handed_out_is_in_pooled_memory(mixed_log: str, options: dict[str, str]) -> None:
    for piece in (
        one for task in plan(parse_options({"path": mixed_log, **options})) for one in task.pieces()
    ):
        with pooled_buffer() as mine:
            batches = list(segment_rows(piece, load(OsFiles(), mine.read, piece, None)))
            before = [batch.to_pylist() for batch in batches]
            mine.memory[:] = b"\xff" * len(mine.memory)
            assert [batch.to_pylist() for batch in batches] == before


def test_readings_that_take_turns_and_one_that_is_given_up_do_not_disturb_each_other(
    mixed_log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "TASK_BYTES_MIN", 1)
    tasks = plan(parse_options({"path": mixed_log, "shards": "0"}))[:3]
    assert len(tasks) == 3
    whole = [list(read_task(task)) for task in tasks]
    readings = [read_task(task) for task in tasks]
    begun = [next(one) for one in readings]
    given_up: Any = read_task(tasks[0])
    next(given_up)
    given_up.close()
    again = [[first, *rest] for first, rest in zip(begun, readings, strict=True)]
    assert again == whole
