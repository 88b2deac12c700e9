"""The report page: findings first, then figures over time and by group.

The page is a single file without external resources, in the frame shared by all our pages
(`history.pages.frame`). It is complete without script, and the figures behind every chart also appear in text
or in a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING

from history.diagnoses import RULES
from history.pages.frame import escaped, legend, page, section, table_html, tiles
from history.render import UTC_STYLE, TimeStyle, duration, plural, sentence_list

from . import charts
from .figures import BUCKETS, FAILOVERS_SHOWN, FINDINGS_SHOWN, GROUPS_SHOWN, ReportFigures

if TYPE_CHECKING:
    from pyspark.sql import Row

TRIGGERS_SHOWN = charts.COLOURS - 1
"""Triggers with a colour of their own, as many as can be told apart; all others share one."""
FINDINGS_OPEN_MAX = 20
"""At most this many findings are shown unfolded; beyond that a reader sees the summary first."""
_CODE = re.compile("`([^`]*)`")


def report_page(
    figures: ReportFigures | None,
    *,
    title: str,
    rests_on: Sequence[str] = (),
    meanings: Mapping[str, tuple[str, str]] | None = None,
    style: TimeStyle = UTC_STYLE,
) -> str:
    """The whole page.

    ``meanings`` gives explanation and advice for kinds of findings that are not rules of `history`.
    """
    if figures is None:
        body = section("Nothing to report", "<p>The tables hold no records.</p>")
        return page(title=title, body=body, rests_on=rests_on)
    span = duration(figures.until_ms - figures.from_ms)
    groups = plural(figures.num_groups, "group")
    parts = [
        section("Findings", _findings(figures, dict(meanings or {}), style)),
        tiles(_glance(figures)),
        section("Rebalances over time, by what began them", _over_time(figures, style)),
        section("Groups that rebalanced at once", _at_once(figures, style)),
        section("Time to stable", _settled(figures)),
        section("Groups, the least stable first", _groups(figures)),
        section("Partitions without an owner", _unowned(figures)),
        section("Failovers", _failovers(figures, style)),
        section("How memberships ended", _ends(figures)),
        section("Commits over time", _commits(figures, style)),
    ]
    return page(
        title=title,
        lead=f"{style.full(figures.from_ms)} to {style.full(figures.until_ms)} ({span}): {groups}",
        body="\n".join(parts),
        styles=("chart.css",),
        css=(resources.files(__package__) / "files" / "report.css").read_text(encoding="utf-8"),
        rests_on=rests_on,
    )


def _glance(figures: ReportFigures) -> list[tuple[str, str]]:
    found = sum(kind.count for kind in figures.kinds)
    return [
        ("findings", f"{found:,}"),
        ("rebalances", f"{figures.num_epochs:,}"),
        ("group-time not stable", duration(figures.unstable_ms)),
        ("unowned partition-seconds", f"{figures.unowned_ms / 1000:,.1f}"),
        ("partitions moved", f"{figures.moves:,}"),
        ("failovers", f"{figures.num_failovers:,}"),
        ("commits", f"{figures.num_commits:,}"),
    ]


def _findings(figures: ReportFigures, meanings: dict[str, tuple[str, str]], style: TimeStyle) -> str:
    if not figures.kinds:
        return "<p>None: no rule found anything unusual.</p>"
    known = {name: (rule.title, rule.do) for name, rule in RULES.items()} | meanings
    rows = "\n".join(
        f'<tr><td><span class="severity {escaped(one.severity)}">{escaped(one.severity)}</span></td>'
        f"<td class=nowrap>{escaped(one.kind)}</td><td class=number>{one.count:,}</td>"
        f"<td class=number>{one.groups:,}</td><td>{_prose(known.get(one.kind, ('', ''))[0])}</td>"
        f"<td>{_prose(known.get(one.kind, ('', ''))[1])}</td></tr>"
        for one in figures.kinds
    )
    head = "<th></th><th>rule</th><th class=number>times</th><th class=number>groups</th>"
    head += "<th>what it is</th><th>what to do</th>"
    summary = (
        f'<div class="scroll"><table class="rules"><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )
    listed = "\n".join(_finding(row, style) for row in figures.findings)
    headers = "".join(f"<th>{name}</th>" for name in ("", "when", "group", "rule", "what was found"))
    total = sum(kind.count for kind in figures.kinds)
    rest = total - len(figures.findings)
    more = f"<p>and {rest:,} more, in table findings</p>" if rest > 0 else ""
    rows = f"<thead><tr>{headers}</tr></thead><tbody>\n{listed}\n</tbody>"
    each = f'<div class="scroll"><table class="found">{rows}</table></div>{more}'
    name = "One by one" if rest <= 0 else f"One by one, {FINDINGS_SHOWN} of {total:,}"
    is_open = " open" if total <= FINDINGS_OPEN_MAX else ""
    return f"{summary}\n<details{is_open}><summary>{escaped(name)}</summary>\n{each}</details>"


def _finding(row: Row, style: TimeStyle) -> str:
    severity = escaped(row["severity"])
    return (
        f'<tr><td><span class="severity {severity}">{severity}</span></td>'
        f"<td class=nowrap>{escaped(style.full(row['from_ms']))}</td>"
        f"<td class=name>{escaped(row['group_id'] or '')}</td>"
        f"<td class=nowrap>{escaped(row['kind'])}</td><td>{_prose(row['words'])}</td></tr>"
    )


def _over_time(figures: ReportFigures, style: TimeStyle) -> str:
    totals = {name: sum(counts.values()) for name, counts in figures.by_trigger.items()}
    if not totals:
        return "<p>none</p>"
    names = sorted(totals, key=lambda name: (-totals[name], name))
    series = [(name, figures.by_trigger[name]) for name in names[:TRIGGERS_SHOWN]]
    rest: dict[int, int] = {}
    for name in names[TRIGGERS_SHOWN:]:
        for bucket, count in figures.by_trigger[name].items():
            rest[bucket] = rest.get(bucket, 0) + count
    if rest:
        series.append(("others", rest))
    label = f"Rebalances in {BUCKETS} intervals of {duration(figures.step_ms)} each"
    drawn = charts.stacked_bars(series, **_axis(figures), style=style, label=label)
    totals_shown = [(name, sum(counts.values())) for name, counts in series]
    return f'<p>{escaped(label)}.</p><div class="scroll">{drawn}</div>\n{legend(totals_shown)}'


def _axis(figures: ReportFigures) -> dict[str, int]:
    return {"buckets": BUCKETS, "from_ms": figures.from_ms, "step_ms": figures.step_ms}


def _at_once(figures: ReportFigures, style: TimeStyle) -> str:
    if not figures.groups_at_once:
        return "<p>none</p>"
    bucket, most = max(figures.groups_at_once.items(), key=lambda one: (one[1], -one[0]))
    when = style.full(figures.from_ms + bucket * figures.step_ms)
    said = (
        f"At most {plural(most, 'group')} of {figures.num_groups:,} in {duration(figures.step_ms)}, from "
        f"{when} on. Many groups at once have a common cause: a deployment, a failover, a network problem."
    )
    drawn = charts.line(
        figures.groups_at_once,
        **_axis(figures),
        style=style,
        label="Groups that rebalanced in each interval",
        colour=1,
    )
    return f'<p>{escaped(said)}</p><div class="scroll">{drawn}</div>'


def _settled(figures: ReportFigures) -> str:
    if not figures.settled:
        return "<p>No epoch became stable.</p>"
    count, below = sum(figures.settled.values()), 0
    quantiles = {}
    for step in sorted(figures.settled):
        below += figures.settled[step]
        for share in (0.5, 0.9, 0.99):
            if below >= share * count and share not in quantiles:
                quantiles[share] = duration(10 * 2**step)
    words = sentence_list([f"{share:.0%} within {time}" for share, time in quantiles.items()])
    never = f"; overtaken before: {figures.never_settled:,}" if figures.never_settled else ""
    said = f"{plural(count, 'epoch')} became stable: {words}{never}."
    drawn = charts.histogram(figures.settled, label="Epochs by their time to stable")
    return f'<p>{escaped(said)}</p><div class="scroll">{drawn}</div>'


def _groups(figures: ReportFigures) -> str:
    rows = [
        (
            row["group_id"],
            f"{row['rebalances']:,}",
            duration(row["unstable_ms"]),
            "-" if row["p50_ms"] is None else duration(row["p50_ms"]),
            "-" if row["p99_ms"] is None else duration(row["p99_ms"]),
            f"{row['changes']:,}",
        )
        for row in figures.groups
    ]
    headers = ("group", "rebalances", "not stable", "to stable, p50", "p99", "partitions moved")
    table = table_html(headers, rows, numbers=range(1, len(headers)))
    return table + _more(figures.num_groups - len(rows), "group_epochs")


def _unowned(figures: ReportFigures) -> str:
    if not figures.unowned:
        return "<p>none</p>"
    rows = [(row["group_id"], row["unowned_ms"] / 1000) for row in figures.unowned]
    said = f"Partition-seconds by group, {GROUPS_SHOWN} at most; {figures.unowned_ms / 1000:,.1f} in all."
    drawn = charts.bars(rows, label="Unowned partition-seconds by group", unit="partition-seconds")
    values = table_html(
        ("group", "unowned partition-seconds"), [(g, f"{s:,.1f}") for g, s in rows], numbers=(1,)
    )
    return (
        f'<p>{escaped(said)}</p><div class="scroll">{drawn}</div>'
        f"<details><summary>as numbers</summary>{values}</details>"
    )


def _failovers(figures: ReportFigures, style: TimeStyle) -> str:
    rows = [
        (
            style.full(row["timestamp_ms"]),
            row["shard"],
            f"node {row['node_id']}"
            + ("" if row["previous_leader"] is None else f" from node {row['previous_leader']}"),
            row["why"],
            "-" if row["gap_ms"] is None else duration(row["gap_ms"]),
        )
        for row in figures.failovers
    ]
    headers = ("when", "shard", "new leader", "why", "longest time without a leader")
    rest = figures.num_failovers - min(len(rows), FAILOVERS_SHOWN)
    return table_html(headers, rows, numbers=(1,)) + _more(rest, "failovers")


def _ends(figures: ReportFigures) -> str:
    rows = sorted(figures.ends.items(), key=lambda one: (-one[1], one[0]))
    if not rows:
        return "<p>none</p>"
    named = [("still members" if name == "open" else name, count) for name, count in rows]
    said = sentence_list([f"{name} {count:,}" for name, count in named])
    drawn = charts.bars(named, label="Memberships by how they ended", unit="members")
    return f'<p>{escaped(said)}</p><div class="scroll">{drawn}</div>'


def _commits(figures: ReportFigures, style: TimeStyle) -> str:
    if not figures.commits:
        return "<p>none</p>"
    label = f"Commits per {duration(figures.step_ms)}"
    drawn = charts.line(figures.commits, **_axis(figures), style=style, label=label, colour=2)
    return f'<p>{escaped(label)}; {figures.num_commits:,} in all.</p><div class="scroll">{drawn}</div>'


def _more(rest: int, table: str) -> str:
    return f"<p>and {rest:,} more, in table {escaped(table)}</p>" if rest > 0 else ""


def _prose(words: str) -> str:
    """A sentence as HTML, with text in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escaped(words))
