"""`quorate generations`: schedules, the ledger by hand, the page, and that a seed gives the same bytes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from itertools import count, pairwise
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
    ScheduledEvent,
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
    """Nobody commits, so that each member begins at the first item."""
    ledger = Ledger()
    ledger.exists("orders", 2, 0.0)
    for at_ms, member, parts in changes:
        ledger.works_on(member, dict.fromkeys(parts, 0), at_ms)
    ledger.close(end_ms)
    return ledger


def test_partitions_without_an_owner_are_counted_in_seconds() -> None:
    figures = ledger_of((1_000, "ann", {A}), (3_000, "bob", {B}), (9_000, "ann", set())).figures([0.0])
    assert figures.unowned_s == pytest.approx(1 + 3 + 1)
    assert (figures.double_s, figures.moves, figures.needless_stops) == (0, 0, 0)


def test_a_partition_counts_from_when_it_exists() -> None:
    ledger = Ledger()
    ledger.exists("orders", 1, 0.0)
    ledger.works_on("ann", {A: 0}, 0.0)
    ledger.exists("orders", 2, 4_000.0)
    ledger.works_on("ann", {A: 0, B: 0}, 6_000.0)
    ledger.close(10_000.0)
    assert ledger.figures([0.0]).unowned_s == pytest.approx(2)


def worked(*changes: tuple[float, str, int | None], end_ms: float = 100_000.0) -> tuple[int, int]:
    """Items of one partition that were done twice, and repeated; an item to begin at, None to stop."""
    ledger = Ledger()
    ledger.exists("orders", 1, 0.0)
    for at_ms, member, first_item in changes:
        ledger.works_on(member, {} if first_item is None else {A: first_item}, at_ms)
    ledger.close(end_ms)
    figures = ledger.figures([0.0])
    return figures.doubled_items, figures.repeated_items


def test_each_further_owner_does_the_work_again() -> None:
    ledger = Ledger()
    ledger.exists("orders", 2, 0.0)
    ledger.works_on("ann", {A: 0, B: 0}, 0.0)
    ledger.works_on("bob", {A: 20}, 2_000.0)
    ledger.works_on("eve", {A: 30}, 3_000.0)
    ledger.works_on("ann", {B: 0}, 4_000.0)
    ledger.works_on("eve", {}, 5_000.0)
    ledger.close(10_000.0)
    figures = ledger.figures([0.0])
    assert figures.double_s == pytest.approx((3 - 2) + (4 - 3) * 2 + (5 - 4))
    assert (figures.doubled_items, figures.repeated_items) == (40, 0)
    assert figures.unowned_s == 0
    assert figures.moves == 2


def test_what_was_done_and_not_committed_is_repeated() -> None:
    assert worked((0, "ann", 0), (10_000, "ann", None), (12_000, "bob", 70)) == (0, 30)
    assert worked((0, "ann", 0), (10_000, "ann", None), (12_000, "bob", 100)) == (0, 0)


def test_who_begins_again_repeats_its_own_work_too() -> None:
    assert worked((0, "ann", 0), (10_000, "ann", None), (10_001, "ann", 70)) == (0, 30)


def test_work_beside_the_next_owner_is_done_twice_and_work_before_it_is_repeated() -> None:
    assert worked((0, "ann", 0), (10_000, "bob", 70), (14_000, "ann", None)) == (40, 30)


def test_an_item_that_is_repeated_while_it_has_two_owners_counts_once() -> None:
    """Bob is given 5 of ann's items again while she works on, and stops before he has caught up."""
    assert worked((0, "ann", 0), (10_000, "bob", 50), (10_050, "bob", None)) == (0, 5)


def test_what_waits_is_done_faster_than_it_comes_but_not_at_once() -> None:
    """After 10 s without work 100 items wait. In 1 s bob does 100 of them, and 10 have come meanwhile."""
    ledger = Ledger()
    ledger.exists("orders", 1, 0.0)
    ledger.works_on("bob", {A: 0}, 10_000.0)
    assert [ledger.next_item("bob", A, at_ms) for at_ms in (10_000.0, 10_500.0, 11_000.0)] == [0, 50, 100]
    assert ledger.next_item("bob", A, 11_200.0) == 112
    ledger.works_on("bob", {}, 20_000.0)
    assert ledger.next_item("bob", A, 30_000.0) == 200, "its position when it stopped"


def test_a_member_that_would_leave_work_out_is_refused() -> None:
    with pytest.raises(ValueError, match="bob began at item 71"):
        worked((0, "ann", 0), (7_000, "ann", None), (8_000, "bob", 71))


STEP_MS = 10
"""Time in which a member does one item that waits; ten of these pass until the next one comes."""


@pytest.mark.parametrize("seed", range(200))
def test_items_that_are_done_again_are_counted_as_by_doing_each(seed: int) -> None:
    """Each member does its items one by one, and each item knows when it was done."""
    rng = random.Random(f"items/{seed}")
    ledger = Ledger()
    ledger.exists("orders", 1, 0.0)
    done: dict[int, int] = {}  # item -> the moment at which it was done first
    began: dict[str, int] = {}
    place: dict[str, int] = {}
    doubled = repeated = 0
    for step in range(3_000):
        for member in sorted(place):
            if place[member] * 10 < step - 9:  # the item has come
                item, place[member] = place[member], place[member] + 1
                if item in done:
                    was_before = done[item] <= began[member]
                    repeated += was_before
                    doubled += not was_before
                done.setdefault(item, step)
        if rng.random() < 0.01:
            member = rng.choice(["ann", "bob", "eve"])
            if member in place:
                assert place.pop(member) == ledger.next_item(member, A, step * STEP_MS)
                ledger.works_on(member, {}, step * STEP_MS)
            else:
                began[member], place[member] = step, rng.randint(max(len(done) - 60, 0), len(done))
                ledger.works_on(member, {A: place[member]}, step * STEP_MS)
    ledger.close(2_999 * STEP_MS)
    figures = ledger.figures([0.0])
    assert (figures.doubled_items, figures.repeated_items) == (doubled, repeated)
    assert min(doubled, repeated) > 0, "the schedule has both"


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
    ledger.works_on("ann", {A: 0}, 1_000.0)
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


def page_of(*results: tuple[str, bool, int]) -> str:
    """A page of players by name, whether each is a variant, and what each repeated."""
    schedule = draw(3, members=5, minutes=5.0)
    made = []
    for name, is_variant, items in results:
        ledger = Ledger()
        ledger.exists("orders", 1, 0.0)
        ledger.works_on("ann", {A: 0}, 0.0)
        ledger.works_on("ann", {}, 200_000.0)
        ledger.works_on("bob", {A: 2_000 - items}, 210_000.0)
        ledger.close(schedule.end_ms)
        figures = ledger.figures(event_times(schedule))
        made.append(PlayerResult(name, "", f"{name} cost this", ledger, figures, "", is_variant))
    return generations_page(schedule, made, has_variants=True)


def test_variants_are_listed_with_their_protocol() -> None:
    text = page_of(("Old", False, 1), ("Old, other", True, 1), ("Older", True, 1), ("New", False, 1))
    lists = [one.split("</ul>")[0] for one in text.split('<ul class="variants">')[1:]]
    assert len(lists) == 1, "only one protocol has variants"
    assert lists[0].index("Old, other cost this") < lists[0].index("Older cost this")
    assert text.index("<h3>Old</h3>") < text.index('<ul class="variants">') < text.index("<h3>New</h3>")


def test_a_bar_that_would_dwarf_all_others_is_cut_off_and_says_so() -> None:
    fits = page_of(("Old", False, 100), ("Other", True, 200), ("New", False, 10))
    assert "bar beyond" not in fits
    assert "cut off" not in fits
    dwarfs = page_of(("Old", False, 100), ("Other", True, 201), ("New", False, 10))
    cell = dwarfs.split("work repeated")[1].split("</tr>")[0]
    assert cell.count('class="bar beyond" width="100.00"') == 1
    assert cell.count('class="bar" width="100.00"') == 1, "that of the largest generation"
    assert cell.count('class="bar" width="10.00"') == 1
    assert "cut off" in dwarfs


def test_a_variant_that_changes_no_ownership_shares_its_protocols_picture() -> None:
    text = page_of(("Old", False, 100), ("Other", True, 200))
    assert "<figcaption>Old; Other</figcaption>" in text
    assert text.count('<figure class="run">') == 1


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
    is_put_out = not result.name.startswith("Push")  # which has everyone wait for the slow one
    assert (result.figures.double_s > 0) is is_put_out, "who is put out for being slow works on"
    assert result.figures.messages.total() > 100
    keeps_all = result.name in ("Classic, cooperative", "KIP-848")
    assert (result.figures.needless_stops == 0) is keeps_all
    assert item_by_item(result) == (result.figures.doubled_items, result.figures.repeated_items)


# Commits.


@cache
def after(*events: ScheduledEvent, of: str = "", minutes: float = 1.4) -> dict[str, PlayerResult]:
    """Play some events, after which nothing else happens, to the players whose names begin so, once each."""
    joins = (Join(0.0, "ann"), Join(100.0, "bob"), Join(200.0, "eve"))
    schedule = Schedule(1, 3, minutes, {"orders": 6}, (*joins, *events))
    chosen = [player for player in players(has_variants=True) if player.name.startswith(of)]
    return {one.name: one for one in play_all(chosen, schedule)}


def repeated(results: dict[str, PlayerResult]) -> dict[str, int]:
    return {name: one.figures.repeated_items for name, one in results.items()}


def test_who_leaves_has_committed_in_kafkas_protocols_and_not_in_the_older_ones() -> None:
    """At 33.7 s, with six partitions and one commit every 1.5 s, 5 s or never."""
    results = repeated(after(Leave(33_700.0, "bob")))
    for name in ("Classic", "Classic, cooperative", "KIP-848"):
        assert results[name] == 0
    push = [results[name] for name in ("Push", "Push, OffsetCommit", "Push, no commits")]
    assert 0 < push[0] < push[1] < push[2]
    assert push[2] == pytest.approx(6 * 337, rel=0.02), "everything"
    for name in ("Assigned JoinGroup", "Assigned JoinGroup, thread"):
        assert 0 < results[name] <= 2 * 50, "those who stay commit before they join again; who left has two"


def test_who_is_put_out_while_slow_has_not_committed_since_it_polled() -> None:
    results = repeated(after(Slow(33_700.0, "ann", 24_000.0)))
    assert all(items > 0 for name, items in results.items() if not name.startswith("Push"))
    assert {items for name, items in results.items() if name.startswith("Push")} == {0}, "nobody is put out"


def test_a_new_push_coordinator_that_reads_the_log_stops_no_consumer() -> None:
    results = after(KillCoordinator(33_700.0), of="Push")
    assert results["Push, from the log"].figures.repeated_items == 0
    assert results["Push, from the log"].figures.needless_stops == 0
    # The node that was killed is back after 8 s and leads again after another 10: a new coordinator.
    assert results["Push"].figures.needless_stops == 2 * 6
    assert results["Push"].figures.repeated_items > 6 * 15, "no Ping has committed since the old one's end"


def test_a_cooperative_member_works_on_after_it_has_committed() -> None:
    results = repeated(after(Join(30_000.0, "sam"), of="Classic", minutes=1.0))
    assert results["Classic"] == 0
    assert 0 < results["Classic, cooperative"] <= 30, "one partition moves, while all join for up to 3 s"


def test_a_variants_sentence_names_the_figures_of_its_protocol() -> None:
    results = after(KillCoordinator(33_700.0), of="Push")
    base = results["Push"]
    assert [one.is_variant for one in results.values()] == [False, True, True, True]
    for name, one in results.items():
        instead = f"instead of {base.figures.repeated_items:,}"
        assert (instead in one.sentence) is (name in ("Push, OffsetCommit", "Push, no commits"))
    figures = base.figures
    assert f"instead of {figures.needless_stops}." in results["Push, from the log"].sentence
    assert f"and {figures.repeated_items:,} items repeated" in base.sentence


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("Push, OffsetCommit", {"OffsetCommit"}),
        ("Assigned JoinGroup", {"OffsetCommit", "OffsetFetch"}),
        ("Classic", {"OffsetCommit", "OffsetFetch"}),
        ("KIP-848", {"OffsetCommit", "OffsetFetch"}),
    ],
)
def test_commits_are_requests_that_count(name: str, requests: set[str]) -> None:
    """Three members in a minute, each every 5 s; push with Ping and without commits has none."""
    figures = after(of=name.partition(",")[0], minutes=1.0)[name].figures
    assert {one for one in figures.messages if one.startswith("Offset")} == requests
    assert 3 * 9 * 2 <= figures.messages["OffsetCommit"] <= 3 * 13 * 2
    others = after(of="Push", minutes=1.0)
    assert all("OffsetCommit" not in others[one].figures.messages for one in ("Push", "Push, no commits"))


def item_by_item(result: PlayerResult) -> tuple[int, int]:
    """Count what was done twice and repeated from when each member did each item."""
    doubled = repeated = 0
    for part in {one.part for one in result.ledger.holdings}:
        done: dict[int, list[tuple[float, float]]] = {}  # by item: when, and when who did it had begun
        for one in result.ledger.holdings:
            for item in count(one.first_item):
                at_ms = max((item + 1) * 100.0, one.from_ms + (item - one.first_item + 1) * 10.0)
                if one.part != part or at_ms > one.to_ms:
                    break
                done.setdefault(item, []).append((at_ms, one.from_ms))
        for times in done.values():
            first_ms = min(times)[0]
            for _, from_ms in sorted(times)[1:]:
                repeated += first_ms <= from_ms
                doubled += first_ms > from_ms
    return doubled, repeated
