"""The owners of partitions at the end of an epoch, in words."""

from __future__ import annotations

from history.facts.rows import EpochRow, GroupRows, MemberSession, OwnershipSpan, TopicPartition
from history.words import partitions_words

from .member_labels import MemberLabels

OWNERS_TOLD_MAX = 100
"""Owners are not listed for a group with more members; `owner` answers for a single partition."""


class EpochOwners:
    """Owners at the end of successive epochs, given in order, so that each row is visited once."""

    def __init__(self, facts: GroupRows, labels: MemberLabels) -> None:
        self._labels = labels
        self._spans = sorted(facts.spans, key=lambda span: span.from_index)
        self._sessions = sorted(facts.sessions, key=lambda session: session.from_index)
        self._next_span = self._next_session = 0
        self._place = {
            one: number for number, one in enumerate(labels.in_order(one.member_id for one in self._sessions))
        }
        self._owned: dict[tuple[str, int], OwnershipSpan] = {}
        self._present: list[MemberSession] = []

    def at_end_of(self, row: EpochRow) -> dict[str, str]:
        """Member -> its partitions in words; empty above `OWNERS_TOLD_MAX` members."""
        if row.num_members > OWNERS_TOLD_MAX:
            return {}
        while self._next_span < len(self._spans) and _is_before(self._spans[self._next_span].from_index, row):
            span = self._spans[self._next_span]
            self._owned[span.topic_id, span.partition.partition] = span
            self._next_span += 1
        while self._next_session < len(self._sessions) and _is_before(
            self._sessions[self._next_session].from_index, row
        ):
            self._present.append(self._sessions[self._next_session])
            self._next_session += 1
        self._present = [session for session in self._present if _outlasts(session.to_index, row)]
        present = sorted((session.member_id for session in self._present), key=self._place.__getitem__)
        parts: dict[str, list[TopicPartition]] = {member_id: [] for member_id in present}
        for span in self._owned.values():
            if span.member_id in parts and _outlasts(span.to_index, row):
                parts[span.member_id].append(span.partition)
        return {
            self._labels.short(member_id): partitions_words(owned, none="")
            for member_id, owned in parts.items()
        }


def _is_before(index: int, row: EpochRow) -> bool:
    return row.end_index is None or index < row.end_index


def _outlasts(index: int | None, row: EpochRow) -> bool:
    return index is None or (row.end_index is not None and index >= row.end_index)
