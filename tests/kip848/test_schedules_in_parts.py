"""The schedules of every request, with bounds so low that whatever may take several decisions does.

Targets are installed a record at a time, members removed and expired one by one, groups deleted two offsets
at a time, expirations read two at a time, expressions installed one by one: and between two such decisions
anything may happen, the loss of the lead above all. Checked at every entry, beside what `EveryRequest`
checks: history's own invariants. Checked between decisions: whatever a group waits for is on its way.
Checked at the very end, when all groups are gone: nothing is kept for them.
"""

from __future__ import annotations

import random

import pytest

from tests.support.leader_state_checks import nothing_is_forgotten
from tests.support.schedules_in_parts import InParts, steps_in_parts


def play(seed: int, num_steps: int = 200) -> None:
    rng = random.Random(seed)
    machine = InParts()
    possible = steps_in_parts(machine, rng)
    for _ in range(num_steps):
        rng.choice(possible)()
        nothing_is_forgotten(machine.world)
        machine.views_are_json()
        machine.acknowledged_commits_are_read_back()
    machine.teardown()
    nothing_is_forgotten(machine.world)
    machine.all_go()


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 600))]
)
def test_long_schedules_in_parts(seed: int) -> None:
    play(seed)
