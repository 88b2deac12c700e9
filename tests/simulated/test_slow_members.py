"""Members that apply assignments late, under faults that delay and lose replies.

Each partition has one owner as clients see it, as with all other members, and no group gets stuck: once the
faults are over, every group becomes stable.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pytest

from tests.report import count_fault
from tests.simulated.run import Run
from tests.simulated.slow import Slow

FAULTS: Final = (
    ("member leaves",),
    ("member leaves", "pause", "cut", "reset connections", "slow link", "cut client", "leadership transfer"),
    ("member leaves", "pause", "kill -9 of a leader", "cut client"),
    (),
)
DURATION_MS: Final = 10_000.0
PERIOD_MS: Final = 250.0
SYNC_MS: Final = (50.0, 0.2)
"""Sync times in ms: every other seed has disks that make each reply late."""

REST_MS: Final = 20_000.0
"""Time for the session of the last dead member, and for some slow assignments one after another."""


class _ToRest(Run):
    """A run whose groups become stable before its clients stop."""

    def _settle(self) -> None:
        super()._settle()
        try:
            self.cluster.wait_for(self._is_at_rest, REST_MS)
        except TimeoutError:
            self.outcome.violations.append("a group did not come to rest")

    def _groups(self, leader: int, shard: int) -> Collection[Any]:
        machine: Any = self.cluster.runtime(leader, shard).machine
        return machine.projection.groups.values()

    def _is_at_rest(self) -> bool:
        leaders = {shard: self.cluster.leader_of(shard) for shard in self.cluster.shards}
        return all(
            leader is not None
            and all(
                group.state.value == "Stable" for group in self._groups(leader, shard) if group.is_consumer
            )
            for shard, leader in leaders.items()
            if shard >= 0
        )


def play(seed: int) -> None:
    kinds = FAULTS[seed % len(FAULTS)]
    disks = {"sync_ms": SYNC_MS[seed // len(FAULTS) % 2]}
    options: dict[str, Any] = {"kinds": kinds, "plain": Slow, "host_options": disks}
    outcome = _ToRest(seed, duration_ms=DURATION_MS, period_ms=PERIOD_MS, **options).play()
    for kind, count in outcome.faults.items():
        count_fault("simulated", kind, count)
    print(outcome.say())
    assert outcome.violations == [], outcome.say()
    assert outcome.num_acknowledged


@pytest.mark.parametrize("seed", range(4, 6))
def test_a_short_seed(seed: int) -> None:
    play(seed)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5_000, 5_100))
def test_a_long_seed(seed: int) -> None:
    play(seed)
