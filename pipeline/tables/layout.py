"""How Spark lays rows out in files: by date and shard, sorted, zstd.

Rows of one date and shard come together, so that a commit makes about as many files as there are dates and
shards in it. Where that would be one task for most of the rows, adaptive execution splits them by size, and
no file has more than ``ROWS_PER_FILE_MAX`` rows. A few rows are not shuffled at all: one task writes them, in
the same files. Within a file rows are sorted by group, then by index, so
that Parquet's statistics (of row groups and pages) let a reader skip what is about other groups or times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pipeline.schema import TableSchema

from . import names

ROWS_PER_FILE_MAX = 2_000_000
"""Of records with their bytes some 50 MB: enough for a scan, and one task can sort it again."""
FEW_ROWS = 5_000
"""One task sorts and writes so many sooner than a shuffle is set up; with blobs of some hundred kilobytes it
spills them to disk."""
SORTED_BY = ("group_id", "raft_index", "from_index", "target_index", "sequence", "topic", "partition")
"""Those that a table has."""
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)
_DAYS = tuple((day - _EPOCH).days for day in (date(1900, 1, 2), date(2199, 12, 31)))
"""A moment outside is no moment of a log, and not every reader could say its date."""


@dataclass(frozen=True, slots=True)
class Laid:
    """Rows as they are to be written."""

    df: DataFrame
    partition_by: list[str]

    def write(self, folder: str) -> int:
        """Writes them to a new folder; how many rows."""
        count = Observation()
        writer = self.df.observe(count, F.count(F.lit(1)).alias("rows")).write
        writer = writer.option("compression", "zstd").option("maxRecordsPerFile", ROWS_PER_FILE_MAX)
        writer.partitionBy(*self.partition_by).parquet(f"file://{folder}")
        return int(count.get.get("rows") or 0)


def laid_out(df: DataFrame, schema: TableSchema | None, *, is_few: bool = False) -> Laid:
    """Rows of a documented table, or (None) of an internal one; raises `ValueError` for other columns.

    ``is_few``: neither they nor what they are made of are more than `FEW_ROWS`.
    """
    if schema is None:
        by = [name for name in ("shard",) if name in df.columns]
    else:
        df, by = _checked(df, schema).withColumn("date", date_of(F.col(schema.date_of))), ["date", "shard"]
    gathered = df.coalesce(1) if is_few else df.hint("rebalance", *by)
    return Laid(sorted_for_files(gathered, by), by)


def sorted_for_files(df: DataFrame, by: list[str]) -> DataFrame:
    """Sorted within its partitions, those of ``by`` first, as the writer wants them."""
    return df.sortWithinPartitions(
        *by, *(name for name in SORTED_BY if name in df.columns and name not in by)
    )


def date_of(moment_ms: Column) -> Column:
    """The day (UTC, whatever the session's time zone) of a moment; `names.UNDATED` where there is none."""
    days = F.floor(moment_ms / _DAY_MS)
    known = F.when(days.between(*_DAYS), F.date_from_unix_date(days.cast("int")))
    return F.coalesce(known, F.lit(names.UNDATED).cast("date"))


def _checked(df: DataFrame, schema: TableSchema) -> DataFrame:
    missing = [name for name in schema.names if name not in df.columns]
    if missing:
        raise ValueError(f"rows of {schema.name} lack {', '.join(missing)}")
    found = df.select(*schema.names)
    for is_now, is_to_be in zip(found.schema, schema.spark(), strict=True):
        if is_now.dataType.simpleString() != is_to_be.dataType.simpleString():
            raise ValueError(
                f"{is_now.name} of {schema.name} is {is_now.dataType.simpleString()},"
                f" not {is_to_be.dataType.simpleString()}"
            )
    return found
