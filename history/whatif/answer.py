"""`whatif`: one group's recorded membership under other settings, beside what really happened.

A pure function over `Recorded`; `whatif_of` applies it to one group of a log or to all. It first replays the
record under the recorded settings. This determines which assignor the group had, which no record names, and
how far the answer can be trusted: where that replay differs from what really happened, the answer says so and
by how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from coordinator.state.group_records import GROUP_TYPES, MEMBERSHIP_TYPES
from history.facts.group import FactsBuilder
from history.facts.rows import GroupRows
from history.reading.catalog import CatalogHistory
from history.reading.groups import unknown_group
from history.reading.node import NodeLog
from history.reading.source import Basis, LogGap, NothingToRead, SnapshotLike, Walk
from raftlog.storage.frames import Frame
from records import (
    Entry,
    RawRecord,
    RecordsError,
    RecordType,
    TermStartValue,
    decode_cause,
    decode_value,
    group_id_of,
    iter_records,
)
from records.ids import METADATA_SHARD

from .extract import Extractor
from .measures import Measures, measures_of
from .member_model import Assumptions
from .recorded import Recorded
from .replay import GroupReplay
from .settings import BUILT_IN_NAMES, WhatIf

ORDERS = (BUILT_IN_NAMES, BUILT_IN_NAMES[::-1])
"""Orders in which a node may have its assignors configured; the first is the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult:
    """The two courses of one group."""

    group_id: str
    shard: int
    asked: tuple[str, ...]
    """The settings that differ, in words."""
    left_out: str = ""
    """The reason why nothing was replayed; empty: it was."""
    really: Measures | None = None
    whatif: Measures | None = None
    replayed: Measures | None = None
    """The replay under the recorded settings, which should equal what really happened."""
    assignor: str = ""
    """The assignor of ``whatif`` and ``replayed``, for members that vote for none."""
    assumed: Assumptions | None = None
    has_evidence: bool = False
    interval_ms: int = 0
    notes: tuple[str, ...] = ()
    facts: GroupRows | None = None
    """The hypothetical course, as rows like any other."""
    really_facts: GroupRows | None = None

    @property
    def is_faithful(self) -> bool:
        """Whether the replay under the recorded settings equals what really happened."""
        return self.replayed == self.really

    @property
    def difference(self) -> float:
        """The difference of the two courses, as a number to sort by.

        Each epoch, partition moved and fence counts one, and so does a partition-second and a second without
        a stable group.
        """
        if self.really is None or self.whatif is None:
            return 0.0
        by = self.whatif.minus(self.really)
        counts = ("epochs", "moved", "sessions_expired", "fenced_revoking")
        times = ("unowned_ms", "revoking_ms", "unstable_ms")
        return sum(abs(by[name]) for name in counts) + sum(abs(by[name]) / 1000 for name in times)


def whatif(script: Recorded, asked: WhatIf) -> WhatIfResult:
    """Replay a recorded membership under the requested settings.

    Raises `WhatIfError` if the assignor fails.
    """
    result = WhatIfResult(
        group_id=script.group_id,
        shard=script.shard,
        asked=asked.words(),
        left_out=script.left_out,
        has_evidence=script.refused is not None,
        interval_ms=script.interval_ms,
        notes=script.notes,
    )
    if script.facts is None:
        return result
    order, replayed, assumed = _as_recorded(script)
    if asked.is_same:
        facts, what_if = replayed, measures_of(replayed)
    else:
        facts, assumed = _course(script, asked, order)
        what_if = measures_of(facts)
    return replace(
        result,
        really=measures_of(script.facts),
        whatif=what_if,
        replayed=measures_of(replayed),
        assignor=order[0],
        assumed=assumed,
        facts=facts,
        really_facts=script.facts,
    )


def _as_recorded(script: Recorded) -> tuple[tuple[str, ...], GroupRows, Assumptions]:
    """The replay under the recorded settings, with the assignor order that comes closest to what happened."""
    assert script.facts is not None
    really = measures_of(script.facts)
    tried: list[tuple[int, tuple[tuple[str, ...], GroupRows, Assumptions]]] = []
    for order in ORDERS:
        course = (order, *_course(script, WhatIf(), order))
        off_by = sum(map(abs, measures_of(course[1]).minus(really).values()))
        if not off_by:
            return course
        tried.append((off_by, course))
    return min(tried, key=lambda one: one[0])[1]


def _course(script: Recorded, asked: WhatIf, order: tuple[str, ...]) -> tuple[GroupRows, Assumptions]:
    builder = FactsBuilder(script.group_id, CatalogHistory(), script.shard)
    terms = list(reversed(script.terms))
    number = 0
    if script.start:
        builder.go_on_from(0, script.first_ms, script.start)

    def take(_index: int, at_ms: int, entry: Entry) -> None:
        nonlocal number
        while terms and terms[-1][1] <= at_ms:
            number += 1
            builder.term(number, terms[-1][1], terms.pop()[2])
        number += 1
        membership = tuple(raw for raw in entry.records if raw.type in MEMBERSHIP_TYPES)
        builder.entry(number, at_ms, Entry(entry.cause, membership))

    member_model = GroupReplay(script, asked, order, take).run()
    builder.passed(script.last_ms)
    return builder.finish(), member_model.assumed


# Over a log.


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The results for the groups of a log, those that would have changed most first."""

    results: tuple[WhatIfResult, ...]
    basis: tuple[Basis, ...]


def whatif_of(
    log: NodeLog, asked: WhatIf, group_id: str | None = None, *, shard: int | None = None
) -> WhatIfAnswer:
    """Ask for one group of a log, or for all.

    Raises `NothingToRead`, naming the groups that exist, if the log does not know the group, and
    `WhatIfError` if the assignor fails.
    """
    if group_id is not None:
        number = log.shard_of_group(group_id) if shard is None else shard
        scripts, basis = recorded_of(log, number, group_id)
        if not scripts:
            raise NothingToRead(unknown_group(log, group_id, basis))
        return WhatIfAnswer(results=(whatif(scripts[0], asked),), basis=(basis,))
    results: list[WhatIfResult] = []
    bases: list[Basis] = []
    for number in log.shards if shard is None else (shard,):
        if number != METADATA_SHARD:
            scripts, basis = recorded_of(log, number)
            results += [_without_rows(whatif(script, asked)) for script in scripts]
            bases.append(basis)
    results.sort(key=lambda result: (bool(result.left_out), -result.difference, result.group_id))
    return WhatIfAnswer(results=tuple(results), basis=tuple(bases))


def _without_rows(result: WhatIfResult) -> WhatIfResult:
    """Drop the rows: those of all groups would hold the whole log in memory again."""
    return replace(result, facts=None, really_facts=None)


def recorded_of(log: NodeLog, shard: int, group_id: str | None = None) -> tuple[list[Recorded], Basis]:
    """The recorded membership of each group of a shard, or of one, and its basis."""
    reader = log.reader(shard)
    walk = Walk(shard, reader)
    readers = _Extractors(shard, group_id, reader.evidence() or None)  # the first note shows since when
    for item in walk:
        if isinstance(item, Frame):
            readers.frame(item)
        elif not isinstance(item, LogGap):
            readers.snapshot(item)
    return list(readers.finish(walk.basis.last_timestamp_ms)), walk.basis


class _Extractors:
    """One extractor for each group of a shard, made when the group first appears."""

    def __init__(self, shard: int, group_id: str | None, notes: list[dict[str, object]] | None) -> None:
        self._shard = shard
        self._wanted = group_id
        self._needle = group_id.encode() if group_id is not None else b""
        self._notes: dict[object, list[dict[str, object]]] | None = None
        if notes is not None:
            self._notes = {}
            for note in notes:
                self._notes.setdefault(note.get("group"), []).append(note)
        self._evidence_from_ms = min((int(str(note["at_ms"])) for note in notes or ()), default=0)
        self._extractors: dict[str, Extractor] = {}
        self._terms: list[tuple[int, int, TermStartValue]] = []

    def _of(self, group_id: str) -> Extractor:
        extractor = self._extractors.get(group_id)
        if extractor is None:
            notes = None if self._notes is None else self._notes.get(group_id, [])
            extractor = Extractor(group_id, self._shard, notes, self._evidence_from_ms)
            self._extractors[group_id] = extractor
        return extractor

    def frame(self, frame: Frame) -> None:
        if self._needle not in frame.body and frame.record_count != 1:
            return
        mine: dict[str, list[RawRecord]] = {}
        try:
            for raw in iter_records(frame.body):
                self._sort(raw, frame, mine)
            if not any(mine.values()):
                return
            cause = decode_cause(frame.body)
        except RecordsError:
            return  # reported by `verify`
        for group_id, raws in mine.items():
            if raws:
                self._of(group_id).entry(frame.index, frame.timestamp_ms, Entry(cause, tuple(raws)))

    def _sort(self, raw: RawRecord, frame: Frame, mine: dict[str, list[RawRecord]]) -> None:
        if raw.type == RecordType.TERM_START:
            term = decode_value(raw)
            if isinstance(term, TermStartValue):
                for extractor in self._extractors.values():
                    extractor.term(frame.index, frame.timestamp_ms, term)
            return
        is_of_members = raw.type in GROUP_TYPES
        if not is_of_members and raw.type not in _COMMITS:
            return
        group_id = group_id_of(raw)
        if group_id is None or self._wanted not in (None, group_id):
            return
        if is_of_members:
            mine.setdefault(group_id, []).append(raw)
        else:
            self._of(group_id)  # creates the extractor, so that a group with offsets only is known

    def snapshot(self, snapshot: SnapshotLike) -> None:
        by_group: dict[str, list[RawRecord]] = {}
        for raw in snapshot.records:
            group_id = group_id_of(raw)
            if group_id is not None and self._wanted in (None, group_id):
                kept = by_group.setdefault(group_id, [])
                if raw.type in GROUP_TYPES:
                    kept.append(raw)
        self._extractors.clear()
        header = snapshot.header
        for group_id, raws in by_group.items():
            self._of(group_id).begin_with(raws, header.last_index, header.last_timestamp_ms)

    def finish(self, last_ms: int) -> Iterator[Recorded]:
        for _, extractor in sorted(self._extractors.items()):
            extractor.passed(last_ms)
            yield extractor.finish()


_COMMITS: Iterable[int] = frozenset({RecordType.OFFSET_COMMIT_LEGACY, RecordType.OFFSET_COMMIT})
