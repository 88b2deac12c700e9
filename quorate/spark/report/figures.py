"""The figures of the report, aggregated by Spark into a bounded number of rows for the driver.

Names and meanings are those of `quorate log stats`, except that a group which lapses within an epoch counts
as stable. Times are in ms. An open span
counts until the end of its own shard's log, however far other shards go. There are three rounds: the span of
the log, the figures of the whole, and those of the groups that matter (`group_figures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from .aggregates import (
    FigureRow,
    Tables,
    collected,
    epoch_figures,
    epochs_of,
    moves_of,
    ms,
    rank,
    unowned_of,
    with_names,
)
from .groups import GroupFigures, group_figures
from .scale import PERIODS_MAX, TRENDS_MAX, ReportScale, scale_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROUPS_SHOWN = 30
"""Groups with a part of the page of their own: the worst by findings, by time without owner, by epochs."""
FINDINGS_SHOWN = 200
FAILOVERS_SHOWN = 50
AT_ONCE_SHOWN = 5
"""Minutes in which most groups rebalanced."""
AT_ONCE_MS = 60_000
AT_ONCE_MIN = 3
"""Fewer groups in one minute are no coincidence worth a line."""
KINDS_MAX = 200
"""Limit on distinct rules, triggers and session ends: there are some dozens; imports may add unknown ones."""
STABLE_EDGES_MS = tuple(dict.fromkeys(round(10 ** (tenth / 10)) for tenth in range(131)))
"""Upper edges of the histogram of times to stable: ten a decade, from 1 ms to three centuries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFigures:
    """All figures of the report."""

    from_ms: int
    until_ms: int
    scale: ReportScale
    """The periods of the page."""
    trend: ReportScale
    """The periods of the trend of findings: weeks, if the log is long."""
    num_groups: int
    epochs: Mapping[int | None, FigureRow]
    """Period (``None``: all) -> the columns of `epoch_figures`.

    ``rebalances`` are epochs that left the group with members and whose start is in the log.
    """
    moves: int
    """Partitions that moved from one member to another."""
    by_trigger: Mapping[str, Mapping[int, int]]
    """Trigger -> period -> rebalances."""
    at_once: tuple[FigureRow, ...]
    """Columns minute (since 1970), groups, triggers; without the epoch that created a group."""
    commits: Mapping[int, int]
    unowned: Mapping[int, int]
    """Period -> ms in which partitions had no owner."""
    failed_over: Mapping[int, int]
    """Period -> failovers."""
    found: Mapping[str, Mapping[int, int]]
    """Severity -> period -> findings."""
    settled: Mapping[int, int]
    """Edge (`STABLE_EDGES_MS`) -> times to stable of at most so long, and longer than the edge before."""
    rules: tuple[FigureRow, ...]
    """Columns kind, severity, count, groups (with any); the most severe first."""
    rule_trend: Mapping[str, Mapping[int, int]]
    """Rule -> period of ``trend`` -> findings."""
    findings: tuple[FigureRow, ...]
    """The most severe first, then the newest."""
    ends: Mapping[str, int]
    """Session ends by kind."""
    failovers: tuple[FigureRow, ...]
    """Leader changes, the newest first."""
    groups: tuple[GroupFigures, ...]
    """The groups that matter, the worst first."""

    @property
    def whole(self) -> FigureRow:
        """The epochs of all periods."""
        return self.epochs[None]

    @property
    def num_findings(self) -> int:
        return sum(rule["count"] for rule in self.rules)


def figures_of(tables: Tables) -> ReportFigures | None:
    """Compute all figures; ``None`` if the tables are empty."""
    records = tables("records")
    spans = _spans(records)
    if not spans:
        return None
    begin, end = min(row["first_ms"] for row in spans), max(row["last_ms"] for row in spans)
    scale, trend = scale_of(begin, end), scale_of(begin, end, by_week=True)
    until = [(row["shard"], row["until_ms"]) for row in spans]
    ends = F.broadcast(records.sparkSession.createDataFrame(until, "shard int, until_ms bigint"))
    frames = _epoch_frames(epochs_of(tables, ends, scale), scale)
    frames |= _finding_frames(tables, scale, trend)
    frames |= _other_frames(tables, unowned_of(tables, ends, scale), scale)
    rows = collected(frames)
    names = _worst(rows["by_findings"], rows["by_unowned"], rows["by_epochs"])
    return ReportFigures(
        from_ms=begin,
        until_ms=end,
        scale=scale,
        trend=trend,
        num_groups=rows["num_groups"][0]["groups"],
        epochs={row["period"]: row for row in rows["epochs"]},
        moves=rows["moves"][0]["count"],
        by_trigger=_nested(rows["triggers"], "trigger"),
        at_once=tuple(rows["at_once"]),
        commits=_flat(rows["commits"], "period"),
        unowned={row["period"]: row["unowned_ms"] for row in rows["unowned"]},
        failed_over=_flat(rows["failed_over"], "period"),
        found=_nested(rows["found"], "severity"),
        settled=_flat(rows["settled"], "edge"),
        rules=tuple(rows["rules"]),
        rule_trend=_nested(rows["rule_trend"], "kind"),
        findings=tuple(rows["findings"]),
        ends=_flat(rows["ends"], "end"),
        failovers=tuple(rows["failovers"]),
        groups=group_figures(tables, ends, scale, names),
    )


def _epoch_frames(epochs: DataFrame, scale: ReportScale) -> dict[str, DataFrame]:
    begun = epochs.filter("is_begin_known")  # the others start after missing entries
    edge = F.array_min(F.filter(F.array(*map(F.lit, STABLE_EDGES_MS)), lambda one: one >= F.col("stable_ms")))
    by_minute = begun.filter("epoch_before > 0").groupBy(F.floor(F.col("at_ms") / AT_ONCE_MS).alias("minute"))
    at_once = by_minute.agg(
        F.countDistinct("group_id").alias("groups"), F.array_sort(F.collect_set("trigger")).alias("triggers")
    ).filter(f"groups >= {AT_ONCE_MIN}")
    by_group = epochs.groupBy("group_id").agg(F.sum("unstable_ms").alias("ms"), F.count("*").alias("count"))
    return {
        "epochs": epochs.rollup("period").agg(*epoch_figures()),
        "num_groups": epochs.agg(F.countDistinct("group_id").alias("groups")),
        "triggers": _most(begun.groupBy("trigger", "period").count(), KINDS_MAX * PERIODS_MAX),
        "settled": epochs.filter("stable_ms is not null").groupBy(edge.alias("edge")).count(),
        "at_once": at_once.orderBy(F.desc("groups"), "minute").limit(AT_ONCE_SHOWN),
        "by_epochs": by_group.orderBy(F.desc("count"), F.desc("ms"), "group_id").limit(GROUPS_SHOWN),
    }


def _finding_frames(tables: Tables, scale: ReportScale, trend: ReportScale) -> dict[str, DataFrame]:
    findings = tables("findings")
    at, week = scale.place(ms("from_time")).alias("period"), trend.place(ms("from_time")).alias("period")
    rules = findings.groupBy("kind", "severity").agg(
        F.count("*").alias("count"), F.countDistinct("group_id").alias("groups")
    )
    severe = [F.count_if(rank() == place).alias(f"of_{place}") for place in range(4)]
    by_group = findings.filter("group_id is not null").groupBy("group_id").agg(*severe)
    worst = by_group.orderBy(*(F.desc(f"of_{place}") for place in range(4)), "group_id")
    order: list[Column | str | int] = [rank(), F.desc("from_time"), "kind", "group_id", "words"]
    listed = with_names(findings.orderBy(*order).limit(FINDINGS_SHOWN), tables("member_sessions"))
    return {
        "found": findings.groupBy("severity", at).count().limit(KINDS_MAX * PERIODS_MAX),
        "rules": rules.orderBy(rank(), F.desc("count"), "kind").limit(KINDS_MAX),
        "rule_trend": _most(findings.groupBy("kind", week).count(), KINDS_MAX * TRENDS_MAX),
        "findings": listed.orderBy(*order).select(
            *("kind", "severity", "group_id", "shard", "words", "names"), ms("from_time").alias("from_ms")
        ),
        "by_findings": worst.limit(GROUPS_SHOWN),
    }


def _other_frames(tables: Tables, unowned: DataFrame, scale: ReportScale) -> dict[str, DataFrame]:
    at = scale.place(ms("timestamp")).alias("period")
    takeovers = tables("failovers").filter("is_takeover and shard >= 0")
    newest = takeovers.orderBy(F.desc("timestamp"), "shard").limit(FAILOVERS_SHOWN)
    by_group = unowned.groupBy("group_id").agg(F.sum("unowned_ms").alias("ms"))
    return {
        "commits": tables("commits").filter("offset is not null").groupBy(at).count(),
        "moves": moves_of(tables).groupBy().count(),
        "unowned": unowned.groupBy("period").agg(F.sum("unowned_ms").alias("unowned_ms")),
        "failed_over": takeovers.groupBy(at).count(),
        "failovers": newest.select(
            ms("timestamp").alias("at_ms"), "shard", "node_id", "previous_leader", "why", "gap_ms"
        ),
        "ends": _most(tables("member_sessions").groupBy("end").count(), KINDS_MAX),
        "by_unowned": by_group.filter("ms > 0").orderBy(F.desc("ms"), "group_id").limit(GROUPS_SHOWN),
    }


def _worst(*rankings: list[FigureRow]) -> list[str]:
    """At most `GROUPS_SHOWN` groups: the first of each ranking, then the second of each, and so on."""
    names: dict[str, None] = {}
    for row in zip_longest(*rankings):
        names.update(dict.fromkeys(one["group_id"] for one in row if one is not None))
    return list(names)[:GROUPS_SHOWN]


def _spans(records: DataFrame) -> list[Any]:
    """One row per shard: its earliest and latest timestamps, and that of its last entry."""
    moment: Column = ms("timestamp")
    by_shard = records.groupBy("shard").agg(
        F.min(moment).alias("first_ms"),
        F.max(moment).alias("last_ms"),
        F.max_by(moment, "raft_index").alias("until_ms"),
    )
    return by_shard.collect()


def _most(counted: DataFrame, rows_max: int) -> DataFrame:
    keys = [name for name in counted.columns if name != "count"]
    return counted.orderBy(F.desc("count"), *keys).limit(rows_max)


def _flat(rows: list[FigureRow], key: str) -> dict[Any, int]:
    return {row[key]: row["count"] for row in rows}


def _nested(rows: list[FigureRow], key: str) -> dict[str, dict[int, int]]:
    """Key -> period -> count."""
    found: dict[str, dict[int, int]] = {}
    for row in rows:
        found.setdefault(row[key] or "unknown", {})[row["period"]] = row["count"]
    return found
