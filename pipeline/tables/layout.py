"""Spark's layout of rows in files: by date and shard, sorted, zstd.

Rows of one date and shard are brought together, so that a commit makes about one file for each date and
shard. Where one task would get most of the rows, adaptive execution splits them by size, and no file has more
than ``ROWS_PER_FILE_MAX`` rows. Rows derived from rows already laid out are not shuffled again. Within a file
rows are sorted by group, then by index, so that Parquet's statistics (of row groups and pages) let a reader
skip other groups and times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.schema import TableSchema, spark_type

from . import names
from .buckets import HASHED_BITS

ROWS_PER_FILE_MAX = 2_000_000
"""Records with their bytes take some 50 MB per file: enough for a scan, and one task can still sort it."""
SORTED_BY = ("group_id", "raft_index", "from_index", "target_index", "sequence", "topic", "partition")
"""Sort columns, as far as a table has them."""
DAY_MS = 86_400_000
EPOCH = date(1970, 1, 1)
DAYS = tuple((day - EPOCH).days for day in (date(1900, 1, 2), date(2199, 12, 31)))
"""Days outside this range cannot occur in a log, and some readers could not represent them."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows ready to be written."""

    df: DataFrame
    partition_by: list[str]

    def write(self, folder: str) -> int:
        """Write them to a new folder; returns the number of rows."""
        count = Observation()
        writer = self.df.observe(count, F.count(F.lit(1)).alias("rows")).write
        writer = writer.option("compression", "zstd").option("maxRecordsPerFile", ROWS_PER_FILE_MAX)
        writer.partitionBy(*self.partition_by).parquet(f"file://{folder}")
        return int(count.get.get("rows") or 0)


def laid_out(
    df: DataFrame, schema: TableSchema | None, *, buckets: int = 1, is_gathered: bool = False
) -> Laid:
    """Lay out rows of a documented table, or (None) an internal one; raises `ValueError` if columns differ.

    ``is_gathered``: they come from one task, or from files laid out by date and shard.
    """
    if schema is None:
        by = [name for name in ("shard",) if name in df.columns]
    else:
        df, by = _checked(df, schema).withColumn("date", date_of(F.col(schema.date_of))), ["date", "shard"]
    if buckets > 1:
        df, by = df.withColumn("bucket", bucket_of_group(F.col("group_id"), buckets)), [*by, "bucket"]
    gathered = df if is_gathered else df.hint("rebalance", *by)
    return Laid(sorted_for_files(gathered, by), by)


def bucket_of_group(group_id: Column, buckets: int) -> Column:
    """The bucket of a group's rows."""
    return F.coalesce(F.shiftright(F.crc32(group_id), HASHED_BITS) % buckets, F.lit(0)).cast("int")


def sorted_for_files(df: DataFrame, by: list[str]) -> DataFrame:
    """Sort within partitions by ``by`` first, as the writer requires."""
    return df.sortWithinPartitions(
        *by, *(name for name in SORTED_BY if name in df.columns and name not in by)
    )


def date_of(moment_ms: Column) -> Column:
    """The day of a timestamp (UTC, whatever the session's time zone), or `names.UNDATED` if there is none."""
    days = F.floor(moment_ms / DAY_MS)
    known = F.when(days.between(*DAYS), F.date_from_unix_date(days.cast("int")))
    return F.coalesce(known, F.lit(names.UNDATED).cast("date"))


def _checked(df: DataFrame, schema: TableSchema) -> DataFrame:
    missing = [name for name in schema.names if name not in df.columns]
    if missing:
        raise ValueError(f"rows of {schema.name} lack {', '.join(missing)}")
    found = df.select(*schema.names)
    for is_now, is_to_be in zip(found.schema, spark_type(schema.columns), strict=True):
        if is_now.dataType.simpleString() != is_to_be.dataType.simpleString():
            raise ValueError(
                f"{is_now.name} of {schema.name} is {is_now.dataType.simpleString()},"
                f" not {is_to_be.dataType.simpleString()}"
            )
    return found
