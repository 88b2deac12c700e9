"""`whatif`: known stories under other settings, with answers worked out by hand."""

from __future__ import annotations

import pytest

from coordinator.assignors import (
    RangeAssignor,
    UniformAssignor,
)
from history.facts.rows import SessionEnd
from history.whatif.answer import WhatIfResult, whatif
from history.whatif.settings import WhatIf
from records.ids import topic_id_text
from tests.support.world import FIRST_TOPIC
from wire.apis import ApiKey

from .whatif_story import RANGE, WhatIfStory, unequal


def handing_over(rebalance_ms: int = 60_000, slow_ms: int = 500) -> WhatIfStory:
    """``a`` has orders 0-3; ``b`` joins at 10 s and is to have two of them. ``a`` is told at 11 s, gives up
    after ``slow_ms``, and ``b`` takes them at 18 s."""
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a", rebalance_ms=rebalance_ms), story.client("b")
    a.beat()
    story.at(5_000)
    a.beat()
    story.at(10_000)
    b.beat()
    story.at(11_000)
    a.beat()
    story.at(11_000 + slow_ms)
    a.beat()
    story.at(18_000)
    a.beat()
    b.beat()
    story.at(19_000)
    return story


def test_what_really_happened_is_measured_as_by_hand() -> None:
    script = handing_over().recorded()
    result = whatif(script, WhatIf())
    really = result.really
    assert really is not None
    assert result.is_faithful
    assert (really.epochs, really.moved) == (2, 2)
    assert really.revoking_ms == 2 * 500
    assert really.unowned_ms == 2 * (18_000 - 11_500)
    assert really.unstable_ms == 18_000 - 10_000
    assert (really.spread, really.spread_at_end) == (0, 0)


def test_a_shorter_rebalance_timeout_fences_who_took_longer_and_it_joins_again() -> None:
    script = handing_over(slow_ms=6_000).recorded()
    result = whatif(script, WhatIf(rebalance_timeout_ms=4_000))
    assert result.whatif is not None
    assert result.facts is not None
    assert result.whatif.fenced_revoking == 1
    first, *_ = (one for one in result.facts.sessions if one.member_id == "a")
    assert first.end is SessionEnd.REBALANCE_EXPIRED
    assert first.to_ms == handing_over().wall(11_000 + 4_000)
    again = [one for one in result.facts.sessions if one.member_id == "a"][1]
    assert again.from_ms == handing_over().wall(11_000 + 6_000), "when it had given up, it learned of it"
    assert result.whatif.epochs == 4, "a, b, a fenced, a again"


def test_a_longer_rebalance_timeout_than_it_took_changes_nothing() -> None:
    result = whatif(handing_over(slow_ms=6_000).recorded(), WhatIf(rebalance_timeout_ms=7_000))
    assert result.whatif == result.really


def fenced_while_giving_up(back_ms: int | None = None) -> WhatIfStory:
    """``a`` is told at 2 s to give up two of orders 0-3 within 4 s, is heard of, and does not; it may join
    again. ``b`` beats until 20 s."""
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a", rebalance_ms=4_000), story.client("b")
    a.beat()
    story.at(1_000)
    b.beat()
    story.at(2_000)
    a.beat()  # told
    for ms in range(3_000, 6_000, 1_000):
        story.at(ms)
        a.beat(acknowledge=False)
    story.keep(b, from_ms=6_000, to_ms=20_000 if back_ms is None else back_ms - 1_000)
    if back_ms is not None:
        a.beat()  # is refused, and gives up everything
        story.keep(a, b, from_ms=back_ms, to_ms=20_000)
    return story


def test_a_fenced_member_is_kept_only_where_it_is_shown_to_have_revoked() -> None:
    story = fenced_while_giving_up()
    story.refused("a", 9_000, owned={})
    kept = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=8_000))
    assert kept.really is not None
    assert kept.whatif is not None
    assert (kept.really.fenced_revoking, kept.whatif.fenced_revoking) == (1, 0)
    assert kept.whatif.revoking_ms == 2 * 7_000
    too_short = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=6_000))
    assert too_short.whatif is not None
    assert too_short.whatif.fenced_revoking == 1
    assert too_short.whatif.revoking_ms == 2 * 6_000
    unknown = whatif(story.recorded(), WhatIf(rebalance_timeout_ms=8_000))
    assert unknown.whatif == unknown.really
    assert unknown.assumed is not None
    assert unknown.assumed.unknown_revocations == 1


@pytest.mark.parametrize("says", ["that it has it", "nothing", "a commit"])
def test_a_refused_request_that_is_no_acknowledgement_keeps_no_member(says: str) -> None:
    story = fenced_while_giving_up()
    topic_id = topic_id_text(FIRST_TOPIC)
    if says == "a commit":
        story.refused("a", 9_000, api=ApiKey.OFFSET_COMMIT)
    else:
        story.refused("a", 9_000, owned={topic_id: [0, 1, 2, 3]} if says == "that it has it" else None)
    result = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=8_000))
    assert result.whatif is not None
    assert result.whatif.fenced_revoking == 1
    assert result.whatif.revoking_ms == 2 * 8_000, "until its longer time was over"


def test_who_joined_again_in_time_had_given_up_by_then() -> None:
    story = fenced_while_giving_up(back_ms=10_000)
    story.refused("a", 7_000, owned={topic_id_text(FIRST_TOPIC): [0, 1, 2, 3]})
    result = whatif(story.recorded(has_evidence=True), WhatIf(rebalance_timeout_ms=10_000))
    assert result.whatif is not None
    assert result.whatif.fenced_revoking == 0
    assert result.whatif.revoking_ms == 2 * 8_000, "from 2 s until it joined at 10 s"


def test_silences_over_a_failover_are_not_the_rhythm_of_heartbeats() -> None:
    story = falling_silent()  # whose sessions last 10 s
    for ms, gap_ms in ((1_000, 500), (2_000, 510), (3_000, 30_000), (4_000, 29_000), (5_000, 28_000)):
        story.gap("a", ms, gap_ms)
    assert story.recorded(has_evidence=True).interval_ms == 505


def falling_silent() -> WhatIfStory:
    """``b`` is heard last at 20 s and expires at 30 s; ``a`` beats every second until 60 s."""
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=20_000)
    story.keep(a, from_ms=21_000, to_ms=60_000)
    return story


def ended_ms(result: WhatIfResult, member_id: str = "b") -> list[int | None]:
    assert result.facts is not None
    return [one.to_ms for one in result.facts.sessions if one.member_id == member_id]


def test_a_shorter_session_timeout_ends_a_recorded_silence_sooner() -> None:
    story = falling_silent()
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=4_000))
    assert result.is_faithful
    assert ended_ms(result) == [story.wall(24_000)]
    assert not result.has_evidence


def test_a_longer_one_is_unknown_without_evidence_and_is_not_guessed() -> None:
    story = falling_silent()
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=15_000))
    assert ended_ms(result) == [story.wall(30_000)]
    assert result.assumed is not None
    assert result.assumed.unknown_sessions == 1


def test_a_longer_one_keeps_who_was_refused_in_time_and_no_other() -> None:
    story = falling_silent()
    story.refused("b", 33_000)
    assert ended_ms(whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=15_000))) == [None]
    assert ended_ms(whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=12_000))) == [
        story.wall(32_000)
    ]


def test_evidence_of_nothing_is_evidence_of_absence() -> None:
    story = falling_silent()
    result = whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=15_000))
    assert ended_ms(result) == [story.wall(35_000)]
    assert result.assumed is not None
    assert result.assumed.unknown_sessions == 0


def test_who_joined_again_in_time_would_have_stayed_and_not_joined_again() -> None:
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=20_000)
    story.keep(a, from_ms=21_000, to_ms=33_000)
    story.at(33_500)
    b.beat()  # refused: it is no member any more
    story.keep(a, b, from_ms=34_000, to_ms=40_000)
    result = whatif(story.recorded(), WhatIf(session_timeout_ms=15_000))
    assert result.really is not None
    assert result.whatif is not None
    assert (result.really.epochs, result.whatif.epochs) == (4, 2)
    assert (result.really.sessions_expired, result.whatif.sessions_expired) == (1, 0)
    assert result.whatif.moved == result.really.moved - 4


def test_a_noted_gap_longer_than_the_session_timeout_would_have_ended_it() -> None:
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b")
    story.keep(a, b, from_ms=0, to_ms=200_000)
    story.gap("b", 100_000, 7_000)
    result = whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=5_000))
    assert result.really is not None
    assert result.whatif is not None
    assert result.assumed is not None
    assert result.assumed.gaps_placed == 1
    assert result.whatif.sessions_expired == 1
    assert result.whatif.epochs == result.really.epochs + 2, "it goes and joins again"
    (ended, again), minute = ended_ms(result), story.notes[0]["minute_ms"]
    assert ended is not None
    assert minute - 7_000 <= ended < minute + 60_000
    assert again is None
    assert whatif(story.recorded(has_evidence=True), WhatIf(session_timeout_ms=8_000)).whatif == result.really
    assert whatif(story.recorded(), WhatIf(session_timeout_ms=5_000)).whatif == result.really, "not known of"


def test_a_static_member_that_was_away_too_long_would_have_lost_its_place() -> None:
    story = WhatIfStory()
    story.world.create_topic("orders", 4)
    a, b = story.client("a"), story.client("b", instance="i")
    story.keep(a, b, from_ms=0, to_ms=10_000)
    b.leave(for_good=False)
    story.keep(a, from_ms=11_000, to_ms=17_000)
    b.member_id = "b2"
    b.beat()
    story.keep(a, b, from_ms=18_000, to_ms=25_000)
    kept = whatif(story.recorded(), WhatIf(session_timeout_ms=9_000))
    assert kept.whatif == kept.really
    lost = whatif(story.recorded(), WhatIf(session_timeout_ms=5_000))
    assert lost.really is not None
    assert lost.whatif is not None
    assert lost.whatif.sessions_expired == 1
    assert lost.whatif.epochs == lost.really.epochs + 2


def test_range_instead_of_uniform() -> None:
    result = whatif(unequal().recorded(), WhatIf(assignor=RangeAssignor()))
    assert result.assignor == "uniform"
    assert result.is_faithful
    assert result.really is not None
    assert result.whatif is not None
    assert (result.really.moved, result.really.spread) == (1, 1)
    assert (result.whatif.moved, result.whatif.spread) == (0, 3)
    assert result.whatif.unowned_ms == result.whatif.revoking_ms == 0


def test_the_assignor_that_a_log_does_not_name_is_found_by_what_it_did() -> None:
    story = WhatIfStory(order=RANGE)
    story.world.create_topic("orders", 3)
    story.world.create_topic("events", 3)
    a, b = story.client("a", "orders", "events"), story.client("b", "orders", "events")
    story.keep(a, from_ms=0, to_ms=3_000)
    story.keep(a, b, from_ms=4_000, to_ms=20_000)
    result = whatif(story.recorded(), WhatIf(assignor=UniformAssignor()))
    assert result.assignor == "range"
    assert result.is_faithful


def test_a_longer_interval_makes_members_wait_longer_and_not_give_up_slower() -> None:
    script = handing_over().recorded()
    assert script.interval_ms == 1_000
    result = whatif(script, WhatIf(heartbeat_interval_ms=2_000))
    assert result.whatif is not None
    # a is told at 10 + 2 * 1 s, gives up 0.5 s later; b would take them 2 * 6.5 s after that: behind the end.
    assert result.whatif.revoking_ms == 2 * 500
    assert result.whatif.unowned_ms == 2 * (19_000 - 12_500)
