"""Groups of the older protocols under random faults in virtual time (`tests.cluster.old_lives`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from lineage.push.rounds import divide
from lineage.rewrite.groups import LiveGroup
from tests.cluster.old_lives import LOOK_MS, VARIANTS, OldLife
from tests.report import count_fault

LIFE_MS = 15_000.0
SEEDS, SEEDS_OF_CHAOS = 4, 246
"""For each variant."""


def play(variant: str, seeds: range) -> None:
    faults: Counter[str] = Counter()
    acknowledged = 0
    for seed in seeds:
        life = OldLife(seed, variant)
        try:
            life.play(LIFE_MS)
        except BaseException as error:
            raise AssertionError(f"seed {seed} of {variant}") from error
        faults += life.faults
        acknowledged += len(life.acknowledged)
    for kind, count in sorted(faults.items()):
        count_fault("cluster", f"old groups: {kind}", count)
    assert acknowledged > 50 * len(seeds)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_partition_has_one_owner_that_is_heard_under_all_faults(variant: str) -> None:
    play(variant, range(SEEDS))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_partition_has_one_owner_that_is_heard_in_a_thousand_lives(variant: str) -> None:
    play(variant, range(SEEDS, SEEDS + SEEDS_OF_CHAOS))


def finds_two_owners(variant: str) -> bool:
    """Whether consumers that join one after the other are seen to share a partition."""
    life = OldLife(0, variant)
    for _ in range(4):
        life.join()
        for _ in range(100):
            life.world.run_for(LOOK_MS)
            try:
                life.look()
            except AssertionError:
                return True
    return False


def test_the_search_finds_a_generation_that_does_not_wait_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not finds_two_owners("design")
    joined = property(lambda group: bool(group.waiting or group.newcomers))
    monkeypatch.setattr(LiveGroup, "has_all_joined", joined)
    assert finds_two_owners("design")


def test_the_search_finds_a_partition_that_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not finds_two_owners("log")

    def twice(consumer_ids: Sequence[str], *others: Any) -> dict[str, Any]:
        (share,) = divide(["all"], *others).values()
        return dict.fromkeys(consumer_ids, share)

    monkeypatch.setattr("lineage.push.protocol.divide", twice)
    assert finds_two_owners("log")
