"""The time by which the wait for one member delayed an epoch's stability.

The log proves when everything else was done, and so the upper bound. The lower bound follows from the
heartbeat intervals of the waiting members, if the node noted them: each would have taken the partitions given
up with its next heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history.facts.rows import EpochRow, Wait, WaitEnd
from history.render import duration, sentence_list

from .evidence import MINUTE_MS, NOTED_LATE_MS, GroupNotes
from .known import Counterfactual, Known
from .member_labels import MemberLabels

WAIT_IMPACT_MS_MIN = 5_000
"""Milliseconds. Shorter waits, within one heartbeat interval of Kafka's, are how the protocol works."""


def of_waits(row: EpochRow, waits: Sequence[Wait], known: Known) -> Iterator[Counterfactual]:
    """The delay of the epoch's stability by the wait for each holder."""
    by_holder: dict[str, list[Wait]] = {}
    for wait in waits:
        by_holder.setdefault(wait.holder, []).append(wait)
    for holder, held in by_holder.items():
        if row.settled_ms is None or row.settled_index is None:
            lasted = max((wait.to_ms or wait.from_ms) - max(wait.from_ms, row.timestamp_ms) for wait in held)
            if row.overtaken_by is not None and lasted >= WAIT_IMPACT_MS_MIN:
                yield _overtaken(row, holder, lasted, known.labels)
            continue
        yield from _without(row, row.settled_ms, holder, held, waits, known)


def _overtaken(row: EpochRow, holder: str, lasted_ms: int, labels: MemberLabels) -> Counterfactual:
    return Counterfactual(
        kind="wait",
        index=row.index,
        epoch=row.epoch,
        member_id=holder,
        is_certain=False,
        words=f"others waited {duration(lasted_ms)} for {labels.short(holder)}; whether the epoch would have"
        f" been stable without is not known, as epoch {row.overtaken_by} overtook it",
    )


def _without(
    row: EpochRow,
    settled_ms: int,
    holder: str,
    held: Sequence[Wait],
    waits: Sequence[Wait],
    known: Known,
) -> Iterator[Counterfactual]:
    """The counterfactual for one holder: all else is done after the last step that does not depend on it."""
    labels = known.labels
    theirs = {wait.partition for wait in held}
    done_ms, done_index = max((row.timestamp_ms, row.index), (row.target_ms or 0, row.target_index or 0))
    for step in row.progress:
        rests_on_it = step.member_id == holder or not theirs.isdisjoint(step.took)
        if not rests_on_it and (step.timestamp_ms, step.index) > (done_ms, done_index):
            done_ms, done_index = step.timestamp_ms, step.index
    sooner_ms = settled_ms - done_ms
    ended = [wait for wait in held if wait.to_ms is not None and wait.to_ms <= settled_ms]
    waited_ms = max((wait.to_ms or 0) - max(wait.from_ms, row.timestamp_ms) for wait in ended) if ended else 0
    if min(sooner_ms, waited_ms) < WAIT_IMPACT_MS_MIN:
        return
    sooner_ms = min(sooner_ms, settled_ms - max(done_ms, min(wait.from_ms for wait in ended)))
    least_ms, why_not = _at_least(row, settled_ms, done_ms, held, waits, known.noted)
    at = f"{labels.style.clock(done_ms)} (index {done_index})"
    said = (
        f"without the {duration(waited_ms)} wait for {labels.short(holder)}, the epoch would have been stable"
    )
    if least_ms is not None:
        said += f" between {duration(least_ms)} and {duration(sooner_ms)} sooner: all else was done at {at}"
    else:
        waiters = sentence_list(sorted({labels.short(wait.waiter) for wait in held}))
        said += f" up to {duration(sooner_ms)} sooner: all else was done at {at};"
        said += f" how soon {waiters} would have taken over its partitions is unknown: {why_not}"
    yield Counterfactual(
        kind="wait",
        index=row.index,
        epoch=row.epoch,
        member_id=holder,
        sooner_ms=sooner_ms,
        sooner_ms_min=least_ms,
        at_ms=done_ms,
        is_certain=least_ms is not None,
        words=said,
    )


def _at_least(
    row: EpochRow,
    settled_ms: int,
    done_ms: int,
    held: Sequence[Wait],
    waits: Sequence[Wait],
    noted: GroupNotes,
) -> tuple[int | None, str]:
    """The lower bound in ms, or ``None`` and why it is unknown.

    It assumes that the holder had given up its partitions when it was asked: each waiting member sends a
    heartbeat within its longest gap and would have taken them then.
    """
    if any(wait.told_ms is None or wait.end is not WaitEnd.RELEASED for wait in held):
        return None, "it did not give up all of it by itself"
    holder = held[0].holder
    if any(step.member_id == holder and step.took for step in row.progress):
        return None, "it also had partitions to take over"
    freed_ms = max(wait.told_ms or 0 for wait in held)
    waiters = {wait.waiter for wait in held}
    others_ms = [wait.to_ms for wait in waits if wait not in held and wait.waiter in waiters]
    if any(ms is None for ms in others_ms):
        return None, "they also waited for others"
    gaps = [_longest_gap(noted, waiter, freed_ms, settled_ms) for waiter in waiters]
    known = [gap for gap in gaps if gap is not None]
    if len(known) < len(gaps):
        return None, _no_rhythm(noted)
    free_ms = max([freed_ms, *(ms for ms in others_ms if ms is not None)])
    least_ms = settled_ms - max(done_ms, free_ms + round(max(known)))
    if least_ms <= 0:
        return None, "the gaps between their heartbeats were as long as that"
    return least_ms, ""


def _longest_gap(noted: GroupNotes, member_id: str, from_ms: int, to_ms: int) -> float | None:
    """Longest gap between a member's heartbeats in a period; ``None``: some minute of it is not noted."""
    minutes = range(from_ms // MINUTE_MS * MINUTE_MS, to_ms + NOTED_LATE_MS + 1, MINUTE_MS)
    gaps = [noted.gap_ms(member_id, minute) for minute in minutes]
    known = [gap for gap in gaps if gap is not None]
    return max(known) if len(known) == len(gaps) else None


def _no_rhythm(noted: GroupNotes) -> str:
    if noted.is_empty:
        return "there is no evidence of the group"
    return "the evidence file does not have its heartbeats of that time"
