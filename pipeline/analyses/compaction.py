"""What compaction keeps: the newest record of each key, tombstones left out.

The rule is that of `records.compaction`: a key is a type and bytes, whatever they mean, and types 0 and 1 are
one, since both are the same offsets. Kept rows have the columns that they came with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from pipeline.schema import RECORD_COLUMNS
from records import RecordType

from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compacted(records: DataFrame) -> DataFrame:
    """The newest record of each key of each shard, without those that a tombstone deleted.

    ``records`` needs the raw columns. Rows of a snapshot may be among them: they have its last index.
    """
    needed(records, "compacted", "key_bytes")
    return newest(records.drop("damage")).where(~f.col("is_tombstone"))


def newest(records: DataFrame) -> DataFrame:
    """The newest record of each key, tombstones too."""
    legacy, current = int(RecordType.OFFSET_COMMIT_LEGACY), int(RecordType.OFFSET_COMMIT)
    type_ = f.when(f.col("type") == legacy, f.lit(current)).otherwise(f.col("type"))
    key = ("cluster_id", "shard", type_, "key_bytes")
    of_key = Window.partitionBy(f.xxhash64(*key), *key)  # sorted by one number before all others
    by_age = of_key.orderBy(f.desc("raft_index"), f.desc("sequence"))
    rank = f.row_number().over(by_age)
    return records.withColumn("_rank", rank).where(f.col("_rank") == 1).drop("_rank")


ANALYSES = (
    Analysis(
        name="compacted",
        takes=(RECORDS,),
        answers="What does compaction keep? The newest record of each key, where that is no tombstone.",
        columns=RECORD_COLUMNS,
        run=compacted,
        needs_raw=True,
    ),
)
