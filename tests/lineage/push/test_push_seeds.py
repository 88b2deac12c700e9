"""Random lives of a push group: what must hold of each entry and at each time, and every transition taken."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.state.projection import Projection
from lineage.push import consumer, machines, protocol
from lineage.push.decisions import Failover
from records import RawRecord, Stamped, compact
from tests.support.push_world import PushWorld, play
from tests.support.replaying import every_prefix, every_window

MODES = tuple(Failover)
WINDOWED_SEEDS = 6
WINDOWED_RECORDS = 40
"""Records of a log of which every window is compacted: there are about a quarter of their square."""


class TakenTransitions(dict):
    """A table of transitions that counts what is looked up."""

    def __init__(self, table: dict) -> None:
        super().__init__(table)
        self.taken = Counter()

    def __getitem__(self, key: object) -> object:
        self.taken[key] += 1
        return super().__getitem__(key)


def replayed(entries: list[tuple[int, RawRecord]]) -> Projection:
    projection = Projection()
    for index, raw in entries:
        projection.apply(raw, index)
    return projection


def check_log(world: PushWorld) -> None:
    """Live equals replay at every index, and a snapshot taken anywhere loads to the same state."""
    entries = [(index, raw) for index, (_, raws) in enumerate(world.view.log, 1) for raw in raws]
    projection = Projection()
    for index, (_, raws) in enumerate(world.view.log, 1):
        projection.apply_all(raws, index)
        assert projection.state_hash == world.view.hashes[index - 1], f"live and replay differ at {index}"
    for cut in {len(entries) // 4, len(entries) // 2, len(entries)}:
        stamped = [Stamped(index, index, raw) for index, raw in entries[:cut]]
        snapshot = compact(stamped, now_ms=len(entries), delete_retention_ms=0)
        loaded = replayed([(one.index, one.record) for one in snapshot] + entries[cut:])
        assert loaded.state_hash == projection.state_hash, f"a snapshot at {cut} loads to another state"
        assert loaded.old_groups == projection.old_groups


def play_all(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play, check, and demand that every transition of both tables was taken."""
    seen_by_coordinator = TakenTransitions(machines.CONSUMER_TRANSITIONS)
    seen_by_itself = TakenTransitions(machines.SELF_TRANSITIONS)
    monkeypatch.setattr(protocol, "CONSUMER_TRANSITIONS", seen_by_coordinator)
    monkeypatch.setattr(consumer, "SELF_TRANSITIONS", seen_by_itself)
    for seed in seeds:
        check_log(play(seed, MODES[seed % 2]))
    for table in (seen_by_coordinator, seen_by_itself):
        assert not [key for key in table if not table.taken[key]]


@pytest.mark.thorough
def test_every_life_keeps_the_rules_and_together_they_take_every_transition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play_all(range(200), monkeypatch)


def states(logs: list[list[RawRecord]], last_index: int) -> set[int]:
    """The states that these logs load to."""
    return {replayed([(last_index, raw) for raw in log]).state_hash for log in logs}


@pytest.mark.parametrize("failover", MODES)
def test_every_window_of_compaction_loads_to_the_same_state(failover: Failover) -> None:
    for seed in range(WINDOWED_SEEDS):
        log = play(seed, failover).view.log
        stamped = [Stamped(index, index, raw) for index, (_, raws) in enumerate(log, 1) for raw in raws]
        assert len(stamped) > WINDOWED_RECORDS
        assert len(states(every_prefix(stamped), len(log))) == 1, seed
        assert len(states(every_window(stamped[:WINDOWED_RECORDS]), WINDOWED_RECORDS)) == 1, seed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_more_lives_keep_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    play_all(range(1_000, 2_000), monkeypatch)


def test_a_seed_gives_the_same_log_again() -> None:
    first, second = play(7, Failover.LOG), play(7, Failover.LOG)
    assert first.view.log == second.view.log
    assert len(first.view.log) > 10
    assert (first.num_messages, first.done_twice) == (second.num_messages, second.done_twice)
