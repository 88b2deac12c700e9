"""Members that leave and join faster than the group can settle."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

from history.facts.rows import EpochRow, SessionEnd, shared_noun
from history.render import duration, plural

from .case import SETTLE_MS, Case, Found, Threshold, clusters, members, parts, unique

STORM_WINDOW_MS = Threshold(
    60_000,
    "STORM_WINDOW_MS",
    "A rolling restart waits until the group is stable again, so it has few epochs in a minute, and all of "
    "them settle.",
)
STORM_EPOCHS_MIN = Threshold(
    6,
    "STORM_EPOCHS_MIN",
    "Three members that leave and three that join; at least half of these epochs were overtaken.",
)
STORM_MEMBERS_MIN = Threshold(
    3,
    "STORM_MEMBERS_MIN",
    "Number of members that left and that joined: a group that only starts, or only ends, is not a storm.",
)


def rebalance_storm(case: Case) -> Iterator[Found]:
    """Many epochs in a short time, most of them overtaken, as members left and joined."""
    rows = case.facts.epochs
    times = [row.timestamp_ms for row in rows]
    went = sorted(s.to_ms for s in case.facts.sessions if s.to_ms is not None and s.end not in _STAYED)
    came = sorted(s.from_ms for s in case.facts.sessions if s.is_begin_known and s.replaced is None)
    unsettled = [0, *accumulate(int(not _is_settled(row)) for row in rows)]
    departures = {s.to_index for s in case.facts.sessions if s.end not in _STAYED}
    first: int | None = None
    last = 0
    for start, row in enumerate(rows):
        if row.index not in departures:  # members that joined before the first departure are not part of it
            continue
        end = bisect_right(times, row.timestamp_ms + STORM_WINDOW_MS)
        is_storm = (
            end - start >= STORM_EPOCHS_MIN
            and 2 * (unsettled[end] - unsettled[start]) >= end - start
            and _within(went, row.timestamp_ms, times[end - 1]) >= STORM_MEMBERS_MIN
            and _within(came, row.timestamp_ms, times[end - 1]) >= STORM_MEMBERS_MIN
        )
        if is_storm and first is not None and start <= last:
            last = end - 1
        elif is_storm:
            if first is not None:
                yield from _storms(case, rows[first : last + 1])
            first, last = start, end - 1
    if first is not None:
        yield from _storms(case, rows[first : last + 1])


def _storms(case: Case, rows: tuple[EpochRow, ...]) -> Iterator[Found]:
    for part in clusters(rows, lambda row: row.timestamp_ms, STORM_WINDOW_MS):
        yield _storm(case, part)


def _is_settled(row: EpochRow) -> bool:
    return row.settled_ms is not None and row.settled_ms - row.timestamp_ms <= SETTLE_MS


_STAYED = (SessionEnd.REPLACED, SessionEnd.FORGOTTEN, SessionEnd.UNKNOWN, SessionEnd.OPEN)


def _within(times: list[int], from_ms: int, to_ms: int) -> int:
    return bisect_right(times, to_ms) - bisect_left(times, from_ms)


def _storm(case: Case, rows: list[EpochRow]) -> Found:
    first, last = rows[0], rows[-1]
    went = [
        s.member_id
        for s in case.facts.sessions
        if s.to_index is not None and first.index <= s.to_index <= last.index and s.end not in _STAYED
    ]
    came = [s.member_id for s in case.facts.sessions if first.index <= s.from_index <= last.index]
    moved = {move.partition for row in rows for move in row.moves}
    said = plural(len(rows), shared_noun(rows))
    never = sum(not _is_settled(row) for row in rows)
    to_index, to_ms = (
        (last.settled_index, last.settled_ms) if _is_settled(last) else (last.index, last.timestamp_ms)
    )
    return Found(
        members=unique((*went, *came)),
        partitions=sorted(moved),
        epochs=[row.epoch for row in rows],
        from_index=first.index,
        from_ms=first.timestamp_ms,
        to_index=to_index,
        to_ms=to_ms,
        words=(
            f"{said} in {duration(last.timestamp_ms - first.timestamp_ms)}, {never} of "
            f"them overtaken before they were stable: {members(went)} left and {members(came)} joined; "
            f"{parts(moved)} moved"
        ),
        rests_on=[row.index for row in rows],
    )
