"""Moments as people type them: an index, a time, a clock, "two hours ago".

Parsing needs no log; a moment that is relative (``2h``, ``end-5m``, ``03:12``) is resolved against the
reader's clock and the time of the log's last entry, which the caller hands in. Nothing here reads a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from history.render import LOCAL, MS_PER_SECOND, TimeStyle, parse_time

INDEX_DIGITS_MAX = 11
"""A longer number is a time in epoch milliseconds: 12 digits begin in 1973."""

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_NUMBER = r"\d{1,12}(?:\.\d{1,9})?"  # larger ones are no moments of any log, or of any calendar
_SPAN = re.compile(rf"(?:{_NUMBER}(?:ms|s|min|m|h|d|w))+")
_PART = re.compile(rf"({_NUMBER})(ms|s|min|m|h|d|w)")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,3})?))?")

ACCEPTED = (
    "give a log index, epoch milliseconds, 2026-03-01T12:03:08 (with or without an offset such as +01:00 or"
    " Z), a clock such as 03:12, a span before now such as 2h or 1h30m, or start, end or end-5m"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One point of a log as it was typed; exactly one of the fields behind ``text`` is set."""

    text: str
    index: int | None = None
    time_ms: int | None = None
    """Epoch ms."""
    ago_ms: int | None = None
    """Before now."""
    before_end_ms: int | None = None
    """Before the last entry of the log."""
    is_start: bool = False
    clock_ms: int | None = None
    """Since midnight in the reader's zone: the newest such moment that is not after the log's end."""

    def resolved(
        self, *, now_ms: int, end_ms: int, after_ms: int | None = None, style: TimeStyle = LOCAL
    ) -> tuple[int | None, int | None]:
        """(index, epoch ms), one of them None; ``start`` is index 1. ``end_ms``: of the log's last entry.

        ``after_ms``: where the window begins that this ends. A clock is then the first one after it, as
        03:00 to 03:30 is half an hour also of a log that ends at 03:15.
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
        if after_ms is not None and at_ms < after_ms:
            at_ms = min((one for one in shown if one >= after_ms), default=at_ms)
        return None, at_ms


def parse_moment(text: str, style: TimeStyle = LOCAL) -> Moment:
    """The moment that a person typed; raises `ValueError` saying what is accepted."""
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
    """``2h``, ``1h30m``, ``250ms`` in milliseconds; raises `ValueError`."""
    if not _SPAN.fullmatch(text):
        raise ValueError(f"{text!r} is not a span of time: give for example 45s, 15m, 2h, 1h30m or 7d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text)))


def _shown(clock_ms: int, end_ms: int, style: TimeStyle) -> set[int]:
    """When clocks showed this, on the last day of the log and the days around it; some days twice."""
    today = datetime.combine(style.moment(end_ms).date(), time()) + timedelta(milliseconds=clock_ms)
    return {
        style.epoch_ms((today + timedelta(days=days)).replace(fold=fold))
        for days in (-1, 0, 1)
        for fold in (0, 1)
    }
