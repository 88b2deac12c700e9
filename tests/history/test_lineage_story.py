"""The answers of history about groups of the older protocols, on logs that their own coordinators wrote.

REWRITE_GOLDEN=1 records the texts again.
"""

from __future__ import annotations

from history.answers.findings import findings
from history.answers.findingstext import findings_text
from history.answers.owner import owner, owner_text, parse_partition
from history.answers.statediff import diff, diff_text
from history.answers.stats import stats
from history.facts.group import facts_of
from history.facts.rows import SessionEnd, SpanKind
from history.pages.terminal import lanes_text
from history.pages.timeline import timeline_data, timeline_page
from history.protocols import CALLED, PUSH, REWRITE
from history.reading.notes import TROUBLE
from history.render import UTC_STYLE
from history.state.replay import replay, state_text
from history.telling.dump import dump, dump_text
from history.telling.explain import Explanation, explain
from history.telling.filters import Filters
from history.telling.prose import explanation_text
from history.telling.story import NoteStep
from history.telling.timeline import timeline, timeline_text
from history.whatif.answer import whatif_of
from history.whatif.settings import WhatIf
from lineage.push.decisions import Failover
from lineage.rewrite.machines import RewriteEvent, RewriteState
from tests.support.golden_texts import golden
from tests.support.lineage_logs import (
    GROUP,
    SHARD,
    PushTape,
    RewriteTape,
    Tape,
    node,
)
from tests.support.memory_log import MemoryReader

from .lineage_lives import every_story, story


def explained(protocol: str) -> Explanation:
    return explain(node(story(protocol)), GROUP, style=UTC_STYLE)


# What is told.


@every_story
def test_a_group_is_explained(protocol: str) -> None:
    golden(f"history/golden/{protocol}_explain.txt", explanation_text(explained(protocol), UTC_STYLE))


@every_story
def test_a_group_as_a_timeline(protocol: str) -> None:
    rows = timeline(explained(protocol))
    golden(f"history/golden/{protocol}_timeline.txt", timeline_text(rows, width=110, style=UTC_STYLE))


def test_what_a_consumer_of_a_push_group_did_is_told_in_its_protocols_words() -> None:
    text = "\n".join(explanation_text(explained(PUSH), UTC_STYLE))
    assert f"it speaks {CALLED[PUSH]}" in text
    for said in (
        "round 2 -> 3",
        "because   topic t grew (6 to 8 partitions)",
        "because   c2 failed: 2 pings failed in a row, the last one because no answer came in time",
        "because   c3 failed: did not register again after a failover; it had 400 ms from",
        "because   c1 closed its connection",
        "c1 was sent Stop for t 0-5 at once",
        "c1 stopped t 0-5",
        "c2 answered Start of round 2",
    ):
        assert said in text
    assert "epoch" not in text
    assert "heartbeat of" not in text


def test_why_a_generation_of_the_rewrite_design_began_is_told() -> None:
    text = "\n".join(explanation_text(explained(REWRITE), UTC_STYLE))
    assert f"it speaks {CALLED[REWRITE]}" in text
    for said in (
        "generation 2 -> 3",
        "(client a, 127.0.0.1) sent its first JoinGroup",
        "because   topic t grew from 6 to 8 partitions",
        "because   topic u was created with 2 partitions",
        "expired: no heartbeat for 3.0 s of 3.0 s, last at 22:13:42",
        "knew of the rebalance and did not send JoinGroup in time: it had 3.0 s from",
    ):
        assert said in text
    assert "to send the assignments" not in text, "the coordinator assigns"
    assert "epoch" not in text


def test_a_slow_consumer_that_was_back_in_time_leaves_no_entry() -> None:
    tape = RewriteTape()
    tape.join("a", heartbeat_frequency=2)
    tape.play.run(100)
    tape.join("b")
    tape.play.run(5_000)
    written, group = len(tape.told), tape.play.coordinator._groups[GROUP]
    tape.play.pause("b", 30_000)
    while not group.dead:
        tape.play.run(1)
    tape.play.resume("b")
    tape.play.run(10_000)
    assert tape.play.coordinator.taken[RewriteState.PREPARING, RewriteEvent.RECOVERED]
    assert len(tape.told) == written


def test_a_failover_that_waits_is_told_with_who_was_forgotten_and_who_registered_again() -> None:
    tape = PushTape(3, Failover.WAIT)
    tape.join("c1")
    tape.join("c2")
    tape.run_until(2_000)
    tape.kill()
    tape.run_until(6_000)
    told = explain(node(tape), GROUP, style=UTC_STYLE)
    (gone,) = [step.text for step in told.steps if isinstance(step, NoteStep)]
    assert gone == "the group is gone: a new coordinator waits for the consumers to register again"
    facts = facts_of(node(tape), GROUP)
    assert [one.end for one in facts.sessions] == [SessionEnd.FORGOTTEN] * 2 + [SessionEnd.OPEN] * 2
    later = [step.why for step in told.epochs if step.index > facts.gone[0][0]]
    assert sorted(later) == [("c1 registered",), ("c2 registered",)]
    assert "FLAPPING_MEMBER" not in {one.kind for one in told.findings}


def test_a_consumer_that_registers_again_with_other_settings_is_told() -> None:
    """After a failover from the log; one that changes nothing leaves no entry."""
    tape = PushTape(3)
    tape.join("c1")
    tape.join("c2")
    tape.run_until(2_000)
    tape.kill()
    tape.crash(tape.actors["c1"])
    tape.join("c1", auto_commit=False)
    tape.run_until(6_000)
    told = explain(node(tape), GROUP, style=UTC_STYLE)
    assert [step.text for step in told.steps if isinstance(step, NoteStep)] == ["c1 registered again"]
    stays = [one for one in facts_of(node(tape), GROUP).sessions if one.member_id == "c1"]
    assert stays[0].rejoins == 1
    assert "at index 5 round" in explain(node(tape), GROUP, filters=Filters(at_index=5)).said[0]


def test_an_entry_is_dumped_in_the_words_of_its_protocol() -> None:
    lines = "\n".join(dump_text(dump(node(story(PUSH))), UTC_STYLE))
    assert "c2 registered" in lines
    assert "c1 answered that it has stopped" in lines
    assert "(state=STOPPING auto_commit=1" in lines
    lines = "\n".join(dump_text(dump(node(story(REWRITE))), UTC_STYLE))
    assert "every consumer that was alive had sent JoinGroup; new epoch because" in lines


# The other answers.


def test_the_owner_at_a_time() -> None:
    log = node(story(PUSH))
    at = facts_of(log, GROUP).epochs[1].settled_index
    for group in (None, GROUP):
        (found,) = owner(log, parse_partition("t-4"), group=group, at_index=at, style=UTC_STYLE).groups
        assert found.at is not None
        assert (found.at.member_id, found.at.why, found.at.noun) == ("c2", "c2 registered", "round")
        assert found.before is not None
        assert (found.before.kind, found.before.member_id) == (SpanKind.REVOKING, "c1")
    answer = owner(node(story(REWRITE)), parse_partition("u-0"), style=UTC_STYLE)
    text = "\n".join(owner_text(answer, UTC_STYLE))
    assert "g-00000004 owned it" in text
    assert "generation 8, because topic u was created with 2 partitions" in text


@every_story
def test_stats_count_what_the_records_hold(protocol: str) -> None:
    facts = facts_of(node(story(protocol)), GROUP)
    total = stats(node(story(protocol))).total
    assert total.epochs == len(facts.epochs)
    assert total.joined == len(facts.sessions)
    assert sum(total.ended.values()) == sum(one.to_index is not None for one in facts.sessions)
    unowned = sum(
        (span.to_ms or facts.last_ms) - span.from_ms for span in facts.spans if span.kind is SpanKind.UNOWNED
    )
    assert total.unowned_ms == unowned


def test_consumers_that_were_found_dead_are_findings() -> None:
    found = findings(node(story(PUSH)))
    kinds = {one.kind: one for group in found.groups for one in group.findings}
    assert kinds.keys() == {"EXPIRED_AFTER_FAILOVER", "MEMBER_PAUSED"}
    assert kinds["MEMBER_PAUSED"].members == ("c2",)
    assert kinds["MEMBER_PAUSED"].is_certain, "no node notes anything of this protocol: the log proves it"
    assert "Ping, Stop and Start" in kinds["MEMBER_PAUSED"].words
    assert kinds["EXPIRED_AFTER_FAILOVER"].members == ("c3",)
    assert ", round 4, over after" in "\n".join(findings_text(found, UTC_STYLE))
    found = findings(node(story(REWRITE)))
    kinds = {one.kind: one for group in found.groups for one in group.findings}
    assert kinds.keys() == {"SESSION_EXPIRED", "REBALANCE_TIMED_OUT"}
    ((failover,),) = [one.findings for one in found.shards]
    assert failover.kind == "FAILOVER"
    assert kinds["REBALANCE_TIMED_OUT"].members[0] == "g-00000001"
    assert "did not send JoinGroup within its session timeout of 3.0 s" in kinds["REBALANCE_TIMED_OUT"].words


def test_a_strategy_that_failed_is_a_finding() -> None:
    """No generation was written, so only the node's note tells why consumers stood still."""
    log, facts = node(story(REWRITE)), facts_of(node(story(REWRITE)), GROUP)
    reader = log.reader(SHARD)
    assert isinstance(reader, MemoryReader)
    said = "Strategy mine failed for group g: no luck"
    reader.notes += [
        {
            "kind": TROUBLE,
            "group": GROUP,
            "at_ms": facts.epochs[1].timestamp_ms - ms,
            "said": said,
            "work": "assign",
        }
        for ms in (900, 400)
    ]
    (found,) = [one for one in findings(log).groups[0].findings if one.kind == "ASSIGNOR_FAILED"]
    assert found.words.startswith(
        f"{said} (2 times): no generation was completed for 900 ms; `g-00000001` had"
    )
    assert (found.epochs, found.to_index, found.is_certain) == ((1,), facts.epochs[1].index, False)


def test_consumers_that_leave_and_register_faster_than_rounds_end_are_a_storm() -> None:
    tape = PushTape(3)
    tape.join("c0")
    tape.run_until(2_000)
    for number in range(1, 6):
        tape.join(f"c{number}")
        tape.run_until(tape.now_ms + 45)
        tape.crash(tape.actors[f"c{number}"])
        tape.run_until(tape.now_ms + 20)
    tape.run_until(tape.now_ms + 3_000)
    found = {one.kind for group in findings(node(tape)).groups for one in group.findings}
    assert "REBALANCE_STORM" in found


@every_story
def test_a_quiet_group_has_no_findings(protocol: str) -> None:
    tape: Tape = PushTape() if protocol == PUSH else RewriteTape()
    for name in ("a", "b", "c"):
        tape.join(name)
    tape.run_until(60_000) if isinstance(tape, PushTape) else tape.play.run(60_000)
    assert not [one for group in findings(node(tape)).groups for one in group.findings]


def test_two_moments_are_compared() -> None:
    facts = facts_of(node(story(PUSH)), GROUP)
    first, second = (row.settled_index for row in facts.epochs[:2])
    text = "\n".join(
        diff_text(diff(node(story(PUSH)), (first, None), (second, None), group=GROUP), UTC_STYLE)
    )
    assert "group g: round 1 -> 2, Stable -> Stable" in text
    assert "came      c2\n" in text
    assert "moved     t 3-5: c1 -> c2" in text


def test_a_replay_shows_the_group_at_an_index() -> None:
    row = facts_of(node(story(PUSH)), GROUP).epochs[1]
    (group,) = replay(node(story(PUSH)), group=GROUP, at_index=row.index).groups
    assert (group.kind, group.state, group.epoch) == (PUSH, "Assigning", 2)
    assert {one.member_id: one.pending_revocation for one in group.members} == {
        "c1": {"t": (0, 1, 2, 3, 4, 5)},
        "c2": {},
    }
    text = "\n".join(state_text(replay(node(story(PUSH)), group=GROUP), UTC_STYLE))
    assert "group g (push): Stable, round 8" in text
    text = "\n".join(state_text(replay(node(story(REWRITE)), group=GROUP, at_index=9), UTC_STYLE))
    assert "group g (rewrite): Stable, generation 7" in text
    assert "member g-00000003 (client b, 127.0.0.1): generation 7\n    owns t 0-1" in text


@every_story
def test_whatif_leaves_the_group_out_and_says_so(protocol: str) -> None:
    for cut in (None, 6):
        (result,) = whatif_of(node(story(protocol), cut=cut), WhatIf()).results
        assert result.left_out == f"it spoke {CALLED[protocol]}, whose coordinator the replay does not have"


# Pages.


@every_story
def test_the_page_says_rounds_and_generations_and_the_protocol(protocol: str) -> None:
    facts, noun = facts_of(node(story(protocol)), GROUP), {PUSH: "round", REWRITE: "generation"}[protocol]
    page = timeline_page(facts, ())
    assert CALLED[protocol] in page
    assert f"All {noun}s as a table" in page
    data = timeline_data(facts, ())
    assert data["noun"] == noun
    assert {one["noun"] for one in data["epochs"]} == {noun}
    said = [line[2] for epoch in data["epochs"] for line in epoch["steps"]["lines"]]
    assert ("c1 answered Start of round 1" in said) is (protocol == PUSH)
    lines = list(lanes_text(facts, (), style=UTC_STYLE))
    assert any(line.startswith(noun) for line in lines)
