"""Moments as people type them: an index, a time, a clock time, "two hours ago".

Parsing needs no log. A relative moment (``2h``, ``end-5m``, ``03:12``) is resolved later against the current
time and the time of the log's last entry, both passed in by the caller. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Self

from history.render import LOCAL, MS_PER_SECOND, TimeStyle, parse_time

INDEX_DIGITS_MAX = 11
"""Maximum digits of a log index. A longer number is a time in epoch milliseconds: 12 digits begin in 1973."""

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_NUMBER = r"\d{1,12}(?:\.\d{1,9})?"  # larger numbers are neither a log index nor a date of the calendar
_SPAN = re.compile(rf"(?:{_NUMBER}(?:ms|s|min|m|h|d|w))+")
_PART = re.compile(rf"({_NUMBER})(ms|s|min|m|h|d|w)")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,3})?))?")

ACCEPTED = (
    "give a log index, epoch milliseconds, 2026-03-01T12:03:08 (with or without an offset such as +01:00 or"
    " Z), a clock such as 03:12, a span before now such as 2h or 1h30m, or start, end or end-5m"
)


Place = tuple[int | None, int | None]
"""An index or epoch ms; (None, None) if nothing was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    """The entries between two bounds, included, and the rows that touch them; ``None``: open."""

    from_index: int | None = None
    from_ms: int | None = None
    to_index: int | None = None
    to_ms: int | None = None
    notes: tuple[str, ...] = ()
    """Remarks for the answer: what a clock was taken as, and where the window lies outside of the log."""

    @classmethod
    def between(cls, begin: Place, end: Place, notes: tuple[str, ...] = ()) -> Self:
        return cls(from_index=begin[0], from_ms=begin[1], to_index=end[0], to_ms=end[1], notes=notes)

    def is_begun(self, index: int, ms: int) -> bool:
        return index >= (self.from_index or 0) and (self.from_ms is None or ms >= self.from_ms)

    def reaches(self, end_index: int | None, end_ms: int | None) -> bool:
        """Whether a row with this end (``None``: open) touches the window."""
        if end_index is None or end_ms is None:
            return True
        return end_index > (self.from_index or 0) and (self.from_ms is None or end_ms > self.from_ms)

    def holds_end(self, end_index: int | None, end_ms: int | None) -> bool:
        """The same for a finding, whose end is part of it."""
        is_before_index = (
            self.from_index is not None and end_index is not None and end_index < self.from_index
        )
        return not is_before_index and (self.from_ms is None or end_ms is None or end_ms >= self.from_ms)


WHOLE_LOG = LogWindow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One point of a log as the user typed it; exactly one of the fields after ``text`` is set."""

    text: str
    index: int | None = None
    time_ms: int | None = None
    """Epoch milliseconds."""
    ago_ms: int | None = None
    """Milliseconds before now."""
    before_end_ms: int | None = None
    """Milliseconds before the last entry of the log."""
    is_start: bool = False
    clock_ms: int | None = None
    """Milliseconds since midnight in the reader's time zone: the latest such moment not after the log's end.
    """

    def resolved(
        self,
        *,
        now_ms: int,
        end_ms: int,
        begin_ms: int = -1,
        after_ms: int | None = None,
        style: TimeStyle = LOCAL,
    ) -> tuple[int | None, int | None]:
        """Return (index, epoch ms), exactly one of them ``None``; ``start`` is index 1.

        ``begin_ms`` and ``end_ms`` are the times of the log's first and last entry. A clock time that the log
        does not cover is the nearest one outside: 03:20 is five minutes after a log from 03:00 to 03:15.
        ``after_ms`` is the start of the window that this moment ends: a clock time is then the first one
        after it, so that 03:00 to 03:30 is half an hour even in a log that ends at 03:15.
        """
        if self.index is not None:
            return self.index, None
        if self.is_start:
            return 1, None
        if self.time_ms is not None:
            return None, self.time_ms
        if self.ago_ms is not None:
            return None, now_ms - self.ago_ms
        if self.before_end_ms is not None:
            return None, end_ms - self.before_end_ms
        assert self.clock_ms is not None
        shown = _shown(self.clock_ms, end_ms, style)
        at_ms = max(one for one in shown if one <= end_ms)
        later_ms = min(one for one in shown if one > end_ms)
        if begin_ms - at_ms > later_ms - end_ms:
            at_ms = later_ms
        if after_ms is not None and at_ms < after_ms:
            at_ms = min((one for one in shown if one >= after_ms), default=at_ms)
        return None, at_ms


def parse_moment(text: str, style: TimeStyle = LOCAL) -> Moment:
    """Parse a moment as typed by a person; raises `ValueError` naming the accepted forms."""
    said = text.strip()
    if said.isdecimal() and len(said) <= INDEX_DIGITS_MAX:
        return Moment(text=text, index=int(said))
    if said in ("start", "end"):
        return Moment(text=text, is_start=True) if said == "start" else Moment(text=text, before_end_ms=0)
    if said.startswith("end-") and _SPAN.fullmatch(said[4:]):
        return Moment(text=text, before_end_ms=parse_span(said[4:]))
    if _SPAN.fullmatch(said.removesuffix(" ago").removeprefix("-")):
        return Moment(text=text, ago_ms=parse_span(said.removesuffix(" ago").removeprefix("-")))
    if (clock := _CLOCK.fullmatch(said)) is not None:
        hours, minutes, seconds = clock.groups()
        since_midnight_ms = (int(hours) * 60 + int(minutes)) * 60_000 + round(
            float(seconds or 0) * MS_PER_SECOND
        )
        return Moment(text=text, clock_ms=since_midnight_ms)
    try:
        return Moment(text=text, time_ms=parse_time(said, style))
    except ValueError:
        raise ValueError(f"{text!r} is neither an index nor a time: {ACCEPTED}") from None


def parse_span(text: str) -> int:
    """Parse a duration such as ``2h``, ``1h30m`` or ``250ms`` into milliseconds; raises `ValueError`."""
    if not _SPAN.fullmatch(text):
        raise ValueError(f"{text!r} is not a span of time: give for example 45s, 15m, 2h, 1h30m or 7d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def _shown(clock_ms: int, end_ms: int, style: TimeStyle) -> set[int]:
    """Epoch milliseconds at which clocks showed this time, on the log's last day and the days around it.

    A day on which clocks are set back has two.
    """
    today = datetime.combine(style.moment(end_ms).date(), time()) + timedelta(milliseconds=clock_ms)
    return {
        style.epoch_ms((today + timedelta(days=days)).replace(fold=fold))
        for days in (-1, 0, 1)
        for fold in (0, 1)
    }
