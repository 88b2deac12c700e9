"""A node's notes outside its log, in the words of an explanation.

The log holds what was decided. The evidence file holds what was refused, how regular each member's heartbeats
were, and what faults set by an operator did. It is bounded and unsynced, so its absence proves nothing: an
explanation without it says that this part is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from history.reading.notes import (
    FAULT,
    GAP_WINDOW_MS,
    HEARTBEAT_GAP,
    REFUSED,
    TROUBLE,
    Note,
    fault_words,
    refusal_words,
)
from history.render import TimeStyle, duration

from .story import NoteStep, Step

UNKNOWN = "there is no evidence of the group: refused requests and gaps between heartbeats are unknown"
MINUTE_MS = 60_000
NOTED_LATE_MS = 6_000
"""Milliseconds by which the note of a gap between heartbeats may be delayed, possibly into the next
minute."""


@dataclass(slots=True)
class _Run:
    """The same refusal of the same member, the same failure or fault, repeated with nothing in between."""

    first: Note
    last_ms: int
    count: int = 1

    def repeats(self, note: Note) -> bool:
        return all(
            self.first.get(name) == note.get(name)
            for name in ("kind", "api", "error", "member", "reason", "said", "fault")
        )


def with_notes(
    steps: Sequence[Step],
    notes: Iterable[Note],
    group_id: str,
    say_member: Callable[[str], str],
    style: TimeStyle,
) -> tuple[Step, ...]:
    """The steps, with notes inserted where requests were refused or met a fault, or work failed."""
    mine = [n for n in notes if n.get("kind") in (REFUSED, TROUBLE, FAULT) and n.get("group") == group_id]
    mine.sort(key=lambda note: note["at_ms"])
    told: list[Step] = []
    taken = 0
    for step in steps:
        before = taken
        while taken < len(mine) and mine[taken]["at_ms"] < step.timestamp_ms:
            taken += 1
        told.extend(_folded(mine[before:taken], say_member, style))
        told.append(step)
    told.extend(_folded(mine[taken:], say_member, style))
    return tuple(told)


def fault_steps(
    notes: Iterable[Note], group_id: str, say_member: Callable[[str], str], style: TimeStyle
) -> list[NoteStep]:
    """The effects of operators' faults on requests of the group, in order."""
    mine = [note for note in notes if note.get("kind") == FAULT and note.get("group") == group_id]
    return list(_folded(sorted(mine, key=lambda note: note["at_ms"]), say_member, style))


def _folded(notes: Sequence[Note], say_member: Callable[[str], str], style: TimeStyle) -> Iterator[NoteStep]:
    runs: list[_Run] = []
    for note in notes:
        if runs and runs[-1].repeats(note):
            runs[-1].count += 1
            runs[-1].last_ms = note["at_ms"]
        else:
            runs.append(_Run(note, note["at_ms"]))
    for run in runs:
        text = _note_words(run.first, say_member)
        if run.count > 1:
            text += f" ({run.count} times until {style.clock(run.last_ms)})"
        member_id = run.first.get("member") or ""
        members = (member_id,) if member_id else ()
        yield NoteStep(index=None, timestamp_ms=run.first["at_ms"], text=text, members=members)


def _note_words(note: Note, say_member: Callable[[str], str]) -> str:
    if note["kind"] == TROUBLE:
        return str(note["said"])
    who = say_member(note["member"]) if note.get("member") else note.get("client") or "a client"
    return fault_words(note, who) if note["kind"] == FAULT else f"refused {who}: {refusal_words(note)}"


class GroupNotes:
    """The notes of one group, by member."""

    def __init__(self, notes: Iterable[Note], group_id: str) -> None:
        self._refusals: dict[str, list[Note]] = {}
        self._gaps: dict[str, dict[int, float]] = {}
        self.is_empty = True
        for note in notes:
            if note.get("group") != group_id:
                continue
            self.is_empty = False
            member_id = note.get("member") or ""
            if note["kind"] == REFUSED:
                self._refusals.setdefault(member_id, []).append(note)
            elif note["kind"] == HEARTBEAT_GAP:
                gaps = self._gaps.setdefault(member_id, {})
                minute = note["minute_ms"]
                gaps[minute] = max(gaps.get(minute, 0.0), note["gap_ms"])

    def refusals(self, member_id: str) -> Sequence[Note]:
        """The member's refused requests, oldest first."""
        return self._refusals.get(member_id, ())

    def gap_ms(self, member_id: str, minute_ms: int) -> float | None:
        """The longest gap in ms between two of its heartbeats noted in a minute; ``None``: none was noted."""
        return self._gaps.get(member_id, {}).get(minute_ms)

    def longest_gap(self, member_id: str, before_ms: int, limit_ms: float) -> str | None:
        """The longest heartbeat gap before a session expired, in words; ``None`` if none was noted.

        Gaps of at least ``limit_ms``, the session timeout, are ignored: the silence that ended the session is
        noted when the member comes back.
        """
        gaps = self._gaps.get(member_id, {})
        first = (before_ms - GAP_WINDOW_MS) // MINUTE_MS * MINUTE_MS
        minutes = range(first, before_ms + 1, MINUTE_MS)
        found = [gaps[minute] for minute in minutes if minute in gaps and gaps[minute] < limit_ms]
        return (
            f"the longest gap between two of its heartbeats before was {duration(max(found))}"
            if found
            else None
        )
