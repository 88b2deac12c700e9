"""Every request, in any order, by members of every kind: dynamic, static, by expression, with assignors.

The schedules of `test_schedules` with everything else that a group can be asked or told: expressions,
client-side assignors (on time, late, wrong), child processes that answer late, wrongly or never, operators
that remove members, offsets and groups, and set configs, requests that no client would send, days that pass.
Checked at every entry, as there: invariants I1 to I7 (`World`, `Twin`). Checked at every step: views are
JSON. Checked at the end: when everybody behaves the groups settle, and nobody owns too much or too little.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from coordinator.limits import Limits
from tests.support.computing_client import ComputingClient, dealt_round
from tests.support.schedules_of_every_request import (
    ALWAYS_JOBS,
    EveryRequest,
    steps,
)
from wire.messages import consumer_group_install_assignment as install


def test_every_request_in_any_order() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        EveryRequest,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 600))]
)
def test_long_schedules_of_every_request(seed: int) -> None:
    rng = random.Random(seed)
    machine = EveryRequest(ALWAYS_JOBS if seed % 2 else Limits())
    possible = steps(machine, rng)
    for _ in range(200):
        rng.choice(possible)()
        machine.views_are_json()
        machine.acknowledged_commits_are_read_back()
    machine.teardown()


def test_an_installed_target_names_each_member_once() -> None:
    """The nonsense above is really refused, also when the target that it repeats is installed already."""
    machine = EveryRequest()
    machine.create_or_grow("orders")
    client = machine.client("g", "e")
    assert isinstance(client, ComputingClient)
    client.topics = ("orders",)
    client.beat()
    assert client.must_compute
    shown = client.prepare()
    parts: list[install.Member] = dealt_round(shown)
    assert client.install(shown.group_epoch, parts).error_code == 0
    assert client.install(shown.group_epoch, parts).error_code == 0, "its reply was lost"
    assert client.install(shown.group_epoch, [*parts, *parts]).error_code != 0
