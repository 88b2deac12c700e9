"""The tables by name in a catalog of Spark: in-memory, Hive, Glue, Unity.

They are registered once, as external Delta tables: later runs commit to the same folders. A catalog reads the
newest version of each table, so that a query during a commit may see tables of two runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from quorate.spark.errors import OptionError, OutputError
from quorate.spark.schema import TABLES
from quorate.spark.session.failures import spark_errors

from . import names
from .reading import TablesOfRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROVIDER = "delta"
_LACKING = ("DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION")
"""Spark's message where delta-spark or its two settings are missing."""


def create_tables(spark: SparkSession, path: str | os.PathLike[str], database: str) -> list[str]:
    """Register all tables and `progress` in a catalog; returns their names there.

    ``database`` exists: ``DATABASE`` or ``CATALOG.DATABASE``. It may be repeated; a table of that name at
    another place is refused. Raises `OptionError` if the session has no delta-spark, `PipelineError`.
    """
    store = TablesOfRun.at(path).store
    parts = [part.strip("`") for part in database.split(".")]
    if not all(parts):
        raise OptionError(f"{database!r} is not a database", "give DATABASE or CATALOG.DATABASE")
    # an object store's URL stays as it was given: Spark knows s3 as s3a, Databricks as s3
    root = store.root if store.is_local else os.fspath(path).rstrip("/")
    registered = []
    for table in (*TABLES, names.PROGRESS):
        name = ".".join(f"`{part.replace('`', '``')}`" for part in (*parts, table))
        with spark_errors():
            _create(spark, name, f"{root}/{names.folder_of(table)}")
        registered.append(".".join((*parts, table)))
    return registered


def _create(spark: SparkSession, name: str, location: str) -> None:
    if spark.catalog.tableExists(name):
        there = _location(spark, name)
        if there != _comparable(location):
            raise OutputError(f"{name} is a table in {there}", f"DROP TABLE {name} to replace it")
        return
    literal = location.replace("\\", "\\\\").replace("'", "\\'")
    try:
        spark.sql(f"CREATE TABLE {name} USING {PROVIDER} LOCATION '{literal}'")
    except Exception as error:  # py4j's, or PySpark's
        if not any(said in str(error) for said in _LACKING):
            raise
        raise OptionError(
            "this Spark has no delta-spark, so its catalog cannot hold the tables",
            "start it as `quorate docs pipeline` (A catalog) says, or use create_views",
        ) from error


def _location(spark: SparkSession, name: str) -> str:
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'").collect()
    return _comparable(rows[0].data_type) if rows else "another place"


def _comparable(location: str) -> str:
    """A location without the scheme of a local path, which Spark writes ``file:/…``."""
    return location.removeprefix("file://").removeprefix("file:").rstrip("/")
