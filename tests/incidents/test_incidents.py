"""Incidents of every kind, provoked by seed: is each recognised, with its members and partitions?

The truth is known by whoever provoked it. Everything must be found, nothing may be invented, and each rule
must be needed: without it something is missed.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import pytest

from history.diagnoses import RULES
from tests.report import count_fault
from tests.support.incidents.scenarios import INCIDENTS
from tests.support.incidents.truth import Known

from .score import SCORE, judge, judge_explanation

SEEDS = range(4)
ONCE_WRONG = (
    ("assignor that raises", 1001),
    ("assignor that hangs", 1002),
    ("flapping member: leaves and joins", 3015),
)
"""Seeds with wrong diagnoses once: an assignor's fault was attributed to members that adopted their
partitions at once, and a single member that joins and leaves was also called a storm."""


@pytest.mark.parametrize(("name", "seed"), [*product(INCIDENTS, SEEDS), *ONCE_WRONG])
def test_an_incident_is_named_with_its_members_and_partitions(name: str, seed: int) -> None:
    known = INCIDENTS[name].run(seed)
    assert known.truths
    score = SCORE.setdefault(name, Counter())
    for truth in known.truths:
        count_fault("incidents", truth.kind)
    judged = judge_explanation(known)
    alone = judge_explanation(known, with_evidence=False)
    score["provoked"] += len(judged.verdicts)
    score["named"] += sum(not one.missing for one in judged.verdicts)
    score["alone provoked"] += len(alone.verdicts)
    score["alone"] += sum(not one.missing for one in alone.verdicts)
    score["invented"] += len(judged.inventions) + len(alone.inventions)
    for told in (judged, alone):
        assert [(one.truth, one.missing) for one in told.verdicts if one.missing] == []
        assert told.inventions == ()


def test_a_hundred_incidents_are_provoked() -> None:
    assert len(INCIDENTS) * len(SEEDS) >= 100


@cache
def provoked(name: str) -> Known:
    return INCIDENTS[name].run(1)


@pytest.mark.parametrize("name", RULES)
def test_without_any_one_rule_an_incident_is_missed(name: str) -> None:
    """The score can fail, and no rule is superfluous."""
    rules = [rule for rule in RULES.values() if rule.name != name]
    for scenario in INCIDENTS:
        known = provoked(scenario)
        kinds = {kind for truth in known.truths for kind in (truth.kind, truth.alone)}
        if name in kinds:
            told = (judge(known, with_evidence=noted, rules=rules) for noted in (True, False))
            assert any(one.missing for judged in told for one in judged.verdicts)
            return
    raise AssertionError(f"nobody provokes {name}")
