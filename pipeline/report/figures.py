"""The figures of the report, aggregated by Spark into a bounded number of rows for the driver.

Each figure is one aggregate over one table, partitioned by group, time bucket or kind. Names and meanings are
those of `quorate log stats`, except that each epoch's time to stable counts separately, and that a group
which lapses within an epoch counts as stable. Times are in ms. An open span counts until the end of its own
shard's log, however far other shards go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

Tables = Callable[[str], "DataFrame"]
"""Looks up a table by its name (`pipeline.schema.TABLES`)."""

BUCKETS = 96
"""Number of buckets on a chart's time axis: a quarter of an hour each, for a day."""
GROUPS_SHOWN = 30
FINDINGS_SHOWN = 200
FAILOVERS_SHOWN = 50
KINDS_MAX = 200
"""Limit on distinct rules, triggers and session ends: there are some dozens; imports may add unknown ones."""
STEPS_MAX = 64
"""Limit on doublings of 10 ms: more than any duration needs."""
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """The findings of one rule: their number, and the number of groups with any."""

    kind: str
    severity: str
    count: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigures:
    """All figures of the report; each bucket covers ``step_ms``, starting at ``from_ms``."""

    from_ms: int
    until_ms: int
    step_ms: int
    num_groups: int
    num_epochs: int
    """Rebalances: epochs that left the group with members and whose start is in the log."""
    unstable_ms: int
    moves: int
    """Partitions that moved from one member to another."""
    by_trigger: Mapping[str, Mapping[int, int]]
    """Trigger -> bucket -> rebalances."""
    groups_at_once: Mapping[int, int]
    """Bucket -> groups that rebalanced in it."""
    commits: Mapping[int, int]
    settled: Mapping[int, int]
    """Step -> epochs that took at most ``10 ms · 2**step`` to become stable."""
    never_settled: int
    groups: tuple[Row, ...]
    """The groups that were unstable longest.

    Columns: group_id, rebalances, unstable_ms, p50_ms and p99_ms to stable, changes (partitions moved in
    targets).
    """
    unowned: tuple[Row, ...]
    """Columns group_id and unowned_ms, the largest first."""
    unowned_ms: int
    kinds: tuple[RuleCount, ...]
    findings: tuple[Row, ...]
    """The most severe first, then the newest."""
    ends: Mapping[str, int]
    """Session ends by kind."""
    failovers: tuple[Row, ...]
    """Leader changes, the newest first."""
    num_failovers: int
    num_commits: int


def figures_of(tables: Tables) -> ReportFigures | None:
    """Compute all figures; ``None`` if the tables are empty."""
    records = tables("records")
    spans = _spans(records)
    if not spans:
        return None
    begin, end = min(row["first_ms"] for row in spans), max(row["last_ms"] for row in spans)
    until = [(row["shard"], row["until_ms"]) for row in spans]
    ends = F.broadcast(records.sparkSession.createDataFrame(until, "shard int, until_ms bigint"))
    step = max(1, -(-(end + 1 - begin) // BUCKETS))
    by_bucket = _bucket("timestamp_ms", begin, step)
    epochs = tables("group_epochs").filter("num_members > 0").join(ends, "shard")
    begun_ms = F.least("join_began_ms", "timestamp_ms")  # a classic group's, with its join phase
    unstable = F.greatest(F.lit(0), F.coalesce("settled_ms", "end_ms", "until_ms") - begun_ms)
    begun = epochs.filter("is_begin_known")  # the others start after missing entries
    is_overtaken = F.col("is_begin_known") & F.col("overtaken_by").isNotNull()
    whole = epochs.agg(
        F.count_if("is_begin_known").alias("epochs"),
        F.countDistinct("group_id").alias("groups"),
        F.sum(unstable).alias("unstable"),
        F.count_if(is_overtaken).alias("never"),
    ).first()
    assert whole is not None
    committed = tables("commits").filter("offset is not null").groupBy(by_bucket).count()
    commits = _counts(committed, "bucket", BUCKETS)
    unowned, unowned_ms = _unowned(tables("ownership").join(ends, "shard"))
    takeovers = tables("failovers").filter("is_takeover and shard >= 0")
    findings = tables("findings")
    at_once = begun.groupBy(by_bucket).agg(F.countDistinct("group_id").alias("count"))
    return ReportFigures(
        from_ms=begin,
        until_ms=end,
        step_ms=step,
        num_groups=whole["groups"],
        num_epochs=whole["epochs"],
        unstable_ms=whole["unstable"] or 0,
        moves=tables("moves").filter("source is not null and target is not null").count(),
        by_trigger=_by_trigger(begun, by_bucket),
        groups_at_once=_counts(at_once, "bucket", BUCKETS),
        commits=commits,
        settled=_settled(begun),
        never_settled=whole["never"],
        groups=_least_stable(epochs, unstable),
        unowned=unowned,
        unowned_ms=unowned_ms,
        kinds=_kinds(findings),
        findings=tuple(
            findings.orderBy(_rank(), F.desc("from_ms"), "group_id", "kind").limit(FINDINGS_SHOWN).collect()
        ),
        ends=_counts(tables("member_sessions").groupBy("end").count(), "end", KINDS_MAX),
        failovers=tuple(takeovers.orderBy(F.desc("timestamp_ms"), "shard").limit(FAILOVERS_SHOWN).collect()),
        num_failovers=takeovers.count(),
        num_commits=sum(commits.values()),
    )


def _by_trigger(epochs: DataFrame, by_bucket: Column) -> dict[str, dict[int, int]]:
    triggers = epochs.groupBy(by_bucket, F.coalesce("trigger", F.lit("unknown")).alias("trigger")).count()
    found: dict[str, dict[int, int]] = {}
    for row in triggers.orderBy("bucket", "trigger").limit(BUCKETS * KINDS_MAX).collect():
        found.setdefault(row["trigger"], {})[row["bucket"]] = row["count"]
    return found


def _settled(epochs: DataFrame) -> dict[int, int]:
    stable = epochs.filter("time_to_stable_ms is not null")
    return _counts(stable.groupBy(_step("time_to_stable_ms").alias("step")).count(), "step", STEPS_MAX)


def _least_stable(epochs: DataFrame, unstable: Column) -> tuple[Row, ...]:
    by_group = epochs.groupBy("group_id").agg(
        F.count_if("is_begin_known").alias("rebalances"),
        F.sum(unstable).alias("unstable_ms"),
        F.percentile_approx("time_to_stable_ms", 0.5).alias("p50_ms"),
        F.percentile_approx("time_to_stable_ms", 0.99).alias("p99_ms"),
        F.sum("num_moves").alias("changes"),
    )
    return tuple(by_group.orderBy(F.desc("unstable_ms"), "group_id").limit(GROUPS_SHOWN).collect())


def _unowned(ownership: DataFrame) -> tuple[tuple[Row, ...], int]:
    """The groups with the most time without an owner, and the total of all groups."""
    lasted = F.greatest(F.lit(0), F.coalesce("to_ms", "until_ms") - F.col("from_ms"))
    unowned = ownership.filter("kind = 'unowned'").groupBy("group_id").agg(F.sum(lasted).alias("unowned_ms"))
    rows = unowned.filter("unowned_ms > 0").orderBy(F.desc("unowned_ms"), "group_id").limit(GROUPS_SHOWN)
    in_all = unowned.agg(F.sum("unowned_ms")).first()
    return tuple(rows.collect()), (in_all[0] if in_all is not None else 0) or 0


def _spans(records: DataFrame) -> list[Row]:
    """One row per shard: its earliest and latest timestamps, and that of its last entry."""
    moment = F.col("timestamp_ms")
    by_shard = records.groupBy("shard").agg(
        F.min(moment).alias("first_ms"),
        F.max(moment).alias("last_ms"),
        F.max_by(moment, "raft_index").alias("until_ms"),
    )
    return by_shard.collect()


def _bucket(column: str, begin: int, step: int) -> Column:
    return F.floor((F.col(column) - F.lit(begin)) / F.lit(step)).cast("int").alias("bucket")


def _step(column: str) -> Column:
    """The smallest number of doublings of 10 ms that is not exceeded."""
    tens = F.greatest(F.lit(1), F.ceil(F.col(column) / 10))
    return F.when(tens == 1, 0).otherwise(F.length(F.bin(tens - 1))).cast("int")  # a logarithm is not exact


def _rank() -> Column:
    rank = F.lit(len(SEVERITIES))
    for place, severity in reversed(list(enumerate(SEVERITIES))):
        rank = F.when(F.col("severity") == severity, place).otherwise(rank)
    return rank


def _counts(counted: DataFrame, key: str, rows_max: int) -> dict[Any, int]:
    return {row[key]: row["count"] for row in counted.orderBy(F.desc("count"), key).limit(rows_max).collect()}


def _kinds(findings: DataFrame) -> tuple[RuleCount, ...]:
    counted = findings.groupBy("kind", "severity").agg(
        F.count("*").alias("count"), F.countDistinct("group_id").alias("groups")
    )
    rows = counted.orderBy(_rank(), F.desc("count"), "kind").limit(KINDS_MAX).collect()
    return tuple(
        RuleCount(kind=r["kind"], severity=r["severity"], count=r["count"], groups=r["groups"]) for r in rows
    )
