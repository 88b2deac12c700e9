"""The facts of one group, indexed for the rules, and what a rule found.

Everything is looked up rather than searched: a group of thousands of epochs and members costs one pass per
index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

from history.facts.rows import EpochRow, GroupRows, MemberSession, OwnershipSpan, SpanKind, TopicPartition
from history.reading.notes import GAP_WINDOW_MS, HEARTBEAT_GAP, Note
from history.render import plural, sentence_list
from history.words import by_topic

T = TypeVar("T")

MEMBERS_NAMED_MAX = 10
"""Maximum number of members named in a sentence; all are in `GroupFinding.members`."""
TOPICS_NAMED_MAX = 6
NO_EVIDENCE = "there is no evidence file"
HOUR_MS = 3_600_000


class Threshold(int):
    """A number that a rule compares with, with its name and the reason for its value."""

    name: str
    reason: str

    def __new__(cls, value: int, name: str, reason: str) -> Self:
        self = super().__new__(cls, value)
        self.name, self.reason = name, reason
        return self


RUN_MS = Threshold(
    HOUR_MS // 2,
    "RUN_MS",
    "What goes on for longer is told half an hour at a time, so that a finding ends although its incident "
    "does not.",
)
RETURN_MS = Threshold(
    HOUR_MS // 2,
    "RETURN_MS",
    "Longest time after which a member comes back: a pause, a lost connection and the restart of a process "
    "take less.",
)
SETTLE_MS = Threshold(
    HOUR_MS // 2, "SETTLE_MS", "Longest time after which what ends an incident belongs to its finding."
)
LOOK_BACK_MS = Threshold(
    HOUR_MS,
    "LOOK_BACK_MS",
    "What was over so long before the end of an incident is not part of it; the longest run takes as long.",
)


@dataclass(frozen=True, slots=True)
class Horizon:
    """The facts around a finding that determine it, in ms of the log's time."""

    look_back_ms: int
    """Events that ended longer before the end of a finding do not change it."""
    look_ahead_ms: int
    """Events that come longer after the end of a finding do not change it."""


NEAR = Horizon(look_back_ms=3 * HOUR_MS, look_ahead_ms=2 * HOUR_MS)
"""Covers a run (at most 2 × `RUN_MS`), what belongs to both of its ends, and the findings that cover it."""
FAR = Horizon(look_back_ms=18 * HOUR_MS, look_ahead_ms=18 * HOUR_MS)
"""As `NEAR`, for rules with runs of rare events: pauses of up to an hour, runs of up to 12 hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of a rule; with the rule's name and severity it becomes a `GroupFinding`."""

    members: tuple[str, ...] = ()
    partitions: Iterable[TopicPartition] = ()
    epochs: Iterable[int]
    from_index: int
    from_ms: int
    to_index: int | None = None
    to_ms: int | None = None
    words: str
    """The description, with members by their full id between backticks (`name`)."""
    rests_on: Iterable[int | None]
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class Given:
    """The last target of a partition."""

    partition: TopicPartition
    index: int
    ms: int
    taker: str | None


@dataclass(frozen=True, slots=True)
class Delay:
    """The reason for waiting in one rebalance, and the member that was waited for."""

    process: str
    """The process of the member: one that is removed comes back under another id."""
    member_id: str
    waited_for: str
    ms: int


@dataclass(frozen=True, slots=True)
class LateRow:
    """A rebalance in which the group waited for members."""

    index: int
    timestamp_ms: int
    begun_ms: int
    epoch: int
    members: tuple[str, ...]
    delays: tuple[Delay, ...]
    is_told: bool = False
    """A finding that covers it rests on this entry."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A summary of rows that are no longer there."""

    given: tuple[Given, ...] = ()
    late: tuple[LateRow, ...] = ()


class Case:
    """One group's facts and notes; ``notes`` is ``None`` if there is no evidence file."""

    def __init__(self, facts: GroupRows, notes: Sequence[Note] | None, earlier: Earlier = Earlier()) -> None:
        self.facts = facts
        self.earlier = earlier
        self.has_evidence = notes is not None
        mine = [note for note in notes or () if note.get("group") == facts.group_id]
        self.notes = sorted(mine, key=lambda note: note["at_ms"])
        self._epoch_indexes = [row.index for row in facts.epochs]
        self._epoch_times = [row.timestamp_ms for row in facts.epochs]

    @cached_property
    def known_until_ms(self) -> int:
        """Time of the newest entry or note: whatever is open lasted at least until then."""
        noted_ms: int = self.notes[-1]["at_ms"] if self.notes else -1
        return max(self.facts.last_ms, noted_ms)

    @cached_property
    def _spans_by_member(self) -> dict[str, list[OwnershipSpan]]:
        return _by(self.facts.spans, lambda span: span.member_id or "")

    @cached_property
    def spans_by_partition(self) -> dict[TopicPartition, list[OwnershipSpan]]:
        return _by(self.facts.spans, lambda span: span.partition)

    @cached_property
    def sessions_by_member(self) -> dict[str, list[MemberSession]]:
        return _by(self.facts.sessions, lambda session: session.member_id)

    def spans_of(self, member_id: str | None, *kinds: SpanKind) -> Iterator[OwnershipSpan]:
        """A member's spans (``None``: those without an owner), limited to these kinds if any are given."""
        for span in self._spans_by_member.get(member_id or "", ()):
            if not kinds or span.kind in kinds:
                yield span

    def held_at_end(self, session: MemberSession) -> list[TopicPartition]:
        """Partitions that a member owned when its session ended."""
        return [s.partition for s in self.spans_of(session.member_id) if s.to_index == session.to_index]

    def session_at(self, member_id: str, index: int) -> MemberSession | None:
        """The session of a member that contains an entry, including the entry that ended it."""
        for session in self.sessions_by_member.get(member_id, ()):
            if session.from_index <= index and (session.to_index is None or index <= session.to_index):
                return session
        return None

    def epoch_at(self, index: int) -> EpochRow | None:
        """The epoch in force after an entry."""
        at = bisect_right(self._epoch_indexes, index) - 1
        return self.facts.epochs[at] if at >= 0 else None

    def epoch_when(self, at_ms: int) -> EpochRow | None:
        """The epoch in force at a time; the first epoch for any time before it."""
        at = bisect_right(self._epoch_times, at_ms) - 1
        return self.facts.epochs[max(at, 0)] if self.facts.epochs else None

    def epoch_since(self, index: int, ms: int, until_ms: int) -> EpochRow | None:
        """The epoch in force after an entry, or at the look-back before ``until_ms`` if that is later."""
        since_ms = until_ms - LOOK_BACK_MS
        return self.epoch_at(index) if ms >= since_ms else self.epoch_when(since_ms)

    def epochs_between(self, from_index: int, to_index: int | None, until_ms: int) -> list[int]:
        """The epochs in force between two entries, both included, but not those long before ``until_ms``."""
        first = max(bisect_right(self._epoch_indexes, from_index) - 1, 0)
        end = len(self._epoch_indexes) if to_index is None else bisect_right(self._epoch_indexes, to_index)
        since_ms = until_ms - LOOK_BACK_MS
        rows = self.facts.epochs[first:end]
        return [row.epoch for row in rows if row.end_ms is None or row.end_ms >= since_ms]

    def notes_of(self, kind: str) -> list[Note]:
        return [note for note in self.notes if note["kind"] == kind]

    @cached_property
    def _gaps_by_member(self) -> dict[str, list[Note]]:
        return _by(self.notes_of(HEARTBEAT_GAP), lambda note: note.get("member") or "")

    def longest_gap_ms(self, session: MemberSession) -> float | None:
        """Longest gap between two heartbeats of a member shortly before its session expired, in ms.

        ``None`` if none was noted. Gaps longer than the session timeout are excluded, since they are noted
        when an expired member comes back.
        """
        end_ms, limit_ms = session.to_ms or 0, session.timeout_ms or GAP_WINDOW_MS
        gaps = [
            note["gap_ms"]
            for note in self._gaps_by_member.get(session.member_id, ())
            if end_ms - GAP_WINDOW_MS <= note["minute_ms"] <= end_ms and note["gap_ms"] < limit_ms
        ]
        return max(gaps, default=None)


def _by(rows: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    grouped: dict[Any, list[T]] = {}
    for row in rows:
        grouped.setdefault(key(row), []).append(row)
    return grouped


def clusters(
    rows: Iterable[T], at_ms: Callable[[T], int], pause_ms: int, at_least: int = 1
) -> Iterator[list[T]]:
    """Group rows, in order of time, into runs with at most ``pause_ms`` between neighbours.

    A long run is divided at multiples of a period on the clock, where it reaches half a period to both sides.
    So no run is longer than two periods, and half a period around it decides where it ends. The period is
    `RUN_MS`, or longer if a run of ``at_least`` rows takes longer.
    """
    period = period_ms(pause_ms, at_least)
    run: list[T] = []
    for row in sorted(rows, key=at_ms):
        if run and at_ms(row) - at_ms(run[-1]) > pause_ms:
            yield from _divided(run, at_ms, period)
            run = []
        run.append(row)
    if run:
        yield from _divided(run, at_ms, period)


def period_ms(pause_ms: int, at_least: int) -> int:
    """The period at which `clusters` divides runs: each half of it holds ``at_least`` rows of a run."""
    return max(int(RUN_MS), 2 * at_least * pause_ms)


def _divided(run: list[T], at_ms: Callable[[T], int], period: int) -> Iterator[list[T]]:
    first_ms, last_ms = at_ms(run[0]) + period // 2, at_ms(run[-1]) - period // 2
    part: list[T] = []
    for row in run:
        border_ms = at_ms(row) // period * period
        if part and at_ms(part[-1]) < border_ms and first_ms <= border_ms <= last_ms:
            yield part
            part = []
        part.append(row)
    yield part


# Words.


def member(member_id: str) -> str:
    """A member in a sentence; code that prints it may substitute another name."""
    return f"`{member_id}`"


def members(member_ids: Iterable[str]) -> str:
    ids = list(dict.fromkeys(member_ids))
    named = [member(one) for one in ids[:MEMBERS_NAMED_MAX]]
    if len(ids) > MEMBERS_NAMED_MAX:
        named.append(f"{len(ids) - MEMBERS_NAMED_MAX:,} more")
    return sentence_list(named) or "nobody"


def parts(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as ``orders 0-3,7 and refunds 1``; ``no partitions`` if there are none."""
    said = by_topic(partitions)
    if len(said) > TOPICS_NAMED_MAX:
        said[TOPICS_NAMED_MAX:] = [plural(len(said) - TOPICS_NAMED_MAX, "more topic")]
    return sentence_list(said) or "no partitions"


def unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value once, in order of first appearance, without empty ones."""
    return tuple(dict.fromkeys(value for value in values if value not in (None, "")))
