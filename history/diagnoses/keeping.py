"""The findings in all groups of a walk that emits their rows in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from history.facts.rows import GroupFinding, GroupRows
from history.reading.notes import Note, by_group

from .incremental import GroupDiagnosis


class WalkFindings:
    """Concludes the findings of the groups of one shard while their rows are drained."""

    def __init__(self, notes: Iterable[Note]) -> None:
        self._noted = by_group(notes)
        self._of: dict[str, GroupDiagnosis] = {}

    def drained(self, part: GroupRows, rest: Callable[[], GroupRows]) -> Iterable[GroupFinding]:
        """Take rows that a group drained; ``rest`` gives its other rows. Yields what is concluded."""
        of_group = self._group(part.group_id)
        of_group.take(part)
        return of_group.conclude(rest(), is_last=False).concluded if of_group.is_due else ()

    def finished(self, rest: GroupRows) -> Iterator[GroupFinding]:
        """Take a group's last rows; yields all findings that are left."""
        of_group = self._group(rest.group_id)
        del self._of[rest.group_id]
        found = of_group.conclude(rest)
        yield from found.concluded
        yield from found.open

    def _group(self, group_id: str) -> GroupDiagnosis:
        if group_id not in self._of:
            self._of[group_id] = GroupDiagnosis()
            self._of[group_id].note(self._noted.get(group_id, ()))
        return self._of[group_id]
