"""Groups that wait for a target: assignors that fail or hang, or members that do not compute one in time.

The log shows that no target was written for an epoch. Only the node's evidence file tells why, since a
failure leaves no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from history.facts.rows import EpochRow, SpanKind, TopicPartition
from history.protocols import PUSH, REWRITE
from history.reading.notes import TROUBLE, Note
from history.render import duration, plural

from .case import (
    LOOK_BACK_MS,
    NO_EVIDENCE,
    SETTLE_MS,
    Case,
    Found,
    Threshold,
    clusters,
    members,
    parts,
    unique,
)

NO_TARGET_MS = Threshold(
    12_000,
    "NO_TARGET_MS",
    "Longer than any assignor of the node may take (10 s, plus a pause of a second before it is called).",
)

TROUBLE_PAUSE_MS = Threshold(
    120_000,
    "TROUBLE_PAUSE_MS",
    "Twice the longest pause before a failed assignor or failed expressions are tried again.",
)

TARGET_PAUSE_MS = Threshold(
    900_000,
    "TARGET_PAUSE_MS",
    "Longest time between two epochs without a target of one finding: an epoch that waits longer is an "
    "incident of its own.",
)

ASSIGN, RESOLVE = "assign", "resolve"


@dataclass(frozen=True, slots=True)
class _Missing:
    """A period in which the newest epoch had no target."""

    rows: tuple[EpochRow, ...]
    to_index: int | None
    to_ms: int | None

    @property
    def first(self) -> EpochRow:
        return self.rows[0]

    def holds(self, at_ms: int, known_until_ms: int) -> bool:
        """Whether a time is in the period, and not long before its end."""
        until_ms = known_until_ms if self.to_ms is None else self.to_ms
        return max(self.first.timestamp_ms, until_ms - LOOK_BACK_MS) <= at_ms <= until_ms


def assignor_failed(case: Case) -> Iterator[Found]:
    """An assignor of the node raised an error, returned an invalid assignment or took too long."""
    for missing in _missing(case):
        noted = [note for note in _noted(case, missing) if not note.get("member")]
        if noted:
            how_often = f" ({plural(len(noted), 'time')})" if len(noted) > 1 else ""
            yield _found(case, missing, (), f"{noted[-1]['said']}{how_often}: ")
    yield from _strategy_failed(case)


def _strategy_failed(case: Case) -> Iterator[Found]:
    """A strategy of a group of the rewrite design failed: no generation was completed, so none is without."""
    for run in clusters(_troubles(case), lambda note: note["at_ms"], TROUBLE_PAUSE_MS):
        row, from_ms, to_ms = case.epoch_when(run[0]["at_ms"]), run[0]["at_ms"], run[-1]["at_ms"]
        if row is None or row.protocol != REWRITE:
            continue
        after = next((one for one in case.facts.epochs if one.timestamp_ms >= to_ms), None)
        if after is not None and after.timestamp_ms - to_ms > SETTLE_MS:
            after = None
        how_often = f" ({plural(len(run), 'time')})" if len(run) > 1 else ""
        until_ms = to_ms if after is None else after.timestamp_ms
        yield Found(
            members=row.members,
            epochs=(row.epoch,),
            from_index=row.index,
            from_ms=from_ms,
            to_index=row.index if after is None else after.index,
            to_ms=until_ms,
            words=(
                f"{run[-1]['said']}{how_often}: no generation was completed for "
                f"{duration(until_ms - from_ms)}; {members(row.members)} had stopped and waited "
                "(the reason is from the evidence file)"
            ),
            rests_on=unique((row.index, None if after is None else after.index)),
            is_certain=False,
        )


def client_assignor_late(case: Case) -> Iterator[Found]:
    """A member that was asked to compute the target did not do so in time, or installed an invalid one."""
    for missing in _missing(case):
        noted = [note for note in _noted(case, missing) if note.get("member")]
        if noted:
            asked = unique(note["member"] for note in noted)
            said = (
                f"{members(asked)} {'was' if len(asked) == 1 else 'were'} chosen to compute the target and "
                "did not install one in time: "
            )
            yield _found(case, missing, asked, said)


def no_target(case: Case) -> Iterator[Found]:
    """The group waited long for a target, for an unknown reason."""
    for missing in _missing(case):
        to_ms = case.known_until_ms if missing.to_ms is None else missing.to_ms
        if to_ms - missing.first.timestamp_ms >= NO_TARGET_MS:
            why = (
                "no evidence of the reason was recorded"
                if case.has_evidence
                else f"{NO_EVIDENCE} that would say why"
            )
            said = f"an assignor failed, hung or took too long ({why}): "
            yield _found(case, missing, (), said)


def expressions_not_resolved(case: Case) -> Iterator[Found]:
    """Subscriptions by regular expression could not be resolved."""
    noted = [note for note in case.notes_of(TROUBLE) if note.get("work") == RESOLVE]
    for run in clusters(noted, lambda note: note["at_ms"], TROUBLE_PAUSE_MS):
        row = case.epoch_when(run[0]["at_ms"])
        if row is None:
            continue
        yield Found(
            members=row.members,
            epochs=(row.epoch,),
            from_index=row.index,
            from_ms=run[0]["at_ms"],
            to_index=row.index,
            to_ms=run[-1]["at_ms"],
            words=(
                f"{run[-1]['said']}; {members(row.members)} kept the topics that they had (from the evidence "
                "file)"
            ),
            rests_on=(row.index,),
            is_certain=False,
        )


def _troubles(case: Case) -> list[Note]:
    return [note for note in case.notes_of(TROUBLE) if note.get("work", ASSIGN) == ASSIGN]


def _noted(case: Case, missing: _Missing) -> list[Note]:
    return [note for note in _troubles(case) if missing.holds(note["at_ms"], case.known_until_ms)]


def is_late(row: EpochRow) -> bool:
    """Whether the epoch began without its target."""
    return row.target_index is None or row.target_index > row.index


def _missing(case: Case) -> Iterator[_Missing]:
    for missing in _periods(case):
        *parts, last = clusters(missing.rows, lambda row: row.timestamp_ms, TARGET_PAUSE_MS)
        for part, after in pairwise((*parts, last)):
            yield _Missing(tuple(part), after[0].index, after[0].timestamp_ms)
        yield _Missing(tuple(last), missing.to_index, missing.to_ms)


def _periods(case: Case) -> Iterator[_Missing]:
    rows: list[EpochRow] = []
    for row in case.facts.epochs:
        if rows and rows[-1].end_index != row.index:  # the group was deleted, or entries are missing
            yield _Missing(tuple(rows), rows[-1].end_index, rows[-1].end_ms)
            rows = []
        if row.protocol == PUSH:  # a round has its target when the last consumer has stopped
            continue
        if not is_late(row):
            if rows:
                yield _Missing(tuple(rows), row.index, row.timestamp_ms)
            rows = []
            continue
        rows.append(row)
        if row.target_index is not None:
            yield _Missing(tuple(rows), row.target_index, row.target_ms)
            rows = []
    if rows:
        yield _Missing(tuple(rows), rows[-1].end_index, rows[-1].end_ms)


def _found(case: Case, missing: _Missing, asked: tuple[str, ...], why: str) -> Found:
    first, last = missing.first, missing.rows[-1]
    waiting = _waiting(missing)
    wanted = _wanted(case, missing, waiting)
    to_ms = case.known_until_ms if missing.to_ms is None else missing.to_ms
    span = duration(to_ms - first.timestamp_ms)
    held_up = f"{members(waiting)} waited" if waiting else "the group waited"
    said = f"{why}epoch {first.epoch} had no target for {span}"
    if missing.to_index is None:
        said += ", until the end of what was read"
    said += f"; {held_up} for {parts(wanted)}" if wanted else f"; {held_up} for it"
    is_noted = bool(asked) or not why.startswith("an assignor")
    return Found(
        members=unique((*asked, *waiting)),
        partitions=wanted,
        epochs=[row.epoch for row in missing.rows],
        from_index=first.index,
        from_ms=first.timestamp_ms,
        to_index=missing.to_index,
        to_ms=missing.to_ms,
        words=said + (" (the reason is from the evidence file)" if is_noted else ""),
        rests_on=unique((*(row.index for row in missing.rows), missing.to_index, last.target_index)),
        is_certain=False,
    )


def _waiting(missing: _Missing) -> tuple[str, ...]:
    """Members named as reasons for the epochs without a target; all members if there are none."""
    there = set(missing.rows[-1].members)
    named = unique(
        reason.member_id for row in missing.rows for reason in row.cause.reasons if reason.member_id in there
    )
    return named or missing.rows[-1].members


def _wanted(case: Case, missing: _Missing, waiting: tuple[str, ...]) -> list[TopicPartition]:
    """Partitions without an owner meanwhile, and those that the waiting members got with the target."""
    until_ms = case.known_until_ms if missing.to_ms is None else missing.to_ms
    unowned = {
        span.partition
        for span in case.spans_of(None, SpanKind.UNOWNED)
        if (span.to_ms is None or span.to_ms >= until_ms - LOOK_BACK_MS)
        and (missing.to_index is None or span.from_index < missing.to_index)
        and (span.to_index is None or span.to_index >= missing.first.index)
    }
    got = {move.partition for row in missing.rows for move in row.moves if move.target in waiting}
    return sorted(unowned | got)
