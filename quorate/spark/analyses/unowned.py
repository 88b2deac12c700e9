"""Time for which partitions that a group subscribes to had no owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from history.export.columns import float64, int32, span
from quorate.spark.schema import TABLES, columns_named

from .keys import Moment, at_moment, ms_between
from .registry import Analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHARD = ("cluster_id", "shard")
_TOPIC = ("cluster_id", "group_id", "shard", "topic")


def unowned_partition_seconds(ownership: DataFrame, at: Moment | None = None) -> DataFrame:
    """Total time without an owner, and the longest such span, by group and topic.

    A span that is still open lasts until ``at``, by default the newest timestamp in the table for its
    shard.
    """
    spans = ownership.where(f.col("kind").isin("owned", "revoking", "unowned"))
    if at is None:
        newest = ownership.groupBy(*_SHARD).agg(f.max(f.greatest("from_time", "to_time")).alias("at_time"))
        spans = spans.join(f.broadcast(newest), [*_SHARD])  # one row per shard
    else:
        spans = spans.withColumn("at_time", at_moment(at)).where(f.col("from_time") < f.col("at_time"))
    until = f.least(f.coalesce("to_time", "at_time"), "at_time")
    # clocks may go backwards
    spans = spans.withColumn("ms", f.greatest(ms_between("from_time", until), f.lit(0)))
    unowned = f.when(f.col("kind") == "unowned", f.col("ms"))
    # ties: the lowest partition
    longest = f.when(unowned.isNotNull(), f.struct(unowned, -f.col("partition")))
    sums = spans.groupBy(*_TOPIC).agg(
        f.count_distinct("topic_id", "partition").cast("int").alias("num_partitions"),
        f.count(unowned).cast("int").alias("num_spans"),
        f.coalesce(f.sum(unowned), f.lit(0)).alias("unowned_ms"),
        f.sum("ms").alias("expected_ms"),
        f.max(unowned).alias("longest_ms"),
        f.max_by("partition", longest).alias("longest_partition"),
    )
    return sums.select(
        *_TOPIC,
        "num_partitions",
        "num_spans",
        (f.col("unowned_ms") / 1000).alias("unowned_seconds"),
        (f.col("expected_ms") / 1000).alias("expected_seconds"),
        f.try_divide("unowned_ms", "expected_ms").alias("share"),
        "longest_ms",
        "longest_partition",
    )


COLUMNS = (
    *columns_named(TABLES["ownership"].columns, [*_TOPIC]),
    int32("num_partitions", "Partitions of the topic with ownership spans."),
    int32("num_spans", "How often a partition had no owner."),
    float64("unowned_seconds", "Total time without an owner.", unit="partition-seconds"),
    float64(
        "expected_seconds",
        "Total time in which the group was subscribed to them or owned them.",
        unit="partition-seconds",
    ),
    float64("share", "The former divided by the latter; null: the latter is 0.", unit="0 to 1"),
    span("longest_ms", "Longest time that one partition had no owner; null: none."),
    int32("longest_partition", "That partition."),
)

ANALYSES = (
    Analysis(
        takes=("ownership",),
        answers="For how many partition-seconds did partitions that a group subscribes to have no owner?",
        columns=COLUMNS,
        run=unowned_partition_seconds,
        options={
            "at": (
                "The end assumed for spans that have not ended; by default the newest moment of the shard."
            )
        },
    ),
)
