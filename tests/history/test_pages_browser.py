"""The timeline page in a real browser: keys, pointer, search, names that are code, what it says to be so.

The browser is Chromium without a window; where there is none, the tests are skipped and say so.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from history.answers.stats import stats
from history.diagnoses import findings_of
from history.facts.group import facts_of
from history.facts.rows import GroupRows
from history.pages.stats import stats_page
from history.pages.timeline import timeline_page
from history.pages.whatif import whatif_page
from history.reading.groups import groups_of
from history.reading.node import NodeLog
from history.render import UTC_STYLE
from history.whatif.answer import whatif
from history.whatif.settings import WhatIf
from records.ids import METADATA_SHARD
from tests.history.members import History
from tests.support import classic_log
from tests.support.browser import MISPLACED, Tab, browser_path, opened
from tests.support.payments_log import group_log, metadata_log
from tests.support.timeline_logs import BILLING, HOSTILE, billing_log, crowd_facts, facts_in, finding, renamed

BROWSER = browser_path()
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None,
        reason="no Chromium here, so no page is driven (Debian: apt-get install chromium)",
    ),
    pytest.mark.asyncio(loop_scope="module"),  # one browser for all, since it takes seconds to start
]
CURSOR = "document.getElementById('cursor')"


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> GroupRows:
    return facts_in(billing_log(tmp_path_factory.mktemp("billing") / "node-1"), BILLING)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    assert BROWSER is not None
    async with opened(tmp_path_factory.mktemp("browser"), BROWSER) as tab:
        yield tab


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Tab) -> AsyncIterator[Tab]:
    browser.complaints.clear()
    browser.requests.clear()
    yield browser
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []


async def shown(tab: Tab, page: str, home: Path, *, width: int = 1400) -> None:
    file = home / "page.html"
    file.write_text(page, encoding="utf-8")
    await tab.look(width=width)
    await tab.show(file)


async def cursor(tab: Tab) -> int:
    return int(await tab.evaluate(f"{CURSOR}.getAttribute('aria-valuenow')"))


async def panel(tab: Tab) -> str:
    return str(await tab.evaluate("document.getElementById('panel').innerText"))


async def test_the_page_works_from_the_keyboard(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, [finding(facts)], style=UTC_STYLE), tmp_path)
    begin = facts.epochs[0].timestamp_ms
    opened_at = [row.timestamp_ms - begin for row in facts.epochs]
    assert await cursor(tab) == opened_at[4], "it begins where the finding is at its worst"
    opened = await tab.evaluate("document.getElementById('opened').innerText")
    assert "opens at the gravest finding, SILENT_MEMBER, at 2026-03-01 12:00:42.010+00:00" in opened
    said = await panel(tab)
    assert "Epoch 5" in said
    assert "session of m2 (app-2) expired" in said
    assert "orders 9-11: m2 (app-2) → m1 (app-1)" in said
    assert "nobody" in said
    await tab.press("p")
    assert await cursor(tab) == opened_at[3]
    await tab.evaluate(f"{CURSOR}.focus()")
    await tab.press("Home")
    assert await cursor(tab) == 0
    await tab.press("ArrowRight")
    one = await cursor(tab)
    await tab.press("ArrowRight", shift=True)
    assert 0 < one < await cursor(tab)
    await tab.press("ArrowLeft", shift=True)
    assert abs(await cursor(tab) - one) <= 1
    await tab.press("End")
    assert await cursor(tab) == facts.last_ms - begin
    assert "Stable" in await tab.evaluate(f"{CURSOR}.getAttribute('aria-valuetext')")
    await tab.press("f")
    assert await cursor(tab) == opened_at[4] - 3_000
    await tab.press("ArrowDown")
    assert "m1 (app-1)" in await tab.evaluate("document.getElementById('tip').textContent")
    assert "in step, holds 8 partitions" in await tab.evaluate("document.getElementById('said').textContent")


async def test_zoom_window_and_filter(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, [finding(facts)], style=UTC_STYLE), tmp_path)
    height = "document.getElementById('extent').clientHeight"
    whole = await tab.evaluate(height)
    await tab.press("n")
    far = await tab.picture(whole=False)
    await tab.press("z")
    assert await tab.picture(whole=False) != far
    await tab.press("c")
    assert (
        await tab.evaluate("document.querySelector('[data-do=filter]').getAttribute('aria-pressed')")
        == "true"
    )
    assert 100 < await tab.evaluate(height) < whole, "the lanes in which nothing changes are gone"
    await tab.press("c")
    assert await tab.evaluate(height) == whole
    squeezed = "document.querySelector('[data-do=squeeze]').getAttribute('aria-pressed')"
    assert await tab.evaluate(squeezed) == "true", "two quiet minutes are squeezed at first"
    await tab.press("0")
    before = await tab.picture(whole=False)
    await tab.press("q")
    assert await tab.evaluate(squeezed) == "false"
    assert await tab.picture(whole=False) != before


async def test_the_address_says_where_it_begins(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, [finding(facts)], style=UTC_STYLE), tmp_path)
    begin = facts.epochs[0].timestamp_ms
    await tab.evaluate("void (location.hash = '#epoch=3')")
    await tab.drawn()
    assert await cursor(tab) == facts.epochs[2].timestamp_ms - begin
    await tab.evaluate(f"void (location.hash = '#at={begin + 1234}')")
    await tab.drawn()
    assert await cursor(tab) == 1234


async def test_paper_is_light(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, (), style=UTC_STYLE), tmp_path)
    drawn = "document.getElementById('ruler').toDataURL()"
    light = await tab.evaluate(drawn)
    await tab.look(width=1400, dark=True)
    await tab.drawn()
    dark = await tab.evaluate(drawn)
    assert dark != light
    await tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert await tab.evaluate(drawn) == light
    await tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert await tab.evaluate(drawn) == dark


async def test_a_member_is_found_and_brought_out(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, (), style=UTC_STYLE), tmp_path)
    await tab.press("/")
    await tab.write("app-2")
    assert await tab.evaluate("document.getElementById('found').textContent") == "lane 1 of 1"
    assert await tab.evaluate("document.querySelector('#panel [aria-pressed=true]').textContent") == "m2"
    await tab.press("Escape")
    assert await tab.evaluate("document.querySelector('#panel [aria-pressed=true]')") is None
    await tab.press("/")
    await tab.write("orders-9")
    assert "orders 9-10" in await tab.evaluate("document.getElementById('said').textContent")
    await tab.press("Escape")
    await tab.press("/")
    await tab.write("nobody of that name")
    assert await tab.evaluate("document.getElementById('found').textContent") == "nothing found"


async def test_the_cursor_is_dragged(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, (), style=UTC_STYLE), tmp_path)
    box = await tab.evaluate(
        "JSON.parse(JSON.stringify(document.getElementById('ruler').getBoundingClientRect()))"
    )
    middle = box["y"] + box["height"] / 2
    await tab.mouse("mousePressed", box["x"] + 300, middle, held=True)
    first = await cursor(tab)
    await tab.mouse("mouseMoved", box["x"] + 500, middle, held=True)
    second = await cursor(tab)
    await tab.mouse("mouseReleased", box["x"] + 500, middle)
    await tab.mouse("mouseMoved", box["x"] + 600, middle)
    assert first < second == await cursor(tab)


async def test_the_page_says_at_every_moment_who_owned_what(
    facts: GroupRows, tab: Tab, tmp_path: Path
) -> None:
    """The script's own reading of its data, beside the spans."""
    await shown(tab, timeline_page(facts, (), style=UTC_STYLE), tmp_path)
    begin = facts.epochs[0].timestamp_ms
    for at in sorted({span.from_ms for span in facts.spans}):
        holding: dict[int, int] = {}
        ids = list(dict.fromkeys(one.member_id for one in facts.sessions))
        for span in facts.spans:
            if span.from_ms <= at and (span.to_ms is None or at < span.to_ms):
                number = -1 if span.member_id is None else ids.index(span.member_id)
                holding[number] = holding.get(number, 0) + 1
        said = await tab.evaluate(f"Model.ownersAt({at - begin}).map(o => [o.member, o.count])")
        assert {member: count for member, count in said if count} == holding, at


async def test_names_that_are_code_stay_names(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    hostile = renamed(facts, lambda name: HOSTILE + name if name else name)
    found = renamed(finding(facts), lambda name: HOSTILE + name)
    page = timeline_page(hostile, [found], style=UTC_STYLE, title=HOSTILE, rests_on=[HOSTILE])
    await shown(tab, page, tmp_path)
    for key in ("n", "n", "p", "f"):
        await tab.press(key)
    await tab.evaluate(f"{CURSOR}.focus()")
    for _ in range(5):
        await tab.press("ArrowDown")
    assert await tab.evaluate("document.images.length") == 0
    assert await tab.evaluate("document.title") == HOSTILE
    assert HOSTILE in await panel(tab)
    assert HOSTILE in await tab.evaluate("document.getElementById('tip').textContent")


@pytest.mark.parametrize("width", [360, 1600])
async def test_nothing_stands_out_of_the_window(
    facts: GroupRows, tab: Tab, tmp_path: Path, width: int
) -> None:
    await shown(tab, timeline_page(facts, [finding(facts)], style=UTC_STYLE), tmp_path, width=width)
    await tab.look(width=width - 20)
    await tab.look(width=width)
    await tab.drawn()
    assert await tab.evaluate("document.documentElement.scrollWidth") <= width
    sizes = (
        "['ruler', 'lanes', 'overview'].map(id => document.getElementById(id).getBoundingClientRect().width)"
    )
    before = await tab.evaluate(sizes)
    await tab.press("n")
    await tab.press("p")
    assert await tab.evaluate(sizes) == before, "a picture that is drawn again keeps its size"


async def test_on_a_phone_no_word_is_broken_and_nothing_lies_outside(
    facts: GroupRows, tab: Tab, tmp_path: Path
) -> None:
    log = NodeLog("n", {METADATA_SHARD: metadata_log().log, 0: group_log().log}, 1)
    script = History(4, ("range", "uniform")).run(30_000).recorded()
    pages = [
        timeline_page(facts, [finding(facts, kind="EXPIRED_AFTER_FAILOVER")] * 6, style=UTC_STYLE),
        stats_page(stats(log), style=UTC_STYLE),
        whatif_page(whatif(script, WhatIf(session_timeout_ms=20_000)), style=UTC_STYLE),
    ]
    for page in pages:
        await shown(tab, page, tmp_path, width=390)
        assert await tab.evaluate(MISPLACED) == []
        assert await tab.evaluate("document.documentElement.scrollWidth") == 390


async def test_the_strip_has_the_axis_of_the_lanes(facts: GroupRows, tab: Tab, tmp_path: Path) -> None:
    await shown(tab, timeline_page(facts, [finding(facts)], style=UTC_STYLE), tmp_path)
    box = "(id => JSON.parse(JSON.stringify(document.getElementById(id).getBoundingClientRect())))"
    strip, lanes = await tab.evaluate(f"{box}('overview')"), await tab.evaluate(f"{box}('lanes')")
    assert (strip["left"], strip["width"]) == (lanes["left"], lanes["width"])
    x = lanes["left"] + lanes["width"] * 0.6
    await tab.mouse("mousePressed", x, lanes["top"] + 40, held=True)
    await tab.mouse("mouseReleased", x, lanes["top"] + 40)
    at = await cursor(tab)
    await tab.mouse("mousePressed", x, strip["top"] + 30, held=True)
    await tab.mouse("mouseReleased", x, strip["top"] + 30)
    assert await cursor(tab) == at


async def test_no_length_of_a_quiet_time_looks_like_a_clock_time(
    facts: GroupRows, tab: Tab, tmp_path: Path
) -> None:
    await shown(tab, timeline_page(facts, [], style=UTC_STYLE), tmp_path)
    await tab.evaluate(
        "window.written = new Set(), window.real = CanvasRenderingContext2D.prototype.fillText,"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...given) {"
        " window.written.add(text); return window.real.call(this, text, ...given); }, 0"
    )
    for width in range(400, 1500, 50):
        await tab.look(width=width)
        await tab.drawn()
    written = await tab.evaluate("[...window.written]")
    assert [text for text in written if text.endswith(" quiet")]
    assert [text for text in written if re.fullmatch(r"\d\d:\d\d:\d\d", text)]
    assert [text for text in written if re.fullmatch(r"[\d.]+ (ms|s|min|h|d)( \d+ \w+)?", text)] == []


async def test_the_join_phase_of_a_classic_group_is_shown_before_its_epoch(tab: Tab, tmp_path: Path) -> None:
    log = NodeLog("classic", {METADATA_SHARD: metadata_log().log, 0: classic_log.group_log().log}, 1)
    facts = facts_of(log, groups_of(log)[0])
    await shown(tab, timeline_page(facts, findings_of(facts, None), style=UTC_STYLE), tmp_path)
    said = f"{CURSOR}.getAttribute('aria-valuetext')"
    assert await tab.evaluate(said) == "12:02:02.000, epoch 4, Stable", (
        "it opens at the reason, not before it"
    )
    begun = facts.epochs[0].timestamp_ms + 60_000
    await tab.evaluate(f"void (location.hash = '#at={begun}')")
    await tab.drawn()
    assert await tab.evaluate(said) == "12:01:02.000, epoch 3, PreparingRebalance"


async def test_two_hundred_members_a_thousand_partitions_and_thousands_of_epochs(
    tab: Tab, tmp_path: Path
) -> None:
    page = timeline_page(crowd_facts(), (), style=UTC_STYLE)
    assert len(page) < 8_000_000
    assert "the times at which members reached an epoch are left out" in page
    await shown(tab, page, tmp_path)
    await tab.evaluate(f"{CURSOR}.focus()")
    await tab.press("End")
    assert "188 others" in await panel(tab)
    height = "document.getElementById('extent').clientHeight"
    assert await tab.evaluate(height) > 17 * 1_000
    for key in ("p", "p", "z", "c"):
        await tab.press(key)
    assert 50 < await tab.evaluate(height) < 2_000, "what changes in sight fits on a screen or two"
