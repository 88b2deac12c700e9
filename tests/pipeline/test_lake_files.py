"""Files of tables: row groups, statistics, limits of size, merging, and which files a run replaces."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from quorate.spark.errors import OutputError
from quorate.spark.tables import (
    FileWriter,
    Output,
    Store,
    TableFile,
    arrow_table,
    files,
    merging,
    names,
    upkeep,
)
from tests.pipeline.lake import CLUSTER, DiedHere, rows_of, run_at, seen, written

SCHEMA = pa.schema([("group_id", pa.string()), ("n", pa.int64())])


def writer_at(path: Path, **how) -> FileWriter:
    return FileWriter(Store.at(path), "", "rows", SCHEMA, **how)


def group_rows(*groups: str) -> pa.Table:
    return pa.table({"group_id": groups, "n": list(range(len(groups)))}, SCHEMA)


def test_each_call_writes_one_sorted_row_group(tmp_path: Path) -> None:
    with writer_at(tmp_path) as writer:
        writer.write(group_rows("b", "a", "c"))
        writer.write(group_rows("e", "d"))
        writer.write(group_rows())
        (file,) = writer.close()
    parquet = pq.ParquetFile(tmp_path / file.path)
    groups = [parquet.read_row_group(at)["group_id"].to_pylist() for at in range(parquet.num_row_groups)]
    assert groups == [["a", "b", "c"], ["d", "e"]]
    assert (file.rows, file.size) == (5, (tmp_path / file.path).stat().st_size)
    column = parquet.metadata.row_group(0).column(0)
    assert (column.compression, column.has_column_index) == ("ZSTD", True)


@pytest.mark.parametrize("limit", ["FILE_ROWS_MAX", "FILE_BYTES_MAX"])
def test_a_large_file_is_followed_by_another(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, limit, 2)
    with writer_at(tmp_path) as writer:
        for _ in range(3):
            writer.write(group_rows("a", "b"))
        made = writer.close()
    assert [file.rows for file in made] == [2, 2, 2]
    assert len({file.path for file in made}) == 3


def test_a_writer_that_fails_deletes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILE_ROWS_MAX", 2)
    writer = writer_at(tmp_path)
    with suppress(DiedHere), writer:
        writer.write(group_rows("a", "b"))
        writer.write(group_rows("a"))
        assert len(list(tmp_path.iterdir())) == 2
        raise DiedHere
    assert not list(tmp_path.iterdir())


def test_a_writer_that_fails_later_keeps_what_it_has_handed_over(tmp_path: Path) -> None:
    with suppress(DiedHere), writer_at(tmp_path) as writer:
        writer.write(group_rows("a"))
        writer.close()
        raise DiedHere
    assert len(list(tmp_path.iterdir())) == 1


def test_a_wrong_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the name of a part"):
        FileWriter(Store.at(tmp_path), "", "../rows", SCHEMA)


def test_statistics_are_those_that_delta_readers_compare(tmp_path: Path) -> None:
    moment = pa.timestamp("us", tz="UTC")
    rows = pa.table(
        {
            "i": pa.array([3, 1, None]),
            "s": ["b", "a", "c"],
            "long": ["x" * 300, "a", "a"],
            "t": pa.array([1_000_001, 1_000_999, 2_000_001], moment),
            "never": pa.array([None] * 3, pa.string()),
            "f": [1.5, 0.5, float("inf")],
            "flag": [True, False, True],
            "listed": [[1], [2], []],
            "blob": [b"1", b"2", b"3"],
        }
    )
    with FileWriter(Store.at(tmp_path), "", "rows", rows.schema, ()) as writer:
        writer.write(rows.slice(0, 2))
        writer.write(rows.slice(2))
        (file,) = writer.close()
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {"i": 1, "s": "a", "t": "1970-01-01T00:00:01.000Z"}
    assert stats["maxValues"] == {"i": 3, "s": "c", "t": "1970-01-01T00:00:02.001Z"}
    assert (stats["nullCount"]["i"], stats["nullCount"]["never"]) == (1, 3)
    assert "listed.list.element" not in stats["nullCount"]


def test_the_log_knows_the_groups_of_a_file(tmp_path: Path) -> None:
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output, output.begin() as transaction:
        transaction.add(written(output, "ownership", rows_of("ownership", "m", "b", "x")))
        transaction.commit(output.progress)
        (file,) = output.files("ownership")
        assert (file.part, file.rows, file.group_min, file.group_max) == ("rows", 3, "b", "x")
        assert output.files("ownership", "open") == ()


def test_small_files_are_merged_without_a_change_of_rows(tmp_path: Path) -> None:
    url = str(tmp_path)
    for at in range(1, merging.MERGED_AT + 2):
        run_at(url, at, tables=("moves",))
    (merged, last) = sorted(
        (f for f in Output.open(url, cluster_id=CLUSTER).files("moves", "rows")), key=lambda f: -f.rows
    )
    assert (merged.rows, last.rows) == (merging.MERGED_AT, 1)
    groups = arrow_table(url, "moves", ["group_id"], part="rows")["group_id"].to_pylist()
    assert sorted(groups) == sorted(f"g-{at}" for at in range(1, merging.MERGED_AT + 2))
    log = DeltaTable(str(tmp_path / "moves"))
    lines = (tmp_path / f"moves/_delta_log/{log.version():020d}.json").read_text().splitlines()
    changed = [json.loads(line).get("add") or json.loads(line).get("remove") for line in lines]
    assert sorted(one["dataChange"] for one in changed if one) == [False] * 17 + [True] * 3
    assert pq.read_table(tmp_path / "moves" / merged.path)["group_id"].to_pylist() == sorted(
        f"g-{at}" for at in range(1, merging.MERGED_AT + 1)
    )


def test_merging_is_bounded_and_leaves_large_and_replaceable_files_alone() -> None:
    def some(count: int, size: int, part: str = "rows", rows: int = 1) -> list[TableFile]:
        return [TableFile("moves", part, f"{size}-{at:02}", rows, size) for at in range(count)]

    small, middle = merging.TIERS[0] - 1, merging.TIERS[1] - 1
    assert merging.to_merge(some(merging.MERGED_AT - 1, small) + some(merging.MERGED_AT - 1, middle)) == ()
    assert merging.to_merge(some(100, merging.TIERS[-1]) + some(100, small, "open")) == ()
    assert merging.to_merge(some(40, small)) == tuple(some(merging.MERGED_AT, small))
    assert {f.size for f in merging.to_merge(some(20, middle) + some(20, small))} == {small}
    largest = merging.to_merge(some(20, merging.TIERS[-1] - 1))
    assert 2 <= len(largest) < 20
    assert sum(file.size for file in largest) <= merging.MERGE_BYTES_MAX
    assert len(merging.to_merge(some(20, small, rows=merging.MERGE_ROWS_MAX // 4))) == 4


def test_a_file_of_many_rows_is_left_alone_however_small_it_is() -> None:
    def some(count: int, rows: int) -> list[TableFile]:
        return [TableFile("moves", "rows", f"{rows}-{at:02}", rows, 1) for at in range(count)]

    half = merging.MERGE_ROWS_MAX // 2
    assert merging.to_merge(some(100, half) + some(merging.MERGED_AT - 1, 1)) == ()
    assert len(merging.to_merge(some(100, half - 1))) == 2


def test_a_merge_of_files_that_lack_rows_is_refused(tmp_path: Path) -> None:
    url = str(tmp_path)
    for at in range(1, merging.MERGED_AT + 1):
        run_at(url, at, tables=("moves",))
    output = Output.open(url, cluster_id=CLUSTER)
    (first, *others) = output.files("moves", "rows")
    with pytest.raises(OutputError, match=r"the log of moves .* says 20 rows of 16 files, but they have 16"):
        merging.merged(output.store, [replace(first, rows=5), *others])


def test_a_run_replaces_the_files_that_may_hold_its_groups_and_small_neighbours() -> None:
    def file(low: str | None, high: str | None, rows: int = merging.OPEN_ROWS) -> TableFile:
        return TableFile("moves", "open", f"{low}-{high}", rows, 1, low, high)

    a, c, e, g = file("a", "b"), file("c", "d"), file("e", "f"), file("g", "h")
    there = [g, c, a, e]
    assert merging.replaced_files(there, ["c5"]) == (c,)
    assert merging.replaced_files(there, ["b5", "z"]) == ()
    assert merging.replaced_files(there, ["a", "h"]) == (a, g)
    assert merging.replaced_files(there, []) == ()
    unknown = file(None, None)
    assert unknown in merging.replaced_files([*there, unknown], ["b5"])
    small = file("e", "f", rows=3)
    assert merging.replaced_files([a, c, small, g], ["c"]) == (c, small)
    assert merging.replaced_files([a, c, small, g], ["a"]) == (a,)


def test_an_output_says_which_files_a_run_replaces(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        assert merging.replaced_files(output.files("moves", "open"), {"open-1"}) == output.files(
            "moves", "open"
        )
        assert merging.replaced_files(output.files("moves", "open"), {"z"}) == ()


def test_once_a_day_a_commit_removes_what_the_retention_no_longer_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    first = run_at(url, 1)
    orphan = tmp_path / f"moves/{names.new_file('rows')}"
    orphan.write_bytes(b"of a killed run")
    young = tmp_path / f"moves/{names.new_file('rows')}"
    young.write_bytes(b"of a run that goes on")
    os.utime(orphan, (0, 0))
    assert run_at(url, 2).vacuumed_ms == first.vacuumed_ms
    assert orphan.exists()
    monkeypatch.setattr(upkeep, "VACUUM_EVERY_MS", 0)
    run_at(url, 3)
    assert not orphan.exists()
    assert young.exists()
    run_at(url, 4)
    assert seen(url)[0] == 4
    assert len(list((tmp_path / "moves").glob("open-*"))) == 4  # replaced ones are kept for a week


def test_what_a_killed_run_had_staged_is_removed_and_a_living_ones_is_kept(tmp_path: Path) -> None:
    def staged(host: str, pid: int, age: float = 0) -> Path:
        folder = tmp_path / f"_quorate/staging/{host}-{pid}-abc"
        folder.mkdir(parents=True)
        (folder / "rows").write_text("x")
        os.utime(folder / "rows", (time.time() - age,) * 2)
        return folder

    here, day = socket.gethostname(), upkeep.LEFT_AFTER.total_seconds()
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    left = [staged(here, int(ended.stdout)), staged("elsewhere", 1, day + 60)]
    kept = [staged(here, os.getpid(), day + 60), staged("elsewhere", 2)]
    upkeep.remove_leftovers(Store.at(tmp_path))
    assert [one.exists() for one in left] == [False, False]
    assert [one.exists() for one in kept] == [True, True]


def test_a_file_of_another_tool_counts_as_rows_that_stay() -> None:
    assert names.part_of(names.new_file("open")) == "open"
    assert names.part_of("part-00000-1234.snappy.parquet") == "rows"
