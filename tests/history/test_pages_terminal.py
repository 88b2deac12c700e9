"""`timeline --lanes`: what a column shows is what the facts say of its time."""

from __future__ import annotations

from pathlib import Path

import pytest

from history.facts.rows import GroupRows
from history.pages import terminal
from history.pages.captions import Captions
from history.pages.terminal import ASCII, BLOCKS, lanes_text
from history.render import UTC_STYLE
from tests.support.timeline_logs import ADS, BILLING, ads_log, billing_log, facts_in, finding


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> GroupRows:
    return facts_in(billing_log(tmp_path_factory.mktemp("billing") / "node-1"), BILLING)


EARLY = """\
2026-03-01 12:00:00.010+00:00 to 2026-03-01 12:00:50.010+00:00; one column is 1.0 s
            12:00:00        12:00:16        12:00:32
epoch       1   3                      4             5      6
not stable   ██ ██                     █             ██     ██
m1 (app-1)  ██▒▄▄▒▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▅▅▅▅▅▅▅▒
m2 (app-2)   ▒▒▄▄▒▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▄▄▄▄▄▄▄▄▄▄▄▄▄▄✕      ▒▒
m3 (app-3)      ▒▒▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▄▄▄▄╌▄▄▄▄▄▄▄▄▄▄▅▅▅▅▅▅▅▒
nobody                                 ▂             ▃▃      ▂
█ 18 partitions  · none  ▒ handing over  ╌ away  ◂ left  ✕ expired or removed
12:00:42.010  m2 (app-2): session expired"""


def lines(facts: GroupRows, **others: object) -> list[str]:
    end_ms = facts.epochs[0].timestamp_ms + 50_000
    options = {"width": 62, "style": UTC_STYLE, "to_ms": end_ms, **others}
    return list(lanes_text(facts, (), **options))  # type: ignore[arg-type]


def test_a_story_in_blocks(facts: GroupRows) -> None:
    assert "\n".join(lines(facts)) == EARLY


def test_the_page_on_history_shows_it_as_it_is() -> None:
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
    assert f"```text\n{EARLY}\n```" in page


def test_plain_letters_say_the_same(facts: GroupRows) -> None:
    blocks, plain = lines(facts), lines(facts, signs=ASCII)
    assert "".join(plain).isascii()
    assert [len(line) for line in blocks[:8]] == [len(line) for line in plain[:8]]
    pairs = {
        (block, letter)
        for one, other in zip(blocks[3:8], plain[3:8], strict=True)
        for block, letter in zip(one[12:], other[12:], strict=True)
    }
    signs = {(getattr(BLOCKS, n), getattr(ASCII, n)) for n in ("idle", "moving", "away", "left", "expired")}
    assert ("✕", "x") in pairs
    assert {pair for pair in pairs if pair[0] in "·▒╌◂✕"} <= signs


@pytest.mark.parametrize("width", [10, 40, 80, 200])
def test_no_line_of_lanes_is_wider_than_the_terminal(facts: GroupRows, width: int) -> None:
    widest = max(len(line) for line in lines(facts, width=width)[1:8])
    assert widest <= max(width, len("m1 (app-1)  ") + terminal.COLUMNS_MIN)


def test_long_names_are_cut_in_the_middle(facts: GroupRows, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Captions.member
    monkeypatch.setattr(Captions, "member", lambda self, one: plain(self, one).replace("app", "billing-2026"))
    told = lines(facts, width=40)
    assert [line[:16] for line in told[4:7]] == [f"m{n} (bil…026-{n})  " for n in (1, 2, 3)]


def test_of_many_members_those_with_events_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "LANES_MAX", 6)
    facts = facts_in(ads_log(tmp_path / "node-1", members=20, partitions=60), ADS)
    end = [row for row in facts.epochs if "worker" not in str(row)][-1].timestamp_ms
    said = lines(facts, to_ms=None, from_ms=end - 25_000)
    assert len([line for line in said if "(worker" in line and "▒" in line]) == 6
    assert "18 members with fewer changes left out: --html shows all" in said


def test_findings_stand_below(facts: GroupRows) -> None:
    said = list(lanes_text(facts, [finding(facts)], width=80, style=UTC_STYLE))
    expected = "m2 (app-2) was not heard of for 3.0 s, and its session ended."
    assert said[-1] == f"warning: SILENT_MEMBER: {expected}"


def fault_note(at_ms: int, **what: object) -> dict[str, object]:
    """A note of a fault that an operator had set, on a heartbeat of m2."""
    member = "member-b"
    told = {
        "kind": "fault",
        "at_ms": at_ms,
        "fault": 3,
        "group": BILLING,
        "member": member,
        "client": "app-2",
    }
    return told | {"api": 68, "action": "drop", "error": 0, "delay_ms": 0, "throttle_ms": 0} | what


def test_faults_have_a_line_and_are_told_below(facts: GroupRows) -> None:
    begin = facts.epochs[0].timestamp_ms
    notes = [fault_note(begin + 20_500), fault_note(begin + 20_700), fault_note(begin + 90_000)]
    other = fault_note(begin + 30_500, group="other")
    said = lines(facts, notes=[*notes, other])
    assert said[4].split() == ["faults", "!"]
    assert said[4].index("!") == said[5].index("m") + 12 + 20
    (told,) = [line for line in said if "by fault 3 of an operator" in line]
    assert told.startswith("12:00:20.510  the reply to ConsumerGroupHeartbeat of ")
    assert told.endswith("(2 times until 12:00:20.710)")
