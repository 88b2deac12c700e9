"""The story of one group: its facts as steps in the order of the log, in words.

Every epoch is a step: the entry that opened it with its reasons, what its target moved, when each member was
asked to revoke, gave up and took partitions, which members waited for which, and when the group was stable
again. Between the epochs are the terms of the shard, and events that began no epoch but explain why
partitions were idle. Nothing is told beyond the facts: an inferred cause is marked, and so is an epoch that
was overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from history.facts.rows import (
    EpochRow,
    GroupRows,
    MemberProgress,
    Moved,
    SpanKind,
    TermRow,
    TopicPartition,
    Wait,
    WaitEnd,
    begun_ms,
    waits_during,
)
from history.protocols import CONSUMER, epoch_noun
from history.render import duration
from history.words import (
    cause_words,
    partitions_words,
    phases_words,
    reasons_words,
    term_words,
    trigger_name,
)
from records import Cause, Certainty, Trigger

from .member_labels import MemberLabels, term_of
from .owners import EpochOwners


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Partitions of one topic whose owner in the target changed; ``None``: no member."""

    topic: str
    partitions: tuple[int, ...]
    source: str | None
    target: str | None

    def words(self) -> str:
        named = partitions_words(TopicPartition(topic=self.topic, partition=n) for n in self.partitions)
        return f"{named}: {self.source or 'nobody'} -> {self.target or 'nobody'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """A member's progress within an epoch; partitions are in words, empty if there are none."""

    member: str
    index: int
    timestamp_ms: int
    after_ms: int
    """Milliseconds since the epoch opened."""
    told: str = ""
    """Partitions that it was asked to revoke."""
    released: str = ""
    """Partitions that it gave up."""
    since_told_ms: int | None = None
    """Longest time in ms from the request to revoke to giving up."""
    took: str = ""
    idle_ms: int | None = None
    """Longest time in ms that a partition which it took had no owner."""
    idle_ms_min: int | None = None
    """The shortest such time."""
    reached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitStep:
    """A member's wait for partitions of another one, all with the same beginning and end."""

    waiter: str
    holder: str
    partitions: str
    num_partitions: int
    epoch: int
    """The epoch in which the wait began."""
    from_index: int
    from_ms: int
    told_index: int | None
    told_ms: int | None
    to_index: int | None
    to_ms: int | None
    waited_ms: int
    """An open wait is counted up to the last entry read."""
    end: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStep:
    """One group epoch, from the entry that opened it to the next one."""

    kind: str = "epoch"
    index: int
    timestamp_ms: int
    epoch_before: int
    """0 for a new group."""
    epoch: int
    trigger: str
    why: tuple[str, ...]
    noun: str = "epoch"
    """The word of the group's protocol for it: `epoch`, `generation` or `round`."""
    protocol: str = CONSUMER
    """The protocol of the group when it began."""
    inferred: bool
    members: tuple[str, ...]
    """Ids of the members that the reasons name."""
    away: tuple[str, ...]
    """Ids of the static members that were away when it began."""
    evidence: tuple[str, ...] = ()
    """The node's notes outside the log, in words."""
    stands_out: tuple[str, ...] = ()
    """Findings that this epoch is part of, in words."""
    moves: tuple[Move, ...]
    target_index: int | None
    """The entry that wrote its target, if it is not ``index``."""
    target_after_ms: int | None
    progress: tuple[Advance, ...]
    waits: tuple[WaitStep, ...]
    what_if: tuple[str, ...] = ()
    """Counterfactuals where they are certain, and what is unknown about them."""
    phases: tuple[str, ...] = ()
    """The times that a classic group waited for its members and for its leader, in words."""
    settled_index: int | None
    """The entry after which the group was first Stable (or Empty) in this epoch; ``None``: never."""
    took_ms: int | None
    state: str
    """The group's state at the end of the epoch."""
    overtaken_by: int | None
    """The next epoch, if it began before this one was settled."""
    owners: dict[str, str]
    """Member -> partitions in words, at the end of the epoch."""
    is_begin_known: bool = True
    is_end_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TermStep:
    """The start of a term of the group's shard: a start, a failover, a hand-over."""

    kind: str = "term"
    index: int
    timestamp_ms: int
    term: int
    node_id: int
    previous_leader: int
    is_takeover: bool
    """A failover or a hand-over; ``why`` gives the maximum time without a leader."""
    why: str
    silent_ms: int | None
    """Milliseconds since the previous entry of the shard; ``None`` at the first entry."""
    stands_out: tuple[str, ...] = ()
    """Findings that begin with this term, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteStep:
    """An event besides the epochs: a static member left, the group was deleted, a request was refused."""

    kind: str = "note"
    index: int | None
    timestamp_ms: int
    text: str
    members: tuple[str, ...] = ()
    """Ids of the members that it is about; empty: it is about the group."""


Step = EpochStep | TermStep | NoteStep


@dataclass(frozen=True, slots=True)
class Focus:
    """The part that a story is narrowed to; ``None``: all of it."""

    rows: frozenset[int] | None = None
    """Indexes of the entries that opened the selected epochs."""
    members: frozenset[str] | None = None
    partition: TopicPartition | None = None

    def has_row(self, row: EpochRow) -> bool:
        return self.rows is None or row.index in self.rows

    def has_member(self, *member_ids: str | None) -> bool:
        return self.members is None or not self.members.isdisjoint(member_ids)

    def has_partition(self, partitions: Iterable[TopicPartition]) -> bool:
        return self.partition is None or self.partition in partitions

    def has_move(self, moved: Moved) -> bool:
        return self.has_member(moved.source, moved.target) and self.has_partition((moved.partition,))

    def has_wait(self, wait: Wait) -> bool:
        return self.has_member(wait.waiter, wait.holder) and self.has_partition((wait.partition,))

    def has_step(self, step: MemberProgress) -> bool:
        parts = (*step.released, *step.told, *step.took)
        return self.has_member(step.member_id) and self.has_partition(parts)


EVERYTHING = Focus()


@dataclass(slots=True)
class Teller:
    """Tells the facts of one group."""

    facts: GroupRows
    labels: MemberLabels
    focus: Focus = EVERYTHING
    _told: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """(Member, partition) -> epoch ms at which the member was asked to revoke it."""
    _places: dict[str, tuple[int, str]] = field(init=False)
    """Static member that replaced another -> the entry, and the other."""

    def __post_init__(self) -> None:
        self._places = {
            session.member_id: (session.from_index, session.replaced)
            for session in self.facts.sessions
            if session.replaced is not None
        }

    def epochs(self) -> Iterator[EpochStep]:
        idle = {
            (span.partition, span.to_index): span.from_ms
            for span in self.facts.spans
            if span.kind is SpanKind.UNOWNED
        }
        owners = EpochOwners(self.facts, self.labels)
        for row, waits in waits_during(self.facts.epochs):
            progress = self._progress(row, idle)
            if self.focus.has_row(row):
                yield self._epoch(row, waits, progress, owners.at_end_of(row))

    def terms(self) -> Iterator[TermStep]:
        return (self._term(row) for row in self.facts.terms)

    def notes(self) -> Iterator[NoteStep]:
        """Events that begin no epoch.

        These are the absences and returns of static members, targets that members computed, the end of the
        group, and entries that are missing or cannot be read.
        """
        opened = {row.index for row in self.facts.epochs}
        for session in self.facts.sessions:
            member_id = session.member_id
            for away in session.aways:
                cause = Cause(trigger=Trigger.MEMBER_AWAY, member_id=member_id)
                yield self._note(away.from_index, away.from_ms, cause, member_id)
            for index, ms in session.rejoined:
                if index not in opened:
                    cause = Cause(trigger=Trigger.MEMBER_REJOINED, member_id=member_id)
                    yield self._note(index, ms, cause, member_id)
            if session.replaced is not None:
                cause = Cause(trigger=Trigger.MEMBER_REPLACED, member_id=member_id, detail=session.replaced)
                yield self._note(session.from_index, session.from_ms, cause, member_id, session.replaced)
        for row in self.facts.epochs:
            made = row.target_cause
            if made is not None and made.trigger == Trigger.ASSIGNMENT_INSTALLED:
                assert row.target_index is not None
                assert row.target_ms is not None
                yield self._note(row.target_index, row.target_ms, made, made.member_id)
        yield from self._breaks()

    def _breaks(self) -> Iterator[NoteStep]:
        for (index, ms), cause in zip(self.facts.gone, self.facts.gone_causes, strict=True):
            formatter = self.labels.formatter(cause, protocol=self._protocol_before(index))
            said = reasons_words(cause, ms, formatter)[0]
            yield NoteStep(index=index, timestamp_ms=ms, text=f"the group is gone: {said}")
        for index, ms, what in self.facts.unreadable:
            yield NoteStep(index=index, timestamp_ms=ms, text=f"this entry cannot be decoded: {what}")
        before = {index: ms for index, ms, _ in self.facts.gaps}
        for gap in self.facts.basis.gaps if self.facts.basis is not None else ():
            ms = before.get(gap.after_index, self.facts.last_ms)
            yield NoteStep(index=gap.after_index, timestamp_ms=ms, text=gap.words())

    def _note(self, index: int, ms: int, cause: Cause, *member_ids: str) -> NoteStep:
        formatter = self.labels.formatter(cause, protocol=self._protocol_before(index))
        said = cause_words(cause, ms, formatter)
        return NoteStep(index=index, timestamp_ms=ms, text=said, members=member_ids)

    def _protocol_before(self, index: int) -> str:
        """The protocol that the group spoke just before an entry."""
        spoken = (row.protocol for row in reversed(self.facts.epochs) if row.index < index)
        return next(spoken, "")

    def _term(self, row: TermRow) -> TermStep:
        return TermStep(
            index=row.index,
            timestamp_ms=row.timestamp_ms,
            term=row.term,
            node_id=row.node_id,
            previous_leader=row.previous_leader,
            is_takeover=row.is_takeover,
            why=term_words(term_of(row), row.gap_ms),
            silent_ms=row.gap_ms,
        )

    def _epoch(
        self, row: EpochRow, waits: Sequence[Wait], progress: tuple[Advance, ...], owners: dict[str, str]
    ) -> EpochStep:
        cause, settled_ms = row.cause, row.settled_ms
        why: tuple[str, ...] = ("it began in entries that are missing: its cause is not known",)
        if row.is_begin_known:
            formatter = self.labels.formatter(cause, row.away, row.topics, row.protocol)
            why = reasons_words(cause, row.timestamp_ms, formatter)
        is_apart = row.target_index is not None and row.target_index != row.index
        return EpochStep(
            index=row.index,
            timestamp_ms=row.timestamp_ms,
            epoch_before=row.epoch_before,
            epoch=row.epoch,
            trigger=trigger_name(cause.trigger) if row.is_begin_known else "UNKNOWN",
            why=why,
            noun=epoch_noun(row.protocol),
            protocol=row.protocol,
            inferred=row.is_begin_known and cause.certainty != Certainty.RECORDED,
            members=tuple(dict.fromkeys(r.member_id for r in cause.reasons if r.member_id)),
            away=row.away,
            moves=self._moves(row),
            target_index=row.target_index if is_apart else None,
            target_after_ms=row.target_ms - row.timestamp_ms if is_apart and row.target_ms else None,
            progress=progress,
            waits=self._waits(row, (wait for wait in waits if self.focus.has_wait(wait))),
            settled_index=row.settled_index,
            took_ms=None if settled_ms is None else settled_ms - begun_ms(row),
            phases=phases_words(cause, row.timestamp_ms, self.labels.formatter(cause, protocol=row.protocol)),
            state=row.state,
            overtaken_by=row.overtaken_by,
            owners=owners if self.focus.partition is None and self.focus.members is None else {},
            is_begin_known=row.is_begin_known,
            is_end_known=row.is_end_known,
        )

    def _moves(self, row: EpochRow) -> tuple[Move, ...]:
        together: dict[tuple[str, str | None, str | None], list[int]] = {}
        at = row.index if row.target_index is None else row.target_index
        for moved in row.moves:
            if moved.target is not None and moved.target in self._places:
                moved = replace(moved, target=self._predecessor(moved.target, at))
            if moved.source != moved.target and self.focus.has_move(moved):
                key = (moved.partition.topic, moved.source, moved.target)
                together.setdefault(key, []).append(moved.partition.partition)
        return tuple(
            Move(
                topic=topic,
                partitions=tuple(sorted(numbers)),
                source=None if source is None else self.labels.short(source),
                target=None if target is None else self.labels.short(target),
            )
            for (topic, source, target), numbers in together.items()
        )

    def _predecessor(self, member_id: str, index: int) -> str:
        """Return who had the place of a static member at an entry: it may have been replaced since."""
        while (taken := self._places.get(member_id)) is not None and taken[0] > index:
            member_id = taken[1]
        return member_id

    def _progress(
        self, row: EpochRow, idle: Mapping[tuple[TopicPartition, int | None], int]
    ) -> tuple[Advance, ...]:
        told: list[Advance] = []
        for step in row.progress:
            self._told.update({(step.member_id, part): step.timestamp_ms for part in step.told})
            since = [self._told.pop((step.member_id, part), None) for part in step.released]
            if not self.focus.has_row(row) or not self.focus.has_step(step):
                continue
            unowned = [
                step.timestamp_ms - idle.get((part, step.index), step.timestamp_ms) for part in step.took
            ]
            told.append(
                Advance(
                    member=self.labels.short(step.member_id),
                    index=step.index,
                    timestamp_ms=step.timestamp_ms,
                    after_ms=step.timestamp_ms - row.timestamp_ms,
                    told=partitions_words(step.told, none=""),
                    released=partitions_words(step.released, none=""),
                    since_told_ms=_longest(since, step.timestamp_ms),
                    took=partitions_words(step.took, none=""),
                    idle_ms=max(unowned, default=None),
                    idle_ms_min=min(unowned, default=None),
                    reached=step.reached,
                )
            )
        return tuple(told)

    def _waits(self, row: EpochRow, waits: Iterable[Wait]) -> tuple[WaitStep, ...]:
        """The waits that began in this epoch, and older ones that ended in it or never."""
        together: dict[tuple[object, ...], list[Wait]] = {}
        for wait in waits:
            goes_on = row.end_index is not None and (wait.to_index is None or wait.to_index >= row.end_index)
            if wait.from_index < row.index and goes_on:
                continue
            key = (wait.from_index, wait.waiter, wait.holder, wait.told_index, wait.to_index, wait.end)
            together.setdefault(key, []).append(wait)
        return tuple(self._wait(row, same) for same in together.values())

    def _wait(self, row: EpochRow, same: Sequence[Wait]) -> WaitStep:
        wait = same[0]
        to_ms = self.facts.last_ms if wait.to_ms is None else wait.to_ms
        waited_ms = max(to_ms - wait.from_ms, 0)
        parts = partitions_words(one.partition for one in same)
        waiter, holder = self.labels.short(wait.waiter), self.labels.short(wait.holder)
        them = "it" if len(same) == 1 else "them"
        did = " ".join(word for word in (self._told_words(wait, them), _end_words(wait, them)) if word)
        since = f" (since {epoch_noun(row.protocol)} {wait.epoch})" if wait.from_index < row.index else ""
        return WaitStep(
            waiter=waiter,
            holder=holder,
            partitions=parts,
            num_partitions=len(same),
            epoch=wait.epoch,
            from_index=wait.from_index,
            from_ms=wait.from_ms,
            told_index=wait.told_index,
            told_ms=wait.told_ms,
            to_index=wait.to_index,
            to_ms=wait.to_ms,
            waited_ms=waited_ms,
            end=wait.end.value,
            words=f"{waiter} waited {duration(waited_ms)}{since} for {parts}, held by {holder}, which {did}",
        )

    def _told_words(self, wait: Wait, them: str) -> str:
        """The words before a wait's end; a classic member is not told to give up partitions: it rejoins."""
        if self.labels.is_classic(wait.holder):
            return "" if wait.end in _HOLDER_ACTS else f"kept {them}"
        if wait.told_ms is None or wait.told_index is None:
            return "was not told before it" if wait.end in _HOLDER_ACTS else "was not told"
        return f"was told at {self.labels.style.clock(wait.told_ms)} (index {wait.told_index})" + (
            " and" if wait.end in _HOLDER_ACTS else ""
        )


_HOLDER_ACTS = (WaitEnd.RELEASED, WaitEnd.FENCED, WaitEnd.LEFT)


def _end_words(wait: Wait, them: str) -> str:
    match wait.end:
        case WaitEnd.RELEASED:
            return f"gave {them} up at index {wait.to_index}"
        case WaitEnd.FENCED:
            return f"was removed at index {wait.to_index}"
        case WaitEnd.LEFT:
            return f"left at index {wait.to_index}"
        case WaitEnd.OVERTAKEN:
            return f"until another target, at index {wait.to_index}, made the wait pointless"
        case WaitEnd.UNKNOWN:
            return "and how it ended is unknown because entries are missing"
        case _:
            return f"and still had {them} at the end of what was read"


def _longest(starts: Iterable[int | None], now_ms: int) -> int | None:
    return max((now_ms - start for start in starts if start is not None), default=None)
