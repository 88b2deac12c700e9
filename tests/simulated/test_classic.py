"""Groups of the classic protocol under chaos: eager, cooperative and static members.

The same must hold as for consumer groups: one owner of each partition as clients see it, nothing
acknowledged is lost, replicas are equal. Besides, no commit of an older generation than the one in the log is
accepted.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from records import Trigger
from tests.report import count_fault
from tests.simulated.actors import Member
from tests.simulated.classic import CLASSIC, COOPERATIVE, ClassicMember
from tests.simulated.run import MACHINE, TOPICS, Outcome, Run

SHORT_MS: Final = 15_000.0
LONG_MS: Final = 45_000.0
PERIOD_MS: Final = 500.0
ACKNOWLEDGED_MIN: Final = 300

PLAYED: Final = {Trigger.GENERATION_COMPLETED, Trigger.MEMBER_REPLACED, Trigger.OFFSETS_COMMITTED}
"""Triggers that a run must have had for every kind of member to have taken part."""


def classic_kinds(group_number: int, number: int) -> tuple[type[Member], dict[str, Any]]:
    """Groups of eager members, of cooperative ones, and of static ones of either kind."""
    how: dict[str, Any] = {"num_partitions": TOPICS, "is_static": group_number == 2 or number == 1}
    if group_number in (1, 3):
        how["protocol"] = COOPERATIVE
    return ClassicMember, how


def play(seed: int, duration_ms: float, initial_delay_ms: int = 0) -> Outcome:
    settings = MACHINE["settings"] | CLASSIC | {"group_initial_rebalance_delay_ms": initial_delay_ms}
    run = Run(seed, duration_ms=duration_ms, period_ms=PERIOD_MS, kinds_of=classic_kinds, settings=settings)
    outcome = run.play()
    for kind, count in outcome.faults.items():
        count_fault("simulated", kind, count)
    print(outcome.say())
    assert outcome.violations == [], outcome.say()
    assert outcome.num_acknowledged >= ACKNOWLEDGED_MIN
    return outcome


def test_every_part_is_played() -> None:
    played = play(501, SHORT_MS).triggers + play(502, SHORT_MS, initial_delay_ms=500).triggers
    assert PLAYED - {trigger for trigger, times in played.items() if times} == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5_000, 5_030))
def test_a_long_seed(seed: int) -> None:
    play(seed, LONG_MS, initial_delay_ms=seed % 2 * 500)
