"""Members of every kind under chaos: static ones, expressions, assignors of their own; and operators.

The same must hold for them as for dynamic members: one owner of each partition as clients see it, nothing
acknowledged is lost, replicas are equal. Half of the seeds have coordinators with bounds so small that child
processes compute, and that most changes take several decisions.
"""

from __future__ import annotations

from typing import Final

import pytest

from coordinator.group_context import GroupContext
from records import Trigger
from tests.simulated.run import Outcome, Run, outcome_of

SMALL: Final = {
    "assign_inline_cost_max": 60,
    "install_records_max": 2,
    "expiries_max": 1,
    "resolve_inline_cost_max": 5,
    "resolved_names_at_once_max": 0,
}

PLAYED: Final = {
    Trigger.MEMBER_REPLACED,
    Trigger.MEMBER_AWAY,
    Trigger.REGEX_RESOLVED,
    Trigger.ASSIGNMENT_INSTALLED,
    Trigger.MEMBER_REMOVED,
    Trigger.CONFIG_CHANGED,
    Trigger.TARGET_COMPUTED,
}
"""Triggers that a run must have had for every kind of member and operator to have taken part."""

SHORT_MS: Final = 15_000.0
LONG_MS: Final = 45_000.0
PERIOD_MS: Final = 500.0
ACKNOWLEDGED_MIN: Final = 500


def play(seed: int, duration_ms: float) -> Outcome:
    run = Run(
        seed,
        duration_ms=duration_ms,
        period_ms=PERIOD_MS,
        has_cast=True,
        limits=SMALL if seed % 2 else None,
    )
    return outcome_of(run, ACKNOWLEDGED_MIN)


@pytest.mark.thorough
def test_every_part_is_played() -> None:
    played = play(201, SHORT_MS).triggers + play(202, SHORT_MS).triggers
    assert PLAYED - {trigger for trigger, times in played.items() if times} == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(4_000, 4_030))
def test_a_long_seed(seed: int) -> None:
    play(seed, LONG_MS)


def test_a_config_that_running_groups_do_not_hear_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector itself works."""
    monkeypatch.setattr(GroupContext, "configs_changed", lambda *_: None)
    outcome = Run(1, duration_ms=3_000.0, kinds=("slow link",), has_cast=True).play()
    assert any("heard" in violation for violation in outcome.violations), outcome.say()
