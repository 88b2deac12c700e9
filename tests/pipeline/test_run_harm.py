"""Logs that are damaged, cut, compacted or vanishing: refused in one line, or read as far as possible."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from quorate.spark.errors import InputError, OutputError
from quorate.spark.runs.ingest import _settled
from quorate.spark.runs.ingesting import Run
from quorate.spark.runs.losses import DAMAGED, GAP, PART, REPAIRED, Lost, Range
from quorate.spark.runs.run import RunResult, advance, open_output, run
from quorate.spark.source.inputs import open_input
from quorate.spark.tables.reading import read_progress
from raftlog.storage.archive import ARCHIVE
from raftlog.storage.segments import log_name
from tests.pipeline.damage import spoiled
from tests.pipeline.grown import Story
from tests.pipeline.no_spark import no_session
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import OF_FACTS, exported, held, in_order

SHARD = 0


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log whose shard 0 has archived segments, sealed ones and an open one."""
    story = Story(str(tmp_path_factory.mktemp("sound") / "node-1"))
    for _ in range(3):
        story.chapter()
    story.node.stop()
    return story.path


def copy_of(sound: str, folder: Path) -> Path:
    return Path(shutil.copytree(sound, folder / "node-1"))


def without(rows: list[dict[str, Any]], first: int, last: int) -> list[dict[str, Any]]:
    """Return the rows without those of the shard's lost entries."""
    return [row for row in rows if not (row["shard"] == SHARD and first <= row["raft_index"] <= last)]


def run_permissive(path: Path, output: Path) -> tuple[RunResult, list[dict[str, Any]]]:
    done = run(no_session, str(path), str(output), mode="permissive")
    return done, held(output, "findings", part=PART)["findings"]


def test_damage_is_refused_or_is_a_finding(sound: str, tmp_path: Path) -> None:
    path, output = copy_of(sound, tmp_path / "läg [1]"), tmp_path / "tables [1]"
    file = spoiled(path, 1)
    with pytest.raises(InputError, match=f"cannot be read.*{file.name} at byte.*permissive"):
        run(no_session, str(path), str(output))
    assert not list(output.rglob("*.parquet"))
    assert read_progress(output).run == 0

    done, (finding,) = run_permissive(path, output)
    assert (finding["kind"], finding["severity"]) == (DAMAGED, "error")
    assert (finding["group_id"], finding["shard"], finding["is_certain"]) == (None, SHARD, True)
    assert (finding["words"],) == done.lost
    assert file.name in finding["words"]
    first, last = finding["from_index"], finding["to_index"]
    assert 1 < first <= last < 64
    for table in ("records", "commits"):
        assert held(output, table)[table] == without(exported(sound, table)[table], first, last)
    for table in OF_FACTS:
        parts = ("rows", "open", "leaders")
        rows = [row for part in parts for row in held(output, table, part=part)[table]]
        assert in_order(rows) == exported(path, table)[table], table
    times = {
        row["raft_index"]: row["timestamp_ms"]
        for row in exported(sound, "records")["records"]
        if row["shard"] == SHARD
    }
    assert (finding["from_ms"], finding["to_ms"]) == (times[first - 1], times[last + 1])
    assert run(no_session, str(path), str(output), mode="permissive").is_empty


def test_damage_in_one_node_of_several_is_repaired_from_another(tmp_path: Path) -> None:
    """No fact differs, and a finding names the file, also after the file is whole again."""
    path, output = Path(shutil.copytree(INCIDENT, tmp_path / "cluster")), tmp_path / "tables"
    furthest = Path(open_input(str(path)).shards[SHARD].directory)
    file = spoiled(furthest, 1)
    done = run(no_session, str(path), str(output))
    (finding,) = held(output, "findings", part=PART)["findings"]
    assert (finding["kind"], finding["severity"], finding["shard"]) == (REPAIRED, "warning", SHARD)
    assert file.name in finding["words"]
    assert done.lost == (finding["words"],)
    wanted = exported(INCIDENT)
    assert held(output, part="rows")["records"] == wanted["records"]
    found = [row for row in held(output, "findings")["findings"] if row["kind"] != REPAIRED]
    assert found == wanted["findings"]
    assert run(no_session, str(path), str(output)).lost == done.lost


def test_what_every_node_has_lost_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    path, output = Path(shutil.copytree(INCIDENT, tmp_path / "cluster")), tmp_path / "tables"
    for node in path.glob("node-*"):
        for file in sorted((node / "shard-0").rglob("*.log"))[:1]:
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 0xFF
            file.write_bytes(data)
    with pytest.raises(InputError, match="--mode permissive reads the rest"):
        run(no_session, str(path), str(output))
    assert not list(output.rglob("*.parquet"))


def test_what_is_compacted_away_is_a_gap_and_no_damage(sound: str, tmp_path: Path) -> None:
    path, output = copy_of(sound, tmp_path), tmp_path / "tables"
    shutil.rmtree(path / "shard-0" / ARCHIVE)
    begins = open_input(str(path)).shards[SHARD].begins_index
    assert begins > 1
    done = run(no_session, str(path), str(output))
    (finding,) = held(output, "findings", part=PART)["findings"]
    assert (finding["kind"], finding["severity"]) == (GAP, "note")
    assert (finding["from_index"], finding["to_index"]) == (1, begins - 1)
    assert done.lost == (f"entries 1 to {begins - 1} of shard-0 are not kept",)
    assert held(output, "commits") == {
        "commits": without(exported(sound, "commits")["commits"], 1, begins - 1)
    }
    assert held(output, "failovers")["failovers"] == exported(path, "failovers")["failovers"]


def test_a_segment_that_vanishes_is_told_and_looked_at_again(sound: str, tmp_path: Path) -> None:
    path, output = copy_of(sound, tmp_path), tmp_path / "tables"
    log = open_input(str(path))
    newest = log.shards[SHARD].segments[-1]
    file = Path(newest.home, log_name(newest.first_index))
    data = file.read_bytes()
    file.unlink()
    with open_output(str(output), log) as opened:
        with pytest.raises(InputError, match=f"after index {newest.first_index - 1} .* is missing"):
            advance(no_session, opened, log)
        assert opened.progress.run == 0
        assert not list(output.rglob("*.parquet"))
        done = advance(no_session, opened, log, mode="permissive")
        assert {one.shard: one.to_index for one in done.shards}[SHARD] == newest.first_index - 1
        assert len(done.lost) == 1
    file.write_bytes(data)
    assert run(no_session, str(path), str(output)).lost == ()
    assert held(output) == exported(sound)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for a manifest and little more."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_is_told_and_is_no_harm(sound: str, small_disk: Path) -> None:
    output = small_disk / "tables"
    with pytest.raises(OutputError, match=r"the disk is full.*free space and run again"):
        run(no_session, sound, str(output))
    assert read_progress(output).run == 0
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    run(no_session, sound, str(output))
    assert held(output, "commits") == exported(sound, "commits")


def test_a_loss_at_the_end_is_looked_at_again_by_the_next_run() -> None:
    def lost(first: int, last: int, *, is_damage: bool = True) -> Lost:
        kind = DAMAGED if is_damage else GAP
        return Lost(kind=kind, shard=0, first_index=first, last_index=last, what="", from_ms=5, to_ms=None)

    def settled(found: Mapping[int, list[Run]], *missed: Lost) -> dict[int, Range]:
        return dict(_settled(log, asked, found, list(missed)))

    log: Any = SimpleNamespace(shards={0: SimpleNamespace(decided_index=20, last_ms=200)})
    asked = {0: Range(from_index=11, to_index=20)}
    found = {0: [Run(11, 15, 1, 150)]}
    assert settled(found, lost(16, 20)) == {0: Range(from_index=11, to_index=15, to_ms=150)}
    assert settled({}, lost(11, 20)) == {}
    to_the_end = {0: [Run(11, 12, 1, 2), Run(15, 20, 3, 150)]}
    assert settled(to_the_end, lost(13, 14)) == {0: Range(from_index=11, to_index=20, to_ms=150)}
    last = replace(lost(20, 20), what="entry 20 cannot be decoded: no such type")
    assert settled(found, last) == {0: Range(from_index=11, to_index=20, to_ms=200)}
    assert settled({}, lost(11, 20, is_damage=False)) == {0: Range(from_index=11, to_index=20, to_ms=200)}
