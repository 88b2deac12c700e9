"""The records that compaction keeps: the newest of each key, without tombstones.

The rule is that of `records.compaction`. A key is a type and its bytes, which are not interpreted; types 0
and 1 count as one, since both hold the same offsets. The kept rows retain all their columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from quorate.spark.schema import RECORD_COLUMNS
from records import RecordType

from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compacted(records: DataFrame) -> DataFrame:
    """The newest record of each key of each shard, without keys that a tombstone deleted.

    ``records`` needs the raw columns. It may include rows of a snapshot, which carry the snapshot's last
    index.
    """
    needed(records, "compacted", "key_bytes")
    return newest(records.drop("damage")).where(~f.col("is_tombstone"))


def newest(records: DataFrame) -> DataFrame:
    """The newest record of each key, including tombstones."""
    legacy, current = int(RecordType.OFFSET_COMMIT_LEGACY), int(RecordType.OFFSET_COMMIT)
    type_ = f.when(f.col("type") == legacy, f.lit(current)).otherwise(f.col("type"))
    key = ("cluster_id", "shard", type_, "key_bytes")
    of_key = Window.partitionBy(f.xxhash64(*key), *key)  # the hash comes first: it sorts faster than the keys
    by_age = of_key.orderBy(f.desc("raft_index"), f.desc("sequence"))
    rank = f.row_number().over(by_age)
    return records.withColumn("_rank", rank).where(f.col("_rank") == 1).drop("_rank")


ANALYSES = (
    Analysis(
        takes=(RECORDS,),
        answers="What does compaction keep? The newest record of each key, unless it is a tombstone.",
        columns=RECORD_COLUMNS,
        run=compacted,
        needs_raw=True,
    ),
)
