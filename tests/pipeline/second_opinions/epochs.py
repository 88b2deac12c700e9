"""Every epoch of every group, by counting members instead of replaying the group: to compare with the table.

The number of members, and of members STABLE at the epoch, is counted after each entry. The two agree on a log
without missing entries. A generation of a classic group is an epoch that has its target at once and that all
its members have reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from quorate.spark.analyses.keys import GROUP, by, by_group, ms_between
from quorate.spark.schema import TABLES, columns_named
from records import RecordType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

_CLASSIC = int(RecordType.GROUP_METADATA)
_EPOCH = int(RecordType.CONSUMER_GROUP_METADATA)
_MEMBER = int(RecordType.CONSUMER_GROUP_MEMBER_METADATA)
_TARGET = int(RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)
_CURRENT = int(RecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
_CAUSE = ("trigger", "reasons", "cause_member_id", "principal", "address")
_BEGAN = "join_began_time"
_NONE = -1
"""Stands for "no epoch"."""


def epochs_by_counting(records: DataFrame) -> DataFrame:
    """Return one row for each epoch of each group, unordered."""
    columns = ("raft_index", "sequence", "timestamp", "type", "is_tombstone", "member_id", "epoch")
    size = f.json_array_length("members").alias("size")
    of_groups = by_group(
        records,
        (_CLASSIC, _EPOCH, _MEMBER, _TARGET, _CURRENT),
        *columns,
        "member_state",
        size,
        *_CAUSE,
        _BEGAN,
    )
    return _told(_targets(_epochs(_states(_entries(of_groups)))))


def _entries(of_groups: DataFrame) -> DataFrame:
    """One row per entry of a group: what it changes about the group and about the counts of members."""
    type_, is_value = f.col("type"), ~f.col("is_tombstone")
    of_member = by(*GROUP, "member_id").orderBy("raft_index", "sequence")
    joined = f.when(type_ == _MEMBER, is_value.cast("int"))
    # A member that has left is not stable at any epoch, even if records 8 of it remain.
    is_stable = is_value & (f.col("member_state") == "STABLE") & (f.col("epoch") >= 0)
    stable = f.when(is_stable, f.col("epoch")).otherwise(_NONE)
    stable = f.when(type_ == _CURRENT, stable).when((type_ == _MEMBER) & ~is_value, _NONE)
    is_generation = type_ == _CLASSIC
    # Generation 0: the group was created, and nobody has joined yet.
    generation = f.when(is_value & (f.col("epoch") > 0), f.col("epoch")).otherwise(_NONE)
    size = f.when(is_value, f.coalesce("size", f.lit(0))).otherwise(0)
    members = (
        of_groups.withColumn("joined", _newest(joined, of_member, 0))
        .withColumn(
            "stable", f.when(f.col("joined") == 1, _newest(stable, of_member, _NONE)).otherwise(_NONE)
        )
        .withColumn("joined_before", f.lag("joined", 1, 0).over(of_member))
        .withColumn("stable_before", f.lag("stable", 1, _NONE).over(of_member))
        # Records 2 name no member in their key, so they are rows of one "member" of their group.
        .withColumn("size", _newest(f.when(is_generation, size), of_member, 0))
        .withColumn("size_before", f.lag("size", 1, 0).over(of_member))
        .withColumn("generation", _newest(f.when(is_generation, generation), of_member, _NONE))
        .withColumn("generation_before", f.lag("generation", 1, _NONE).over(of_member))
    )
    is_moved = f.col("member_id").isNotNull() & (f.col("stable") != f.col("stable_before"))
    moves = f.when(is_moved, _moves("stable", f.lit(1), "stable_before", f.lit(1))).when(
        is_generation, _moves("generation", f.col("size"), "generation_before", f.col("size_before"))
    )
    more = f.col("joined") - f.col("joined_before") + f.col("size") - f.col("size_before")

    def said(of_type: int, value: Column) -> Column:
        """The value in the entry's last record of the type; null if it has none."""
        return f.max_by(value, f.when(type_ == of_type, f.col("sequence")))

    epoch = f.when(is_value, f.col("epoch")).otherwise(_NONE)
    return members.groupBy(*GROUP, "raft_index").agg(
        f.max("timestamp").alias("timestamp"),
        *[f.any_value(name).alias(name) for name in (*_CAUSE, _BEGAN)],
        f.greatest(said(_EPOCH, epoch), said(_CLASSIC, generation)).alias("new_epoch"),
        f.greatest(said(_TARGET, epoch), said(_CLASSIC, generation)).alias("new_target"),
        said(_CLASSIC, is_value).alias("new_classic"),
        f.sum(more).alias("new_members"),
        f.flatten(f.collect_list(moves)).alias("moves"),
    )


def _moves(epoch: str, number: Column, before: str, number_before: Column) -> Column:
    """So many members more are STABLE at an epoch, and so many fewer at the one before."""
    return f.array(
        f.struct(f.col(epoch).alias("epoch"), number.alias("by")),
        f.struct(f.col(before).alias("epoch"), (-number_before).alias("by")),
    )


def _states(entries: DataFrame) -> DataFrame:
    """Add the group's state after each entry, and whether the entry starts an epoch or ends the group."""
    in_order = by(*GROUP).orderBy("raft_index")
    exists = (f.col("epoch") != _NONE) | (f.col("members") > 0) | f.col("is_classic")
    begins = (f.col("epoch") != f.col("epoch_before")) & (f.col("epoch") != _NONE)
    here = f.aggregate(
        "moves",
        f.lit(0),
        lambda total, one: total + f.when(one["epoch"] == f.col("epoch"), one["by"]).otherwise(0),
    )
    followed = (
        entries.withColumn("epoch", _newest(f.col("new_epoch"), in_order, _NONE))
        .withColumn("target", _newest(f.col("new_target"), in_order, _NONE))
        .withColumn("members", _running(f.col("new_members"), in_order))
        .withColumn("is_classic", _newest(f.col("new_classic"), in_order, False))
        .withColumn("epoch_before", f.lag("epoch", 1, _NONE).over(in_order))
        .withColumn("is_target", f.col("target") > f.lag("target", 1, _NONE).over(in_order))
        .withColumn("exists", exists)
        .withColumn("begins", begins)
        .withColumn("is_gone", f.lag("exists", 1, False).over(in_order) & ~f.col("exists"))
        .withColumn("span", _running((f.col("begins") | f.col("is_gone")).cast("int"), in_order))
    )
    # No member reaches an epoch before it starts, so the count of STABLE members can start there.
    of_span = by(*GROUP, "span").orderBy("raft_index")
    state = (
        f.when(~f.col("exists"), "Dead")
        .when(f.col("members") == 0, "Empty")
        .when(f.col("epoch") > f.col("target"), "Assigning")
        .when(f.col("stable") == f.col("members"), "Stable")
        .otherwise("Reconciling")
    )
    return followed.withColumn("stable", _running(here, of_span)).withColumn("state", state)


def _epochs(states: DataFrame) -> DataFrame:
    """Entries that start an epoch, complete a target or end the group, with the epoch's settling and end."""
    of_span = by(*GROUP, "span")
    is_settled = f.col("state").isin("Stable", "Empty")
    marks = (
        states.withColumn("settled_index", f.min(f.when(is_settled, f.col("raft_index"))).over(of_span))
        .withColumn("settled_time", f.min(f.when(is_settled, f.col("timestamp"))).over(of_span))
        .withColumn("state", f.max_by("state", "raft_index").over(of_span))
        .where(f.col("begins") | f.col("is_target") | f.col("is_gone"))
    )
    next_epoch = f.when(f.col("begins"), f.col("epoch"))
    turn = f.when(
        f.col("begins") | f.col("is_gone"), f.struct("raft_index", "timestamp", next_epoch.alias("epoch"))
    )
    backwards = by(*GROUP).orderBy(f.desc("raft_index"))
    behind = backwards.rowsBetween(Window.unboundedPreceding, -1)
    return marks.withColumn("end", f.last(turn, ignorenulls=True).over(behind))


def _targets(epochs: DataFrame) -> DataFrame:
    """Entries that start an epoch, each with the first entry that completed a target for that epoch.

    The latter may belong to a later epoch: the target was computed while the group went on.
    """
    begun = f.struct(f.col("epoch").alias("of_epoch"), f.lit(False).alias("closes"))
    closed = f.struct(f.col("target").alias("of_epoch"), f.lit(True).alias("closes"))
    both = f.array_compact(f.array(f.when(f.col("begins"), begun), f.when(f.col("is_target"), closed)))
    marks = epochs.select("*", f.inline(both))
    in_order = by(*GROUP, "of_epoch").orderBy("raft_index", "closes")
    # A group that was deleted and created again has its first epochs twice.
    times = marks.withColumn("time", _running((~f.col("closes")).cast("int"), in_order))
    of_one = by(*GROUP, "of_epoch", "time")
    closing = f.struct("raft_index", "timestamp", "trigger")
    first = f.min(f.when(f.col("closes"), closing)).over(of_one)
    return times.withColumn("closed", first).where(~f.col("closes"))


def _told(epochs: DataFrame) -> DataFrame:
    is_overtaken = f.col("settled_index").isNull()
    shown = epochs.select(
        *GROUP,
        "epoch",
        f.greatest("epoch_before", f.lit(0)).alias("epoch_before"),
        "raft_index",
        "timestamp",
        *_CAUSE,
        f.col("members").cast("int").alias("num_members"),
        f.col("closed.raft_index").alias("target_index"),
        f.col("closed.timestamp").alias("target_time"),
        f.col("closed.trigger").alias("target_trigger"),
        "settled_index",
        "settled_time",
        "state",
        f.when(is_overtaken, f.col("end.epoch")).alias("overtaken_by"),
        f.col("end.raft_index").alias("end_index"),
        f.col("end.timestamp").alias("end_time"),
        _BEGAN,
    )
    begun = f.least(_BEGAN, "timestamp")  # of a classic group: with its join phase
    spans = shown.withColumn("time_to_stable_ms", ms_between(begun, "settled_time"))
    spans = spans.withColumn("duration_ms", ms_between("timestamp", "end_time"))
    return spans.select(*[one.name for one in COLUMNS])


def _newest(value: Column, window: WindowSpec, before: object) -> Column:
    """The last non-null value up to the current row, or ``before`` if there is none."""
    until_now = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return f.coalesce(f.last(value, ignorenulls=True).over(until_now), f.lit(before))


def _running(value: Column, window: WindowSpec) -> Column:
    return f.sum(value).over(window.rowsBetween(Window.unboundedPreceding, Window.currentRow))


COLUMNS = columns_named(
    TABLES["group_epochs"].columns,
    [
        *("cluster_id", "group_id", "shard", "epoch", "epoch_before", "raft_index", "timestamp", *_CAUSE),
        *("num_members", "target_index", "target_time", "target_trigger", "settled_index", "settled_time"),
        *("time_to_stable_ms", "state", "overtaken_by", "end_index", "end_time", "duration_ms", _BEGAN),
    ],
)
