"""Readers take all tables as of one run, with Spark, in memory, from a disk and from an object store."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from quorate.spark.errors import OutputError
from quorate.spark.schema import TABLES
from quorate.spark.tables import (
    Output,
    arrow_table,
    create_views,
    names,
    read_progress,
    read_table,
    reading,
    table_files,
)
from quorate.spark.tables.delta import TableFile, TableLog
from quorate.spark.tables.names import TimeSpan
from quorate.spark.tables.store import Store
from tests.pipeline.lake import CLUSTER, expected, rows_of, run_at, written
from tests.support.object_stores import bucket_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def groups_of(rows) -> list[str]:
    return sorted(row["group_id"] for row in rows.collect())


def test_spark_reads_every_run_so_far_and_a_data_frame_outlives_later_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = str(tmp_path / "with a space and [brackets] ü")
    run_at(url, 1)
    first = read_table(spark, url, "ownership")
    assert first.columns == [column.name for column in TABLES["ownership"].columns]
    for at in (2, 3):
        run_at(url, at)
    assert groups_of(first) == expected(1)[1]["ownership"]
    assert groups_of(read_table(spark, url, "ownership")) == expected(1, 2, 3)[1]["ownership"]
    assert groups_of(read_table(spark, url, "ownership", run=2)) == expected(1, 2)[1]["ownership"]
    assert read_table(spark, url, "waits").count() == 0


def test_spark_reads_an_object_store_without_jars(spark: SparkSession, s3_endpoint: str) -> None:
    with bucket_at(s3_endpoint) as bucket:
        for at in (1, 2):
            run_at(f"{bucket}/out", at)
        url = f"{bucket.replace('s3:', 's3a:')}/out"
        assert groups_of(read_table(spark, url, "ownership")) == expected(1, 2)[1]["ownership"]


def test_views_are_of_one_run_and_progress_joins_by_shard(spark: SparkSession, tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    create_views(spark, str(tmp_path), "lake_")
    rows = spark.sql(
        "SELECT o.group_id, p.run, p.versions['ownership'] AS version FROM lake_ownership o "
        "CROSS JOIN lake_progress p WHERE p.shard = 0 ORDER BY group_id"
    ).collect()
    assert [tuple(row) for row in rows] == [("g-1", 1, 1), ("open-1", 1, 1)]
    assert {row.viewName for row in spark.sql("SHOW VIEWS").collect()} >= {
        f"lake_{table}" for table in TABLES
    }


def test_an_earlier_run_is_read_by_its_number_or_a_time(tmp_path: Path) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    between = datetime.fromtimestamp((read_progress(url).committed_ms + 1) / 1000, UTC)
    while datetime.now(UTC) <= between:
        time.sleep(0.001)
    run_at(url, 2)
    assert arrow_table(url, "moves", run=1).num_rows == 2
    assert arrow_table(url, "moves", at=between.replace(tzinfo=None)).num_rows == 2
    assert arrow_table(url, "moves").num_rows == 3
    with pytest.raises(OutputError, match="does not have run 9; runs can be read for 7 days"):
        arrow_table(url, "moves", run=9)
    with pytest.raises(OutputError, match="does not have a run committed by 1999"):
        arrow_table(url, "moves", at=datetime(1999, 1, 1))


def test_a_table_in_memory_has_the_chosen_columns_and_rows(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    rows = arrow_table(str(tmp_path), "moves", ["group_id"], pc.field("group_id") == "g-1")
    assert rows.to_pydict() == {"group_id": ["g-1"]}
    assert arrow_table(str(tmp_path), "waits").schema.equals(names.schema_of("waits"))
    assert [file.part for file in table_files(str(tmp_path), "moves", "open")] == ["open"]


def test_a_place_without_tables_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds no tables; `quorate pipeline run` writes them there"):
        read_progress(tmp_path / "nowhere")
    run_at(str(tmp_path), 1)
    with pytest.raises(ValueError, match="no table 'other'"):
        table_files(tmp_path, "other")
    with pytest.raises(ValueError, match="no table 'other'"):
        names.columns_of("other")  # the first call of `read_table`


def test_an_output_without_a_run_has_empty_tables(spark: SparkSession, tmp_path: Path) -> None:
    Output.open(str(tmp_path), cluster_id=CLUSTER).close()
    assert read_progress(tmp_path).run == 0
    assert read_table(spark, tmp_path, "moves").count() == 0


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [(None, None, "abc"), (30, None, "bc"), (None, 20, "a"), (20, 21, "ab"), (45, 46, "c"), (11, 12, "a")],
)
def test_only_files_of_the_time_are_read(start: int | None, end: int | None, found: str, monkeypatch) -> None:
    monkeypatch.setattr(names, "span_of", lambda table: TimeSpan("from_time", "to_time"))

    def moment(at: int | None) -> datetime | None:
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def file(name: str, begin: int, begin_max: int, end: int | None) -> TableFile:
        return TableFile("x", "rows", name, 1, 1, None, None, moment(begin), moment(begin_max), moment(end))

    there = [file("a", 10, 20, 25), file("b", 20, 30, 40), file("c", 40, 50, None)]
    assert "".join(f.path for f in there if reading._overlaps(f, moment(start), moment(end))) == found


@pytest.mark.skipif(names.span_of("ownership") is None, reason="needs TIMESTAMP columns")
def test_rows_of_a_time_are_those_that_hold_then(spark: SparkSession, tmp_path: Path) -> None:
    def moments(*seconds: int | None) -> list[datetime | None]:
        return [None if at is None else datetime.fromtimestamp(at, UTC) for at in seconds]

    rows = rows_of("ownership", "a", "b", "c", from_time=moments(10, 20, 30), to_time=moments(20, None, 40))
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output, output.begin() as transaction:
        transaction.add(written(output, "ownership", rows))
        transaction.commit(output.progress)
    start, end = moments(25, 30)
    assert groups_of(read_table(spark, tmp_path, "ownership", from_time=start, to_time=end)) == ["b"]
    assert groups_of(read_table(spark, tmp_path, "ownership", to_time=end)) == ["a", "b"]
    assert groups_of(read_table(spark, tmp_path, "ownership", from_time=start)) == ["b", "c"]
    assert pa.types.is_timestamp(rows.schema.field("from_time").type)


def test_an_earlier_run_is_found_while_another_commits(tmp_path: Path) -> None:
    """delta-rs numbers the commits wrongly that come after the version it has loaded."""
    for at in (1, 2, 3):
        run_at(str(tmp_path), at)
    log = TableLog.load(Store.at(tmp_path), names.PROGRESS)
    assert log is not None
    run_at(str(tmp_path), 4)
    for run in (1, 2, 3):
        assert reading.progress_of(reading._earlier(log, run, None)).run == run
