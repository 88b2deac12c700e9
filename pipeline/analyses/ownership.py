"""Who had which partition, member by member: what each member's own records say, whatever others say.

Table `ownership` has one hand for a partition at any index, as the later entry wins. Here each member speaks
for itself, so that two who claim one partition are both seen: an independent second opinion, equal to the
table where a log is sound. Entries that are missing are not noticed: an interval goes on across a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from pipeline.schema import TABLES, Kind, columns_named
from records import RecordType

from .keys import GROUP, by, by_group, lasted, with_topic_names
from .registry import RECORDS, Analysis, column, needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.schema import Column as ResultColumn

PARTITION = (*GROUP, "topic_id", "partition")
NEVER = (1 << 63) - 1
"""An index behind every other: there ends, while spans are compared, what has not ended (``end``)."""
_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)
_EPOCH = int(RecordType.CONSUMER_GROUP_METADATA)


def ownership_intervals(records: DataFrame) -> DataFrame:
    """Each time that a member had a partition: from the entry that gave it to the one that took it away.

    Being told to give it up begins another interval.
    """
    needed(records, "ownership_intervals", "assigned", "pending")
    intervals = _with_epoch(_intervals(_held(records), "kind"), records)
    return _told(with_topic_names(intervals, records), INTERVAL_COLUMNS)


def double_ownership(records: DataFrame) -> DataFrame:
    """Each time that a member took a partition while another one had it; a sound log has none.

    Where several have it, the row names the one who keeps it longest, then who had it first.
    """
    needed(records, "double_ownership", "assigned", "pending")
    in_order = by(*PARTITION).orderBy("from_index", "end", "member_id")
    until_now = in_order.rowsBetween(Window.unboundedPreceding, -1)
    longest = f.max(f.struct("end", (-f.col("from_index")).alias("age"), "to_ms", "member_id")).over(
        until_now
    )
    intervals = _intervals(_suspects(_held(records))).withColumn("holder", longest)
    overlaps = intervals.where(f.col("holder.end") > f.col("from_index")).select(
        *PARTITION,
        f.col("holder.member_id").alias("holder"),
        f.col("member_id").alias("taker"),
        "from_index",
        "from_ms",
        f.least("end", "holder.end").alias("end"),
        f.least("to_ms", "holder.to_ms").alias("to_ms"),
    )
    return _told(with_topic_names(overlaps, records), DOUBLE_COLUMNS)


def _suspects(held: DataFrame) -> DataFrame:
    """Of `_held` only the partitions that somebody has before another's time with it is over: mostly none.

    What is made of them costs nothing then. A member never overlaps itself: a row ends where the next begins.
    """
    of_partition = by(*PARTITION)
    until_now = of_partition.orderBy("from_index", "end").rowsBetween(Window.unboundedPreceding, -1)
    is_early = f.coalesce(f.max("end").over(until_now) > f.col("from_index"), f.lit(False))
    seen = held.withColumn("is_early", is_early)
    return seen.withColumn("is_suspect", f.max("is_early").over(of_partition)).where("is_suspect")


def _held(records: DataFrame) -> DataFrame:
    """A row for each partition that a member has behind an entry that names the member, up to the next one.

    Of several records in one entry the last one counts: what holds in between was never so.
    """
    is_said = (f.col("type") == _CURRENT) | f.col("is_tombstone")  # a record 5 says that there is a member
    columns = ("member_id", "raft_index", "sequence", "timestamp_ms", "is_tombstone", "assigned", "pending")
    said = by_group(records.where(is_said), (_CURRENT, _MEMBER), *columns)
    of_member = by(*GROUP, "member_id").orderBy("raft_index", "sequence")
    states = (
        said.withColumn("end", f.lead("raft_index", 1, NEVER).over(of_member))
        .withColumn("to_ms", f.lead("timestamp_ms").over(of_member))
        .where(~f.col("is_tombstone") & (f.col("end") > f.col("raft_index")))
    )
    by_topic = states.select(
        *GROUP,
        "member_id",
        f.col("raft_index").alias("from_index"),
        f.col("timestamp_ms").alias("from_ms"),
        "end",
        "to_ms",
        f.inline(f.concat(_of_kind("assigned", "owned"), _of_kind("pending", "revoking"))),
    )
    return by_topic.withColumn("partition", f.explode("partitions")).drop("partitions")


def _of_kind(parts: str, kind: str) -> Column:
    """Partitions with how the member has them."""
    tagged = f"transform({parts}, one -> struct(one.topic_id, one.partitions, '{kind}' AS kind))"
    return f.expr(f"coalesce({tagged}, array())")


def _intervals(held: DataFrame, *same: str) -> DataFrame:
    """What follows one another without a gap and is the ``same``, as one row: gaps and islands."""
    hand = (*PARTITION, "member_id")
    in_order = by(*hand).orderBy("from_index")
    goes_on = f.lag("end").over(in_order) == f.col("from_index")
    for name in same:
        goes_on &= f.lag(name).over(in_order) == f.col(name)
    begins = held.withColumn("begins", f.when(goes_on, 0).otherwise(1))
    islands = begins.withColumn("island", f.sum("begins").over(in_order))
    return islands.groupBy(*hand, "island", *same).agg(
        f.min("from_index").alias("from_index"),
        f.min("from_ms").alias("from_ms"),
        f.max("end").alias("end"),
        f.max_by("to_ms", "end").alias("to_ms"),
    )


def _with_epoch(intervals: DataFrame, records: DataFrame) -> DataFrame:
    """Adds the group epoch behind the entry with which each began: the newest one written until then."""
    epochs = by_group(records, (_EPOCH,), "raft_index", "sequence", "epoch")
    marks = epochs.withColumnsRenamed({"raft_index": "from_index", "epoch": "newest"})
    all_of_them = intervals.unionByName(marks, allowMissingColumns=True)
    # An entry's own epoch counts for it: those without a sequence are the intervals, and come last.
    in_order = Window.partitionBy(*GROUP).orderBy("from_index", f.asc_nulls_last("sequence"))
    epoch = f.last("newest", ignorenulls=True).over(in_order)
    return all_of_them.withColumn("epoch", epoch).where(f.col("sequence").isNull())


def _told(spans: DataFrame, columns: tuple[ResultColumn, ...]) -> DataFrame:
    """Spans with an ``end`` as they are handed out: null is what has not ended."""
    is_over = f.col("end") < NEVER
    ended = spans.withColumn("to_index", f.when(is_over, f.col("end")))
    ended = ended.withColumn("to_ms", f.when(is_over, f.col("to_ms")))
    return ended.withColumn("duration_ms", lasted("from_ms", "to_ms")).select(*[one.name for one in columns])


INTERVAL_COLUMNS = columns_named(
    TABLES["ownership"].columns,
    [
        *("cluster_id", "group_id", "shard", "topic", "topic_id", "partition", "kind", "member_id", "epoch"),
        *("from_index", "from_ms", "to_index", "to_ms", "duration_ms"),
    ],
)
DOUBLE_COLUMNS = (
    *columns_named(
        TABLES["ownership"].columns, ["cluster_id", "group_id", "shard", "topic", "topic_id", "partition"]
    ),
    column("holder", Kind.TEXT, "The member that had it."),
    column("taker", Kind.TEXT, "The member that was given it all the same."),
    column("from_index", Kind.INT64, "The entry that gave it to the second."),
    column("from_ms", Kind.INT64, "When that was.", "ms since 1970, UTC"),
    column(
        "to_index", Kind.INT64, "The entry behind which one of them had it no more; null: both still have it."
    ),
    column("to_ms", Kind.INT64, "When that was.", "ms since 1970, UTC"),
    column("duration_ms", Kind.INT64, "How long both had it.", "ms"),
)

ANALYSES = (
    Analysis(
        name="ownership_intervals",
        takes=(RECORDS,),
        answers=(
            "Who had which partition from when until when, by each member's own records? The rows of kind"
            " `owned` and `revoking` of table `ownership`, made in another way."
        ),
        columns=INTERVAL_COLUMNS,
        run=ownership_intervals,
    ),
    Analysis(
        name="double_ownership",
        takes=(RECORDS,),
        answers="Did two members of a group ever have one partition at once? No row: they did not.",
        columns=DOUBLE_COLUMNS,
        run=double_ownership,
    ),
)
