"""`timeline --lanes`: members over time in a terminal, one line each.

A column is a period of time; the height of its block is the number of partitions that the member held at its
end. Events within a column take precedence over states: a member that was handing over partitions, or whose
session ended, shows that. The HTML page shows every change; this shows where to look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from history.facts.rows import GroupFinding, GroupRows, MemberSession, SessionEnd, begun_ms, shared_noun
from history.reading.notes import Note
from history.render import LOCAL, TimeStyle, duration, plural

from .captions import Captions, bounds_of, shown_findings
from .frame import shortened
from .lanes import Hand, Lanes, Segment, Stand, highest, lanes_of

LANES_MAX = 60
"""Maximum number of members shown, those with the most changes; more lines could not be distinguished."""
NAME_WIDTH_MAX = 22
COLUMNS_MIN = 24
EVENTS_MAX = 30
"""Maximum number of lines below the lanes; the page and the table have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The characters of the lanes, each one column wide."""

    heights: str
    """From fewest partitions to all."""
    idle: str
    moving: str
    away: str
    left: str
    expired: str
    term: str
    fault: str
    bar: str
    cut: str
    """In place of the middle of a name."""


BLOCKS = Signs(
    heights="▁▂▃▄▅▆▇█",
    idle="·",
    moving="▒",
    away="╌",
    left="◂",
    expired="✕",
    term="◆",
    fault="!",
    bar="█",
    cut="…",
)
ASCII = Signs(
    heights="123456789",
    idle=".",
    moving="%",
    away="~",
    left="<",
    expired="x",
    term="^",
    fault="!",
    bar="#",
    cut="~",
)


def lanes_text(
    facts: GroupRows,
    findings: Sequence[GroupFinding],
    *,
    width: int = 100,
    style: TimeStyle = LOCAL,
    signs: Signs = BLOCKS,
    whole: GroupRows | None = None,
    from_ms: int | None = None,
    to_ms: int | None = None,
    notes: Sequence[Note] = (),
) -> Iterator[str]:
    """The lanes as lines at most ``width`` wide, but wide enough for the names and a few columns.

    ``facts``, ``whole`` and ``notes`` are as for `timeline_page`.
    """
    captions = Captions(facts, style, whole)
    begin, end = bounds_of(facts, from_ms, to_ms)
    numbers = {member_id: number for number, member_id in enumerate(captions.members)}
    lanes = lanes_of(facts, numbers, begin, end)
    shown = _most_changed(captions.members, lanes)
    name_width = min(NAME_WIDTH_MAX, max(width - COLUMNS_MIN - 2, len("not stable")))
    named = [shortened(captions.member(member_id), name_width, signs.cut) for member_id in shown]
    margin = max(map(len, [*named, "not stable"])) + 2
    columns = max(width - margin, COLUMNS_MIN)
    edges = [begin + (end - begin) * at // columns for at in range(columns + 1)]
    most = max((segment[3] for lane in lanes.members for segment in lane), default=0)
    faults = captions.faults(notes, begin, end)

    yield f"{style.full(begin)} to {style.full(end - 1)}; one column is {duration((end - begin) / columns)}"
    yield " " * margin + _clocks(edges, style)
    yield shared_noun(facts.epochs).ljust(margin) + _numbers(facts, edges)
    yield "not stable".ljust(margin) + _restless(facts, edges, signs)
    if any(term.is_takeover for term in facts.terms):
        yield "failovers".ljust(margin) + _takeovers(facts, edges, signs)
    if faults:
        yield "faults".ljust(margin) + _faults(faults, edges, signs)
    for member_id, name in zip(shown, named, strict=True):
        sessions = [one for one in facts.sessions if one.member_id == member_id]
        lane = _lane(lanes.members[numbers[member_id]], sessions, edges, most, signs)
        yield (name.ljust(margin) + lane).rstrip()
    yield ("nobody".ljust(margin) + _unowned(lanes, edges, signs)).rstrip()
    if len(shown) < len(numbers):
        yield f"{plural(len(numbers) - len(shown), 'member')} with fewer changes left out: --html shows all"
    yield _legend(most, signs)
    yield from _events(facts, findings, captions, style, begin, end, faults)


def _most_changed(members: Sequence[str], lanes: Lanes) -> list[str]:
    """The members to show, in the order in which they joined."""
    changes = [_changes(lane) for lane in lanes.members]
    rank = sorted(range(len(members)), key=lambda number: -changes[number])[:LANES_MAX]
    return [members[number] for number in sorted(rank)]


def _changes(lane: Sequence[Segment]) -> int:
    """Number of changes in a lane, ignoring those by which a member reaches an epoch."""
    said = [(0 if stand == Stand.BEHIND else stand, held) for _, _, stand, held in lane]
    gaps = sum(before[1] != after[0] for before, after in pairwise(lane))
    return gaps + sum(before != after for before, after in pairwise(said))


def _clocks(edges: Sequence[int], style: TimeStyle) -> str:
    """Clock times, each at its column, spaced so that its eight characters and a gap fit."""
    text = ""
    for at in range(0, len(edges) - 9, 16):
        text = text.ljust(at) + style.clock(edges[at])[:8]
    return text


def _columns(edges: Sequence[int], from_ms: int, to_ms: int) -> range:
    """The columns that a period touches; at least one if any of it is visible."""
    begin, end, columns = edges[0], edges[-1], len(edges) - 1
    if to_ms < begin or from_ms > end:
        return range(0)
    size = (end - begin) / columns
    first = min(max(int((from_ms - begin) / size), 0), columns - 1)
    last = min(max(int((to_ms - begin - 1) / size), first), columns - 1)
    return range(first, last + 1)


def _numbers(facts: GroupRows, edges: Sequence[int]) -> str:
    """Each epoch's number at its beginning, if the previous number leaves room."""
    text = ""
    for row in facts.epochs:
        for column in _columns(edges, row.timestamp_ms, row.timestamp_ms)[:1]:
            said = str(row.epoch)
            if (not text or column > len(text)) and column + len(said) < len(edges):
                text = text.ljust(column) + said
    return text


def _restless(facts: GroupRows, edges: Sequence[int], signs: Signs) -> str:
    cells = [" "] * (len(edges) - 1)
    for row in facts.epochs:
        until = row.settled_ms if row.settled_ms is not None else row.end_ms
        until = facts.last_ms if until is None else until
        for column in _columns(edges, begun_ms(row), until) if until > begun_ms(row) else ():
            cells[column] = signs.bar
    return "".join(cells).rstrip()


def _takeovers(facts: GroupRows, edges: Sequence[int], signs: Signs) -> str:
    text = ""
    for term in facts.terms:
        for column in _columns(edges, term.timestamp_ms, term.timestamp_ms)[:1] if term.is_takeover else ():
            if column >= len(text):
                text = text.ljust(column) + f"{signs.term}{term.node_id}"
    return text[: len(edges) - 1]


def _faults(faults: Sequence[tuple[int, str]], edges: Sequence[int], signs: Signs) -> str:
    touched = {column for at, _ in faults for column in _columns(edges, at, at)}
    return "".join(signs.fault if column in touched else " " for column in range(len(edges) - 1)).rstrip()


def _lane(
    segments: Sequence[Segment],
    sessions: Sequence[MemberSession],
    edges: Sequence[int],
    most: int,
    signs: Signs,
) -> str:
    cells = [" "] * (len(edges) - 1)
    is_moving: set[int] = set()
    for begin, end, stand, held in segments:
        touched = _columns(edges, begin, end)
        if stand in (Stand.WAITING, Stand.GIVING_UP):
            is_moving.update(touched)
        for column in touched:
            cells[column] = signs.away if stand == Stand.AWAY else _height(held, most, signs)
    for column in is_moving:
        cells[column] = signs.moving
    for session in sessions:
        if session.to_ms is not None and session.end is not SessionEnd.UNKNOWN:
            ended = signs.left if session.end in _IN_PEACE else signs.expired
            for column in _columns(edges, session.to_ms, session.to_ms):
                cells[column] = ended
    return "".join(cells)


def _height(count: int, most: int, signs: Signs) -> str:
    if not count:
        return signs.idle
    if most <= len(signs.heights):
        return signs.heights[count - 1 if signs is ASCII else -(-count * len(signs.heights) // most) - 1]
    return signs.heights[-(-count * len(signs.heights) // most) - 1]


def _unowned(lanes: Lanes, edges: Sequence[int], signs: Signs) -> str:
    """The maximum number of partitions without an owner in each column."""
    changes: list[tuple[int, int]] = []
    for lane in lanes.partitions:
        for begin, end, hand, _ in lane.segments:
            if hand == Hand.UNOWNED:
                changes += ((begin, len(lane.partitions)), (end, -len(lane.partitions)))
    counts = highest(changes, len(edges) - 1, partial(_columns, edges))
    total = max(sum(len(lane.partitions) for lane in lanes.partitions), 1)
    return "".join(_height(count, total, signs) if count else " " for count in counts)


def _legend(most: int, signs: Signs) -> str:
    full = signs.heights[min(most, len(signs.heights)) - 1 if signs is ASCII and most else -1]
    held = f"{full} {plural(most, 'partition')}" if most else ""
    parts = [
        held,
        f"{signs.idle} none",
        f"{signs.moving} handing over",
        f"{signs.away} away",
        f"{signs.left} left",
        f"{signs.expired} expired or removed",
    ]
    return "  ".join(part for part in parts if part)


def _events(
    facts: GroupRows,
    findings: Sequence[GroupFinding],
    captions: Captions,
    style: TimeStyle,
    begin: int,
    end: int,
    faults: Sequence[tuple[int, str]],
) -> Iterator[str]:
    """Failovers, faults and involuntary ends of sessions, in order; then the findings."""
    told = [*faults]
    told += [(term.timestamp_ms, captions.term(term)["words"]) for term in facts.terms if term.is_takeover]
    for session in facts.sessions:
        if session.to_ms is not None and session.end not in _PEACEFUL:
            told.append((session.to_ms, f"{captions.member(session.member_id)}: {session.end.value}"))
    told = sorted(event for event in told if begin <= event[0] <= end)
    for at, words in told[:EVENTS_MAX]:
        yield f"{style.clock(at)}  {words}"
    if len(told) > EVENTS_MAX:
        yield f"and {len(told) - EVENTS_MAX} more"
    for finding in shown_findings(findings)[:EVENTS_MAX]:
        yield f"{finding.severity.value}: {finding.kind}: {captions.finding(finding)}"


_IN_PEACE = (SessionEnd.LEFT, SessionEnd.REPLACED, SessionEnd.FORGOTTEN)
_PEACEFUL = (*_IN_PEACE, SessionEnd.OPEN, SessionEnd.UNKNOWN)
