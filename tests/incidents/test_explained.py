"""The answers of `explain` on provoked incidents: findings first, at their epochs, and nothing untrue.

The world knows every refused heartbeat and its time; the counterfactuals are checked against them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from history.render import UTC_STYLE
from history.telling.explain import Explanation, explain
from history.telling.filters import Filters
from history.telling.prose import explanation_text
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.truth import Known
from tests.support.incidents.world import GROUP

SEED = 5
HEARTBEATS = (68, 3)


def told(known: Known, filters: Filters | None = None) -> Explanation:
    return explain(known.world.node(), GROUP, filters=filters or Filters(), style=UTC_STYLE)


@pytest.mark.parametrize("name", INCIDENTS)
def test_an_incident_is_explained(name: str) -> None:
    """The findings name its cause, members and partitions, at an epoch that it disturbed. Filters on one of
    its members or partitions show it too."""
    known = INCIDENTS[name].run(SEED)
    whole = told(known)
    lines = list(explanation_text(whole, UTC_STYLE))
    first = "\n".join(lines[: next(n for n, line in enumerate(lines) if "  index " in line)])
    for truth in known.truths:
        if truth.is_reason:
            continue
        assert truth.kind in first
        found = [one for one in whole.findings if one.kind == truth.kind]
        assert all(any(member in one.members for one in found) for member in truth.members)
        if any(one.epochs for one in found):
            assert any(truth.kind in said for step in whole.epochs for said in step.stands_out)
        for member in truth.members:
            narrowed = told(known, Filters(member=member))
            assert any(one.kind == truth.kind for one in narrowed.findings)
        for partition in truth.partitions[:2]:
            narrowed = told(known, Filters(partition=str(partition)))
            assert any(one.kind == truth.kind for one in narrowed.findings)


@pytest.mark.parametrize("name", INCIDENTS)
def test_every_moment_of_an_incident_can_be_asked_for(name: str) -> None:
    known = INCIDENTS[name].run(SEED)
    whole = told(known)
    first = whole.epochs[0].index
    for entry in known.world.log[:: max(len(known.world.log) // 7, 1)]:
        if entry.index < first:
            continue
        then = told(known, Filters(at_index=entry.index))
        assert any(step.index <= entry.index for step in then.epochs)
        assert list(explanation_text(then, UTC_STYLE))
    for step in whole.epochs:
        (alone,) = told(known, Filters(epoch=step.epoch)).epochs
        assert alone == step


HAPPENED: Counter[str] = Counter()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["paused member", "killed member", "slow revoker", "one never acknowledges, another is paused"]
)
def test_what_would_have_been_otherwise_is_so(name: str, seed: int) -> None:
    """A member that is said to have been late by some time had its next heartbeat refused just then. Nothing
    is claimed of dead members, and no wait is said to have cost more than it did."""
    known = INCIDENTS[name].run(seed)
    notes = known.world.node().reader(0).evidence(GROUP)
    whole = told(known)
    for one in whole.counterfactuals:
        HAPPENED[f"{one.kind} {one.is_certain}"] += 1
        if one.kind == "heartbeat" and one.is_certain:
            refused = [
                note["at_ms"]
                for note in notes
                if note["kind"] == "refused" and note["member"] == one.member_id and note["api"] in HEARTBEATS
            ]
            assert one.at_ms in refused
            assert one.at_ms is not None
            assert one.deadline_ms is not None
            assert one.late_ms == one.at_ms - one.deadline_ms > 0
            expiry = next(
                expiry
                for entry in known.world.log
                for expiry in entry.cause.expiries
                if (expiry.member_id, expiry.deadline_ms) == (one.member_id, one.deadline_ms)
            )
            assert not [at for at in refused if expiry.deadline_ms <= at < one.at_ms]
        if one.kind == "wait":
            step = next(step for step in whole.epochs if step.index == one.index)
            assert step.took_ms is None or (one.sooner_ms or 0) <= step.took_ms
            assert (one.sooner_ms_min or 0) <= (one.sooner_ms or 0)
    if name == "killed member":
        dead = {member for truth in known.truths for member in truth.members}
        assert not any(one.is_certain for one in whole.counterfactuals if one.member_id in dead)


def test_all_kinds_were_claimed() -> None:
    assert {"heartbeat True", "heartbeat False", "acknowledgement False"} <= HAPPENED.keys()
    assert {"wait True", "wait False"} & HAPPENED.keys()
