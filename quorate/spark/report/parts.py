"""Parts of the page that the overview and the groups share: links, names, numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from history.diagnoses import called
from history.pages.frame import Markup, escaped, severity, shortened, table_html
from history.render import TimeStyle, duration

from .aggregates import SEVERITIES, FigureRow

WORDS_MAX = 400
"""Characters of a finding's sentence on the page; the table `findings` has all of them."""
NAME_MAX = 100
"""Characters of a group's or client's name on the page."""
_CODE = re.compile("`([^`]*)`")
NONE = "<p>none</p>"
PERIOD_HEADERS = (
    *("rebalances", "not settled", "to stable p50", "p95", "max"),
    *("errors", "warnings", "notes"),
)
"""Headings of the figures that the overview and each group have by period."""


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    texts: int = 1,
    kind: str = "",
) -> str:
    """A table whose first ``texts`` columns are texts and whose others are numbers."""
    return table_html(headers, rows, numbers=range(texts, len(headers)), kind=kind)


def folded(summary: str, content: str, *, is_open: bool = False) -> str:
    """Content under a line that opens it."""
    return f"<details{' open' if is_open else ''}><summary>{escaped(summary)}</summary>\n{content}</details>"


def named(name: str | None) -> str:
    """A name as plain text, shortened in the middle if it is very long."""
    return "-" if name is None else shortened(name, NAME_MAX)


def link(name: str | None, anchors: Mapping[str, str]) -> str:
    """A group's name, as a link if the page has a part about it."""
    if name is None or name not in anchors:
        return named(name)
    return Markup(f'<a href="#{anchors[name]}">{escaped(named(name))}</a>')


def prose(words: str) -> Markup:
    """A sentence as HTML, with text in backticks as code."""
    cut = words if len(words) <= WORDS_MAX else words[: WORDS_MAX - 1] + "…"
    return Markup(_CODE.sub(r"<code>\1</code>", escaped(cut)))


def count(number: int | None) -> str:
    """A number, and a dash for none: a table is calm where nothing happened."""
    return f"{number:,}" if number else "-"


def span(span_ms: int | None) -> str:
    return "-" if span_ms is None else duration(span_ms)


def seconds(span_ms: int | None) -> str:
    return f"{span_ms / 1000:,.1f}" if span_ms else "-"


def stable(row: FigureRow) -> tuple[str, str, str]:
    """Time to stable of some epochs: p50, p95 and the longest."""
    if row["max_ms"] is None:
        return "-", "-", "-"
    return span(row["quantiles"][0]), span(row["quantiles"][1]), span(row["max_ms"])


def severities(counts: Mapping[str, int]) -> tuple[str, ...]:
    """The numbers of findings by severity, the most severe first."""
    return tuple(count(counts.get(one)) for one in SEVERITIES)


def finding(row: FigureRow, style: TimeStyle) -> tuple[object, ...]:
    """Severity, time, rule and words of one finding."""
    at = Markup(f"<span class=nowrap>{escaped(style.full(row['from_ms']))}</span>")
    return severity(row["severity"]), at, row["kind"], prose(called(row["words"], row.get("names") or {}))
