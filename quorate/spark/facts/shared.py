"""Data that the groups of a shard need besides their own records, as plain objects sent to every task."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from history.facts.rows import TermRow
from history.reading.catalog import DatedShapes, TopicShape, shape_at
from records.ids import topic_id_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """Entries after ``after_index`` are missing, and the snapshot at ``index`` replaces them.

    Its records come as separate rows. Any entries between the two indexes are ignored.
    """

    after_index: int
    after_ms: int
    index: int
    ms: int

    def covers(self, index: int) -> bool:
        return self.after_index < index <= self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardShared:
    """One shard, from its first new entry to its last."""

    from_index: int
    to_index: int
    to_ms: int
    terms: tuple[TermRow, ...] = ()
    """The newest term before the new entries, and all new ones, by index.

    A group takes them in before its next record. Its rows depend only on the newest term before a record, so
    terms that came and went while it had none may be left out."""
    bridges: tuple[Bridge, ...] = ()
    """New bridges, by index."""

    def happened(self, terms_after: int, bridges_after: int) -> list[Bridge | TermRow]:
        """Terms and bridges after these entries, in order, without terms inside a bridged gap."""
        first = bisect_right(self.terms, terms_after, key=attrgetter("index"))
        happened: list[Bridge | TermRow] = [
            term for term in self.terms[first:] if not any(one.covers(term.index) for one in self.bridges)
        ]
        happened += (one for one in self.bridges if one.index > bridges_after)
        return sorted((one for one in happened if one.index <= self.to_index), key=attrgetter("index"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    cluster_id: str
    shards: Mapping[int, ShardShared]
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id -> name, for every topic in the metadata shard."""
    shapes: Mapping[str, DatedShapes] = field(default_factory=dict)
    """Name -> what the topic was at each time, for the same topics."""
    notes: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    """Shard and group -> notes about the group that nodes wrote beside the log (`note_text`)."""
    are_notes_new: bool = True
    """False: earlier runs passed these notes to groups without new records."""


def note_text(note: Mapping[str, Any]) -> str:
    """A note as one line; equal notes give equal lines."""
    return json.dumps(note, sort_keys=True, separators=(",", ":"))


def notes_by_group(shard: int, notes: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str], tuple[str, ...]]:
    """The notes of a shard for `Shared.notes`, in their order."""
    found: dict[tuple[int, str], list[str]] = {}
    for note in notes:
        if isinstance(group_id := note.get("group"), str):
            found.setdefault((shard, group_id), []).append(note_text(note))
    return {key: tuple(lines) for key, lines in found.items()}


class GroupNames:
    """Topic names for one group: from the metadata shard, else from the group's own (`TopicNames`).

    ``own`` holds every name that the group came across, since the metadata shard forgets deleted topics.
    """

    def __init__(
        self, names: Mapping[bytes, str], own: dict[bytes, str], shapes: Mapping[str, DatedShapes]
    ) -> None:
        self._names = names
        self._shapes = shapes
        self.own = own

    def name(self, topic_id: bytes) -> str:
        name = self._names.get(topic_id)
        if name is None:
            return self.own.get(topic_id) or topic_id_text(topic_id)
        self.own[topic_id] = name
        return name

    def learn(self, topics: Mapping[str, TopicShape]) -> None:
        for name, (topic_id, _) in topics.items():
            self.own.setdefault(topic_id, name)

    def shape(self, name: str, ms: int) -> TopicShape:
        return shape_at(self._shapes.get(name, ()), name, ms)
