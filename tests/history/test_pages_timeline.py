"""The page of a timeline: its script gets the facts, and no name breaks out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from history.facts.group import facts_of
from history.facts.rows import GroupRows, OwnershipSpan, Severity, SpanKind
from history.pages import captions, terminal
from history.pages import lanes as folding
from history.pages.lanes import Hand, Stand, lanes_of
from history.pages.timeline import figures, timeline_data, timeline_page
from history.reading.node import NodeLog
from history.render import UTC_STYLE, TimeStyle
from records.ids import METADATA_SHARD
from tests.history.html_elements import Elements
from tests.support.memory_log import (
    GROUP,
    Writer,
    current,
    gone,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)
from tests.support.payments_log import ANN, BOB, group_log, joined, metadata_log
from tests.support.timeline_logs import BILLING, HOSTILE, billing_log, facts_in, finding, renamed


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> GroupRows:
    return facts_in(billing_log(tmp_path_factory.mktemp("billing") / "node-1"), BILLING)


def story() -> GroupRows:
    log = NodeLog("node-1", {METADATA_SHARD: metadata_log().log, 0: group_log().log}, 1)
    return facts_of(log, GROUP)


def moments(facts: GroupRows) -> Iterator[int]:
    """Every time at which something may change, and the middle between any two."""
    changes = {facts.epochs[0].timestamp_ms, facts.last_ms}
    changes |= {span.from_ms for span in facts.spans} | {span.to_ms for span in facts.spans if span.to_ms}
    changes |= {one.from_ms for one in facts.sessions} | {one.to_ms for one in facts.sessions if one.to_ms}
    changes = {at for at in changes if at <= facts.last_ms}
    ordered = sorted(changes)
    yield from ordered
    for before, after in pairwise(ordered):
        if after - before > 1:
            yield (before + after) // 2


def holds(row: Any, at: int) -> bool:
    return row.from_ms <= at and (row.to_ms is None or at < row.to_ms)


def segment_at(flat: list[int], at: int) -> tuple[int, int] | None:
    for begin, length, what, who in zip(*[iter(flat)] * 4, strict=True):
        if begin <= at < begin + length:
            return what, who
    return None


HANDS = {SpanKind.OWNED: Hand.OWNED, SpanKind.REVOKING: Hand.REVOKING, SpanKind.UNOWNED: Hand.UNOWNED}


def hand(span: OwnershipSpan, ids: list[str]) -> tuple[int, int]:
    return HANDS[span.kind], -1 if span.member_id is None else ids.index(span.member_id)


@pytest.mark.parametrize("which", ["billing", "story"])
def test_lanes_say_at_every_moment_what_the_spans_say(which: str, facts: GroupRows) -> None:
    facts = story() if which == "story" else facts
    data = timeline_data(facts, (), style=UTC_STYLE)
    ids = [one["id"] for one in data["members"]]
    compared = 0
    for at in moments(facts):
        owned = {str(span.partition): hand(span, ids) for span in facts.spans if holds(span, at)}
        drawn = {
            f"{row['topic']}-{partition}": said
            for row in data["rows"]
            if (said := segment_at(row["segments"], at - data["from"])) is not None
            for partition in row["partitions"]
        }
        assert drawn == owned, at
        held = {number: sum(who == number for _, who in owned.values()) for number in range(len(ids))}
        for number, lane in enumerate(data["members"]):
            said = segment_at(lane["segments"], at - data["from"])
            is_there = any(holds(one, at) for one in facts.sessions if one.member_id == lane["id"])
            assert (said is not None) == is_there, (at, lane["name"])
            if said is not None:
                assert said[1] == held[number]
                is_giving_up = (Hand.REVOKING, number) in owned.values()
                is_away = any(holds(away, at) for one in facts.sessions for away in one.aways)
                assert (said[0] == Stand.GIVING_UP) == is_giving_up
                assert (said[0] == Stand.AWAY) == (is_away and lane["instance"] == "pod-3")
        compared += len(drawn)
    assert compared > 100


def test_epochs_are_those_of_the_facts(facts: GroupRows) -> None:
    data = timeline_data(facts, (), style=UTC_STYLE)
    begin = data["from"]
    told = [(e["epoch"], e["index"], e["at"] + begin, e["settledIndex"], e["moved"]) for e in data["epochs"]]
    assert told == [
        (row.epoch, row.index, row.timestamp_ms, row.settled_index, len(row.moves)) for row in facts.epochs
    ]
    expired = data["epochs"][4]
    assert expired["why"]["lines"] == [
        "session of m2 (app-2) expired: no heartbeat for 3.0 s of 3.0 s, last at 12:00:39.010"
    ]
    assert expired["brief"] == "m2 expired"
    assert data["epochs"][3]["why"]["lines"] == ["topic orders grew from 12 to 16 partitions"]
    assert data["epochs"][1]["waits"]["lines"] == [
        [
            2000,
            3000,
            "m2 (app-2) waited 1.0 s for orders 9-11; payments-eu 0-5, until m1 (app-1) gave them up",
        ]
    ]


def test_members_that_only_heard_of_an_epoch_share_a_line(facts: GroupRows) -> None:
    data = timeline_data(facts, (), style=UTC_STYLE)
    for epoch, row in zip(data["epochs"], facts.epochs, strict=True):
        assert len(epoch["steps"]["lines"]) <= len(row.progress)
        for step in row.progress:
            moved = any((step.told, step.released, step.took))
            assert not moved or step.index in [index for _, index, _ in epoch["steps"]["lines"]]


def test_a_stay_that_ended_says_how(facts: GroupRows) -> None:
    second = timeline_data(facts, (), style=UTC_STYLE)["members"][1]
    assert [(one["how"], one["end"]) for one in second["sessions"]] == [
        ("session expired", 42_000),
        ("open", None),
    ]


def test_findings_come_gravest_first_and_call_members_by_their_names(facts: GroupRows) -> None:
    grave = finding(facts, kind="GRAVE", severity=Severity.ERROR, from_ms=facts.last_ms)
    data = timeline_data(facts, [finding(facts), grave], style=UTC_STYLE)
    assert [one["kind"] for one in data["findings"]] == ["GRAVE", "SILENT_MEMBER"]
    assert data["findings"][0]["words"].startswith("m2 (app-2) was not heard of")
    assert data["findings"][0]["members"] == [1]


def test_the_page_opens_where_the_gravest_finding_is_at_its_worst(facts: GroupRows) -> None:
    expired = facts.epochs[4]
    data = timeline_data(facts, [finding(facts)], style=UTC_STYLE)
    assert data["opens"] == {"finding": 0, "at": expired.timestamp_ms - data["from"]}, (
        "partitions have no owner"
    )
    flapping = finding(
        facts, kind="FLAPPING", from_ms=facts.epochs[0].timestamp_ms, to_ms=expired.timestamp_ms - 1
    )
    stuck = finding(facts, kind="STUCK", from_ms=expired.timestamp_ms, to_ms=expired.timestamp_ms + 9_000)
    for errors in ([flapping, stuck], [stuck, flapping]):
        grave = [replace(one, severity=Severity.ERROR) for one in errors]
        data = timeline_data(facts, [finding(facts), *grave], style=UTC_STYLE)
        assert data["findings"][data["opens"]["finding"]]["kind"] == "STUCK"
    created = finding(facts, from_ms=facts.epochs[0].timestamp_ms, to_ms=facts.epochs[1].timestamp_ms - 1)
    opens = timeline_data(facts, [created, finding(facts)], style=UTC_STYLE)["opens"]
    assert opens["finding"] == 1, "every group has the unrest in which it is created"
    of_shard = finding(facts, kind="LEADER_FLAPPING", from_ms=facts.epochs[0].timestamp_ms)
    data = timeline_data(facts, [of_shard], style=UTC_STYLE)
    assert data["opens"]["at"] == data["findings"][0]["at"], "unrest of the group is not its work"
    notes = [finding(facts, severity=Severity.NOTE)]
    assert timeline_data(facts, notes, style=UTC_STYLE)["opens"] is None
    late = timeline_data(facts, [finding(facts)], style=UTC_STYLE, from_ms=expired.timestamp_ms + 5_000)
    assert late["opens"]["at"] == 0, "a window may begin later"


def test_findings_beyond_the_first_are_folded_and_dated_if_they_are_of_several_days(facts: GroupRows) -> None:
    page = timeline_page(facts, [finding(facts)] * 7, style=UTC_STYLE)
    assert page.count("<li data-finding=") == 7
    assert "<summary>3 more, the graver first</summary>" in page
    assert "<time>12:00:39.010</time>" in page
    later = finding(facts, from_ms=finding(facts).from_ms + 86_400_000)
    assert "<time>2026-03-02 12:00:39.010</time>" in timeline_page(
        facts, [finding(facts), later], style=UTC_STYLE
    )


def test_a_window_cuts_the_picture_and_keeps_the_epoch_that_it_begins_in(facts: GroupRows) -> None:
    begin, end = facts.epochs[3].timestamp_ms + 2_000, facts.epochs[5].timestamp_ms + 2_000
    data = timeline_data(facts, (), style=UTC_STYLE, from_ms=begin, to_ms=end)
    assert (data["from"], data["span"]) == (begin, end - begin + 1)
    assert [epoch["epoch"] for epoch in data["epochs"]] == [4, 5, 6]
    assert data["epochs"][0]["at"] < 0
    for lane in (*data["members"], *data["rows"]):
        flat = lane["segments"]
        assert all(
            at >= 0 and at + length <= data["span"] for at, length in zip(flat[::4], flat[1::4], strict=True)
        )


def test_the_zone_of_the_reader_is_the_zone_of_the_page(facts: GroupRows) -> None:
    tokyo = TimeStyle(ZoneInfo("Asia/Tokyo"))
    page = timeline_page(facts, (), style=tokyo)
    assert timeline_data(facts, (), style=tokyo)["offsets"] == [[facts.epochs[0].timestamp_ms, 540]]
    assert "2026-03-01 21:00:00.010+09:00" in page
    assert "last at 21:00:39.010" in page


# -- too much for a page ----------------------------------------------------------------------------------


def test_what_does_not_fit_is_folded_and_the_page_says_so(
    facts: GroupRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {one: at for at, one in enumerate(dict.fromkeys(s.member_id for s in facts.sessions))}
    begin, end = facts.epochs[0].timestamp_ms, facts.last_ms
    whole = lanes_of(facts, numbers, begin, end)
    monkeypatch.setattr(folding, "SEGMENTS_MAX", 20)
    folded = lanes_of(facts, numbers, begin, end)
    assert (whole.members_ms, whole.partitions_ms) == (0, 0)
    assert sum(len(lane.segments) for lane in folded.partitions) <= 20
    assert sum(len(lane) for lane in folded.members) <= 20
    for before, after in zip(whole.partitions, folded.partitions, strict=True):
        assert (before.segments[0][0], before.segments[-1][1]) == (
            after.segments[0][0],
            after.segments[-1][1],
        )
    assert Hand.SEVERAL in {segment[2] for lane in folded.partitions for segment in lane.segments}
    said = timeline_data(facts, (), style=UTC_STYLE)["leftOut"]
    assert "the times at which members reached an epoch are left out" in said[0]
    assert ["drawn as one" in line for line in said] == [False, True, True]
    assert said[1] in timeline_page(facts, (), style=UTC_STYLE)


def test_older_epochs_and_lesser_findings_are_left_out_aloud(
    facts: GroupRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captions, "EPOCHS_MAX", 3)
    monkeypatch.setattr(captions, "FINDINGS_MAX", 1)
    grave = finding(facts, kind="GRAVE", severity=Severity.ERROR)
    data = timeline_data(facts, [finding(facts), grave], style=UTC_STYLE)
    assert [epoch["epoch"] for epoch in data["epochs"]] == [5, 6, 7]
    assert [one["kind"] for one in data["findings"]] == ["GRAVE"]
    assert [line.split(" left out")[0] for line in data["leftOut"]] == [
        "4 older epochs",
        "1 less severe finding",
    ]


def test_long_lists_end_with_how_much_more_there_is(
    facts: GroupRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captions, "LINES_MAX", 0)
    monkeypatch.setattr(captions, "LINES_PER_EPOCH_MIN", 1)
    moves = timeline_data(facts, (), style=UTC_STYLE)["epochs"][4]["moves"]
    assert moves == {"lines": ["orders 9-11: m2 (app-2) → m1 (app-1)"], "more": 2}


# -- names that clients chose -----------------------------------------------------------------------------


def test_no_name_becomes_markup(facts: GroupRows) -> None:
    hostile = renamed(facts, lambda name: HOSTILE + name if name else name)
    page = timeline_page(hostile, [renamed(finding(facts), lambda n: HOSTILE + n)], style=UTC_STYLE)
    elements = Elements(page)
    assert "img" not in {tag for tag, _ in elements.tags}
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]
    assert len(elements.raw["script"]) == 2
    data = json.loads(elements.raw["script"][0])
    assert data["group"] == HOSTILE + BILLING
    assert data["members"][0]["client"] == HOSTILE + "app-1"
    assert {row["topic"] for row in data["rows"]} == {HOSTILE + "orders", HOSTILE + "payments-eu"}


def test_the_page_refers_to_nothing_outside(facts: GroupRows) -> None:
    page = timeline_page(facts, [finding(facts)], style=UTC_STYLE)
    assert not re.search(r"https?:|@import|url\(|srcset|<link|fetch\(|XMLHttp|WebSocket|import\(", page)
    assert not [a for _, a in Elements(page).tags if {"src", "href", "style"} & set(a)]


# -- odd logs ---------------------------------------------------------------------------------------------


def test_a_log_of_one_entry_has_a_page() -> None:
    log = Writer()
    log.append(
        joined(ANN), member(ANN, "app-1"), group_topics(1, 2), group_epoch(1), target(ANN, 0), target_epoch(1)
    )
    data = timeline_data(facts_of(NodeLog("n", {0: log.log}, 1), GROUP), (), style=UTC_STYLE)
    assert data["span"] == captions.SPAN_MS_MIN
    assert [epoch["settled"] for epoch in data["epochs"]] == [None]


def test_a_group_that_ended_and_began_again() -> None:
    log = Writer()
    log.append(
        joined(ANN),
        member(ANN, "app-1"),
        group_topics(1, 2),
        group_epoch(1),
        target(ANN, 0),
        target_epoch(1),
        current(ANN, 1, (0,)),
    )
    log.after(5_000).append(joined(ANN), *gone(ANN), group_epoch(2), target_epoch(2))
    log.after(5_000).append(
        joined(BOB),
        member(BOB, "app-2"),
        group_epoch(3),
        target(BOB, 0),
        target_epoch(3),
        current(BOB, 3, (0,)),
    )
    log.after(5_000).append(joined(BOB), current(BOB, 3, (0,)))
    data = timeline_data(facts_of(NodeLog("n", {0: log.log}, 1), GROUP), (), style=UTC_STYLE)
    assert [row["segments"] for row in data["rows"]] == [[0, 5_000, 0, 0, 10_000, 5_001, 0, 1]]


def test_figures_are_sums_of_rows(facts: GroupRows) -> None:
    said = dict(figures(facts))
    assert said["epochs"] == "7"
    assert said["members at once, at most"] == "3"
    assert said["partitions"] == "22"
    assert said["failovers"] == "0"
    assert said["unowned partition-time"] == "11.5 s"
    assert UTC_STYLE.zone is UTC


def test_without_script_the_epochs_can_be_read(facts: GroupRows, tmp_path: Path) -> None:
    page = timeline_page(facts, [finding(facts)], style=UTC_STYLE, rests_on=["entries 1 to 32"])
    text = page.split('<script type="application/json"')[0]
    for expected in ("session of m2 (app-2) expired", "12:00:42.010", "SILENT_MEMBER", "entries 1 to 32"):
        assert expected in text


def test_the_page_on_history_tells_the_bounds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text(encoding="utf-8")
    epochs, findings = f"{captions.EPOCHS_MAX:,} epochs", f"{captions.FINDINGS_MAX} findings"
    assert f"{epochs}, {findings} and {folding.SEGMENTS_MAX:,} changes" in " ".join(page.split())
    assert f"If there are more than {terminal.LANES_MAX} members" in page


def test_faults_of_an_operator_are_marked_and_listed(facts: GroupRows) -> None:
    begin = facts.epochs[0].timestamp_ms
    note = {"kind": "fault", "at_ms": begin + 20_500, "fault": 3, "group": facts.group_id, "member": None}
    note |= {"client": "app-2", "api": 8, "action": "close", "error": 0, "delay_ms": 0, "throttle_ms": 0}
    words = "the connection of app-2 was closed at OffsetCommit by fault 3 of an operator"
    data = timeline_data(facts, (), style=UTC_STYLE, notes=[note])
    assert data["faults"] == [{"at": note["at_ms"] - data["from"], "words": words}]
    page = timeline_page(facts, (), style=UTC_STYLE, notes=[note])
    assert "Faults set by an operator: 1" in page
    assert f">{words}</td>" in page
