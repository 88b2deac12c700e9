"""The part of the page about one group: its periods, its worst findings, and who its members are."""

from __future__ import annotations

from history.pages.frame import escaped
from history.render import TimeStyle, plural, sentence_list

from .aggregates import NO_EPOCHS
from .groups import GroupFigures
from .parts import PERIOD_HEADERS, count, finding, named, seconds, severities, span, stable, table
from .scale import ReportScale

GROUP_PERIODS_SHOWN = 36
"""Periods of one group: the newest in which anything happened."""


def group_part(group: GroupFigures, anchor: str, scale: ReportScale, style: TimeStyle) -> str:
    """The group's part, closed; a link to ``anchor`` opens it."""
    whole = group.epochs.get(None)
    said = [plural(0 if whole is None else whole["rebalances"], "rebalance")]
    said += [plural(number, one) for one in ("error", "warning") if (number := group.severe(one))]
    unowned = sum(group.unowned.values())
    said += [f"{seconds(unowned)} partition-seconds without an owner"] if unowned else []
    parts = [
        f'<p id="{anchor}" class="back"><a href="#groups">↑ all groups</a></p>',
        f"<h3>Time {escaped(scale.by)}</h3>{_periods(group, scale)}",
        f"<h3>Findings, the worst first</h3>{_findings(group, style)}",
        f"<h3>Members, by client id</h3>{_clients(group, style)}",
    ]
    return (
        f'<details class="card group"><summary>{escaped(named(group.name))} '
        f"<span class=soft>{escaped(sentence_list(said))}</span></summary>\n{''.join(parts)}\n</details>"
    )


def _periods(group: GroupFigures, scale: ReportScale) -> str:
    there = {place for place in group.epochs if place is not None} | {*group.unowned, *group.found}
    there |= set(group.commits)
    shown = sorted(there)[-GROUP_PERIODS_SHOWN:]
    rows = []
    for place in shown:
        row = group.epochs.get(place, NO_EPOCHS)
        rows.append(
            (
                scale.label(place),
                count(row["rebalances"]),
                count(row["overtaken"]),
                *stable(row),
                *severities(group.found.get(place, {})),
                seconds(group.unowned.get(place)),
                count(group.commits.get(place)),
            )
        )
    headers = (scale.unit, *PERIOD_HEADERS, "unowned s", "commits")
    more = f"<p>and {len(there) - len(shown):,} earlier</p>" if len(there) > len(shown) else ""
    return table(headers, rows, kind="periods") + more


def _findings(group: GroupFigures, style: TimeStyle) -> str:
    if not group.findings:
        return "<p>none</p>"
    rows = [finding(row, style) for row in group.findings]
    rest = group.findings[0]["in_all"] - len(rows)
    more = f"<p>and {rest:,} more, in table findings</p>" if rest > 0 else ""
    return table(("", "when", "rule", "what was found"), rows, texts=4, kind="found") + more


def _clients(group: GroupFigures, style: TimeStyle) -> str:
    if not group.clients:
        return "<p>none</p>"
    rows = []
    for row in group.clients:
        ends = sorted(((n, end) for end, n in row["ends"].items() if n), key=lambda one: (-one[0], one[1]))
        words = sentence_list([f"{'still member' if end == 'open' else end} {n:,}" for n, end in ends])
        rows.append(
            (
                named(row["client_id"]),
                named(row["instance_id"]),
                words,
                f"{row['sessions']:,}",
                count(row["flapping"]),
                span(row["median_ms"]),
                count(row["rejoins"] + row["aways"]),
                f"{row['hosts']:,}",
                style.full(row["last_ms"]),
            )
        )
    headers = (
        "client id",
        "instance id",
        "how sessions ended",
        "sessions",
        "flapping",
        "median length",
        "came back",
        "hosts",
        "joined last",
    )
    rest = group.num_clients - len(rows)
    more = f"<p>and {rest:,} more, in table member_sessions</p>" if rest > 0 else ""
    return table(headers, rows, texts=3, kind="clients") + more
