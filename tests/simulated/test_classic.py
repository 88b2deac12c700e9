"""Groups of the classic protocol under chaos: eager, cooperative and static members.

The same must hold as for consumer groups: one owner of each partition as clients see it, nothing
acknowledged is lost, replicas are equal. Besides, no commit of an older generation than the one in the log is
accepted.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from client.classic_member import COOPERATIVE
from coordinator.leader_state.classic_groups import ClassicGroups, ClassicTimer
from records import Cause, OffsetCommitKey, OffsetCommitValue, Record, Trigger, encode_record
from tests.simulated.classic import CLASSIC, ClassicMember, Generations
from tests.simulated.run import MACHINE, TOPICS, Outcome, Run, outcome_of
from tests.support.classic_log import generation
from tests.support.memory_log import GROUP

SHORT_MS: Final = 15_000.0
LONG_MS: Final = 45_000.0
PERIOD_MS: Final = 500.0
ACKNOWLEDGED_MIN: Final = 300

PLAYED: Final = {Trigger.GENERATION_COMPLETED, Trigger.MEMBER_REPLACED, Trigger.OFFSETS_COMMITTED}
"""Triggers that a run must have had for every kind of member to have taken part."""


def classic_kinds(group_number: int, number: int) -> tuple[type[ClassicMember], dict[str, Any]]:
    """Groups of eager members, of cooperative ones, and of static ones of either kind."""
    how: dict[str, Any] = {"num_partitions": TOPICS, "is_static": group_number == 2 or number == 1}
    if group_number in (1, 3):
        how["protocol"] = COOPERATIVE
    return ClassicMember, how


def run_of(seed: int, duration_ms: float, initial_delay_ms: int = 0) -> Run:
    settings = MACHINE["settings"] | CLASSIC | {"group_initial_rebalance_delay_ms": initial_delay_ms}
    return Run(seed, duration_ms=duration_ms, period_ms=PERIOD_MS, kinds_of=classic_kinds, settings=settings)


def play(seed: int, duration_ms: float, initial_delay_ms: int = 0) -> Outcome:
    return outcome_of(run_of(seed, duration_ms, initial_delay_ms), ACKNOWLEDGED_MIN)


@pytest.mark.thorough
def test_every_part_is_played() -> None:
    played = play(501, SHORT_MS).triggers + play(502, SHORT_MS, initial_delay_ms=500).triggers
    assert PLAYED - {trigger for trigger, times in played.items() if times} == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(5_000, 5_030))
def test_a_long_seed(seed: int) -> None:
    play(seed, LONG_MS, initial_delay_ms=seed % 2 * 500)


def test_commits_of_former_generations_and_of_strangers_are_noticed() -> None:
    """The detector itself works."""
    generations = Generations()
    written = encode_record(generation(5, {"ann": (0, 1)}))
    key = OffsetCommitKey(group_id=GROUP, topic="orders", partition=0)
    commit = encode_record(Record(key, OffsetCommitValue(offset=1, commit_timestamp_ms=0)))

    def found(member_id: str, number: int) -> list[str]:
        cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id=member_id, member_epoch=number)
        return generations.entry(cause, [commit])

    assert not generations.entry(Cause(trigger=Trigger.GENERATION_COMPLETED), [written])
    assert not found("ann", 5)
    assert not found("", -1), "a tool"
    assert not found("bob", 6), "of a generation that is not written yet"
    assert found("ann", 4) == [f"ann commits in generation 4 of {GROUP}, whose newest is 5"]
    assert found("bob", 5)


def test_sessions_that_end_too_early_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The detector itself works."""
    arm = ClassicGroups.arm

    def arm_short(
        groups: Any, kind: ClassicTimer, group_id: str, timeout_ms: int, *args: Any, **how: Any
    ) -> None:
        arm(groups, kind, group_id, timeout_ms // 6, *args, **how)

    monkeypatch.setattr(ClassicGroups, "arm", arm_short)
    outcome = run_of(501, 6_000.0).play()
    assert any("was owned by" in violation for violation in outcome.violations), outcome.say()
