"""Moments as people type them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from history.moments import Moment, parse_moment, parse_span
from history.render import UTC_STYLE, TimeStyle

NOW_MS = 1_800_000_000_000
END_MS = round(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp() * 1000)


def ms(*when: int, zone: timezone = UTC) -> int:
    return round(datetime(*when, tzinfo=zone).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", (17, None)),
        ("start", (1, None)),
        ("end", (None, END_MS)),
        ("end-5m", (None, END_MS - 300_000)),
        ("1772366400000", (None, 1_772_366_400_000)),
        ("2026-03-01T11:30", (None, ms(2026, 3, 1, 11, 30))),
        ("2026-03-01T11:30+01:00", (None, ms(2026, 3, 1, 10, 30))),
        ("2026-03-01", (None, ms(2026, 3, 1))),
        ("2h", (None, NOW_MS - 7_200_000)),
        ("1h30m", (None, NOW_MS - 5_400_000)),
        ("90s ago", (None, NOW_MS - 90_000)),
        ("03:12", (None, ms(2026, 3, 1, 3, 12))),
        ("3:12:05.250", (None, ms(2026, 3, 1, 3, 12, 5) + 250)),
        ("12:30", (None, ms(2026, 2, 28, 12, 30))),
    ],
)
def test_what_people_type(text: str, expected: tuple[int | None, int | None]) -> None:
    assert parse_moment(text, UTC_STYLE).resolved(now_ms=NOW_MS, end_ms=END_MS, style=UTC_STYLE) == expected


def test_a_clock_is_meant_in_the_readers_zone() -> None:
    style = TimeStyle(timezone(timedelta(hours=2)))
    found = parse_moment("13:00", style).resolved(now_ms=NOW_MS, end_ms=END_MS, style=style)
    assert found == (None, ms(2026, 3, 1, 11))


@pytest.mark.parametrize(
    ("after_ms", "expected"),
    [
        (None, ms(2026, 2, 28, 12, 30)),
        (ms(2026, 3, 1, 11, 30), ms(2026, 3, 1, 12, 30)),
        (ms(2026, 2, 28, 11), ms(2026, 2, 28, 12, 30)),
    ],
)
def test_a_clock_that_ends_a_window_comes_after_its_begin(after_ms: int | None, expected: int) -> None:
    """Also where the log ends sooner: it ends at noon here."""
    clock = parse_moment("12:30", UTC_STYLE)
    found = clock.resolved(now_ms=NOW_MS, end_ms=END_MS, after_ms=after_ms, style=UTC_STYLE)
    assert found == (None, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:05", ms(2026, 3, 1, 12, 5)),
        ("11:40", ms(2026, 3, 1, 11, 40)),
        ("11:50", ms(2026, 3, 1, 11, 50)),
        ("23:50", ms(2026, 3, 1, 23, 50)),
        ("23:55", ms(2026, 2, 28, 23, 55)),
    ],
)
def test_a_clock_outside_of_a_short_log_is_the_nearest_one(text: str, expected: int) -> None:
    """It lasts from 11:45 to noon."""
    found = parse_moment(text, UTC_STYLE).resolved(
        now_ms=NOW_MS, begin_ms=END_MS - 900_000, end_ms=END_MS, style=UTC_STYLE
    )
    assert found == (None, expected)


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        ("03:30", "2026-03-29T10:00Z", "2026-03-29T01:30Z"),
        ("23:30", "2026-03-29T10:00Z", "2026-03-28T22:30Z"),
        ("12:30", "2026-03-29T10:00Z", "2026-03-28T11:30Z"),
        ("03:30", "2026-10-25T11:00Z", "2026-10-25T02:30Z"),
        ("12:30", "2026-10-25T11:00Z", "2026-10-24T10:30Z"),
        ("02:30", "2026-10-25T11:00Z", "2026-10-25T01:30Z"),
        ("02:30", "2026-10-25T01:00Z", "2026-10-25T00:30Z"),
        ("02:30", "2026-10-25T00:15Z", "2026-10-24T00:30Z"),
    ],
)
@pytest.mark.parametrize("zone", ["named", "of the machine"])
def test_a_clock_on_a_day_on_which_clocks_change(
    text: str, end: str, expected: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    berlin: tzinfo | None = ZoneInfo("Europe/Berlin")
    if zone == "of the machine":
        monkeypatch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        berlin = None
    end_ms, expected_ms = (round(datetime.fromisoformat(one).timestamp() * 1000) for one in (end, expected))
    style = TimeStyle(berlin)
    found = parse_moment(text, style).resolved(now_ms=NOW_MS, end_ms=end_ms, style=style)
    monkeypatch.undo()
    time.tzset()
    assert found == (None, expected_ms)


@pytest.mark.parametrize("text", ["9" * 400 + "h", "1" * 5_000, "2h" + "9" * 400 + "d"])
def test_a_number_beyond_all_measure_is_no_moment(text: str) -> None:
    with pytest.raises(ValueError, match="neither an index nor a time"):
        parse_moment(text)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "2 fortnights", "-", "end-", "1.2.3", "2026-13-01"])
def test_anything_else_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="neither an index nor a time: give a log index"):
        parse_moment(text)


def test_spans() -> None:
    assert [parse_span(text) for text in ("250ms", "1.5s", "7d")] == [250, 1_500, 604_800_000]
    with pytest.raises(ValueError, match="not a span of time"):
        parse_span("5")


def test_a_moment_keeps_what_was_typed() -> None:
    assert parse_moment(" 2h ").text == " 2h "
    assert parse_moment("2h") == Moment(text="2h", ago_ms=7_200_000)
