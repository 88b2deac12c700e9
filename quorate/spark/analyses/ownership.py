"""Owners of partitions: at a moment, and whether two members ever owned the same one.

Table `ownership` has exactly one owner of a partition at any index, since a later entry wins. The audit reads
each member's records separately, so that two members that claim one partition both show. In a classic group
that is what the leader assigned in each generation. Missing entries are not detected: an interval continues
across a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.export.columns import int64, span, text
from quorate.spark.schema import TABLES, columns_named, moment
from records import RecordType

from .keys import GROUP, Moment, at_moment, by, by_group, dated_topics, ms_between, with_topic_names
from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from quorate.spark.schema import TableColumn

PARTITION = (*GROUP, "topic_id", "partition")
NEVER = (1 << 63) - 1
"""An index above all others: the ``end`` of an interval that is still open, while intervals are compared."""
CONSUMERS = "consumer"
"""The protocol type of classic groups whose assignments name partitions."""
_ASSIGNED = "array<struct<member_id: string, assigned: map<string, array<int>>>>"
"""The fields that are read from the column `members`."""
_CLASSIC = int(RecordType.GROUP_METADATA)
_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)


def owner_at(ownership: DataFrame, at: Moment | None = None) -> DataFrame:
    """The owner of each partition at a moment, by default at the end: as the newest entry by then says.

    An owner may have had a partition for months, so it is no use to look at the rows of one day: this reads
    the spans that began by then and had not ended, which statistics of the files find.
    """
    is_then = f.col("to_time").isNull()
    if at is not None:
        is_then = (f.col("from_time") <= at_moment(at)) & (is_then | (f.col("to_time") > at_moment(at)))
    place = (*PARTITION, "topic")
    others = [one.name for one in OWNER_COLUMNS if one.name not in place]
    # Clocks may go backwards, so that two spans hold the moment.
    newest = f.max_by(f.struct(*others), "from_index").alias("newest")
    then = ownership.where(is_then).groupBy(*place).agg(newest)
    return then.select(*place, "newest.*").select(*[one.name for one in OWNER_COLUMNS])


def double_ownership(records: DataFrame) -> DataFrame:
    """Intervals in which a member was assigned a partition that another one still had.

    A sound log of consumer groups has none; in a classic group the leader, a client, assigns partitions.
    If several members have it, the row names the one that keeps it longest, then the one that had it first.
    """
    needed(records, "double_ownership", "assigned", "pending", "members", "protocol_type")
    in_order = by(*PARTITION).orderBy("from_index", "end", "member_id")
    until_now = in_order.rowsBetween(Window.unboundedPreceding, -1)
    longest = f.max(f.struct("end", (-f.col("from_index")).alias("age"), "to_time", "member_id")).over(
        until_now
    )
    found = merged(_suspects(holdings(records))).withColumn("holder", longest)
    overlaps = found.where(f.col("holder.end") > f.col("from_index")).select(
        *PARTITION,
        f.col("holder.member_id").alias("holder"),
        f.col("member_id").alias("taker"),
        "from_index",
        "from_time",
        f.least("end", "holder.end").alias("end"),
        f.least("to_time", "holder.to_time").alias("to_time"),
    )
    return shown(with_topic_names(overlaps, records), DOUBLE_COLUMNS)


def _suspects(held: DataFrame) -> DataFrame:
    """The holdings of partitions that were assigned before a previous interval ended; usually none.

    The later steps then cost almost nothing. A member never overlaps itself: each of its rows ends where the
    next one starts.
    """
    of_partition = by(*PARTITION)
    until_now = of_partition.orderBy("from_index", "end").rowsBetween(Window.unboundedPreceding, -1)
    is_early = f.coalesce(f.max("end").over(until_now) > f.col("from_index"), f.lit(False))
    seen = held.withColumn("is_early", is_early)
    return seen.withColumn("is_suspect", f.max("is_early").over(of_partition)).where("is_suspect")


def holdings(records: DataFrame) -> DataFrame:
    """One row per partition that a member has after an entry about that member, up to the next such entry.

    Of several records in one entry only the last counts; the states in between never existed.
    """
    return _held_by_members(records).unionByName(_held_in_generations(records))


def _held_in_generations(records: DataFrame) -> DataFrame:
    """The rows of `holdings` for classic groups: an entry about the group is one about all its members."""
    columns = ("raft_index", "sequence", "timestamp", "is_tombstone", "protocol_type", "members")
    said = by_group(records, (_CLASSIC,), *columns)
    in_order = by(*GROUP).orderBy("raft_index", "sequence")
    generations = (
        said.withColumn("end", f.lead("raft_index", 1, NEVER).over(in_order))
        .withColumn("to_time", f.lead("timestamp").over(in_order))
        .where(~f.col("is_tombstone") & (f.col("end") > f.col("raft_index")))
        .where(f.col("protocol_type") == CONSUMERS)
    )
    place = (f.col("raft_index").alias("from_index"), f.col("timestamp").alias("from_time"), "end", "to_time")
    by_member = generations.select(*GROUP, *place, f.inline(f.from_json("members", _ASSIGNED)))
    by_topic = by_member.select("*", f.explode("assigned").alias("topic", "partitions"))
    by_partition = by_topic.withColumn("partition", f.explode("partitions")).withColumn(
        "kind", f.lit("owned")
    )
    return dated_topics(by_partition, records, "from_time").drop("assigned", "partitions", "topic")


def _held_by_members(records: DataFrame) -> DataFrame:
    # a record 5 only says that the member exists
    is_said = (f.col("type") == _CURRENT) | f.col("is_tombstone")
    columns = ("member_id", "raft_index", "sequence", "timestamp", "is_tombstone", "assigned", "pending")
    said = by_group(records.where(is_said), (_CURRENT, _MEMBER), *columns)
    of_member = by(*GROUP, "member_id").orderBy("raft_index", "sequence")
    states = (
        said.withColumn("end", f.lead("raft_index", 1, NEVER).over(of_member))
        .withColumn("to_time", f.lead("timestamp").over(of_member))
        .where(~f.col("is_tombstone") & (f.col("end") > f.col("raft_index")))
    )
    by_topic = states.select(
        *GROUP,
        "member_id",
        f.col("raft_index").alias("from_index"),
        f.col("timestamp").alias("from_time"),
        "end",
        "to_time",
        f.inline(f.concat(_of_kind("assigned", "owned"), _of_kind("pending", "revoking"))),
    )
    return by_topic.withColumn("partition", f.explode("partitions")).drop("partitions")


def _of_kind(parts: str, kind: str) -> Column:
    """An SQL expression that tags topic partitions with a kind."""
    tagged = f"transform({parts}, one -> struct(one.topic_id, one.partitions, '{kind}' AS kind))"
    return f.expr(f"coalesce({tagged}, array())")


def merged(held: DataFrame, *same: str) -> DataFrame:
    """Merge adjacent rows with equal ``same`` columns into one interval (gaps and islands)."""
    hand = (*PARTITION, "member_id")
    in_order = by(*hand).orderBy("from_index")
    goes_on = f.lag("end").over(in_order) == f.col("from_index")
    for name in same:
        goes_on &= f.lag(name).over(in_order) == f.col(name)
    begins = held.withColumn("begins", f.when(goes_on, 0).otherwise(1))
    islands = begins.withColumn("island", f.sum("begins").over(in_order))
    return islands.groupBy(*hand, "island", *same).agg(
        f.min("from_index").alias("from_index"),
        f.min("from_time").alias("from_time"),
        f.max("end").alias("end"),
        f.max_by("to_time", "end").alias("to_time"),
    )


def shown(spans: DataFrame, columns: tuple[TableColumn, ...]) -> DataFrame:
    """Intervals in their final columns; the end of one that is still open becomes null."""
    is_over = f.col("end") < NEVER
    ended = spans.withColumn("to_index", f.when(is_over, f.col("end")))
    ended = ended.withColumn("to_time", f.when(is_over, f.col("to_time")))
    return ended.withColumn("duration_ms", ms_between("from_time", "to_time")).select(
        *[one.name for one in columns]
    )


OWNER_COLUMNS = columns_named(
    TABLES["ownership"].columns,
    [
        *("cluster_id", "group_id", "shard", "topic", "topic_id", "partition", "kind", "member_id", "epoch"),
        *("from_index", "from_time"),
    ],
)
DOUBLE_COLUMNS = (
    *columns_named(
        TABLES["ownership"].columns, ["cluster_id", "group_id", "shard", "topic", "topic_id", "partition"]
    ),
    text("holder", "The member that owned it."),
    text("taker", "The member that got it in addition."),
    int64("from_index", "The entry that assigned it to the second member."),
    moment("from_time", "The time of that entry."),
    int64("to_index", "The entry after which only one of them owned it; null: both still own it."),
    moment("to_time", "The time of that entry."),
    span("duration_ms", "How long both owned it."),
)

ANALYSES = (
    Analysis(
        takes=("ownership",),
        answers="Which member owned which partition at a moment, and since when?",
        columns=OWNER_COLUMNS,
        run=owner_at,
        options={"at": "The moment, instead of the end of each shard's log."},
    ),
    Analysis(
        takes=(RECORDS,),
        answers="Did two members of a group ever own a partition at the same time? No row: they did not.",
        columns=DOUBLE_COLUMNS,
        run=double_ownership,
    ),
)
