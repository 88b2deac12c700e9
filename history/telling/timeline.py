"""`timeline`: one row per epoch with time, cause, time to stable, and owners.

A timeline is an `Explanation` folded to one line per step; it contains nothing that `explain` does not say at
length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from history.columns import table
from history.render import LOCAL, TimeStyle, duration, sentence_list

from .explain import Explanation
from .story import EpochStep, Step, TermStep

HEADERS = ("epoch", "index", "time", "stable after", "why", "who owned what")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """One step: an epoch, or (``epoch`` ``None``) a term of the shard or a note."""

    epoch: int | None
    index: int | None
    timestamp_ms: int
    why: str
    settled: bool
    overtaken: bool
    """The next epoch began before this one was settled. An epoch neither settled nor overtaken was open at
    the end."""
    took_ms: int | None
    owners: dict[str, str]
    """Member -> its partitions in words, at the end of the epoch."""
    noun: str = "epoch"
    """The word of the group's protocol for the step: `epoch`, `generation` or `round`."""


def timeline(explanation: Explanation) -> tuple[TimelineRow, ...]:
    """The rows of one group."""
    return tuple(_row(step) for step in explanation.steps)


def _row(step: Step) -> TimelineRow:
    if isinstance(step, EpochStep):
        return TimelineRow(
            epoch=step.epoch,
            index=step.index,
            timestamp_ms=step.timestamp_ms,
            why=sentence_list(step.why),
            settled=step.settled_index is not None,
            overtaken=step.overtaken_by is not None,
            took_ms=step.took_ms,
            owners=step.owners,
            noun=step.noun,
        )
    return TimelineRow(
        epoch=None,
        index=step.index,
        timestamp_ms=step.timestamp_ms,
        why=step.why if isinstance(step, TermStep) else step.text,
        settled=False,
        overtaken=False,
        took_ms=None,
        owners={},
    )


def timeline_text(
    rows: Sequence[TimelineRow], *, width: int | None = None, style: TimeStyle = LOCAL
) -> Iterator[str]:
    """A table that fits the width; the date is above it if all rows share one."""
    if not rows:
        return
    days = {style.full(row.timestamp_ms)[:10] for row in rows if row.timestamp_ms >= 0}
    one_day = len(days) == 1
    zone = style.full(max(row.timestamp_ms for row in rows))[23:]
    yield f"{days.pop()}, times at UTC{zone}" if one_day else f"times at UTC{zone}"
    cells = [
        (
            "-" if row.epoch is None else str(row.epoch),
            "-" if row.index is None else str(row.index),
            style.clock(row.timestamp_ms) if one_day else style.full(row.timestamp_ms)[:23],
            _settled(row),
            row.why,
            " | ".join(f"{member}: {owned or 'nothing'}" for member, owned in row.owners.items()),
        )
        for row in rows
    ]
    nouns = {row.noun for row in rows if row.epoch is not None}
    noun = nouns.pop() if len(nouns) == 1 else HEADERS[0]
    yield from table((noun, *HEADERS[1:]), cells, width)


def row_text(row: TimelineRow, style: TimeStyle = LOCAL) -> Iterator[str]:
    """One row of a continuous listing: what happened, then the owners."""
    head = style.full(row.timestamp_ms) + ("" if row.index is None else f"  index {row.index}")
    if row.epoch is None:
        yield f"{head}  {row.why}"
        return
    settled = f"stable after {_settled(row)}" if row.settled else _settled(row)
    yield f"{head}  {row.noun} {row.epoch}  {settled}: {row.why}"
    if row.owners:
        yield "  " + " | ".join(f"{member}: {owned or 'nothing'}" for member, owned in row.owners.items())


def _settled(row: TimelineRow) -> str:
    if row.epoch is None:
        return ""
    if row.took_ms is not None:
        return duration(row.took_ms)
    return "overtaken" if row.overtaken else "not yet"
