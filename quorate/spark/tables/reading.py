"""Reading: all tables as of one run, by the versions that `progress` names.

Files are taken from Delta's log, so that Spark needs no jar for it and any release of Spark reads them; on a
disk Spark reads Parquet itself, in an object store through pyarrow on the executors. A file stays for days
after a later run has replaced it: a data frame can be used while runs go on.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quorate.spark.errors import OutputError
from quorate.spark.schema import TABLES

from . import names
from .delta import APP, RETENTION_DAYS, TableFile, TableLog, words_of
from .failures import told
from .files import dataset_of, gone, read_file
from .progress import Progress, from_rows
from .store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import DataFrame, SparkSession

CLUSTER = "quorate.cluster"
"""The property of `progress` that assigns an output to a cluster before its first run."""
HISTORY_LOOKS_MAX = 50
"""Looks at the history of an output to which runs keep committing: each takes some milliseconds."""
TASKS_MAX = 64
"""Tasks that read an object store's files."""
_GLOB = re.compile(r"([\\{}\[\]*?])")
"""Characters of a path in which Spark would find a pattern."""
_LISTED_BY_TASKS = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, slots=True)
class TablesOfRun:
    """The tables of an output as one run left them."""

    store: Store
    progress: Progress

    @classmethod
    def at(
        cls, path: str | os.PathLike[str], *, run: int | None = None, at: datetime | None = None
    ) -> TablesOfRun:
        """As of the last run, of run ``run``, or of the last one until ``at``; raises `OutputError`."""
        store = Store.at(path)
        log = TableLog.load(store, names.PROGRESS)
        if log is None:
            raise OutputError(f"{store.place} holds no tables", "`quorate pipeline run` writes them there")
        if run is not None or at is not None:
            log = _earlier(log, run, at)
        return cls(store, progress_of(log))

    def files(self, table: str, part: str | None = None) -> tuple[TableFile, ...]:
        """The files of a table, or of one part."""
        names.folder_of(table)
        if table == names.PROGRESS:
            log = TableLog.load(self.store, table)
        elif table not in self.progress.versions:
            return ()
        else:
            log = TableLog.load(self.store, table, self.progress.versions[table])
        if log is None:
            raise missing(self.store, table)
        return tuple(file for file in log.files() if part is None or file.part == part)


def missing(store: Store, table: str) -> OutputError:
    """The error for a table that `progress` names and the store lacks."""
    return OutputError(
        f"the table {table} in {store.place} is missing: another tool has deleted it",
        "restore it, or run into a new output: quorate pipeline run -i … -o NEW",
    )


def progress_of(log: TableLog) -> Progress:
    """The progress in a version of the table `progress`."""
    files = log.files()
    if not files:
        return Progress(cluster_id=log.delta.metadata().configuration.get(CLUSTER, ""))
    rows = [row for file in files for row in read_file(log.store, names.PROGRESS, file.path).to_pylist()]
    return from_rows(rows, log.store.url)


def named_at(store: Store, time: datetime) -> dict[str, int]:
    """The versions that `progress` named at a time, and its own; raises `OutputError` if it was not there."""
    log = TableLog.load(store, names.PROGRESS)
    then = None if log is None else log.at(time)
    return {} if then is None else {**progress_of(then).versions, names.PROGRESS: then.version}


def read_progress(path: str | os.PathLike[str]) -> Progress:
    """The progress of the output at a path or URL; raises `OutputError` if it holds no tables."""
    return TablesOfRun.at(path).progress


def table_files(path: str | os.PathLike[str], name: str, part: str | None = None) -> tuple[TableFile, ...]:
    """The files of a table, or of one part of it, as of the last run."""
    return TablesOfRun.at(path).files(name, part)


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str,
    *,
    run: int | None = None,
    at: datetime | None = None,
    from_time: datetime | None = None,
    to_time: datetime | None = None,
) -> DataFrame:
    """A table with its columns in order (`quorate.spark.schema.TABLES`), as of one run.

    With ``from_time`` or ``to_time`` (UTC if they have no zone) only rows that hold at some time from the one
    to before the other: a row with a begin and an end counts by both, one without an end holds on. Raises
    `OutputError`.
    """
    tables = TablesOfRun.at(path, run=run, at=at)
    return _in_spark(spark, tables, name, _utc(from_time), _utc(to_time))


def create_views(spark: SparkSession, path: str | os.PathLike[str], prefix: str = "") -> Progress:
    """Make temporary views of all tables as of the last run, and of `progress`; returns the progress."""
    tables = TablesOfRun.at(path)
    for name in TABLES:
        _in_spark(spark, tables, name, None, None).createOrReplaceTempView(f"{prefix}{name}")
    from .progress import as_rows

    spark.createDataFrame(as_rows(tables.progress)).createOrReplaceTempView(f"{prefix}{names.PROGRESS}")
    return tables.progress


def arrow_table(
    path: str | os.PathLike[str],
    name: str,
    columns: Sequence[str] | None = None,
    filter: pc.Expression | None = None,
    *,
    part: str | None = None,
    run: int | None = None,
    at: datetime | None = None,
) -> pa.Table:
    """A table, or one part of it, in memory: for pandas, DuckDB and small uses. Raises `OutputError`."""
    tables = TablesOfRun.at(path, run=run, at=at)
    files = tables.files(name, part)
    try:
        with told(f"read {name} in {tables.store.place}"):
            rows = dataset_of(tables.store, name, [file.path for file in files])
            return rows.to_table(columns=list(columns) if columns else None, filter=filter)
    except OutputError as error:
        _refuse_gone(tables, name, files, error)
        raise


def _refuse_gone(tables: TablesOfRun, name: str, files: Iterable[TableFile], error: OutputError) -> None:
    """Raise the error that names the missing file, if one is missing."""
    if isinstance(error.__cause__, FileNotFoundError):
        folder = tables.store.below(names.folder_of(name))
        for file in files:
            if not folder.filesystem().get_file_info(folder.path(file.path)).is_file:
                raise gone(tables.store, name, file.path) from error


def _earlier(log: TableLog, run: int | None, at: datetime | None) -> TableLog:
    """`progress` at the version of an earlier run."""
    until_ms = None if at is None else int((_utc(at) or at).timestamp() * 1000)
    log, history = _history(log)
    for commit in history:  # from the last one back
        ours = commit.get(APP)
        if not isinstance(ours, dict) or ours.get("why") != "run":
            continue
        if (run is None or ours["run"] == run) and (until_ms is None or ours["at_ms"] <= until_ms):
            found = TableLog.load(log.store, names.PROGRESS, commit["version"])
            if found is not None:
                return found
    wanted = f"run {run}" if run is not None else f"a run committed by {at}"
    raise OutputError(
        f"{log.store.place} does not have {wanted}",
        f"runs can be read for {RETENTION_DAYS} days after the next",
    )


def _history(log: TableLog) -> tuple[TableLog, list[dict[str, Any]]]:
    """The commits of a table, the last one first, and the table at that version.

    delta-rs lists commits that came after the version it has loaded, but counts back from that one. If a run
    has committed meanwhile, the table is loaded again.
    """
    for _ in range(HISTORY_LOOKS_MAX):
        with told(f"read the history of {log.store.place}"):
            history = log.delta.history()
        last = words_of(log.commit_json(log.version) or ())
        if all(history[0].get(name) == last.get(name) for name in (APP, "operation", "timestamp")):
            return log, history
        log = TableLog.load(log.store, log.table) or log
    raise OutputError(f"runs commit to {log.store.place} faster than its history can be read", "read again")


def _utc(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _in_spark(
    spark: SparkSession, tables: TablesOfRun, name: str, start: datetime | None, end: datetime | None
) -> DataFrame:
    from pyspark.sql import functions as F

    from quorate.spark.schema import spark_type

    schema = spark_type(names.columns_of(name))
    files = [file for file in tables.files(name) if _overlaps(file, start, end)]
    if not files:
        return spark.createDataFrame([], schema)
    read = _by_spark if tables.store.is_local else _by_pyarrow
    rows = read(spark, tables.store, name, [file.path for file in files], schema)
    span = names.span_of(name)
    if span is None or (start is None and end is None):
        return rows
    if end is not None:
        rows = rows.where(F.col(span.begin) < F.lit(end))
    if start is not None and span.end is None:
        rows = rows.where(F.col(span.begin) >= F.lit(start))
    elif start is not None and span.end is not None:
        rows = rows.where(F.col(span.end).isNull() | (F.col(span.end) > F.lit(start)))
    return rows


def _overlaps(file: TableFile, start: datetime | None, end: datetime | None) -> bool:
    """Whether a file may have rows of the time; by its statistics."""
    if end is not None and file.begin_min is not None and file.begin_min >= end:
        return False
    last = file.end_max if _has_end(file.table) else file.begin_max
    return start is None or last is None or last >= start


def _has_end(table: str) -> bool:
    span = names.span_of(table)
    return span is not None and span.end is not None


def _by_spark(spark: SparkSession, store: Store, name: str, paths: Sequence[str], schema: Any) -> DataFrame:
    folder = "file://" + _GLOB.sub(r"\\\1", store.below(names.folder_of(name)).root)
    reader = spark.read.option("ignoreMissingFiles", False).option("ignoreCorruptFiles", False)
    with _listed_by_driver(spark, len(paths)):
        return reader.schema(schema).parquet(*(f"{folder}/{path}" for path in paths)).select(*schema.names)


@contextlib.contextmanager
def _listed_by_driver(spark: SparkSession, files: int) -> Iterator[None]:
    """Spark otherwise starts a job with a task for each file to look whether they are there."""
    before = spark.conf.get(_LISTED_BY_TASKS)
    spark.conf.set(_LISTED_BY_TASKS, str(max(files, int(before or 0))))
    try:
        yield
    finally:
        spark.conf.set(_LISTED_BY_TASKS, str(before))


def _by_pyarrow(spark: SparkSession, store: Store, name: str, paths: Sequence[str], schema: Any) -> DataFrame:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from quorate.spark.tables.files import iter_batches

        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from iter_batches(store, name, path)

    wanted = spark.createDataFrame([(path,) for path in paths], "path string")
    return wanted.repartition(min(len(paths), TASKS_MAX)).mapInArrow(read, schema)
