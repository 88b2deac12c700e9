"""Offsets that producers committed in transactions: how long they were pending, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.export.columns import int64, span, text
from history.words import trigger_name
from quorate.spark.schema import TABLES, columns_named, moment
from records import RecordType, Trigger

from .keys import GROUP, by, by_group, ms_between
from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PARTITION = (*GROUP, "topic", "partition")
_OFFSET = (*_PARTITION, "producer_id")
_COMMIT = int(RecordType.OFFSET_COMMIT)
_PENDING = int(RecordType.PENDING_OFFSET)


def transactional_offsets(records: DataFrame) -> DataFrame:
    """One row for each partition and transaction: from the first pending offset to its removal."""
    needed(records, "transactional_offsets", "producer_id", "offset", "trigger", "cause_member_id")
    columns = ("raft_index", "sequence", "timestamp", "is_tombstone", "trigger")
    named = ("topic", "partition", "producer_id", "offset", "cause_member_id", *columns)
    pending = by_group(records, (_PENDING,), *named)
    before = by(*_OFFSET).orderBy("raft_index", "sequence").rowsBetween(Window.unboundedPreceding, -1)
    ended = f.coalesce(f.sum(f.col("is_tombstone").cast("int")).over(before), f.lit(0))
    place = f.struct("raft_index", "sequence")
    begun, ends = f.when(~f.col("is_tombstone"), place), f.when(f.col("is_tombstone"), place)
    offsets = (
        pending.withColumn("number", ended)
        .groupBy(*_OFFSET, "number")
        .agg(
            f.max_by("offset", begun).alias("offset"),
            f.min_by("cause_member_id", begun).alias("member_id"),
            f.min(begun)["raft_index"].alias("from_index"),
            f.min_by("timestamp", begun).alias("from_time"),
            f.max(ends)["raft_index"].alias("to_index"),
            f.max_by("timestamp", ends).alias("to_time"),
            f.max_by("trigger", ends).alias("trigger"),
        )
    )
    written = by_group(records, (_COMMIT,), "topic", "partition", "raft_index", "is_tombstone")
    commits = (
        written.where(~f.col("is_tombstone"))
        .select(*_PARTITION, f.col("raft_index").alias("to_index"), f.lit(True).alias("is_committed"))
        .distinct()
    )
    told = offsets.where(f.col("from_index").isNotNull()).join(commits, [*_PARTITION, "to_index"], "left")
    end = (
        f.when(f.col("to_index").isNull(), "open")
        .when(f.col("trigger") != trigger_name(Trigger.OFFSETS_RESOLVED), "removed")
        .otherwise(f.when(f.col("is_committed"), "committed").otherwise("dropped"))
    )
    spans = told.withColumn("end", end).withColumn("duration_ms", ms_between("from_time", "to_time"))
    return spans.select(*[one.name for one in COLUMNS])


COLUMNS = (
    *columns_named(TABLES["commits"].columns, [*_PARTITION]),
    int64("producer_id", "The producer."),
    int64("offset", "The offset, the last one if the transaction committed several of the partition."),
    text("member_id", "The member that the producer named; null: none."),
    int64("from_index", "The entry since which an offset was pending."),
    moment("from_time", "The time of that entry."),
    int64("to_index", "The entry that ended it; null: it is still pending."),
    moment("to_time", "The time of that entry."),
    span("duration_ms", "How long it was pending."),
    text(
        "end",
        "`committed`; `dropped`: the transaction was aborted, or a later commit counts; `removed` with the "
        "group or the topic; `open`.",
    ),
)

ANALYSES = (
    Analysis(
        takes=(RECORDS,),
        answers=(
            "Which offsets were committed in transactions, how long were they pending, and did they count in "
            "the end? Consumers that ask for stable offsets wait meanwhile."
        ),
        columns=COLUMNS,
        run=transactional_offsets,
    ),
)
