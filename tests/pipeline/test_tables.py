"""Tables that Spark writes and any Parquet reader reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from pipeline.errors import OutputError
from pipeline.schema import TABLES, arrow_type, spark_type
from pipeline.tables import Output, ShardProgress, Transaction, read_table, table_files
from pipeline.tables.transaction import Staging

DAY_MS = 86_400_000
MAY_1 = int(datetime(2026, 5, 1, tzinfo=UTC).timestamp() * 1000)
INTERNAL = t.StructType([t.StructField("shard", t.IntegerType()), t.StructField("blob", t.BinaryType())])


def commit_row(index: int, *, shard: int = 0, group: str = "g", ms: int | None = None) -> dict[str, Any]:
    """Return a row of `commits`, an hour later than that of the index before."""
    row = dict.fromkeys(TABLES["commits"].names)
    when = MAY_1 + index * 3_600_000 if ms is None else ms
    given = {
        "group_id": group,
        "shard": shard,
        "topic": "t",
        "partition": 0,
        "offset": index,
        "member_id": "m",
    }
    return {
        **row,
        "cluster_id": "c",
        "raft_index": index,
        "timestamp_ms": None if when < 0 else when,
        **given,
    }


def frame(spark: SparkSession, rows: Iterable[dict[str, Any]], table: str = "commits") -> DataFrame:
    schema = spark_type(TABLES[table].columns)
    return spark.createDataFrame([tuple(row[name] for name in schema.names) for row in rows], schema)


def write(tx: Transaction, table: str, df: DataFrame, part: str = "rows", **more: Any) -> int:
    (rows,) = tx.stage(Staging(table=table, rows=df, part=part, **more))
    return rows


def rows_of(df: DataFrame) -> list[tuple]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


def test_rows_come_back_as_they_were_by_the_manifest_and_without_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    import pandas as pd
    import pyarrow.dataset as ds

    out = tmp_path / "out [1] {a,b}* c"
    rows = [commit_row(i, shard=i % 2, group=f"g{i % 3}") for i in range(60)] + [commit_row(60, ms=-1)]
    written = frame(spark, rows)
    with Output.open(out, cluster_id="c") as output, output.begin() as tx:
        assert write(tx, "commits", written) == 61
        assert write(tx, "states", spark.createDataFrame([(0, b"s"), (1, b"t")], INTERNAL), "state") == 2
        assert tx.rows == {("commits", "rows"): 61, ("states", "state"): 2}
        tx.commit({0: ShardProgress(60, 60, MAY_1)})

    read = read_table(spark, out, "commits")
    assert read.columns == TABLES["commits"].names
    assert read.schema == spark_type(TABLES["commits"].columns)
    assert rows_of(read) == rows_of(written)
    assert rows_of(read_table(spark, out, "states", schema=INTERNAL)) == [(0, b"s"), (1, b"t")]
    plain = pd.read_parquet(out / "commits")
    assert sorted(plain["raft_index"]) == list(range(61))
    assert set(plain["date"]) == {"2026-05-01", "2026-05-02", "2026-05-03", "1900-01-01"}
    assert ds.dataset(out / "commits", partitioning="hive").count_rows() == 61
    escaped = str(out / "commits").translate({ord(c): f"\\{c}" for c in "[]{}*"})
    assert spark.read.parquet(escaped).where("shard = 1 and date = '2026-05-02'").count() == 12
    assert sorted(p.name for p in out.iterdir()) == ["_quorate", "commits"]


def test_each_file_is_of_one_date_and_shard_and_sorted(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    rows = [commit_row(i, shard=i % 2, group=f"g{i % 5}") for i in range(96)]
    with Output.open(tmp_path / "out", cluster_id="c") as output, output.begin() as tx:
        write(tx, "commits", frame(spark, reversed(rows)))
        manifest = tx.commit({0: ShardProgress(96, 96, MAY_1)})
    assert len(manifest.files) == 8
    for file in manifest.files:
        place = tmp_path / "out" / file.path
        assert (file.rows, file.size) == (12, place.stat().st_size)
        found = pq.ParquetFile(place).read().to_pylist()
        keys = [(row["group_id"], row["raft_index"]) for row in found]
        assert keys == sorted(keys)
        assert {(MAY_1 + i * 3_600_000) // DAY_MS for _, i in keys} == {
            int(datetime.fromisoformat(f"{file.date}T00:00Z").timestamp() * 1000) // DAY_MS
        }
        assert {i % 2 for _, i in keys} == {file.shard}
        assert pq.ParquetFile(place).metadata.row_group(0).column(0).compression == "ZSTD"


def test_few_rows_lie_as_spark_lays_them(spark: SparkSession, tmp_path: Path) -> None:
    """The files are the same, with the same rows in the same order, and every reader gets the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    moments = [-1, 0, DAY_MS - 1, DAY_MS, *range(MAY_1, MAY_1 + 2 * DAY_MS, 7_000_000), 1 << 62]
    rows = [commit_row(i, shard=i % 2, group=f"g{i % 5}", ms=ms) for i, ms in enumerate(moments)]
    few = pa.Table.from_pylist(rows[::-1], arrow_type(TABLES["commits"].columns))
    found = []
    for name, given in (("spark", frame(spark, rows)), ("here", few)):
        out = tmp_path / name
        with Output.open(out, cluster_id="c") as output, output.begin() as tx:
            assert tx.stage(Staging(table="commits", rows=given, buckets=4)) == [len(rows)]
            manifest = tx.commit({0: ShardProgress(96, 96, MAY_1)})
        files = {(one.part, one.shard, one.date): one for one in manifest.files}
        inside = {at: pq.ParquetFile(out / one.path).read().to_pylist() for at, one in files.items()}
        assert {
            pq.read_metadata(out / one.path).row_group(0).column(0).compression for one in files.values()
        } == {"ZSTD"}
        found.append((inside, rows_of(read_table(spark, out, "commits"))))
    assert found[0] == found[1]
    assert len({part for part, _, _ in found[0][0]}) > 1
    with Output.open(tmp_path / "none", cluster_id="c") as output, output.begin() as tx:
        assert tx.stage(Staging(table="commits", rows=few.slice(0, 0))) == [0]
        with pytest.raises(ValueError, match="rows of commits lack topic"):
            tx.stage(Staging(table="commits", rows=few.drop_columns(["topic"])))


def test_dates_are_utc_days_in_any_time_zone_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    moments = [0, DAY_MS - 1, DAY_MS, MAY_1 - 1, MAY_1, MAY_1 + DAY_MS - 1, 1 << 62]
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        with Output.open(tmp_path / "out", cluster_id="c") as output, output.begin() as tx:
            write(tx, "commits", frame(spark, [commit_row(i, ms=ms) for i, ms in enumerate(moments)]))
            manifest = tx.commit({0: ShardProgress(9, 9, MAY_1)})
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = sorted((file.date or "", file.rows) for file in manifest.files)
    assert found == [("", 1), ("1970-01-01", 2), ("1970-01-02", 1), ("2026-04-30", 1), ("2026-05-01", 2)]


def test_replacing_takes_the_place_of_one_part_only(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Output.open(out, cluster_id="c") as output:
        for number in (1, 2):
            with output.begin() as tx:
                write(tx, "commits", frame(spark, [commit_row(number)]))
                there = output.manifest.of("commits", "open")
                write(tx, "commits", frame(spark, [commit_row(100 + number)]), "open", instead_of=there)
                tx.commit({0: ShardProgress(number, number, MAY_1)})
        with output.begin() as tx:
            write(tx, "commits", frame(spark, []), "other")
            write(tx, "commits", frame(spark, [commit_row(9)]))
    assert [row.raft_index for row in read_table(spark, out, "commits", "open").collect()] == [102]
    assert sorted(row.raft_index for row in read_table(spark, out, "commits").collect()) == [1, 2, 102]
    assert len(table_files(out, "commits")) == len(list((out / "commits").rglob("*.parquet"))) == 3


def test_dates_and_shards_choose_files(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Output.open(out, cluster_id="c") as output, output.begin() as tx:
        write(tx, "commits", frame(spark, [commit_row(i, shard=i % 2) for i in range(0, 72, 9)]))
        write(tx, "commits", frame(spark, [commit_row(99, ms=-1)]))
        tx.commit({0: ShardProgress(72, 72, MAY_1)})

    def indexes(**chosen: Any) -> list[int]:
        return sorted(row.raft_index for row in read_table(spark, out, "commits", **chosen).collect())

    assert indexes() == [0, 9, 18, 27, 36, 45, 54, 63, 99]
    assert indexes(from_date="2026-05-02", to_date="2026-05-02") == [27, 36, 45]
    assert indexes(from_date="2026-05-03", shards=[1]) == [63]
    assert indexes(shards=[7]) == []
    assert read_table(spark, out, "waits").schema == spark_type(TABLES["waits"].columns)
    assert read_table(spark, out, "waits").count() == 0


def test_rows_with_other_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with Output.open(tmp_path / "out", cluster_id="c") as output, output.begin() as tx:
        df = frame(spark, [commit_row(1)])
        with pytest.raises(ValueError, match="rows of commits lack topic"):
            write(tx, "commits", df.drop("topic"))
        with pytest.raises(ValueError, match="offset of commits is string, not bigint"):
            write(tx, "commits", df.withColumn("offset", df["offset"].cast("string")))
        with pytest.raises(ValueError, match="not the name"):
            write(tx, "commits", df, "a/b")
        with pytest.raises(ValueError, match="not the name"):
            write(tx, "../x", df)


def test_a_full_disk_of_an_executor_is_told(spark: SparkSession, tmp_path: Path) -> None:
    def full(batches: Iterable[Any]) -> Iterable[Any]:
        raise OSError(28, "No space left on device")
        yield from batches

    with Output.open(tmp_path / "out", cluster_id="c") as output, output.begin() as tx:
        df = frame(spark, [commit_row(1)])
        with pytest.raises(OutputError, match=r"disk of .* is full; the tables are unchanged"):
            write(tx, "commits", df.mapInArrow(full, df.schema))


def test_no_output_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="holds no tables; `quorate pipeline run`"):
        read_table(spark, tmp_path, "commits")
