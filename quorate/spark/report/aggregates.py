"""Aggregates that several figures share, and the one Spark job that collects many of them at once.

A job of Spark costs a fifth of a second even over ten rows, and a page needs some twenty aggregates. So
`collected` makes them one job: each row becomes JSON beside the name of its figure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from .scale import ReportScale

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Tables = Callable[[str], "DataFrame"]
"""Looks up a table by its name (`quorate.spark.schema.TABLES`)."""
FigureRow = dict[str, Any]
"""One row of an aggregate: column name -> value."""
NO_EPOCHS: FigureRow = {
    **dict.fromkeys(("rebalances", "overtaken", "unstable_ms"), 0),
    "quantiles": None,
    "max_ms": None,
}
"""The columns of `epoch_figures` where there are no epochs."""
SEVERITIES = ("error", "warning", "note")
"""The most severe first."""


def collected(frames: Mapping[str, DataFrame]) -> dict[str, list[FigureRow]]:
    """The rows of all frames, in one job; every frame must already be bounded and may be ordered."""
    as_text = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
    parts = [
        frame.select(F.lit(name).alias("figure"), as_text.alias("row")) for name, frame in frames.items()
    ]
    found: dict[str, list[FigureRow]] = {name: [] for name in frames}
    for figure, row in reduce(lambda one, other: one.unionAll(other), parts).collect():
        found[figure].append(json.loads(row))
    return found


def with_names(findings: DataFrame, sessions: DataFrame) -> DataFrame:
    """A few findings with ``names``: member id -> ``m2 (app-2)``, for members that have a number."""
    called = F.concat(F.lit("m"), "number", F.concat(F.lit(" ("), "client_id", F.lit(")")))
    member = findings.select("group_id", F.explode("members").alias("member_id")).distinct()
    known = sessions.filter("number is not null").join(F.broadcast(member), ["group_id", "member_id"])
    newest = known.groupBy("group_id", "member_id").agg(F.max_by(called, "from_index").alias("name"))
    names = newest.groupBy("group_id").agg(
        F.map_from_entries(F.collect_list(F.struct("member_id", "name"))).alias("names")
    )
    return findings.join(names, "group_id", "left")


def ms(name: str) -> Column:
    """A TIMESTAMP column in ms since 1970."""
    return F.unix_millis(name)


def epochs_of(tables: Tables, ends: DataFrame, scale: ReportScale) -> DataFrame:
    """The epochs with members, with ``period``, ``unstable_ms`` and ``stable_ms`` (null: unknown).

    ``stable_ms`` is what `history.facts.rows.time_to_stable_ms` says: it counts from the first of the epochs
    that overtook each other.
    """
    of_group = Window.partitionBy("shard", "group_id").orderBy("raft_index")
    is_first = ~F.coalesce(F.lag("is_overtaken").over(of_group), F.lit(False)) | ~F.col("is_begin_known")
    unrest = Window.partitionBy("shard", "group_id", "unrest").orderBy("raft_index")
    settled, begun = F.col("settled_ms"), F.col("begun_ms")
    # a classic group's epoch begins with its join phase
    epochs = tables("group_epochs").select(
        *("shard", "group_id", "raft_index", "trigger", "is_begin_known", "overtaken_by", "epoch_before"),
        "num_members",
        ms("timestamp").alias("at_ms"),
        ms("settled_time").alias("settled_ms"),
        ms("end_time").alias("end_ms"),
        F.least(ms("join_began_time"), ms("timestamp")).alias("begun_ms"),
        F.col("overtaken_by").isNotNull().alias("is_overtaken"),
    )
    epochs = epochs.withColumn("unrest", F.sum(is_first.cast("int")).over(of_group))
    is_known, since = F.first("is_begin_known").over(unrest), F.first("begun_ms").over(unrest)
    return (
        epochs.withColumns(
            {
                "stable_ms": F.when(is_known & settled.isNotNull(), F.greatest(F.lit(0), settled - since)),
                "period": scale.place(F.col("at_ms")),
            }
        )
        .filter("num_members > 0")
        .join(ends, "shard")
        .withColumn("unstable_ms", F.greatest(F.lit(0), F.coalesce(settled, "end_ms", "until_ms") - begun))
    )


def epoch_figures() -> tuple[Column, ...]:
    """The aggregates of epochs that the report shows for a period or a group."""
    return (
        F.count_if("is_begin_known").alias("rebalances"),
        F.count_if(F.col("is_begin_known") & F.col("overtaken_by").isNotNull()).alias("overtaken"),
        F.coalesce(F.sum("unstable_ms"), F.lit(0)).alias("unstable_ms"),
        F.percentile_approx("stable_ms", [0.5, 0.95]).alias("quantiles"),
        F.max("stable_ms").alias("max_ms"),
    )


def unowned_of(tables: Tables, ends: DataFrame, scale: ReportScale) -> DataFrame:
    """The time without an owner (``unowned_ms``) by group and ``period``: each interval in all it meets."""
    spans = tables("ownership").filter("kind = 'unowned'").join(ends, "shard")
    spans = spans.select(
        "group_id", ms("from_time").alias("from_ms"), F.coalesce(ms("to_time"), "until_ms").alias("to_ms")
    ).filter("to_ms > from_ms")
    places = F.sequence(scale.place(F.col("from_ms")), scale.place(F.col("to_ms") - 1))
    parts = spans.withColumn("period", F.explode(places))
    begin = F.when(F.col("period") == 0, F.col("from_ms")).otherwise(scale.start(F.col("period")))
    end = F.when(F.col("period") == scale.count - 1, F.col("to_ms"))
    end = end.otherwise(scale.start(F.col("period") + 1))
    lasted = F.least("to_ms", end) - F.greatest("from_ms", begin)
    return parts.groupBy("group_id", "period").agg(F.sum(lasted).alias("unowned_ms"))


def moves_of(tables: Tables) -> DataFrame:
    """The partitions that moved from one member to another."""
    return tables("moves").filter("source is not null and target is not null")


def rank() -> Column:
    """The place of a finding's severity: 0 is the most severe."""
    found = F.lit(len(SEVERITIES))
    for place, severity in reversed(list(enumerate(SEVERITIES))):
        found = F.when(F.col("severity") == severity, place).otherwise(found)
    return found
