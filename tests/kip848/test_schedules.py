"""Random schedules: joins, heartbeats with and without acknowledgements, lost replies, leaves, expiries,
topic changes, commits, failovers, pauses.

Checked at every entry: no partition has two owners, no epoch goes back, and each cached reply equals the slow
path's (`World`); the live state equals a full replay and a snapshot plus its tail. Checked as it goes: an
acknowledged commit is read back. Checked at the end: three rounds of heartbeats after the last change every
group is stable and all partitions are owned.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    run_state_machine_as_test,
)

from tests.support.schedules import GROUPS, NAMES, STATIC, TOPICS, Schedules


def test_random_schedules() -> None:
    """Single owner, no epoch back, replay equality at every index; stable after the last change."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Schedules,
        settings=settings(
            max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 500))]
)
def test_long_schedules(seed: int) -> None:
    """The same rules for longer, chosen by a seed; three rounds of heartbeats settle every group."""
    rng = random.Random(seed)
    machine = Schedules()
    one: list[Callable[[], None]] = [
        lambda: machine.join(
            rng.choice(GROUPS), rng.choice(NAMES), rng.sample(sorted(TOPICS), rng.randint(1, 3))
        ),
        lambda: machine.heartbeat(
            rng.choice(GROUPS), rng.choice(NAMES), rng.random() < 0.7, rng.random() < 0.2
        ),
        lambda: machine.everybody(rng.choice(GROUPS)),
        lambda: machine.everybody(rng.choice(GROUPS)),
        lambda: machine.rejoin(rng.choice(GROUPS), rng.choice(NAMES)),
        lambda: machine.subscribe(
            rng.choice(GROUPS), rng.choice(NAMES), rng.sample(sorted(TOPICS), rng.randint(1, 3))
        ),
        lambda: machine.vote(rng.choice(GROUPS), rng.choice(NAMES), rng.choice(["range", "uniform"])),
        lambda: machine.leave(rng.choice(GROUPS), rng.choice(NAMES)),
        lambda: machine.go_away(rng.choice(GROUPS), rng.choice(STATIC)),
        lambda: machine.come_back(
            rng.choice(GROUPS), rng.choice(STATIC), rng.random() < 0.7, rng.random() < 0.2
        ),
        lambda: machine.a_twin_is_refused(rng.choice(GROUPS), rng.choice(STATIC)),
        lambda: machine.commit(rng.choice(GROUPS), rng.choice(NAMES), rng.randint(0, 99)),
        lambda: machine.time_passes(rng.choice([1, 500, 3_000, 6_000, 11_000])),
        lambda: machine.another_turn(rng.choice([0, 0, 1, 2])),
        machine.due_work,
        lambda: machine.create_or_grow(rng.choice(sorted(TOPICS))),
        lambda: (
            machine.delete(rng.choice(sorted(TOPICS)), rng.random() < 0.5) if rng.random() < 0.3 else None
        ),
        lambda: machine.failover() if rng.random() < 0.3 else None,
        machine.the_node_stands_still,
    ]
    for _ in range(150):
        rng.choice(one)()
        machine.acknowledged_commits_are_read_back()
    machine.teardown()
