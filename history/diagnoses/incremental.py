"""The findings of one group, concluded as its facts come, with the rows of a bounded time in memory.

The facts that determine a finding lie within the horizon of its rule (`case.NEAR`, `case.FAR`). So the rules
are applied to the rows of that time only; a finding whose look-ahead has passed is concluded, and each is
concluded once, by the time at which it ended. Concluded and open findings together are those of
`findings_of` for all rows and all notes.

A note counts if it is there before its time is `NEAR.look_ahead_ms` past on the log's clock. A later one
changes nothing that is concluded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from history.facts.checkpoint import ROW_CLASSES, StateError
from history.facts.ownership import by_partition
from history.facts.positional_codec import PositionalCodec
from history.facts.rows import (
    EpochRow,
    GroupFinding,
    GroupRows,
    MemberSession,
    OwnershipSpan,
    TermRow,
    TopicPartition,
)
from history.reading.notes import Note
from records import Cause, RecordsError
from records.packing import pack, unpack_nested

from .case import FAR, NEAR, Case, Delay, Earlier, Given, LateRow
from .findings import by_begin, found_in, uncovered
from .rebalances import late_rows
from .table import GROUP_RULES, RULES, RUNS_FAR

CHECK_ROWS = 256
"""Rules are applied when so many rows came since the last time, or as many as are remembered if more."""


@dataclass(slots=True)
class Remembered:
    """The facts that later findings may need; `state` writes these fields."""

    known_ms: int = -1
    """Time up to which findings were concluded, when their look-ahead is added."""
    has_evidence: bool = False
    notes: list[str] = field(default_factory=list)
    """Notes as JSON, by time."""
    epochs: list[EpochRow] = field(default_factory=list)
    spans: list[OwnershipSpan] = field(default_factory=list)
    sessions: list[MemberSession] = field(default_factory=list)
    terms: list[TermRow] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    """The last target of each partition, from epochs that are forgotten."""
    late: list[LateRow] = field(default_factory=list)
    """Rebalances for which the group waited for members, within the horizon `FAR`."""
    pending: list[GroupFinding] = field(default_factory=list)
    """Findings that are known, but that one of a rule with the horizon `FAR` may still cover."""


class GroupDiagnosis:
    """The findings of one group so far; rows are given in the order in which they are drained."""

    def __init__(self, remembered: Remembered | None = None) -> None:
        self.remembered = Remembered() if remembered is None else remembered
        self._num_new = self._num_seen = 0
        self._notes: list[Note] = [json.loads(text) for text in self.remembered.notes]

    @property
    def is_due(self) -> bool:
        """Whether so many rows came that `conclude` is worth its time."""
        return self._num_new >= max(CHECK_ROWS, self._num_seen)

    def note(self, notes: Iterable[Note]) -> bool:
        """Take notes about the group; whether any of them is new, and in time to count."""
        known = self.remembered
        since_ms = known.known_ms - NEAR.look_ahead_ms - NEAR.look_back_ms
        there = set(known.notes)
        fresh = {note_text(note): note for note in notes if note["at_ms"] >= since_ms}
        new = [note for text, note in fresh.items() if text not in there]
        if new:
            known.has_evidence = True
            self._put_notes([*self._notes, *new])
        return bool(new)

    def take(self, part: GroupRows) -> None:
        """Take rows that can no longer change (`FactsBuilder.drain`)."""
        known = self.remembered
        known.epochs += (replace(row, progress=(), relapses=()) for row in part.epochs)  # no rule reads them
        known.spans += part.spans
        known.sessions += part.sessions
        known.terms += part.terms
        self._num_new += len(part.epochs) + len(part.spans) + len(part.sessions)

    def conclude(self, open_: GroupRows, *, is_last: bool = True) -> Concluded:
        """Apply the rules; ``open_`` are all rows of the group that were not taken yet.

        ``is_last``: notes of a later time than the last entry count as well. Without it the open findings
        are not those of all notes.
        """
        known = self.remembered
        now_ms = max(known.known_ms, open_.last_ms)
        before, now = _Limits.at(known.known_ms), _Limits.at(now_ms)
        notes = self._notes if is_last else [note for note in self._notes if note["at_ms"] <= now_ms]
        case = Case(
            self._joined(open_),
            notes if known.has_evidence else None,
            Earlier(tuple(known.given), tuple(known.late)),
        )
        found = found_in(case, GROUP_RULES)
        near = [one for one in found if one.kind not in _FAR_KINDS]
        runs = [one for one in found if one.kind in RUNS_FAR]
        single = [one for one in found if one.kind in _FAR_KINDS and one.kind not in RUNS_FAR]
        new = uncovered([*near, *(one for one in single if not before.is_past_near(one))])
        waiting = [*known.pending, *(one for one in new if one.kind in _FAR_KINDS)]
        told = {row.index for row in known.late if row.is_told}
        shown = [one for one in new if one.kind not in _FAR_KINDS and not before.is_past_near(one)]
        of_far = uncovered([*near, *runs, *waiting], told)
        shown += [one for one in of_far if one.kind in _FAR_KINDS and not before.is_past_far(one)]
        known.pending = [one for one in waiting if now.is_past_near(one) and not now.is_past_far(one)]
        known.known_ms = now_ms
        num_open = len(open_.epochs) + len(open_.spans) + len(open_.sessions)
        self._forget(case, near, now, num_open)
        concluded = [one for one in shown if now.is_past(one)]
        rest = [one for one in shown if not now.is_past(one)]
        return Concluded(sorted(concluded, key=by_begin), sorted(rest, key=by_begin))

    def _joined(self, open_: GroupRows) -> GroupRows:
        known = self.remembered
        return replace(
            open_,
            epochs=tuple(sorted([*known.epochs, *open_.epochs], key=lambda row: row.index)),
            spans=tuple(sorted([*known.spans, *open_.spans], key=by_partition)),
            sessions=tuple(
                sorted([*known.sessions, *open_.sessions], key=lambda row: (row.from_index, row.member_id))
            ),
            terms=(*known.terms, *open_.terms),
        )

    def _forget(self, case: Case, near: Iterable[GroupFinding], now: _Limits, num_open: int) -> None:
        """Drop what no later finding can need."""
        known, since_ms = self.remembered, now.near_ms - NEAR.look_back_ms
        covering = {index for one in near if _covers_runs(one) for index in one.rests_on}
        frozen = {row.index for row in known.late}
        known.late += [
            replace(row, is_told=row.index in covering)
            for row in late_rows(case)
            if row.timestamp_ms <= now.near_ms and row.index not in frozen
        ]
        known.late = [row for row in known.late if row.timestamp_ms >= now.far_ms - FAR.look_back_ms]
        self._forget_epochs(case, since_ms, now.near_ms)
        known.spans = [row for row in known.spans if row.to_ms is None or row.to_ms >= since_ms]
        known.sessions = [row for row in known.sessions if row.to_ms is None or row.to_ms >= since_ms]
        known.terms = [row for row in known.terms[:-1] if row.timestamp_ms >= since_ms] + known.terms[-1:]
        if self._notes and self._notes[0]["at_ms"] < since_ms:
            self._put_notes([note for note in self._notes if note["at_ms"] >= since_ms])
        self._num_new = 0
        self._num_seen = len(known.epochs) + len(known.spans) + len(known.sessions) + num_open

    def _forget_epochs(self, case: Case, since_ms: int, near_ms: int) -> None:
        known = self.remembered
        present = case.epoch_when(near_ms)
        if present is not None and (present.target_ms is None or present.target_ms > near_ms):
            since_ms = min(since_ms, present.timestamp_ms - NEAR.look_back_ms)  # it may be one of a long wait
        gone = [row for row in known.epochs if _over_ms(row) < since_ms]
        if not gone:
            return
        newest = max(gone, key=lambda row: row.index)  # in force at a time without a group
        known.epochs = [row for row in known.epochs if row is newest or _over_ms(row) >= since_ms]
        given = {one.partition: one for one in known.given}
        for row in gone:
            if row is newest or row.target_index is None or row.target_ms is None:
                continue
            for move in row.moves:
                last = given.get(move.partition)
                if last is None or last.index < row.target_index:
                    given[move.partition] = Given(
                        move.partition, row.target_index, row.target_ms, move.target
                    )
        oldest = min(row.index for row in known.epochs)
        known.given = [one for one in given.values() if one.taker is not None or one.index >= oldest]

    def _put_notes(self, notes: Iterable[Note]) -> None:
        self._notes = sorted(notes, key=lambda note: note["at_ms"])
        self.remembered.notes = [note_text(note) for note in self._notes]


@dataclass(frozen=True, slots=True)
class Concluded:
    """Findings that nothing later changes, each given once, and those that are open now."""

    concluded: list[GroupFinding]
    open: list[GroupFinding]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The times until which findings are concluded, by their horizon."""

    near_ms: int
    far_ms: int

    @classmethod
    def at(cls, known_ms: int) -> _Limits:
        return cls(known_ms - NEAR.look_ahead_ms, known_ms - FAR.look_ahead_ms)

    def is_past_near(self, one: GroupFinding) -> bool:
        return one.to_ms is not None and one.to_ms <= self.near_ms

    def is_past_far(self, one: GroupFinding) -> bool:
        return one.to_ms is not None and one.to_ms <= self.far_ms

    def is_past(self, one: GroupFinding) -> bool:
        return self.is_past_far(one) if one.kind in _FAR_KINDS else self.is_past_near(one)


_FAR_KINDS = frozenset(rule.name for rule in GROUP_RULES if rule.horizon is FAR)


def note_text(note: Note) -> str:
    """A note as one line; equal notes give equal lines."""
    return json.dumps(note, sort_keys=True, separators=(",", ":"))


def _covers_runs(one: GroupFinding) -> bool:
    return not set(RULES[one.kind].covers).isdisjoint(RUNS_FAR)


def _over_ms(row: EpochRow) -> int:
    """The time from which nothing of an epoch was going on any more."""
    ends = [row.end_ms or 0, row.target_ms or 0, *(wait.to_ms or 0 for wait in row.waits)]
    return max(ends)


# Stored between runs.

VERSION = 2
_CODEC = PositionalCodec(
    (Remembered, Given, LateRow, Delay, GroupFinding, *ROW_CLASSES),
    {str: True, TopicPartition: True, tuple[str, ...]: False, Cause: False},
    {},
    {},
)


def dump_findings(findings: GroupDiagnosis) -> bytes:
    """Serialise what is remembered."""
    return pack([VERSION, *_CODEC.dump(findings.remembered)])


def load_findings(data: bytes) -> GroupDiagnosis:
    """Restore what `dump_findings` wrote; raises `StateError`."""
    try:
        found = unpack_nested(data)
    except RecordsError as error:
        raise StateError(str(error)) from None
    if type(found) is not list or len(found) != 3 or type(found[0]) is not int or found[0] != VERSION:
        raise StateError("it does not hold what this release remembers for findings")
    return GroupDiagnosis(_CODEC.load(Remembered, found[1:]))
