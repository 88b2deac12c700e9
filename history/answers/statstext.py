"""`stats` as text: one line per group, a total, then the details behind the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from history.columns import table
from history.diagnoses import RULES
from history.render import LOCAL, TimeStyle, duration, lower_words, plural
from records import Trigger

from .figures import Figures
from .stats import Stats

STALLS_SHOWN_MAX = 20
EVICTED = ("session expired", "rebalance expired", "removed", "join expired", "sync expired")
"""Ends of sessions that the member did not choose."""
_CALLED = {Trigger.GENERATION_COMPLETED.name: "generation of a classic group completed"}
"""Triggers that need more words than their names have."""
HEADERS = (
    *("group", "rebalances", "not stable", "unowned", "revoking", "moves", "evicted"),
    "members min/mean/max",
    *("commits/s", "stalled"),
)


def stats_text(found: Stats, style: TimeStyle = LOCAL, *, width: int | None = None) -> Iterator[str]:
    """The statistics as lines of text; the table fits the width."""
    yield window_words(found, style)
    for basis in found.rests_on:
        yield f"from {basis}"
    for remark in found.remarks:
        yield f"note: {remark}"
    yield ""
    yield from table(HEADERS, table_rows(found), width, numbers=range(1, len(HEADERS)))
    total = found.total
    if total.rebalances:
        yield ""
        begun, because = _counts(total.by_trigger), _counts(total.by_reason)
        yield f"rebalances  {total.rebalances:,}, each left members in its group; begun by {begun}"
        if because != begun:
            yield f"  because   {because}; each of several reasons of a rebalance counts"
        yield f"  to stable {settled_words(total)}"
    if total.ended or total.joined:
        came = [("joined", total.joined), ("joined again", total.rejoined)]
        counted = _counts({**dict(came), **total.ended})
        yield f"members     {counted}; one rebalance may be for several"
    if total.failovers:
        yield f"leaders     {plural(total.failovers, 'change')} of leader, by failover or planned hand-over"
    if total.committed:
        silence = duration(total.longest_silence_ms or 0)
        partitions = plural(total.committed, "partition")
        yield f"commits     {total.commits:,} of {partitions}, longest silence {silence}"
    if total.transactional:
        yield f"transactions {_counts(total.transactional)}"
    for kind, count in sorted(total.findings.items()):
        yield f"finding     {count:,} × {kind}: {RULES[kind].title}"
    yield from _stalls(found, style)


def window_words(found: Stats, style: TimeStyle) -> str:
    """The window in words: from when to when, how long, how many groups."""
    span = duration(found.until_ms - found.from_ms)
    ends = f"{style.full(found.from_ms)} to {style.full(found.until_ms)}"
    return f"{ends} ({span}): {plural(len(found.groups), 'group')}"


def table_rows(found: Stats) -> list[list[str]]:
    """A row per group, least stable first, and a total; partition-time is in partition-seconds."""
    groups = sorted(found.groups, key=lambda one: (-one.figures.unstable_ms, one.group_id))
    rows = [_row(one.group_id, one.figures, one.until_ms - one.from_ms) for one in groups]
    if len(rows) != 1:
        rows.append(_row("in all", found.total, found.until_ms - found.from_ms))
    return rows


def _row(name: str, figures: Figures, span_ms: int) -> list[str]:
    share, mean = figures.unstable_share, figures.members_mean
    rate = commits_per_s(figures, span_ms)
    return [
        name,
        f"{figures.rebalances:,}",
        duration(figures.unstable_ms) + (f" ({share:.1%})" if share else ""),
        f"{figures.unowned_ms / 1000:,.1f} s",
        f"{figures.revoking_ms / 1000:,.1f} s",
        f"{figures.moves:,}",
        f"{sum(figures.ended[end] for end in EVICTED):,}",
        "-" if mean is None else f"{figures.members_min}/{mean:.1f}/{figures.members_max}",
        "-" if rate is None else f"{rate:,.2f}",
        f"{figures.stalled:,}",
    ]


def settled_words(figures: Figures) -> str:
    """The time that groups took to become Stable again, in words."""
    if figures.settle_max_ms is None:
        return "no epoch became stable in the window"
    half, most = figures.settled_within(0.5), figures.settled_within(0.95)
    said = (
        f"half within {duration(half or 0)}, 95 % within {duration(most or 0)},"
        f" longest {duration(figures.settle_max_ms)}"
    )
    return said + (f"; {figures.overtaken:,} overtaken by the next" if figures.overtaken else "")


def commits_per_s(figures: Figures, span_ms: int) -> float | None:
    return figures.commits * 1000 / span_ms if span_ms > 0 else None


def derived(figures: Figures, span_ms: int) -> dict[str, Any]:
    """Values derived from the figures, so that other programs need not compute them."""
    return {
        "unstable_share": figures.unstable_share,
        "members_mean": figures.members_mean,
        "commits_per_s": commits_per_s(figures, span_ms),
        "settle_p50_ms": figures.settled_within(0.5),
        "settle_p95_ms": figures.settled_within(0.95),
        "evicted": sum(figures.ended[end] for end in EVICTED),
    }


def _stalls(found: Stats, style: TimeStyle) -> Iterator[str]:
    stalls = sorted(
        (stall for group in found.groups for stall in group.stalls), key=lambda stall: -stall.quiet_ms
    )
    for stall in stalls[:STALLS_SHOWN_MAX]:
        last = "none" if stall.last_commit_ms is None else style.full(stall.last_commit_ms)
        whose = "its own" if stall.measured_by == "own" else "that of other partitions"
        yield (
            f"stalled     {stall.partition} of {stall.group_id}: {stall.name} owns it, no commit for "
            f"{duration(stall.quiet_ms)} (last: {last}; usual interval, {whose}: {duration(stall.usual_ms)})"
        )
    if len(stalls) > STALLS_SHOWN_MAX:
        yield f"            and {len(stalls) - STALLS_SHOWN_MAX} more (--json has them)"


def _counts(counted: Mapping[str, int]) -> str:
    shown = sorted(((count, name) for name, count in counted.items() if count), key=lambda x: (-x[0], x[1]))
    return (
        ", ".join(f"{count:,} × {_CALLED.get(name) or lower_words(name)}" for count, name in shown) or "none"
    )
