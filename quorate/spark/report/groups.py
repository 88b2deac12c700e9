"""The figures of the groups that matter: their periods, their worst findings, and their members.

The names of the groups are known by then, so each frame reads only their rows (the tables are clustered by
group), and everything is one Spark job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from history.facts.rows import SessionEnd

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
from .scale import ReportScale

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GROUP_FINDINGS_SHOWN = 8
GROUP_CLIENTS_SHOWN = 12
"""Clients of a group: by client id and instance id, those with most sessions."""
FLAPPING = "FLAPPING_MEMBER"
"""The rule of `history` whose findings name the members that come and go."""
FAILED = tuple(end.value for end in SessionEnd if end.value.endswith("expired"))
"""Ends of sessions that a client did not ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    """One group; a period is of the page's scale."""

    name: str
    epochs: Mapping[int | None, FigureRow]
    """Period (``None``: all) -> the columns of `epoch_figures`."""
    moves: int
    unowned: Mapping[int, int]
    commits: Mapping[int, int]
    found: Mapping[int, Mapping[str, int]]
    """Period -> severity -> findings."""
    findings: tuple[FigureRow, ...]
    """The most severe first, then the newest."""
    clients: tuple[FigureRow, ...]
    """Columns client_id, instance_id, sessions, failed (`FAILED`), ends (kind -> number), median_ms (of those
    that ended), rejoins, aways, hosts (number), last_ms (joined last), flapping (findings; null: none); the
    flapping first, then those that failed most."""
    num_clients: int

    def severe(self, severity: str) -> int:
        """The findings of a severity, in all periods."""
        return sum(counts.get(severity, 0) for counts in self.found.values())


def group_figures(
    tables: Tables, ends: DataFrame, scale: ReportScale, names: Sequence[str]
) -> tuple[GroupFigures, ...]:
    """The figures of these groups, in this order."""
    if not names:
        return ()

    def of_groups(name: str) -> DataFrame:
        return tables(name).filter(F.col("group_id").isin(list(names)))

    at = scale.place(ms("timestamp")).alias("period")
    findings = of_groups("findings")
    found_at = scale.place(ms("from_time")).alias("period")
    epochs = epochs_of(of_groups, ends, scale).rollup("group_id", "period").agg(*epoch_figures())
    rows = collected(
        {
            "epochs": epochs.filter("group_id is not null"),
            "moves": moves_of(of_groups).groupBy("group_id").count(),
            "unowned": unowned_of(of_groups, ends, scale),
            "commits": of_groups("commits").filter("offset is not null").groupBy("group_id", at).count(),
            "found": findings.groupBy("group_id", found_at, "severity").count(),
            "findings": with_names(
                _first(
                    findings.select(
                        *("group_id", "kind", "severity", "words", "members"),
                        ms("from_time").alias("from_ms"),
                    ),
                    [rank(), F.desc("from_ms"), F.col("kind"), F.col("words")],
                    GROUP_FINDINGS_SHOWN,
                ),
                of_groups("member_sessions"),
            ),
            "clients": _clients(of_groups("member_sessions"), findings),
        }
    )
    by_group = {figure: _by_group(found) for figure, found in rows.items()}
    return tuple(
        _group(name, {figure: of.get(name, []) for figure, of in by_group.items()}) for name in names
    )


def _group(name: str, rows: Mapping[str, list[FigureRow]]) -> GroupFigures:
    found: dict[int, dict[str, int]] = {}
    for row in rows["found"]:
        found.setdefault(row["period"], {})[row["severity"]] = row["count"]
    clients = rows["clients"]
    return GroupFigures(
        name=name,
        epochs={row["period"]: row for row in rows["epochs"]},
        moves=sum(row["count"] for row in rows["moves"]),
        unowned={row["period"]: row["unowned_ms"] for row in rows["unowned"]},
        commits={row["period"]: row["count"] for row in rows["commits"]},
        found=found,
        findings=tuple(sorted(rows["findings"], key=lambda row: row["place"])),
        clients=tuple(sorted(clients, key=lambda row: row["place"])),
        num_clients=clients[0]["in_all"] if clients else 0,
    )


def _clients(sessions: DataFrame, findings: DataFrame) -> DataFrame:
    """The group's members by client id and instance id, which stay when the member id changes."""
    who = ["group_id", "client_id", "instance_id"]
    ended = [item for end in SessionEnd for item in (F.lit(end.value), F.count_if(F.col("end") == end.value))]
    failed = F.count_if(F.col("end").isin(*FAILED))
    clients = sessions.groupBy(*who).agg(
        F.count("*").alias("sessions"),
        failed.alias("failed"),
        F.create_map(*ended).alias("ends"),
        F.percentile_approx("duration_ms", 0.5).alias("median_ms"),
        *(F.sum(name).alias(name) for name in ("rejoins", "aways")),
        F.countDistinct("client_host").alias("hosts"),
        F.max(ms("from_time")).alias("last_ms"),
    )
    order = [F.desc_nulls_last("flapping"), F.desc("failed"), F.desc("sessions"), *map(F.col, who)]
    joined = clients.alias("c").join(
        _flapping(sessions, findings).alias("f"),
        (F.col("c.group_id") == F.col("f.group_id"))
        & F.col("c.client_id").eqNullSafe(F.col("f.client_id"))
        & F.col("c.instance_id").eqNullSafe(F.col("f.instance_id")),
        "left",
    )
    return _first(joined.select("c.*", "f.flapping"), order, GROUP_CLIENTS_SHOWN)


def _flapping(sessions: DataFrame, findings: DataFrame) -> DataFrame:
    """The number of findings of `FLAPPING` that name a member of the client."""
    named = findings.filter(F.col("kind") == FLAPPING).select(
        "group_id", "from_index", F.explode("members").alias("member_id")
    )
    ids = sessions.select("group_id", "client_id", "instance_id", "member_id").distinct()
    by_client = ids.join(named, ["group_id", "member_id"]).groupBy("group_id", "client_id", "instance_id")
    return by_client.agg(F.countDistinct("from_index").alias("flapping"))


def _first(frame: DataFrame, order: list[Column], most: int) -> DataFrame:
    """The first rows of each group, with their ``place`` and the number of all (``in_all``)."""
    groups = Window.partitionBy("group_id")
    placed = frame.select(
        "*",
        F.row_number().over(groups.orderBy(*order)).alias("place"),
        F.count("*").over(groups).alias("in_all"),
    )
    return placed.filter(F.col("place") <= most)


def _by_group(rows: list[FigureRow]) -> dict[str, list[FigureRow]]:
    found: dict[str, list[FigureRow]] = {}
    for row in rows:
        found.setdefault(row["group_id"], []).append(row)
    return found
