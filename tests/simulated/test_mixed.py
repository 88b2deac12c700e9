"""Groups of both protocols under chaos: whenever a process ends, the next one may speak the other protocol.

Groups are upgraded, mixed and downgraded all the time. Classic and consumer members together own a partition
at most once, nothing acknowledged is lost, and replicas are equal.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from client.classic_member import COOPERATIVE, EAGER
from records import ReasonKind, Trigger
from tests.simulated.classic import CLASSIC, ClassicMember, Migrant
from tests.simulated.run import MACHINE, TOPICS, Outcome, Run, outcome_of

SHORT_MS: Final = 20_000.0
LONG_MS: Final = 45_000.0
PERIOD_MS: Final = 500.0
ACKNOWLEDGED_MIN: Final = 300

TRIGGERS: Final = {Trigger.GENERATION_COMPLETED, Trigger.MEMBER_ACKED, Trigger.MEMBER_REPLACED}
REASONS: Final = {ReasonKind.GROUP_UPGRADED, ReasonKind.GROUP_DOWNGRADED}
"""The reasons that a run must have had for both kinds of group to have been there."""


def mixed_kinds(group_number: int, number: int) -> tuple[type[ClassicMember], dict[str, Any]]:
    """Groups whose classic members are eager, or cooperative; the first two members of some are static."""
    protocol = COOPERATIVE if group_number % 2 else EAGER
    how = {"num_partitions": TOPICS, "protocol": protocol, "is_static": group_number > 1 and number < 2}
    return Migrant, how


def play(seed: int, duration_ms: float) -> Outcome:
    settings = MACHINE["settings"] | CLASSIC
    run = Run(seed, duration_ms=duration_ms, period_ms=PERIOD_MS, kinds_of=mixed_kinds, settings=settings)
    return outcome_of(run, ACKNOWLEDGED_MIN)


@pytest.mark.thorough
def test_every_part_is_played() -> None:
    played = [play(seed, SHORT_MS) for seed in (601, 610)]
    assert not TRIGGERS - {trigger for one in played for trigger in one.triggers}
    assert not REASONS - {reason for one in played for reason in one.reasons}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(6_000, 6_030))
def test_a_long_seed(seed: int) -> None:
    play(seed, LONG_MS)
