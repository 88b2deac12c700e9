"""Small files are merged into fewer with the same rows, at little cost to a commit."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.errors import OutputError
from pipeline.schema import TABLES
from pipeline.tables import Output, ShardProgress, TableFile, Transaction, read_table
from pipeline.tables import merging as m

from .output_disk import ROOT, SimOutputFiles, after_opening, opened, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAY_1 = 1_777_593_600_000
"""2026-05-01 00:00 UTC."""


def small(number: int, *, table: str = "commits", date: str = "2026-05-01", rows: int = 10) -> TableFile:
    return TableFile(table, "rows", f"{table}/{number}", 0, date, rows, rows * 50)


def test_nothing_is_merged_too_early() -> None:
    assert m.plan([]) == []
    assert m.plan(small(n) for n in range(m.FILES_MAX - 1)) == []
    assert m.plan(small(n, date=f"2026-05-{n + 1:02}") for n in range(30)) == []
    assert m.plan(replace(small(n), shard=n) for n in range(30)) == []
    assert m.plan(replace(small(n), size=m.SMALL_BYTES) for n in range(30)) == []
    assert m.plan(replace(small(n), rows=m.SMALL_ROWS) for n in range(30)) == []


def test_the_newest_date_merges_files_of_one_size_and_older_dates_all() -> None:
    mixed = [small(n, rows=8**level) for n, level in enumerate([0, 0, 0, 0, 1, 1, 1, 1])]
    assert m.plan(mixed) == []
    (merge,) = m.plan([*mixed, small(99, date="2026-05-02")])
    assert set(merge.files) == set(mixed)
    equals = [small(n) for n in range(8)]
    (merge,) = m.plan([*equals, small(9, rows=5000)])
    assert merge == m.Merge("commits", "rows", tuple(equals))


def test_one_commit_has_little_work() -> None:
    many = [small(n, table=f"t{n % 40}") for n in range(400)]
    plan = m.plan(many)
    assert len(plan) == m.JOBS_MAX
    large = [replace(small(n), size=m.SMALL_BYTES - 1, shard=n % 9) for n in range(90)]
    (merge,) = m.plan(large)
    assert 0 < sum(file.size for file in merge.files) <= m.BYTES_MAX
    assert m.FILES_MAX * (m.SMALL_BYTES - 1) <= m.BYTES_MAX, "any slot can be merged"


@pytest.mark.parametrize("seed", range(5))
def test_files_stay_few_and_rows_are_seldom_written_again(seed: int) -> None:
    rng = random.Random(seed)
    files: list[TableFile] = []
    written = merged = 0
    for number in range(1000):
        for merge in m.plan(files):
            one = small(number + 10_000, date=merge.files[0].date or "", rows=merge.num_rows)
            files = [file for file in files if file not in merge.files] + [one]
            merged += merge.num_rows
        day = number // 200 + 1 if rng.random() < 0.95 else rng.randint(1, number // 200 + 1)
        files.append(small(number, date=f"2026-05-{day:02}", rows=rng.randint(1, 100)))
        written += files[-1].rows
        assert len([file for file in files if file.date == f"2026-05-{day:02}"]) <= 8 * 7
    assert sum(file.rows for file in files) == written
    assert len(files) <= 4 * 8 + 8 * 7
    assert merged < 6 * written


def staged(tx: Transaction, indexes: list[int]) -> None:
    """Stage rows of `commits` as Spark would, only faster."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline.schema import arrow_type

    columns = [column for column in TABLES["commits"].columns if column.name != "shard"]
    nothing = dict.fromkeys(column.name for column in columns)
    given = [
        {**nothing, "group_id": f"g{i % 3}", "raft_index": i, "timestamp_ms": MAY_1 + i, "offset": i}
        for i in indexes
    ]
    folder = f"job-{indexes[0]}"
    place = Path(tx.staging, folder, "date=2026-05-01", "shard=0")
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(given, arrow_type(tuple(columns))), place / "part-0.parquet")
    tx.take("commits", "rows", f"{tx._folder}/{folder}", len(given))


def test_a_hundred_commits_leave_few_files_and_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def rewrite(tx: Transaction, merges: list[m.Merge], spark: object) -> list[int]:
        counts = []
        for merge in merges:
            rows = b"".join(disk.read(f"{ROOT}/{file.path}") for file in merge.files)
            stage(tx, merge.table, merge.part, {"date=2026-05-01/shard=0": rows})
            counts.append(len(rows))
        return counts

    monkeypatch.setattr(Transaction, "_rewrite", rewrite)
    disk = SimOutputFiles()
    with opened(disk) as output:
        for number in range(100):
            tx = output.begin()
            tx._spark = object()  # type: ignore[assignment]
            stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": bytes([number])})
            tx.commit({0: ShardProgress(number + 1, number + 1, 1)})
            assert tx.rows["commits", "rows"] == 1
            assert len(disk.below(f"{ROOT}/commits")) == len(output.manifest.files) <= 8 * 2 + 2
    _, rows = after_opening(disk)
    assert sorted(b"".join(rows["commits", "rows"])) == list(range(100))
    assert len(rows["commits", "rows"]) < 12


def test_spark_merges_with_the_same_rows_sorted_again(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    with Output.open(out, cluster_id="c") as output:
        for number in range(m.FILES_MAX * 2 + 1):
            with output.begin() as tx:
                tx._spark = spark
                staged(tx, list(range(number * 5, number * 5 + 5)))
                tx.commit({0: ShardProgress(number + 1, number + 1, MAY_1)})
                assert tx.rows == {("commits", "rows"): 5}
    found = read_table(spark, out, "commits").select(
        "raft_index", "group_id", "offset", "timestamp_ms", "shard"
    )
    assert sorted(map(tuple, found.collect())) == [(i, f"g{i % 3}", i, MAY_1 + i, 0) for i in range(85)]
    assert len(output.manifest.files) == 3
    largest = max(output.manifest.files, key=lambda file: file.rows)
    keys = [
        (row["group_id"], row["raft_index"]) for row in pq.ParquetFile(out / largest.path).read().to_pylist()
    ]
    assert largest.rows == 40
    assert keys == sorted(keys)


def test_columns_that_this_release_does_not_know_survive_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = tmp_path / "out"
    with Output.open(out, cluster_id="c") as output:
        for number in range(m.FILES_MAX + 1):
            with output.begin() as tx:
                tx._spark = spark
                staged(tx, [number])
                (ready,) = Path(tx.staging, "ready").rglob("*.parquet")
                if number == 3:
                    table = pq.ParquetFile(ready).read()
                    pq.write_table(table.append_column("from_the_future", pa.array(["x"])), ready)
                tx.commit({0: ShardProgress(number + 1, number + 1, MAY_1)})
    merged = max(output.manifest.files, key=lambda file: file.rows)
    assert merged.rows == m.FILES_MAX
    assert pq.ParquetFile(out / merged.path).read()["from_the_future"].to_pylist().count("x") == 1
    assert read_table(spark, out, "commits").count() == m.FILES_MAX + 1


def test_files_that_were_changed_behind_our_back_are_not_merged(spark: SparkSession, tmp_path: Path) -> None:
    import shutil

    out = tmp_path / "out"
    with Output.open(out, cluster_id="c") as output:
        for number in range(m.FILES_MAX):
            with output.begin() as tx:
                staged(tx, [number] if number % 2 else [number, number + 100])
                tx.commit({0: ShardProgress(number + 1, number + 1, MAY_1)})
        one, other = output.manifest.files[:2]
        assert one.rows != other.rows
        shutil.copyfile(out / one.path, out / other.path)
        before = output.manifest
        with output.begin() as tx:
            tx._spark = spark
            staged(tx, [200])
            with pytest.raises(OutputError, match="its files were changed"):
                tx.commit({0: ShardProgress(99, 99, MAY_1)})
        assert output.manifest == before
