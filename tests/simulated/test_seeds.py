"""Whole clusters under chaos, one seed after another: short runs always, long ones with `make chaos`."""

from __future__ import annotations

import pytest

from tests.report import count_fault
from tests.simulated.chaos import repeat_messages
from tests.simulated.run import Outcome, Run

SHORT_MS = 15_000.0
SHORT_PERIOD_MS = 450.0
SHORT_FAULTS_MIN = 20
LONG_MS = 60_000.0
LONG_PERIOD_MS = 700.0
LONG_FAULTS_MIN = 50
ACKNOWLEDGED_MIN = 500


def play(seed: int, duration_ms: float, period_ms: float, **host_options: float) -> Outcome:
    run = Run(seed, duration_ms=duration_ms, period_ms=period_ms, host_options=host_options)
    outcome = run.play()
    for kind, count in outcome.faults.items():
        count_fault("simulated", kind, count)
    print(outcome.say())
    assert outcome.violations == [], outcome.say()
    return outcome


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3, 4))])
def test_a_short_seed(seed: int) -> None:
    outcome = play(seed, SHORT_MS, SHORT_PERIOD_MS)
    assert outcome.num_acknowledged >= ACKNOWLEDGED_MIN
    assert outcome.faults.total() >= SHORT_FAULTS_MIN


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1_000, 1_040))
def test_a_long_seed(seed: int) -> None:
    outcome = play(seed, LONG_MS, LONG_PERIOD_MS)
    assert outcome.num_acknowledged >= ACKNOWLEDGED_MIN
    assert outcome.faults.total() >= LONG_FAULTS_MIN


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3_100, 3_108))
def test_a_seed_with_slow_disks(seed: int) -> None:
    """Every sync is so slow that it runs on the disk thread."""
    assert play(seed, LONG_MS, LONG_PERIOD_MS, sync_ms=20.0).num_acknowledged >= ACKNOWLEDGED_MIN


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3_200, 3_208))
def test_a_seed_with_many_faults(seed: int) -> None:
    """There are five faults per second, on loops whose work takes time."""
    outcome = play(seed, SHORT_MS, 200.0, sync_ms=2.0, clock_step_ms=0.001)
    assert outcome.faults.total() >= LONG_FAULTS_MIN


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3_000, 3_008))
def test_a_seed_with_messages_that_come_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's own rules hold without the ordering of links."""
    repeat_messages(monkeypatch)
    assert play(seed, LONG_MS, LONG_PERIOD_MS).num_acknowledged >= ACKNOWLEDGED_MIN


@pytest.mark.parametrize("duration_ms", [1_500.0, pytest.param(4_000.0, marks=pytest.mark.thorough)])
def test_one_seed_is_one_history(duration_ms: float) -> None:
    first, again, other = (Run(seed, duration_ms=duration_ms).play() for seed in (7, 7, 8))
    assert (first.trace_hash, first.events_run) == (again.trace_hash, again.events_run)
    assert first.trace_hash != other.trace_hash
