"""The periods of a report: seconds of a short log, hours, days, and months of a long one.

The same code serves a log of three minutes and one of ten years: the span chooses the length of a period,
and their number is bounded by `PERIODS_MAX` (`TRENDS_MAX` for the trend of findings). Periods are of UTC,
whatever the zone of the Spark session.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from history.render import UTC_STYLE, duration

if TYPE_CHECKING:
    from pyspark.sql import Column

PERIODS_MAX = 72
"""Most periods of a page: three days of hours, two months of days, six years of months."""
TRENDS_MAX = 160
"""Most periods of the trend of findings: three years of weeks."""
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
MONTHS_FROM_MS = 60 * _DAY
"""From this span on the page goes by months, and the trend of findings by weeks."""
STEPS_MS = (
    *(one * _SECOND for one in (1, 5, 10, 30)),
    *(one * _MINUTE for one in (1, 5, 15)),
    *(_HOUR, _DAY),
)
STEPS_MONTHS = (1, 3, 12, 60, 600, 6_000, 60_000)
"""Months of a period: a moment of a broken clock may be thousands of years away."""
STEPS_WEEKS = tuple(one * 7 * _DAY for one in (1, 4, 52, 520, 5_200, 52_000))
MONDAY_MS = 4 * _DAY
"""1970-01-05, the first Monday."""


@dataclass(frozen=True, slots=True)
class ReportScale:
    """Consecutive periods; period ``n`` is from ``starts[n]`` (in ms) until before ``starts[n + 1]``."""

    starts: tuple[int, ...]
    step_ms: int
    """Length of a period; 0: ``months`` of the calendar."""
    months: int = 0

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def unit(self) -> str:
        """The length of a period in words: ``month``, ``day``, ``10 s``."""
        if self.months:
            return {1: "month", 12: "year"}.get(self.months, f"{self.months} months")
        week = 7 * _DAY
        if self.step_ms % week == 0:
            return "week" if self.step_ms == week else f"{self.step_ms // week} weeks"
        simple = {_SECOND: "second", _MINUTE: "minute", _HOUR: "hour", _DAY: "day"}
        return simple.get(self.step_ms) or duration(self.step_ms).replace(".0 s", " s")

    @property
    def by(self) -> str:
        """The step in which the page goes through time: ``by month``, ``by intervals of 10 s``."""
        return f"by intervals of {self.unit}" if self.unit[0].isdigit() else f"by {self.unit}"

    def place(self, ms: Column) -> Column:
        """The number of a moment's period; moments outside belong to the first or the last."""
        if self.months:
            day = F.date_from_unix_date(F.floor(ms / F.lit(_DAY)).cast("int"))
            number = F.floor((F.year(day) * 12 + F.month(day) - 1 - _month(self.starts[0])) / self.months)
        else:
            number = F.floor((ms - F.lit(self.starts[0])) / F.lit(self.step_ms))
        return F.least(F.greatest(number, F.lit(0)), F.lit(self.count - 1)).cast("int")

    def start(self, place: Column) -> Column:
        """The moment (ms) at which a period begins; with ``count``, at which the last one ends."""
        return F.get(F.array(*(F.lit(one) for one in self.starts)), place)

    def label(self, place: int) -> str:
        """A period's name: as short as its length permits."""
        word = UTC_STYLE.full(self.starts[place])
        if self.months:
            return word[:4] if self.months % 12 == 0 else word[:7]
        if self.step_ms >= _DAY:
            return word[:10]
        if word[:10] != UTC_STYLE.full(self.starts[-1] - 1)[:10] or self.step_ms >= _HOUR:
            return word[5:16]
        return word[11:16] if self.step_ms >= _MINUTE else word[11:19]


def scale_of(from_ms: int, until_ms: int, *, by_week: bool = False) -> ReportScale:
    """The periods that cover a span; with ``by_week``, a long span goes by weeks instead of months."""
    if until_ms - from_ms < MONTHS_FROM_MS:
        step = next(one for one in STEPS_MS if (until_ms - from_ms) // one < PERIODS_MAX - 1)
        return _even(from_ms, until_ms, step, 0)
    if by_week:
        step = next(one for one in STEPS_WEEKS if (until_ms - from_ms) // one < TRENDS_MAX - 1)
        return _even(from_ms, until_ms, step, MONDAY_MS)
    first, last = _month(from_ms), _month(until_ms)
    months = next(one for one in STEPS_MONTHS if last // one - first // one < PERIODS_MAX)
    numbers = range(first // months * months, last // months * months + months + 1, months)
    return ReportScale(tuple(_month_ms(max(one, 12)) for one in numbers), 0, months)


def _even(from_ms: int, until_ms: int, step_ms: int, origin_ms: int) -> ReportScale:
    first = (from_ms - origin_ms) // step_ms * step_ms + origin_ms
    return ReportScale(tuple(range(first, until_ms + step_ms + 1, step_ms)), step_ms)


def _month(ms: int) -> int:
    """The months since the year 0."""
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.year * 12 + moment.month - 1


def _month_ms(month: int) -> int:
    """The beginning of a month in ms; of year 9999's end at most."""
    year, zero_based = divmod(min(month, 9_999 * 12 + 11), 12)
    return int(datetime(year, zero_based + 1, 1, tzinfo=UTC).timestamp()) * 1000
