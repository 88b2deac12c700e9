"""The frame of every page: no value that a client chose becomes markup, and no page loads from a network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from datetime import UTC
from fnmatch import fnmatchcase as fnmatch
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from history.pages.frame import (
    Markup,
    Provenance,
    embedded,
    escaped,
    page,
    section,
    shortened,
    table_html,
    tiles,
    time_axis,
    zone_offsets,
)
from history.render import UTC_STYLE, TimeStyle
from tests.history.html_elements import Elements

HOSTILE = "</script><img src=x onerror=alert(1)><!--\u2028\"'&{{$title}}"
REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "history" / "pages"


def hostile_page() -> str:
    return page(
        title=HOSTILE,
        lead=HOSTILE,
        body=section(HOSTILE, table_html(["a", HOSTILE], [[HOSTILE, 1]], numbers=[1]))
        + tiles([(HOSTILE, HOSTILE)])
        + section(HOSTILE, escaped(HOSTILE), fold=True),
        data={HOSTILE: [HOSTILE, "\ud800"]},
        rests_on=[HOSTILE],
        provenance=Provenance(command=HOSTILE, source=HOSTILE, written_at="now"),
    )


def test_hostile_names_make_no_element_and_no_attribute() -> None:
    elements = Elements(hostile_page())
    assert "img" not in {tag for tag, _ in elements.tags}
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert len(elements.raw["script"]) == 2


def test_the_data_comes_back_as_it_was() -> None:
    data = json.loads(Elements(hostile_page()).raw["script"][0])
    assert data == {HOSTILE: [HOSTILE, "\ud800"]}


@pytest.mark.parametrize("character", "<>&\u2028\u2029")
def test_no_character_that_ends_a_script_is_left_in_the_data(character: str) -> None:
    assert character not in embedded({"a": character})


def test_a_page_allows_its_own_style_and_script_and_nothing_else() -> None:
    elements = Elements(page(title="t", body=""))
    policy = next(a["content"] for t, a in elements.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for name, text in (("style", elements.raw["style"][0]), ("script", elements.raw["script"][1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_a_page_refers_to_nothing_outside() -> None:
    text = page(title="t", body="")
    assert not re.search(r"https?:|//[a-z]|@import|url\(|srcset|<link|fetch\(|XMLHttp|WebSocket", text)
    assert not [a for _, a in Elements(text).tags if "src" in a or "href" in a or "style" in a]


def test_long_names_that_begin_alike_are_told_apart() -> None:
    names = [f"production.eu-central-1.payments-reconciliation-{one}" for one in ("alpha", "beta")]
    shown = [shortened(name) for name in names]
    assert shown[0] != shown[1]
    assert {len(name) for name in shown} == {40}
    assert shortened("short") == "short"


def test_a_cell_bears_the_name_of_its_column_and_is_marked_if_it_says_nothing() -> None:
    rows = [["billing", 3, Markup("<b>x</b>")], ["-", "-", ""]]
    text = table_html(["group", HOSTILE, ""], rows, numbers=[1])
    cells = [attributes for tag, attributes in Elements(text).tags if tag == "td"]
    assert cells == [
        *({"data-label": "group"}, {"class": "number", "data-label": HOSTILE}, {}),
        {"class": "nothing", "data-label": "group"},
        {"class": "number nothing", "data-label": HOSTILE},
        {},
    ]
    assert "<b>x</b>" in text


def test_an_axis_has_dates_unless_it_is_of_one_day() -> None:
    noon, hour_ms = 1_772_366_400_000, 3_600_000  # 2026-03-01
    assert "<span>12:00:00</span><span>12:30:00</span>" in time_axis(noon, noon + hour_ms, UTC_STYLE)
    assert "<span>2026-03-03 12:00</span></p>" in time_axis(noon, noon + 48 * hour_ms, UTC_STYLE)


def test_offsets_follow_the_zone_over_its_changes() -> None:
    winter, summer = 1_772_366_400_000, 1_780_272_000_000  # 2026-03-01 and 2026-06-01
    changed = 1_774_746_000_000  # 2026-03-29 01:00 UTC
    berlin = TimeStyle(ZoneInfo("Europe/Berlin"))
    assert zone_offsets(winter, summer, berlin) == [[winter, 60], [changed, 120]]
    assert zone_offsets(winter, summer, TimeStyle(UTC)) == [[winter, 0]]
    years = zone_offsets(winter - 40 * 31_557_600_000, winter, berlin)
    assert len(years) == 81


def test_a_wheel_contains_the_files_of_pages() -> None:
    """Files that are read by name at run time must be in an installation too."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    files = [file.relative_to(PAGES).as_posix() for file in sorted((PAGES / "files").iterdir())]
    assert files
    assert [name for name in files if not any(fnmatch(name, pattern) for pattern in patterns)] == []
