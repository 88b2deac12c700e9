"""`quorate generations`: schedules, the ledger by hand, the page, and that a seed gives the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from quorate.app import run
from quorate.generations.contest import PlayerResult, event_times, play, play_all
from quorate.generations.ledger import Ledger, LedgerStep
from quorate.generations.page import ROWS, generations_page
from quorate.generations.players import players
from quorate.generations.schedule import (
    KINDS,
    QUIET_AFTER_MS,
    GrowTopic,
    Join,
    KillCoordinator,
    Leave,
    Schedule,
    Slow,
    draw,
)
from tests.support.golden_texts import golden

MEMBERS, SEED, MINUTES = 3, 2, 1.0
VOID_TAGS = {"meta", "rect", "path", "br", "line"}


# Schedules.


@pytest.mark.parametrize("seed", range(30))
def test_only_members_that_are_there_leave_or_are_slow(seed: int) -> None:
    schedule = draw(seed, members=5, minutes=10.0)
    present: set[str] = set()
    started: set[str] = set()
    topics = dict(schedule.topics)
    for event in schedule.events:
        match event:
            case Join():
                assert event.member not in started
                present.add(event.member)
                started.add(event.member)
            case Leave():
                present.remove(event.member)
            case Slow():
                assert event.member in present
            case GrowTopic():
                assert event.num_partitions > topics[event.topic]
                topics[event.topic] = event.num_partitions
        assert present
    times = [event.at_ms for event in schedule.events]
    assert times == sorted(times)
    assert times[-1] < schedule.end_ms - QUIET_AFTER_MS
    assert {type(event) for event in schedule.disturbances} == set(KINDS)


def test_coordinators_are_not_killed_one_right_after_the_other() -> None:
    for seed in range(50):
        events = draw(seed, members=5, minutes=20.0).events
        kills = [event.at_ms for event in events if isinstance(event, KillCoordinator)]
        assert all(later - earlier >= 20_000 for earlier, later in pairwise(kills))


def test_a_schedule_depends_on_its_seed_only() -> None:
    assert draw(7, 5, 3.0) == draw(7, 5, 3.0)
    assert draw(7, 5, 3.0).events != draw(8, 5, 3.0).events


# The ledger.

A, B = ("orders", 0), ("orders", 1)


def ledger_of(*changes: tuple[float, str, set[tuple[str, int]]], end_ms: float = 10_000.0) -> Ledger:
    ledger = Ledger()
    ledger.exists("orders", 2, 0.0)
    for at_ms, member, parts in changes:
        ledger.works_on(member, parts, at_ms)
    ledger.close(end_ms)
    return ledger


def test_partitions_without_an_owner_are_counted_in_seconds() -> None:
    figures = ledger_of((1_000, "ann", {A}), (3_000, "bob", {B}), (9_000, "ann", set())).figures([0.0])
    assert figures.unowned_s == pytest.approx(1 + 3 + 1)
    assert (figures.double_s, figures.moves, figures.needless_stops) == (0, 0, 0)


def test_a_partition_counts_from_when_it_exists() -> None:
    ledger = Ledger()
    ledger.exists("orders", 1, 0.0)
    ledger.works_on("ann", {A}, 0.0)
    ledger.exists("orders", 2, 4_000.0)
    ledger.works_on("ann", {A, B}, 6_000.0)
    ledger.close(10_000.0)
    assert ledger.figures([0.0]).unowned_s == pytest.approx(2)


def test_each_further_owner_does_the_work_again() -> None:
    ledger = ledger_of(
        (0, "ann", {A, B}),
        (2_000, "bob", {A}),
        (3_000, "eve", {A}),
        (4_000, "ann", {B}),
        (5_000, "eve", set()),
    )
    figures = ledger.figures([0.0])
    assert figures.double_s == pytest.approx((3 - 2) + (4 - 3) * 2 + (5 - 4))
    assert figures.doubled_items == 40
    assert figures.unowned_s == 0
    assert figures.moves == 2


def test_a_partition_that_its_owner_gets_back_was_stopped_needlessly() -> None:
    ledger = ledger_of((0, "ann", {A, B}), (2_000, "ann", set()), (5_000, "ann", {A}), (6_000, "bob", {B}))
    figures = ledger.figures([0.0])
    assert (figures.needless_stops, figures.needless_s, figures.needless_items) == (1, 3.0, 30)
    assert figures.moves == 1
    assert figures.unowned_s == pytest.approx(3 + 4)


def test_a_group_is_stable_after_the_last_change_before_the_next_event() -> None:
    ledger = ledger_of((500, "ann", {A, B}), (4_500, "ann", {A}), (6_200, "bob", {B}))
    figures = ledger.figures([0.0, 4_000.0, 5_000.0])
    assert figures.settled_s == pytest.approx((0.5, 1.2)), "the second event has no time"
    assert ledger.unsettled([0.0, 4_000.0, 5_000.0]) == [(0.0, 500), (4_000.0, 5_000.0), (5_000.0, 6_200)]


def test_what_did_not_change_settles_at_once() -> None:
    assert ledger_of((0, "ann", {A, B})).figures([0.0, 3_000.0]).settled_s == (0.0, 0.0)


def test_the_steps_say_how_many_partitions_have_no_owner_or_several() -> None:
    ledger = ledger_of((1_000, "ann", {A, B}), (2_000, "bob", {B}), (3_000, "ann", set()))
    assert ledger.steps() == [
        LedgerStep(0.0, 2, 0),
        LedgerStep(1_000, 0, 0),
        LedgerStep(2_000, 0, 1),
        LedgerStep(3_000, 1, 0),
    ]


# The page.


class WellFormed(HTMLParser):
    """Fails where an end tag does not belong to the tag that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID_TAGS:
            assert self.open.pop() == tag


def test_the_page_is_well_formed_and_names_are_text_only() -> None:
    schedule = draw(3, members=5, minutes=5.0)
    ledger = Ledger()
    ledger.exists("orders", 2, 0.0)
    ledger.works_on("ann", {A}, 1_000.0)
    ledger.message("<img src=x>")
    ledger.close(schedule.end_ms)
    figures = ledger.figures(event_times(schedule))
    text = generations_page(schedule, [PlayerResult('<b>&"', "<i>", "</p><script>", ledger, figures)])
    parser = WellFormed()
    parser.feed(text)
    assert parser.open == []
    assert parser.tags["script"] == 2, "the frame's own"
    assert not {"b", "i", "img"} & parser.tags.keys()
    assert "&lt;/p&gt;&lt;script&gt;" in text


# Everything.


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    """Also in another process, where sets have another order."""
    files = [tmp_path / "one.html", tmp_path / "two.html"]
    arguments = ["generations", "--members", str(MEMBERS), "--churn", str(SEED), "--minutes", str(MINUTES)]
    assert run([*arguments, "--out", str(files[0])]) == 0
    other = {**os.environ, "PYTHONHASHSEED": "4711"}
    command = [sys.executable, "-m", "quorate", *arguments, "--out", str(files[1])]
    subprocess.run(command, env=other, check=True, capture_output=True, timeout=60)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_existing_page_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.html"
    there.write_text("mine")
    assert run(["generations", "--out", str(there)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert there.read_text() == "mine"


def test_the_figures_of_every_protocol_and_variant_are_the_recorded_ones() -> None:
    """Each kind of event happens at least once. A figure changes only with the code of what is compared."""
    schedule = draw(SEED, MEMBERS, 2.5)
    lines = []
    for result in play_all(players(has_variants=True), schedule):
        figures = [f"{title}: {value_of(result.figures):{form}}" for title, _, value_of, form in ROWS]
        names = [f"{name}: {count}" for name, count in sorted(result.figures.messages.items())]
        lines += [result.name, *(f"    {one}" for one in (*figures, *names))]
    golden("quorate/golden/generations.txt", lines)


def slow_schedule() -> Schedule:
    """Three members, one of which is slow for longer than its poll interval while another one leaves."""
    joins = (Join(0.0, "ann"), Join(100.0, "bob"), Join(200.0, "eve"))
    later = (Slow(20_000.0, "ann", 24_000.0), Leave(22_000.0, "bob"))
    return Schedule(1, 3, 1.4, {"orders": 6}, (*joins, *later))


@pytest.mark.parametrize("player", players(has_variants=True), ids=lambda player: player.name)
def test_in_the_end_each_partition_has_one_owner_among_those_that_stay(player: object) -> None:
    schedule = slow_schedule()
    result = play(player, schedule)
    last = result.ledger.steps()[-1]
    assert (last.unowned, last.double) == (0, 0)
    owners = {one.member for one in result.ledger.holdings if one.to_ms == schedule.end_ms}
    assert owners == {"ann", "eve"}
    is_put_out = result.name != "Push"  # which has everyone wait for the slow one
    assert (result.figures.double_s > 0) is is_put_out, "who is put out for being slow works on"
    assert result.figures.messages.total() > 100
    gives_up_all = result.name in ("Push", "Assigned JoinGroup", "Assigned JoinGroup, thread", "Classic")
    assert (result.figures.needless_stops > 0) is gives_up_all
