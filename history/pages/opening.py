"""The moment at which a timeline opens: in the gravest finding, when most partitions were out of use.

Severity decides first. Of equally severe findings it is the one within which the group was not stable for
longest without a pause: a member that comes and goes for hours disturbs less than a minute of standstill.
The unrest in which a group is created does not count: every group has it. A finding of the shard's leaders
is no unrest of the group, so it comes after the others, and the page opens where it began.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from history.diagnoses.table import LEADER_RULES
from history.facts.rows import GroupFinding, GroupRows, Severity, SpanKind, begun_ms

Period = tuple[int, int]
"""From and to, in epoch ms."""


def opening(facts: GroupRows, findings: Sequence[GroupFinding], end_ms: int) -> tuple[int, int] | None:
    """(Position in ``findings``, the most severe first, and ms); None: nothing is graver than a note."""
    if not findings or findings[0].severity is Severity.NOTE:
        return None
    grave = [one for one in findings if one.severity is findings[0].severity]
    unrest = _unrest(facts, end_ms)
    longest = [
        None
        if one.kind in LEADER_RULES
        else _longest(one.from_ms, end_ms if one.to_ms is None else one.to_ms, unrest)
        for one in grave
    ]
    worst = max(range(len(grave)), key=lambda at: _length(longest[at]))
    within = longest[worst]
    return worst, grave[worst].from_ms if within is None else _worst_moment(facts, within, end_ms)


def _unrest(facts: GroupRows, end_ms: int) -> list[Period]:
    """The periods in which the group was not stable, without those of its creation; they do not touch."""
    periods: list[tuple[int, int, bool]] = []
    for row in facts.epochs:
        until = row.settled_ms if row.settled_ms is not None else row.end_ms
        begin, end = begun_ms(row), end_ms if until is None else until
        if periods and begin <= periods[-1][1]:
            periods[-1] = (periods[-1][0], max(periods[-1][1], end), periods[-1][2])
        else:
            periods.append((begin, end, row.is_begin_known and not row.epoch_before))
    return [(begin, end) for begin, end, is_creation in periods if not is_creation]


def _longest(from_ms: int, to_ms: int, unrest: Sequence[Period]) -> Period | None:
    """The longest part of a period of unrest that is within these times."""
    first = max(bisect_right(unrest, from_ms, key=lambda one: one[0]) - 1, 0)
    last = bisect_right(unrest, to_ms, key=lambda one: one[0])
    parts = [(max(begin, from_ms), min(end, to_ms)) for begin, end in unrest[first:last] if end >= from_ms]
    return max(parts, key=_length, default=None)


def _length(period: Period | None) -> int:
    return -1 if period is None else period[1] - period[0]


def _worst_moment(facts: GroupRows, within: Period, end_ms: int) -> int:
    """The first moment within a period with most partitions unowned, else with most being revoked.

    If all were in use, it is the begin of the first epoch: in a classic group its join phase comes before it.
    """
    begin, end = within
    for kind in (SpanKind.UNOWNED, SpanKind.REVOKING):
        changes: list[tuple[int, int]] = []
        for span in facts.spans:
            to_ms = end_ms if span.to_ms is None else span.to_ms
            if span.kind is kind and span.from_ms <= end and begin < to_ms and span.from_ms < to_ms:
                changes += [(max(span.from_ms, begin), 1), (to_ms, -1)]
        count, most, moment = 0, 0, begin
        for at_ms, step in sorted(changes):
            count += step
            if at_ms <= end and count > most:
                most, moment = count, at_ms
        if most:
            return moment
    return next((row.timestamp_ms for row in facts.epochs if begin <= row.timestamp_ms <= end), begin)
