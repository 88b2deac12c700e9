"""Collects the rows that diagnoses need, up to a limit, because a rule needs a group's whole history.

Used by walks over all groups that emit their rows in parts. Above the limit nothing is diagnosed and
`is_full` is set: a diagnosis on partial history may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from history.facts.ownership import by_partition
from history.facts.rows import GroupFinding, GroupRows
from history.reading.notes import Note, by_group

from .findings import findings_of

FINDING_ROWS_MAX = 200_000
"""Maximum number of epochs, spans and sessions of all groups together: some hundred megabytes."""


class KeptRows:
    """The parts of groups' facts, joined again."""

    def __init__(self, rows_max: int = FINDING_ROWS_MAX) -> None:
        self.is_full = False
        self._rows_max = rows_max
        self._count = 0
        self._parts: dict[tuple[int, str], list[GroupRows]] = {}

    def take(self, part: GroupRows) -> None:
        """Add the next part of a group."""
        if self.is_full:
            return
        self._count += len(part.epochs) + len(part.spans) + len(part.sessions)
        if self._count > self._rows_max:
            self.is_full = True
            self._parts.clear()
            return
        self._parts.setdefault((part.shard, part.group_id), []).append(part)

    def findings(self, shard: int, notes: Iterable[Note]) -> Iterator[GroupFinding]:
        """The findings in each group of a shard, once its walk is over; its rows are removed."""
        noted = by_group(notes)
        for key in sorted(key for key in self._parts if key[0] == shard):
            yield from findings_of(_joined(self._parts.pop(key)), noted.get(key[1]))


def _joined(parts: Sequence[GroupRows]) -> GroupRows:
    spans = [span for part in parts for span in part.spans]
    spans.sort(key=by_partition)
    sessions = sorted(
        (one for part in parts for one in part.sessions), key=lambda row: (row.from_index, row.member_id)
    )
    return replace(
        parts[-1],
        epochs=tuple(row for part in parts for row in part.epochs),
        spans=tuple(spans),
        sessions=tuple(sessions),
        terms=tuple(row for part in parts for row in part.terms),
        gone=tuple(row for part in parts for row in part.gone),
        unreadable=tuple(row for part in parts for row in part.unreadable),
    )
