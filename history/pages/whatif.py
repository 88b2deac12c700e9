"""`whatif --html`: two courses of one group on one page, what really happened above what would have happened.

Both are drawn on the same axis and to the same scale: when the group was not stable, how many partitions were
out of use (unowned or being revoked), epochs and fences. All of it is in the markup and works without a
script. A picture has a fixed number of columns, so that a page of a year is no larger than one of a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history.facts.rows import GroupRows, SessionEnd, SpanKind
from history.reading.source import Basis
from history.render import LOCAL, TimeStyle, duration, plural, sentence_list
from history.whatif.answer import WhatIfResult
from history.whatif.measures import Measures
from history.whatif.telling import NAMES, figures, rests_on
from history.whatif.verdict import verdict

from .frame import Provenance, escaped, page, section, time_axis
from .lanes import highest

COLUMNS = 1_000
"""Number of columns of a picture: about as many as a screen has for it."""
HEIGHT = 90
STRIP = 10
FENCES = (SessionEnd.SESSION_EXPIRED, SessionEnd.REBALANCE_EXPIRED)


def whatif_page(
    result: WhatIfResult,
    basis: Sequence[Basis] = (),
    *,
    style: TimeStyle = LOCAL,
    provenance: Provenance | None = None,
) -> str:
    """The whole HTML file; the result must not be one that was left out."""
    really, what_if = result.really_facts, result.facts
    assert really is not None
    assert what_if is not None
    courses = (_Course(really, _begin(really)), _Course(what_if, _begin(really)))
    highest = max(1, *(course.highest for course in courses))
    begin, end = courses[0].begin_ms, courses[0].end_ms
    found = verdict(result)
    judged = f'<p class="verdict {found.judgement}">{escaped(found.words)}</p>'
    said = (
        judged,
        section("In figures", _figures(result)),
        section("Over time", _pictures(courses, highest, style)),
    )
    return page(
        title=f"Group {result.group_id}: what if {sentence_list(result.asked)}",
        lead=f"{style.full(begin)} to {style.full(end)} ({duration(end - begin)}), shard {result.shard}",
        body="\n".join((*said, section("What this rests on", _list(rests_on(result))))),
        styles=("whatif.css",),
        rests_on=[f"From {one.words()}" for one in basis],
        provenance=provenance,
    )


def _begin(facts: GroupRows) -> int:
    times = [row.timestamp_ms for row in facts.epochs[:1]] + [span.from_ms for span in facts.spans]
    return min(times, default=facts.last_ms)


class _Course:
    """One course, in columns."""

    def __init__(self, facts: GroupRows, begin_ms: int) -> None:
        self.begin_ms, self.end_ms = begin_ms, max(facts.last_ms, begin_ms + 1)
        self._facts = facts
        self.out_of_use = self._out_of_use()
        self.highest = max(self.out_of_use)

    def column(self, at_ms: int) -> int:
        place = (at_ms - self.begin_ms) * COLUMNS // (self.end_ms - self.begin_ms)
        return min(max(place, 0), COLUMNS - 1)

    def _out_of_use(self) -> list[int]:
        """The maximum number of partitions without an owner or being revoked, by column."""
        changes: list[tuple[int, int]] = []
        for span in self._facts.spans:
            to_ms = self.end_ms if span.to_ms is None else span.to_ms
            if span.kind is not SpanKind.OWNED and to_ms > span.from_ms:
                changes += [(span.from_ms, 1), (to_ms, -1)]
        return highest(changes, COLUMNS, lambda at, until: range(self.column(at), self.column(until - 1) + 1))

    def unstable(self) -> list[tuple[int, int]]:
        """(first, last) column of each period in which the group was not stable."""
        spans: list[tuple[int, int]] = []
        for row in self._facts.epochs:
            settled_ms = row.settled_ms if row.settled_ms is not None else row.end_ms
            first = self.column(row.timestamp_ms)
            last = self.column(self.end_ms if settled_ms is None else settled_ms)
            if spans and first <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        return spans

    def epochs(self) -> set[int]:
        return {self.column(row.timestamp_ms) for row in self._facts.epochs if row.is_begin_known}

    def fences(self) -> dict[int, int]:
        """Number of members removed because they were silent or slow, by column."""
        found: dict[int, int] = {}
        for one in self._facts.sessions:
            if one.end in FENCES and one.to_ms is not None:
                column = self.column(one.to_ms)
                found[column] = found.get(column, 0) + 1
        return found


def _pictures(courses: tuple[_Course, _Course], highest: int, style: TimeStyle) -> str:
    made = "\n".join(
        f'<figure class="course"><figcaption>{name}</figcaption>{_picture(course, highest, name)}</figure>'
        for name, course in zip(("really", "what if"), courses, strict=True)
    )
    axis = time_axis(courses[0].begin_ms, courses[0].end_ms, style)
    legend = (
        '<p class="legend"><span class="key unstable"></span> not stable <span class="key out"></span> '
        f'partitions without owner or being given up, at most {highest} <span class="key epoch"></span> an '
        'epoch begins <span class="key fence"></span> a member is removed</p>'
    )
    return f"{made}\n{axis}\n{legend}"


def _picture(course: _Course, highest: int, name: str) -> str:
    floor = HEIGHT
    room = HEIGHT - STRIP - 6
    outline = f"M0 {floor}" + "".join(
        f"L{column} {floor - room * count / highest:.1f}L{column + 1} {floor - room * count / highest:.1f}"
        for column, count in enumerate(course.out_of_use)
        if count or column in (0, COLUMNS - 1) or _is_edge(course.out_of_use, column)
    )
    strips = "".join(
        f'<rect class="unstable" x="{first}" y="0" width="{last - first + 1}" height="{STRIP}"/>'
        for first, last in course.unstable()
    )
    ticks = "".join(f"M{column} 0V{STRIP}" for column in sorted(course.epochs()))
    fences = "".join(
        f'<path class="fence" d="M{column} 0V{HEIGHT}"><title>{plural(count, "member")} out</title></path>'
        for column, count in sorted(course.fences().items())
    )
    words = f"{name}: at most {plural(course.highest, 'partition')} out of use at a time"
    return (
        f'<svg viewBox="0 0 {COLUMNS} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escaped(words)}"><rect class="calm" width="{COLUMNS}" height="{STRIP}"/>{strips}'
        f'<path class="epoch" d="{ticks}"/><path class="out" d="{outline}L{COLUMNS} {floor}Z"/>{fences}</svg>'
    )


def _is_edge(counts: Sequence[int], column: int) -> bool:
    """Whether a neighbouring column is not empty."""
    return bool(counts[max(column - 1, 0)] or counts[min(column + 1, len(counts) - 1)])


def _figures(result: WhatIfResult) -> str:
    assert result.really is not None
    assert result.whatif is not None
    rows = "\n".join(
        f"<tr><th scope=row>{escaped(words)}</th><td class=number>{escaped(really)}</td>"
        f"<td class=number>{escaped(what_if)}</td><td class=number>{escaped(by)}</td>"
        f"<td class=bars>{_bars(result.really, result.whatif, name)}</td></tr>"
        for name, (words, really, what_if, by) in zip(NAMES, figures(result), strict=True)
    )
    numbers = "".join(
        f"<th scope=col class=number>{head}</th>" for head in ("really", "what if", "difference")
    )
    heads = f"<th></th>{numbers}<th class=bars></th>"
    return (
        f'<div class="scroll"><table class="figures"><thead><tr>{heads}</tr></thead><tbody>\n{rows}\n'
        "</tbody></table></div>"
    )


def _bars(really: Measures, what_if: Measures, name: str) -> str:
    """Both figures as bars of one scale, what really happened above."""
    values: tuple[int, int] = getattr(really, name), getattr(what_if, name)
    most = max(values)
    if not most:
        return ""
    drawn = "".join(
        f'<rect class="{kind}" y="{place * 8}" width="{200 * value / most:.1f}" height="6"/>'
        for place, (kind, value) in enumerate(zip(("really", "whatif"), values, strict=True))
    )
    return f'<svg viewBox="0 0 200 14" aria-hidden="true">{drawn}</svg>'


def _list(lines: Iterator[str]) -> str:
    return "<ul>" + "".join(f"<li>{escaped(line)}</li>" for line in lines) + "</ul>"
