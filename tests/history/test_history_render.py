"""Times, durations, ranges and names."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from history.render import (
    CALENDAR_MS_MAX,
    UTC_STYLE,
    MemberNames,
    TimeStyle,
    duration,
    parse_time,
    ranges,
)
from tests.support.memory_log import NOON_MS

EAST = TimeStyle(timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("span_ms", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (3_049, "3.0 s"),
        (59_940, "59.9 s"),
        (59_950, "1 min"),
        (125_000, "2 min 5 s"),
        (300_000, "5 min"),
        (3_600_000, "1 h"),
        (3_780_000, "1 h 3 min"),
        (86_400_000, "1 d"),
        (187_200_000, "2 d 4 h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_durations(span_ms: int, said: str) -> None:
    assert duration(span_ms) == said


def test_times_beyond_the_calendar_are_numbers() -> None:
    """A client may commit an offset that is to be kept for 292 million years."""
    assert UTC_STYLE.full((1 << 63) - 1) == "9223372036854775807 ms"
    assert UTC_STYLE.clock((1 << 63) - 1) == "9223372036854775807 ms"
    assert UTC_STYLE.full(CALENDAR_MS_MAX) == "9999-01-01 00:00:00.000+00:00"
    assert TimeStyle(timezone(timedelta(hours=14))).full(CALENDAR_MS_MAX).startswith("9999-01-01 14")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [((), "-"), ((5,), "5"), ((0, 1, 2, 3, 7), "0-3,7"), ((7, 3, 2, 2), "2-3,7"), ((1, 3, 5), "1,3,5")],
)
def test_ranges(numbers: tuple[int, ...], said: str) -> None:
    assert ranges(numbers) == said


def test_a_time_says_its_zone() -> None:
    assert UTC_STYLE.full(NOON_MS + 7) == "2026-03-01 12:00:00.007+00:00"
    assert EAST.full(NOON_MS) == "2026-03-01 13:00:00.000+01:00"
    assert EAST.clock(NOON_MS + 100) == "13:00:00.100"
    assert UTC_STYLE.full(-1) == "unknown time"


@pytest.mark.parametrize(
    "text",
    ["1772366400000", "2026-03-01T12:00:00Z", "2026-03-01 13:00:00+01:00", "2026-03-01T13:00:00"],
)
def test_a_typed_time_is_meant_in_the_readers_zone_unless_it_says_so(text: str) -> None:
    assert parse_time(text, EAST) == NOON_MS


def test_a_wrong_time_is_refused_with_what_is_accepted() -> None:
    with pytest.raises(ValueError, match=r"'yesterday' is not a time: give epoch milliseconds, or 2026"):
        parse_time("yesterday")


def test_a_name_is_never_given_twice() -> None:
    names = MemberNames()
    assert names.name("x1") == "x1"  # short ids stay
    assert names.name("Xk2VtmqySmmkHkQ1hNLg7A") == "x2"
    assert names.name("pQ8ZB7TfQbaOQz2wCUDBXg") == "x3"
    assert names.name("x3") == "x4"
    assert names.name("Xk2VtmqySmmkHkQ1hNLg7A") == "x2"
    assert names.legend() == {"x2": "Xk2VtmqySmmkHkQ1hNLg7A", "x3": "pQ8ZB7TfQbaOQz2wCUDBXg", "x4": "x3"}
