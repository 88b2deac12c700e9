"""`stats --html`: rebalances by time and cause, time to stable, unowned partitions, as bar charts.

The charts are drawn here and not by a script, so that a ticket shows them; every bar is also in a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from history.answers.stats import Stats
from history.answers.statstext import HEADERS, derived, settled_words, table_rows, window_words
from history.diagnoses import RULES
from history.facts.rows import Severity
from history.render import LOCAL, TimeStyle, duration, lower_words

from .frame import (
    Provenance,
    beside,
    escaped,
    legend,
    page,
    section,
    severity,
    shortened,
    table_html,
    tiles,
    time_axis,
)

TRIGGERS_SHOWN = 6
"""Maximum number of triggers with a colour of their own; the others share one."""
GROUPS_SHOWN = 12
"""Maximum number of groups with a bar; the table has all."""
STALLS_SHOWN = 100
WIDTH, HEIGHT = 1000, 160
REST = "others"


def stats_page(
    found: Stats, *, style: TimeStyle = LOCAL, title: str = "", provenance: Provenance | None = None
) -> str:
    """The whole HTML file."""
    total = found.total
    more = derived(total, found.until_ms - found.from_ms)
    share = more["unstable_share"]
    glance = [
        ("rebalances", f"{total.rebalances:,}"),
        ("not stable", duration(total.unstable_ms) + (f" ({share:.1%})" if share else "")),
        ("unowned partition-seconds", f"{total.unowned_ms / 1000:,.1f}"),
        ("partitions moved between members", f"{total.moves:,}"),
        ("members evicted", f"{more['evicted']:,}"),
        ("commits", f"{total.commits:,}"),
        ("stalled partitions", f"{total.stalled:,}"),
        ("failovers", f"{total.failovers:,}"),
    ]
    parts = [
        tiles(glance),
        section("Rebalances over time, by what began them", _over_time(found, style)),
        beside(
            section("Time to stable", f"<p>{escaped(settled_words(total))}</p>\n{_settled(total.settled)}"),
            section("Members that left or were removed", _counted(total.ended)),
            section("Unowned partition-seconds by group", _unowned(found)),
            _findings(total.findings),
        ),
        section("Groups", table_html(HEADERS, table_rows(found), numbers=range(1, len(HEADERS)))),
    ]
    if total.stalled:
        parts.append(section("Stalled partitions", _stalls(found, style)))
    return page(
        title=title or "How much",
        lead=window_words(found, style),
        body="\n".join(parts),
        styles=("chart.css", "stats.css"),
        rests_on=(*(f"From {basis}" for basis in found.rests_on), *found.remarks),
        provenance=provenance,
    )


def _findings(counted: Mapping[str, int]) -> str:
    """Every rule that found something, the gravest first."""
    if not counted:
        return ""
    gravity = list(Severity)
    kinds = sorted(counted, key=lambda kind: (-gravity.index(RULES[kind].severity), -counted[kind], kind))
    rows = [(severity(RULES[kind].severity), kind, RULES[kind].title, f"{counted[kind]:,}") for kind in kinds]
    headers = ("", "rule", "what it is", "times")
    return section("Findings", table_html(headers, rows, numbers=(3,), kind="rules"))


def _over_time(found: Stats, style: TimeStyle) -> str:
    """Stacked bars, one for each part of the window."""
    total = found.total.by_trigger
    if not total:
        return "<p>none</p>"
    shown = [name for name, _ in sorted(total.items(), key=lambda one: (-one[1], one[0]))[:TRIGGERS_SHOWN]]
    names = [*shown, *([REST] if len(total) > len(shown) else [])]
    most = max(sum(part.by_trigger.values()) for part in found.slices)
    step = WIDTH / len(found.slices)
    drawn = []
    for place, part in enumerate(found.slices):
        below = 0.0
        for at, name in enumerate(names):
            count = part.by_trigger.get(name, 0)
            if name == REST:
                count = sum(part.by_trigger.values()) - sum(part.by_trigger.get(one, 0) for one in shown)
            if not count:
                continue
            height = HEIGHT * count / most
            below += height
            said = f"{count} {lower_words(name)} from {style.full(part.from_ms)}"
            drawn.append(
                f'<rect class="c{at}" x="{place * step:.1f}" y="{HEIGHT - below:.1f}"'
                f' width="{step * 0.9:.1f}" height="{height:.1f}"><title>{escaped(said)}</title></rect>'
            )
    counts = [*(total[name] for name in shown), sum(total.values()) - sum(total[name] for name in shown)]
    label = f"Rebalances in {len(found.slices)} parts of the window, {most} in one at most"
    return (
        f'<p class="scale">{most:,}</p><svg class="over-time" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' preserveAspectRatio="none" aria-label="{escaped(label)}">{"".join(drawn)}</svg>'
        f"{time_axis(found.from_ms, found.until_ms, style)}\n{legend(list(zip(names, counts, strict=False)))}"
    )


def _settled(settled: Mapping[int, int]) -> str:
    """Number of rebalances by time to stable, in doubling steps, so that a long tail is visible."""
    steps: Counter[int] = Counter()
    for span_ms, count in settled.items():
        steps[_step_of(span_ms)] += count
    if not steps:
        return ""
    bounds = [10 * 2**place for place in range(min(steps), max(steps) + 1)]
    rows = [
        (f"up to {duration(bound)}", steps[place], f"{steps[place]:,}")
        for place, bound in enumerate(bounds, min(steps))
    ]
    return _bars(rows)


def _step_of(span_ms: int) -> int:
    """The smallest n for which the time is at most 10 * 2**n ms."""
    return max(-(-span_ms // 10) - 1, 0).bit_length()


def _unowned(found: Stats) -> str:
    groups = sorted(found.groups, key=lambda one: (-one.figures.unowned_ms, one.group_id))
    rows = [
        (one.group_id, one.figures.unowned_ms, f"{one.figures.unowned_ms / 1000:,.1f} s")
        for one in groups
        if one.figures.unowned_ms
    ]
    rest = len(rows) - GROUPS_SHOWN
    more = f"<p>and {rest:,} more, in the table</p>" if rest > 0 else ""
    return (_bars(rows[:GROUPS_SHOWN]) or "<p>none</p>") + more


def _counted(counted: Mapping[str, int]) -> str:
    rows = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
    return _bars([(name, count, f"{count:,}") for name, count in rows]) or "<p>none</p>"


def _bars(rows: Sequence[tuple[str, int, str]]) -> str:
    """Horizontal bars with their names and values as text."""
    most = max((value for _, value, _ in rows), default=0)
    if not most:
        return ""
    made = "".join(
        f'<tr><th title="{escaped(name)}">{escaped(shortened(name))}</th><td class=bar>'
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="c0" width="{100 * value / most:.2f}" height="10"/></svg></td>'
        f"<td class=number>{escaped(said)}</td></tr>"
        for name, value, said in rows
    )
    return f'<table class="bars"><tbody>{made}</tbody></table>'


def _stalls(found: Stats, style: TimeStyle) -> str:
    stalls = sorted(
        (one for group in found.groups for one in group.stalls), key=lambda one: (-one.quiet_ms, one.group_id)
    )
    rows = [
        (
            one.group_id,
            one.partition,
            one.name,
            duration(one.quiet_ms),
            "none" if one.last_commit_ms is None else style.full(one.last_commit_ms),
            f"{duration(one.usual_ms)} ({'its own' if one.measured_by == 'own' else 'of the others'})",
        )
        for one in stalls[:STALLS_SHOWN]
    ]
    headers = ("group", "partition", "owner", "no commit for", "last commit", "usual interval")
    rest = len(stalls) - STALLS_SHOWN
    return table_html(headers, rows) + (f"<p>and {rest:,} more</p>" if rest > 0 else "")
