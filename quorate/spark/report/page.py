"""The report page: findings first, then figures by period and by group.

The page is a single file without external resources, in the frame shared by all our pages
(`history.pages.frame`). It is complete without script, the figures behind every chart also appear in text or
in a table, and whatever is long is folded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from history.diagnoses import RULES
from history.pages.frame import Markup, Provenance, escaped, legend, page, severity, tiles
from history.render import UTC_STYLE, TimeStyle, duration, plural, sentence_list

from . import charts
from .aggregates import NO_EPOCHS, SEVERITIES, FigureRow
from .figures import AT_ONCE_MIN, AT_ONCE_MS, FAILOVERS_SHOWN, STABLE_EDGES_MS, ReportFigures
from .grouppart import group_part
from .parts import (
    NONE,
    PERIOD_HEADERS,
    count,
    finding,
    folded,
    link,
    prose,
    seconds,
    severities,
    span,
    stable,
    table,
)

TRIGGERS_SHOWN = charts.COLOURS - 1
"""Triggers with a colour of their own, as many as can be told apart; all others share one."""
PERIODS_OPEN_MAX = 24
FINDINGS_OPEN_MAX = 20
"""At most this many findings are shown unfolded; beyond that a reader sees the summary first."""
TREND_SHOWN = 53
"""Rows of the findings by week: the newest."""
RECENT = 4
"""Periods that the trend compares with those before."""
RULES_OF_PERIOD = 4
"""Rules named for one period of the trend."""
STABLE_MEANS = (
    "Time to stable, as in `quorate log stats`, counts from the start of the first epoch after a stable one "
    "(in a classic group: of its join phase) until the group was Stable or Empty again. An epoch that the "
    "next one overtook before that did not settle, and its time is part of it."
)


def report_page(
    figures: ReportFigures | None,
    *,
    title: str,
    rests_on: Sequence[str] = (),
    meanings: Mapping[str, tuple[str, str]] | None = None,
    style: TimeStyle = UTC_STYLE,
    provenance: Provenance | None = None,
) -> str:
    """The whole page.

    ``meanings`` gives explanation and advice for kinds of findings that are not rules of `history`.
    """
    if figures is None:
        body = _part("empty", "Nothing to report", "<p>The tables hold no records.</p>")
        return page(title=title, body=body, rests_on=rests_on, provenance=provenance)
    anchors = {group.name: f"g{place}" for place, group in enumerate(figures.groups, 1)}
    parts = [
        ("findings", "Findings", _findings(figures, dict(meanings or {}), anchors, style)),
        ("trend", f"Findings {figures.trend.by}", _trend(figures)),
        ("periods", f"Time {figures.scale.by}", _periods(figures)),
        ("stable", "Time to stable", _settled(figures)),
        ("groups", "Groups, the worst first", _groups(figures, anchors)),
        ("once", "Groups that rebalanced in the same minute", _at_once(figures, style)),
        ("failovers", "Failovers", _failovers(figures, style)),
        ("ends", "How memberships ended", _ends(figures)),
    ]
    there = [one for one in parts if one[2]]
    each = [group_part(group, anchors[group.name], figures.scale, style) for group in figures.groups]
    length = duration(figures.until_ms - figures.from_ms)
    groups = plural(figures.num_groups, "group")
    return page(
        title=title,
        lead=f"{style.full(figures.from_ms)} to {style.full(figures.until_ms)} ({length}): {groups}",
        body="\n".join([_contents(there), tiles(_glance(figures)), *(_part(*one) for one in there), *each]),
        styles=("chart.css",),
        css=(resources.files(__package__) / "files" / "report.css").read_text(encoding="utf-8"),
        rests_on=(*rests_on, "Days, weeks and months are of UTC."),
        provenance=provenance,
    )


def _contents(parts: Sequence[tuple[str, str, str]]) -> str:
    links = "".join(f'<a href="#{anchor}">{escaped(heading)}</a>' for anchor, heading, _ in parts)
    return f'<nav class="contents" aria-label="Contents">{links}</nav>'


def _part(anchor: str, heading: str, content: str) -> str:
    return f'<section class="card" id="{anchor}"><h2>{escaped(heading)}</h2>\n{content}\n</section>'


def _glance(figures: ReportFigures) -> list[tuple[str, str]]:
    return [
        ("findings", f"{figures.num_findings:,}"),
        ("rebalances", f"{figures.whole['rebalances']:,}"),
        ("not settled", f"{figures.whole['overtaken']:,}"),
        ("group-time not stable", duration(figures.whole["unstable_ms"])),
        ("unowned partition-seconds", f"{sum(figures.unowned.values()) / 1000:,.1f}"),
        ("partitions moved between members", f"{figures.moves:,}"),
        ("failovers", f"{sum(figures.failed_over.values()):,}"),
        ("commits", f"{sum(figures.commits.values()):,}"),
    ]


def _findings(
    figures: ReportFigures,
    meanings: dict[str, tuple[str, str]],
    anchors: Mapping[str, str],
    style: TimeStyle,
) -> str:
    if not figures.rules:
        return "<p>None: no rule found anything unusual.</p>"
    known = {name: (rule.title, rule.do) for name, rule in RULES.items()} | meanings
    rows = []
    for one in figures.rules:
        what, do = known.get(one["kind"], ("", ""))
        rows.append(
            (
                *(severity(one["severity"]), one["kind"], prose(what), prose(do)),
                *(f"{one['count']:,}", count(one["groups"])),
            )
        )
    headers = ("", "rule", "what it is", "what to do", "times", "groups")
    summary = table(headers, rows, texts=4, kind="rules")
    listed = [_listed(row, anchors, style) for row in figures.findings]
    each = table(("", "when", "rule", "what was found", "group"), listed, texts=5, kind="found")
    rest = figures.num_findings - len(listed)
    each += _more(rest, "findings")
    name = "One by one" if rest <= 0 else f"One by one, {len(listed)} of {figures.num_findings:,}"
    return f"{summary}\n{folded(name, each, is_open=figures.num_findings <= FINDINGS_OPEN_MAX)}"


def _listed(row: FigureRow, anchors: Mapping[str, str], style: TimeStyle) -> tuple[object, ...]:
    where = f"shard {row['shard']}" if row["group_id"] is None else link(row["group_id"], anchors)
    return *finding(row, style), where


def _trend(figures: ReportFigures) -> str:
    """The findings of each rule by week, and whether they rise or fall."""
    if not figures.rules:
        return ""
    scale = figures.trend
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in figures.rules):
        counts = figures.rule_trend.get(kind, {})
        before, recent = _rates(counts, scale.count)
        drawn = Markup(charts.sparkline(counts, scale.count))
        words = _direction(before, recent)
        rows.append((kind, drawn, words, f"{before:,.1f}", f"{recent:,.1f}", f"{sum(counts.values()):,}"))
    lately = min(RECENT, scale.count)
    headers = (
        "rule",
        f"{scale.label(0)} to {scale.label(scale.count - 1)}",
        "trend",
        *("mean before", f"mean of the last {lately}", "in all"),
    )
    by_rule = table(headers, rows, texts=3, kind="trend")
    periods = sorted({place for counts in figures.rule_trend.values() for place in counts})
    listed = [(scale.label(place), *_of_period(figures, place)) for place in periods[-TREND_SHOWN:]]
    listed.reverse()
    each = table((scale.unit, "rules", "findings"), listed, texts=2, kind="weeks")
    rest = len(periods) - len(listed)
    more = f"<p>and {rest:,} earlier, in table findings</p>" if rest else ""
    return f"{by_rule}\n{folded(f'Every {scale.unit} with findings, the newest first', each + more)}"


def _of_period(figures: ReportFigures, place: int) -> tuple[str, str]:
    found = [(counts[place], kind) for kind, counts in figures.rule_trend.items() if place in counts]
    found.sort(key=lambda one: (-one[0], one[1]))
    words = [f"{kind} {number:,}" for number, kind in found[:RULES_OF_PERIOD]]
    if len(found) > RULES_OF_PERIOD:
        words.append(f"{len(found) - RULES_OF_PERIOD} more rules")
    return sentence_list(words), f"{sum(number for number, _ in found):,}"


def _rates(counts: Mapping[int, int], periods: int) -> tuple[float, float]:
    """Findings a period: before the last `RECENT` periods, and in them."""
    first = max(0, periods - RECENT)
    recent = sum(number for place, number in counts.items() if place >= first)
    before = sum(counts.values()) - recent
    return before / max(1, first), recent / max(1, periods - first)


def _direction(before: float, recent: float) -> str:
    if not before:
        return "new"
    if not recent:
        return "none lately"
    if recent > 1.5 * before:
        return "rising"
    return "falling" if recent < before / 1.5 else "steady"


def _periods(figures: ReportFigures) -> str:
    scale = figures.scale
    names = [scale.label(place) for place in range(scale.count)]
    rows = [_period(figures, place, name) for place, name in enumerate(names)]
    headers = (scale.unit, *PERIOD_HEADERS, "failovers", "commits", "unowned s")
    numbers = table(headers, rows, kind="periods")
    folds = folded(f"Every {scale.unit} in numbers", numbers, is_open=len(rows) <= PERIODS_OPEN_MAX)
    more = [("Commits", {place: float(n) for place, n in figures.commits.items()}, 2)]
    more += [("Unowned partition-seconds", {at: n / 1000 for at, n in figures.unowned.items()}, 1)]
    areas = []
    for what, counts, colour in more:
        if any(counts.values()):
            drawn = charts.line(counts, names=names, label=f"{what} {scale.by}", colour=colour)
            areas.append(f"<h3>{what}</h3>{drawn}")
    return f"{_triggers(figures, names)}{_stable_over_time(figures, names)}{''.join(areas)}\n{folds}"


def _period(figures: ReportFigures, place: int, name: str) -> tuple[str, ...]:
    row = figures.epochs.get(place, NO_EPOCHS)
    return (
        name,
        count(row["rebalances"]),
        count(row["overtaken"]),
        *stable(row),
        *severities({one: figures.found.get(one, {}).get(place, 0) for one in SEVERITIES}),
        count(figures.failed_over.get(place)),
        count(figures.commits.get(place)),
        seconds(figures.unowned.get(place)),
    )


def _triggers(figures: ReportFigures, names: Sequence[str]) -> str:
    totals = {name: sum(counts.values()) for name, counts in figures.by_trigger.items()}
    if not totals:
        return "<p>No rebalance began in this log.</p>"
    order = sorted(totals, key=lambda name: (-totals[name], name))
    series = [(name, figures.by_trigger[name]) for name in order[:TRIGGERS_SHOWN]]
    rest: dict[int, int] = {}
    for name in order[TRIGGERS_SHOWN:]:
        for place, number in figures.by_trigger[name].items():
            rest[place] = rest.get(place, 0) + number
    if rest:
        series.append(("others", rest))
    label = f"Rebalances {figures.scale.by}, by what began them"
    drawn = charts.stacked_bars(series, names=names, label=label)
    shown = [(name, sum(counts.values())) for name, counts in series]
    return f"<h3>{escaped(label)}</h3>{drawn}\n{legend(shown)}"


def _stable_over_time(figures: ReportFigures, names: Sequence[str]) -> str:
    rows = {
        place: row for place, row in figures.epochs.items() if place is not None and row["max_ms"] is not None
    }
    if len(rows) < 2:
        return ""
    series = [{place: row["quantiles"][at] for place, row in rows.items()} for at in (0, 1)]
    series.append({place: row["max_ms"] for place, row in rows.items()})
    drawn = charts.durations(series, names=names, label=f"Time to stable {figures.scale.by}")
    keys = "".join(
        f'<span class="key"><svg class="swatch" viewBox="0 0 10 10"><rect class="c{at}" width="10"'
        f' height="10"/></svg>{word}</span>'
        for at, word in enumerate(("half within (p50)", "95 % within (p95)", "longest"))
    )
    return f'<h3>Time to stable</h3>{drawn}\n<p class="legend">{keys}</p>'


def _settled(figures: ReportFigures) -> str:
    means = f"<p class=soft>{prose(STABLE_MEANS)}</p>"
    if not figures.settled:
        return f"<p>No group became stable.</p>{means}"
    half, most, longest = stable(figures.whole)
    number = sum(figures.settled.values())
    never = (
        f"; {plural(figures.whole['overtaken'], 'epoch')} did not settle"
        if figures.whole["overtaken"]
        else ""
    )
    said = f"Groups became stable {plural(number, 'time')}: half within {half}, 95 % within {most}, "
    said += f"all within {longest}"
    drawn = charts.histogram(
        figures.settled, STABLE_EDGES_MS, label="Returns to stable by the time they took"
    )
    rows = [(f"≤ {span(edge)}", f"{figures.settled[edge]:,}") for edge in sorted(figures.settled)]
    numbers = folded("as numbers", table(("time to stable", "times"), rows))
    return f"<p>{escaped(said + never)}.</p>{drawn}{numbers}{means}"


def _groups(figures: ReportFigures, anchors: Mapping[str, str]) -> str:
    if not figures.groups:
        return NONE
    rows = []
    for group in figures.groups:
        whole = group.epochs.get(None, NO_EPOCHS)
        rows.append(
            (
                link(group.name, anchors),
                *severities({one: group.severe(one) for one in SEVERITIES}),
                seconds(sum(group.unowned.values())),
                count(whole["rebalances"]),
                count(whole["overtaken"]),
                span(whole["unstable_ms"]),
                *stable(whole),
                count(group.moves),
            )
        )
    headers = (
        "group",
        "errors",
        "warnings",
        "notes",
        "unowned s",
        "rebalances",
        "not settled",
        "not stable",
        "to stable p50",
        "p95",
        "max",
        "moved, given or taken",
    )
    said = "<p class=soft>Those with most findings, unowned partition-seconds and rebalances, in turn.</p>"
    return said + table(headers, rows, kind="groups") + _more(figures.num_groups - len(rows), "group_epochs")


def _at_once(figures: ReportFigures, style: TimeStyle) -> str:
    if not figures.at_once:
        return ""
    said = (
        f"Minutes in which {AT_ONCE_MIN} groups or more rebalanced, without those that were just created. "
        "Many groups at once have a common cause: a deployment, a failover, a network problem."
    )
    rows = [
        (
            style.full(row["minute"] * AT_ONCE_MS),
            sentence_list(row["triggers"]),
            f"{row['groups']:,} of {figures.num_groups:,}",
        )
        for row in figures.at_once
    ]
    return f"<p>{escaped(said)}</p>" + table(
        ("minute", "what began them", "groups"), rows, texts=2, kind="once"
    )


def _failovers(figures: ReportFigures, style: TimeStyle) -> str:
    if not figures.failovers:
        return NONE
    rows = [
        (
            style.full(row["at_ms"]),
            f"node {row['node_id']}"
            + ("" if row["previous_leader"] is None else f" from node {row['previous_leader']}"),
            row["why"],
            row["shard"],
            span(row["gap_ms"]),
        )
        for row in figures.failovers
    ]
    number = sum(figures.failed_over.values())
    headers = ("when", "new leader", "why", "shard", "longest time without a leader")
    made = table(headers, rows, texts=3) + _more(number - len(rows), "failovers")
    return folded(
        f"The newest {min(len(rows), FAILOVERS_SHOWN)} of {number:,}", made, is_open=len(rows) <= 10
    )


def _ends(figures: ReportFigures) -> str:
    rows = sorted(figures.ends.items(), key=lambda one: (-one[1], one[0]))
    named = [("still members" if name == "open" else name, number) for name, number in rows]
    if not named:
        return NONE
    said = sentence_list([f"{name} {number:,}" for name, number in named])
    drawn = charts.bars(named, label="Memberships by how they ended", unit="members")
    return f"<p>{escaped(said)}</p>{drawn}"


def _more(rest: int, name: str) -> str:
    return f"<p>and {rest:,} more, in table {escaped(name)}</p>" if rest > 0 else ""
