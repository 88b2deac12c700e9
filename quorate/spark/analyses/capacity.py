"""Load of a cluster by hour and shard, as a basis for sizing nodes and disks.

A steady heartbeat leaves no trace in the log. Only the records that heartbeats caused, as members moved from
target to target, are counted. Membership at the end of an hour follows from the records that created and
removed members, so it is correct if the log is read from its beginning or from a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.export.columns import int64
from history.words import trigger_name
from quorate.spark.schema import RECORD_COLUMNS, columns_named, moment
from records import RecordType, Trigger

from .keys import GROUP
from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SHARD = ("cluster_id", "shard")
_HEARTBEATS = [trigger_name(one) for one in (Trigger.HEARTBEAT, Trigger.MEMBER_ACKED)]
_COMMITS = [int(RecordType.OFFSET_COMMIT_LEGACY), int(RecordType.OFFSET_COMMIT)]


def capacity(records: DataFrame, every: str = "1 hour") -> DataFrame:
    """One row for each hour of each shard in which anything was written."""
    needed(records, "capacity", "member_id", "trigger", "is_tombstone")
    records = records.where(f.col("type").isNotNull())  # a damaged range is a row without a type
    hour = f.window("timestamp", every)["start"].alias("hour_time")
    is_first, is_commit = f.col("sequence") == 0, f.col("type").isin(_COMMITS)
    written = records.groupBy(*_SHARD, hour).agg(
        _count(is_first).alias("entries"),
        f.count(f.lit(1)).alias("records"),
        _count(is_commit).alias("commits"),
        _count(~is_commit & f.col("group_id").isNotNull()).alias("group_records"),
        _count(f.col("trigger").isin(_HEARTBEATS)).alias("heartbeat_records"),
    )
    found = written
    for name, keys, types in (
        ("groups", GROUP, (RecordType.CONSUMER_GROUP_METADATA,)),
        ("members", (*GROUP, "member_id"), (RecordType.CONSUMER_GROUP_MEMBER_METADATA,)),
    ):
        changes = _changes(records, keys, types).groupBy(*_SHARD, hour)
        found = found.join(changes.agg(f.sum("change").alias(name)), [*_SHARD, "hour_time"], "left")
    until_now = Window.partitionBy(*_SHARD).orderBy("hour_time").rowsBetween(Window.unboundedPreceding, 0)
    for name in ("groups", "members"):
        found = found.withColumn(name, f.sum(f.coalesce(name, f.lit(0))).over(until_now))
    return found.select(*[one.name for one in COLUMNS])


def _changes(records: DataFrame, keys: Iterable[str], types: Iterable[RecordType]) -> DataFrame:
    """The change in the number of keys that each record makes: +1 created, -1 deleted, 0 updated."""
    in_order = Window.partitionBy(*keys).orderBy("raft_index", "sequence")
    mine = records.where(f.col("type").isin([int(one) for one in types]))
    mine = mine.select(*keys, "raft_index", "sequence", "timestamp", "is_tombstone")
    was_gone = f.lag("is_tombstone", 1, True).over(in_order)
    change = was_gone.cast("bigint") - f.col("is_tombstone").cast("bigint")
    return mine.withColumn("change", change)


def _count(condition: Column) -> Column:
    return f.count(f.when(condition, 1))


COLUMNS = (
    *columns_named(RECORD_COLUMNS, ["cluster_id", "shard"]),
    moment("hour_time", "The begin of the hour."),
    int64("entries", "Entries written."),
    int64("records", "Records in these entries."),
    int64("commits", "Offset commits among these records, including removals."),
    int64("group_records", "Other records of groups: members, targets, assignments."),
    int64("heartbeat_records", "Records written in response to a member's heartbeat."),
    int64("groups", "Groups at the end of the hour, except groups that have only offsets."),
    int64("members", "Members at the end of the hour."),
)

ANALYSES = (
    Analysis(
        takes=(RECORDS,),
        answers=(
            "How many members and groups does each shard have, and how much is written? One row for each "
            "hour with entries."
        ),
        columns=COLUMNS,
        run=capacity,
        options={"every": "Length of an interval, as `15 minutes`, instead of an hour."},
    ),
)
