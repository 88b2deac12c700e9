"""The answers of history about a group that changes its protocol online (REWRITE_GOLDEN=1 rewrites them)."""

from __future__ import annotations

import pytest

from history.answers.stats import stats
from history.diagnoses import findings_of
from history.facts.group import facts_of
from history.facts.rows import GroupRows
from history.protocols import CLASSIC, CONSUMER, MIXED
from history.reading.node import NodeLog
from history.render import UTC_STYLE
from history.telling.explain import explain
from history.telling.prose import explanation_text
from history.telling.timeline import timeline, timeline_text
from tests.support.golden_texts import golden
from tests.support.incidents.world import GROUP
from tests.support.mixed_story import late_world, mixed_world


@pytest.fixture(scope="module")
def log() -> NodeLog:
    return mixed_world().node()


@pytest.fixture(scope="module")
def facts(log: NodeLog) -> GroupRows:
    return facts_of(log, GROUP)


def test_upgrade_and_downgrade_are_told(log: NodeLog) -> None:
    told = explain(log, GROUP, style=UTC_STYLE)
    golden("history/golden/mixed_explain.txt", explanation_text(told, UTC_STYLE))
    golden("history/golden/mixed_timeline.txt", timeline_text(timeline(told), width=110, style=UTC_STYLE))


def test_epochs_and_sessions_say_their_protocol(facts: GroupRows) -> None:
    by_protocol = [(row.protocol, row.num_classic, row.num_members) for row in facts.epochs]
    assert by_protocol[0][0] == by_protocol[-1][0] == CLASSIC
    assert (MIXED, 3, 4) in by_protocol
    assert (MIXED, 2, 3) in by_protocol
    assert sorted(one.protocol for one in facts.sessions) == [*[CLASSIC] * 3, CONSUMER]


def test_classic_members_that_join_again_are_no_finding(log: NodeLog, facts: GroupRows) -> None:
    assert findings_of(facts, None) == ()
    assert not any(one.rejoins for one in facts.sessions)


def test_statistics_count_the_changes_of_protocol(log: NodeLog) -> None:
    by_reason = stats(log).total.by_reason
    assert (by_reason["GROUP_UPGRADED"], by_reason["GROUP_DOWNGRADED"]) == (1, 1)


def test_a_classic_member_that_does_not_join_again_keeps_no_other_from_working() -> None:
    facts = facts_of(late_world().node(), GROUP)
    (found,) = findings_of(facts, None)
    (late,) = found.members
    assert found.kind == "REBALANCE_TIMED_OUT"
    assert found.words == (
        f"`{late}` did not send JoinGroup within its rebalance timeout of 1 min after it was told to, and "
        "lost orders 4-5 with its membership"
    )
