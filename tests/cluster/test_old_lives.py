"""Groups of the older protocols under random faults in virtual time (`tests.cluster.old_lives`)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.cluster.old_lives import VARIANTS, OldLife
from tests.report import count_fault

LIFE_MS = 15_000.0
SEEDS, SEEDS_OF_CHAOS = 8, 1_000
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
