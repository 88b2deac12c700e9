"""Groups as they were after an index or at a time: members, targets, epochs and offsets.

A group is a function of the newest record of each of its keys (`coordinator.state.model`), so the order
between keys does not matter here either. The result equals that of `history.state.replay`, which runs the
coordinator's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.export.columns import int32, int64, partitions, text
from quorate.spark.schema import RECORD_COLUMNS, columns_named, moment
from records import RecordType

from .keys import GROUP, Moment, until
from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OFFSETS = (int(RecordType.OFFSET_COMMIT_LEGACY), int(RecordType.OFFSET_COMMIT))
_CLASSIC = int(RecordType.GROUP_METADATA)
_EPOCH = int(RecordType.CONSUMER_GROUP_METADATA)
_TOPICS = int(RecordType.CONSUMER_GROUP_PARTITION_METADATA)
_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)
_TARGET_EPOCH = int(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)
_TARGET = int(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER)
_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
_TYPES = (*_OFFSETS, _CLASSIC, _EPOCH, _TOPICS, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT)
_OF_SAID = ("client_id", "client_host", "instance_id")
_OF_CURRENT = ("epoch", "previous_epoch", "member_state", "assigned", "pending")
_OF_COMMIT = ("offset", "leader_epoch", "metadata")
_OF_GROUPS = ("classic", "group_epoch", "topics", "target_epoch", "said", "target", "current")
"""Record kinds that make a group exist."""


def state_as_of(
    records: DataFrame, at_index: int | Mapping[int, int] | None = None, at: Moment | None = None
) -> DataFrame:
    """One row for each group (kind `group`), each of its members and each committed offset.

    Without an index or a time, this is the state at the end.
    """
    needed(records, "state_as_of", "assigned", "pending")
    return _told(_groups(_things(until(records, at_index, at))))


def _things(records: DataFrame) -> DataFrame:
    """One row per group, member and offset, with the newest record of each of its keys, null if deleted."""
    type_ = f.col("type")
    kind = f.when(type_.isin(*_OFFSETS), "offset").when(type_.isin(_MEMBER, _TARGET, _CURRENT), "member")
    place = f.struct("raft_index", "sequence")

    def newest(types: tuple[int, ...], *columns: str) -> Column:
        value = f.when(~f.col("is_tombstone"), f.struct(*columns))
        return f.max_by(value, f.when(type_.isin(*types), place))

    of_groups = records.where(type_.isin(*_TYPES) & f.col("group_id").isNotNull())
    keys = (*GROUP, "kind", "member_id", "topic", "partition")
    return (
        of_groups.withColumn("kind", kind.otherwise("group"))
        # the hash comes first: it sorts faster than the keys
        .groupBy(f.xxhash64(*keys).alias("hash"), *keys)
        .agg(
            f.max("raft_index").alias("raft_index"),
            f.max("timestamp").alias("timestamp"),
            newest((_CLASSIC,), "type").alias("classic"),
            newest((_EPOCH,), "epoch").alias("group_epoch"),
            newest((_TOPICS,), "type").alias("topics"),
            newest((_TARGET_EPOCH,), "epoch").alias("target_epoch"),
            newest((_MEMBER,), *_OF_SAID).alias("said"),
            newest((_TARGET,), "assigned").alias("target"),
            newest((_CURRENT,), *_OF_CURRENT).alias("current"),
            newest(_OFFSETS, *_OF_COMMIT).alias("commit"),
        )
    )


def _groups(things: DataFrame) -> DataFrame:
    """Add group-wide values to all of a group's rows, and one row of kind `group` if the group exists."""
    of_group = Window.partitionBy(*GROUP)
    written = [f.col(part).isNotNull() for part in _OF_GROUPS]
    is_settled = (f.col("member_state") == "STABLE") & (f.col("epoch") == f.col("assignment_epoch"))
    rows = (
        things.withColumn("has_records", f.max(reduce(or_, written)).over(of_group))
        .withColumn("has_offsets", f.max(f.col("commit").isNotNull()).over(of_group))
        .withColumn("is_classic", f.max(f.col("classic").isNotNull()).over(of_group))
        .withColumn("group_epoch", f.coalesce(f.max("group_epoch.epoch").over(of_group), f.lit(0)))
        .withColumn("assignment_epoch", f.coalesce(f.max("target_epoch.epoch").over(of_group), f.lit(0)))
        .withColumn("num_members", f.count("said").over(of_group))
        # A member without a record 8 has no partitions and is at epoch 0.
        .withColumn("member_state", f.coalesce("current.member_state", f.lit("STABLE")))
        .withColumn("epoch", f.coalesce("current.epoch", f.lit(0)))
        .withColumn("num_settled", f.count(f.when(f.col("said").isNotNull() & is_settled, 1)).over(of_group))
        .withColumn("place", f.row_number().over(of_group.orderBy("kind")))
    )
    is_group = (f.col("place") == 1) & (f.col("has_records") | f.col("has_offsets"))
    kinds = f.array(
        f.when(is_group, "group"),
        f.when(f.col("said").isNotNull(), "member"),
        f.when(f.col("commit").isNotNull(), "offset"),
    )
    return rows.withColumn("kind", f.explode(f.array_compact(kinds)))


def _told(rows: DataFrame) -> DataFrame:
    """The final columns: each row has those of its kind, and null in the others."""
    is_group, is_member, is_offset = (f.col("kind") == kind for kind in ("group", "member", "offset"))
    protocol = (
        f.when(f.col("is_classic"), "classic").when(f.col("has_records"), "consumer").otherwise("simple")
    )
    state = (
        f.when(f.col("num_members") == 0, "Empty")
        .when(f.col("group_epoch") > f.col("assignment_epoch"), "Assigning")
        .when(f.col("num_settled") < f.col("num_members"), "Reconciling")
        .otherwise("Stable")
    )
    nothing = f.array().cast("array<struct<topic_id:string,partitions:array<int>>>")
    return rows.select(
        *GROUP,
        "kind",
        f.when(is_group, protocol).alias("protocol"),
        f.when(is_group, state).alias("state"),
        f.when(is_group, f.col("group_epoch")).when(is_member, f.col("epoch")).alias("epoch"),
        f.when(is_group, f.col("assignment_epoch")).alias("assignment_epoch"),
        f.when(is_group, f.col("num_members").cast("int")).alias("num_members"),
        f.when(is_member, f.col("member_id")).alias("member_id"),
        *[f.when(is_member, f.col(f"said.{name}")).alias(name) for name in _OF_SAID],
        f.when(is_member, f.coalesce("current.previous_epoch", f.lit(0))).alias("previous_epoch"),
        f.when(is_member, f.col("member_state")).alias("member_state"),
        f.when(is_member, f.coalesce("current.assigned", nothing)).alias("assigned"),
        f.when(is_member, f.coalesce("current.pending", nothing)).alias("pending"),
        f.when(is_member, f.coalesce("target.assigned", nothing)).alias("target"),
        *[f.when(is_offset, f.col(name)).alias(name) for name in ("topic", "partition")],
        *[f.when(is_offset, f.col(f"commit.{name}")).alias(name) for name in _OF_COMMIT],
        f.when(~is_group, f.col("raft_index")).alias("raft_index"),
        f.when(~is_group, f.col("timestamp")).alias("timestamp"),
    )


STATE_COLUMNS = (
    *columns_named(RECORD_COLUMNS, [*GROUP]),
    text("kind", "What the row describes: `group`, `member` or `offset`."),
    text("protocol", "For a group: `consumer`, `classic`, or `simple`, which has only offsets."),
    text("state", "For a group: `Empty`, `Assigning`, `Reconciling` or `Stable`."),
    int32("epoch", "The group's epoch, or the member's; -2: a static member that left temporarily."),
    int32("assignment_epoch", "For a group: the epoch of its target; 0: it has none."),
    int32("num_members", "For a group: its number of members."),
    text("member_id", "For a member: its id."),
    *columns_named(RECORD_COLUMNS, [*_OF_SAID, "previous_epoch", "member_state"]),
    partitions("assigned", "The partitions that the member owns."),
    partitions("pending", "The partitions that it was told to give up and still owns."),
    partitions("target", "The partitions that its target assigns to it."),
    text("topic", "For an offset: the topic."),
    int32("partition", "The partition."),
    *columns_named(RECORD_COLUMNS, [*_OF_COMMIT]),
    int64("raft_index", "For members and offsets: the newest entry about it."),
    moment("timestamp", "The time of that entry."),
)

ANALYSES = (
    Analysis(
        takes=(RECORDS,),
        answers=(
            "What was the state of groups after an index or at a moment: members, targets, epochs, offsets?"
        ),
        columns=STATE_COLUMNS,
        run=state_as_of,
        options={
            "at_index": "The last entry to include: one index for all shards, or a mapping by shard.",
            "at": "The last moment to include.",
        },
    ),
)
