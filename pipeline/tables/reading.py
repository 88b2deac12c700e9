"""Reading tables by the manifest: complete commits only, with every column, for files of any release.

Columns that files of an older release lack are null. The plan holds the files of the last commit when
`read_table` was called. A later commit may merge or replace some of them; a query that starts afterwards then
fails with Spark's "file does not exist" and must be repeated with a new `read_table`. It never mixes commits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from pipeline.errors import OutputError
from pipeline.schema import TABLES, spark_type

from . import names
from .disk import OsOutputFiles, join, place_of, told
from .manifest import OutputManifest, TableFile, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB = re.compile(r"([\\{}\[\]*?])")


def read_manifest(path: str | os.PathLike[str]) -> OutputManifest:
    """The manifest of the output at ``path``; takes no lock. Raises `OutputError`."""
    root = place_of(path)
    with told(f"read the output {root}"):
        try:
            return load(OsOutputFiles(), root)
        except (FileNotFoundError, NotADirectoryError):
            raise OutputError(f"{root} holds no tables", "`quorate pipeline run` writes them there") from None


def table_files(path: str | os.PathLike[str], name: str, part: str | None = None) -> tuple[TableFile, ...]:
    """The files of a table, or of one part of it."""
    names.table_folder(name)
    return read_manifest(path).of(name, part)


def read_table(
    spark: SparkSession,
    path: str | os.PathLike[str],
    name: str,
    part: str | None = None,
    *,
    from_date: str | None = None,
    to_date: str | None = None,
    shards: Collection[int] | None = None,
    schema: StructType | None = None,
) -> DataFrame:
    """A table with its columns in order (`pipeline.schema.TABLES`), or one part of it.

    Dates (``2026-05-01``, both included) and shards select files before Spark sees any; with a date, rows
    without a known date are left out. An internal table requires a ``schema``, which gives its columns.
    """
    files = table_files(path, name, part)
    if from_date is not None or to_date is not None:
        files = tuple(f for f in files if f.date and (from_date or "") <= f.date <= (to_date or "~"))
    if shards is not None:
        files = tuple(f for f in files if f.shard in shards)
    if name in TABLES:
        schema = spark_type(TABLES[name].columns)
    elif schema is None:
        raise ValueError(f"{name} is internal: give its columns")
    return read_files(spark, place_of(path), name, files, schema)


def read_files(
    spark: SparkSession, root: str, table: str, files: Iterable[TableFile], schema: StructType | None
) -> DataFrame:
    """Rows of these files of one table; without ``schema``, with the union of their columns and the date."""
    paths = [_taken_literally(join(root, file.path)) for file in files]
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.option("basePath", f"file://{join(root, names.table_folder(table))}")
    reader = reader.option("ignoreMissingFiles", False).option("ignoreCorruptFiles", False)
    if schema is None:
        return reader.option("mergeSchema", True).parquet(*paths)
    return reader.schema(schema).parquet(*paths).select(*schema.names)


def read_staged(spark: SparkSession, path: str, schema: StructType) -> DataFrame:
    """Rows that a transaction put into a folder of its own (`Transaction.staging`)."""
    return spark.read.schema(schema).parquet(_taken_literally(path))


def _taken_literally(path: str) -> str:
    """A path escaped so that Spark finds no glob pattern in it."""
    return "file://" + _GLOB.sub(r"\\\1", path)
