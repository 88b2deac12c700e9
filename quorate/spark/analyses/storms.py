"""Rebalance storms: many groups at the same time, or one group again and again.

Many groups that rebalance within a minute usually share a cause: a node failed, a service was deployed, a
topic grew. For a single group, a storm is many epochs within a minute, half of them superseded before the
group was stable. The rule `REBALANCE_STORM` also requires that members left and joined, so its findings are a
subset of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.diagnoses.storms import STORM_EPOCHS_MIN, STORM_WINDOW_MS
from history.export.columns import int32, int64, ints, text, texts
from quorate.spark.schema import TABLES, columns_named, moment

from .keys import GROUP
from .registry import Analysis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUPS_MIN = 3
"""Groups within one window that make a storm; two may coincide by chance."""


def rebalance_storms(
    group_epochs: DataFrame,
    window_ms: int = int(STORM_WINDOW_MS),
    groups_min: int = GROUPS_MIN,
    epochs_min: int = int(STORM_EPOCHS_MIN),
) -> DataFrame:
    """Storms across the groups of each cluster, and storms of single groups (``group_id`` is not null)."""
    began = group_epochs.where((f.col("num_members") > 0) & f.col("is_begin_known"))
    across = _across(began, window_ms, groups_min)
    alone = _alone(began, window_ms, epochs_min)
    return across.unionByName(alone, allowMissingColumns=True).select(*[one.name for one in COLUMNS])


def _across(began: DataFrame, window_ms: int, groups_min: int) -> DataFrame:
    """Windows in which enough groups rebalanced; adjacent windows are one storm."""
    began = began.withColumn("window", f.floor(f.unix_millis("timestamp") / window_ms))
    of_cluster = Window.partitionBy("cluster_id").orderBy(
        "window"
    )  # only stormy windows: a few of a day's 1,440
    windows = (
        began.groupBy("cluster_id", "window")
        .agg(f.count_distinct("group_id").alias("groups"))
        .where(f.col("groups") >= groups_min)
        .withColumn("storm", f.col("window") - f.row_number().over(of_cluster))
        .select("cluster_id", "window", "storm")
    )
    return _summed(began.join(windows, ["cluster_id", "window"]), "cluster_id", "storm")


def _alone(began: DataFrame, window_ms: int, epochs_min: int) -> DataFrame:
    """Runs of epochs of one group within windows that hold enough of them; overlapping windows are merged."""
    in_group = Window.partitionBy(*GROUP).orderBy(f.unix_millis("timestamp"))
    ahead, behind = in_group.rangeBetween(0, window_ms), in_group.rangeBetween(-window_ms, 0)
    before = in_group.rangeBetween(-window_ms, -1)
    count = f.count(f.lit(1)).over(ahead)
    unsettled = f.count(f.when(f.col("settled_index").isNull(), 1)).over(ahead)
    storms = (
        began.withColumn("starts", (count >= epochs_min) & (2 * unsettled >= count))
        .withColumn("begins", f.col("starts") & ~f.coalesce(f.max("starts").over(before), f.lit(False)))
        .withColumn("in_storm", f.max("starts").over(behind))
        .withColumn("storm", f.sum(f.col("begins").cast("bigint")).over(in_group))
        .where("in_storm")
    )
    return _summed(storms, *GROUP, "storm")


def _summed(epochs: DataFrame, *storm: str) -> DataFrame:
    """One row per storm; grouping by trigger first lets triggers be ordered by their number of epochs."""
    by_trigger = epochs.groupBy(*storm, f.coalesce("trigger", f.lit("unknown")).alias("trigger")).agg(
        f.count(f.lit(1)).alias("n"),
        f.min("timestamp").alias("first_time"),
        f.max(f.greatest("timestamp", "settled_time")).alias("last_time"),
        f.collect_set("group_id").alias("ids"),
        f.collect_set("shard").alias("of_shards"),
        f.sum("num_moves").alias("moved"),
        f.count(f.when(f.col("settled_index").isNull(), 1)).alias("never"),
    )
    most_first = "transform(sort_array(collect_list(struct(-n, trigger))), one -> one.trigger)"
    shards = f.array_sort(f.array_distinct(f.flatten(f.collect_list("of_shards"))))
    return by_trigger.groupBy(*storm).agg(
        f.min("first_time").alias("from_time"),
        f.max("last_time").alias("to_time"),
        f.size(f.array_distinct(f.flatten(f.collect_list("ids")))).alias("groups"),
        shards.cast("array<bigint>").alias("shards"),
        f.sum("n").alias("rebalances"),
        f.sum("never").alias("unsettled"),
        f.sum("moved").alias("moves"),
        f.expr(most_first).cast("array<string>").alias("triggers"),
    )


COLUMNS = (
    *columns_named(TABLES["group_epochs"].columns, ["cluster_id"]),
    text("group_id", "The group, for a storm of one group; null: a storm across groups."),
    moment("from_time", "The begin of its first epoch."),
    moment("to_time", "When its last group was stable again."),
    int32("groups", "Groups that rebalanced in it."),
    ints("shards", "The shards of these groups."),
    int64("rebalances", "Epochs that began in it."),
    int64("unsettled", "Epochs that were overtaken before their group was stable."),
    int64("moves", "Partitions that were moved."),
    texts("triggers", "Triggers of the epochs, the most frequent first."),
)

ANALYSES = (
    Analysis(
        takes=("group_epochs",),
        answers=(
            "When did many groups rebalance at the same time, or one group again and again? One row for each "
            "storm."
        ),
        columns=COLUMNS,
        run=rebalance_storms,
        options={
            "window_ms": "Length of the time window, in ms.",
            "groups_min": "Number of groups rebalancing in one window that make a storm.",
            "epochs_min": (
                "Number of epochs of one group in one window that make a storm, if half never settled."
            ),
        },
    ),
)
