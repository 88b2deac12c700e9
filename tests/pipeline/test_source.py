"""The source agrees with `history`: each column of each record, of a recorded cluster and a generated log."""

from __future__ import annotations

from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra spark")
pytest.importorskip("pyspark", reason="needs the extra spark")

from history.export.schema import SCHEMAS  # noqa: E402
from history.export.sources import ShardRows  # noqa: E402
from history.moments import LogWindow  # noqa: E402
from history.reading.opening import open_node  # noqa: E402
from quorate.spark.schema import RECORD_COLUMNS, ColumnKind  # noqa: E402
from quorate.spark.source.options import parse_options  # noqa: E402
from quorate.spark.source.plan import plan  # noqa: E402
from quorate.spark.source.reading import read_task  # noqa: E402
from tests.pipeline.rows import as_exported  # noqa: E402
from tests.pipeline.source_rows import Row, rows_of  # noqa: E402
from tests.support.recorded_incident import INCIDENT  # noqa: E402


def exported(path: object, table: str) -> list[Row]:
    """Return a table of `history.export` as rows by name."""
    found: list[Row] = []
    schema = SCHEMAS[table]
    names = [column.name for column in schema.columns]

    def take(_: str, row: object) -> None:
        found.append(dict(zip(names, schema.values(row), strict=True)))

    log = open_node(str(path))
    catalog = log.catalog()
    for shard in log.shards:
        ShardRows(shard, catalog, [table], None, LogWindow(), take).run(log.reader(shard))
    return found


@pytest.mark.parametrize("which", ["incident", "mixed"])
def test_every_record_is_as_history_exports_it(which: str, mixed_log: str) -> None:
    path: object = INCIDENT if which == "incident" else mixed_log
    ours, theirs = [as_exported(row) for row in rows_of(path)], exported(path, "records")
    shared = [name for name in ours[0] if name in theirs[0]]
    assert len(shared) >= 15
    assert [{name: row[name] for name in shared} for row in ours] == [
        {name: row[name] for name in shared} for row in theirs
    ]


@pytest.mark.parametrize("which", ["incident", "mixed"])
def test_every_commit_is_as_history_exports_it(which: str, mixed_log: str) -> None:
    path: object = INCIDENT if which == "incident" else mixed_log
    names = {"cause_member_id": "member_id", "cause_member_epoch": "member_epoch"}
    shared = (
        "group_id",
        "shard",
        "topic",
        "partition",
        "raft_index",
        "timestamp_ms",
        "offset",
        "leader_epoch",
    )
    wanted = [*shared, "metadata", *names]
    found = [as_exported(row) for row in rows_of(path, types="OffsetCommit")]
    ours = [{names.get(n, n): row[n] for n in wanted} for row in found]
    theirs = [{n: row[n] for n in ours[0]} for row in exported(path, "commits")]
    assert ours == theirs


def test_executors_look_where_the_driver_meant(mixed_log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors run in folders of their own, where a relative path leads elsewhere or nowhere."""
    there = Path(mixed_log)
    monkeypatch.chdir(there.parent)
    tasks = plan(parse_options({"path": there.name}))
    monkeypatch.chdir("/")
    assert sum(len(batch) for task in tasks for batch in read_task(task)) == len(rows_of(mixed_log))


def test_spark_reads_the_same(spark, mixed_log: str) -> None:
    from quorate.spark.source import register

    register(spark)
    read = spark.read.format("quorate").load(mixed_log)
    assert read.columns == [column.name for column in RECORD_COLUMNS if column.kind is not ColumnKind.BYTES]
    assert read.count() == len(rows_of(mixed_log))
