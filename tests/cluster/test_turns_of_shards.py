"""Work that many shards have at once does not make turns longer, and no shard starves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cluster.runtime.group_duties import GroupRuntime
from cluster.runtime.slices import SHARE_MS, SLICE_MS
from tests.cluster.fakes import Bench
from tests.support.requests import join_request

NUM_SHARDS = 16
NUM_GROUPS = 60
"""Groups in each shard."""
STEP_MS = 0.1
"""Milliseconds that pass at each reading of the clock."""
TURN_MS = SLICE_MS + SHARE_MS + 20 * STEP_MS
"""The longest a turn may take, with the last step of each kind of work and the clock readings between."""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A node that leads many shards, each with `NUM_GROUPS` groups of one member."""
    bench = Bench(monkeypatch, num_shards=NUM_SHARDS)
    for runtime in (bench.metadata, *bench.shards):
        bench.log(runtime).lead()
    for number, runtime in enumerate(bench.shards):
        for group in range(NUM_GROUPS):
            bench.heartbeat(join_request(f"group-{number}-{group}", "one", "orders"), shard=number)
        bench.log(runtime).commit()
    return bench


def turns_until(bench: Bench, is_over: Callable[[], bool]) -> list[float]:
    """Return the duration of each turn until `is_over`; every step reads the clock."""
    turns: list[float] = []

    def look(began_ms: float) -> None:
        now_ms = bench.host.monotonic_ms()
        turns.append(now_ms - began_ms)
        if not is_over():
            bench.host.call_soon(look, now_ms)

    bench.host.clock_step_ms = STEP_MS
    bench.host.call_soon(look, bench.world.now_ms)
    assert bench.world.run_until(is_over, within_ms=10_000)
    bench.host.clock_step_ms = 0.0
    return turns


def lose_all(bench: Bench) -> None:
    for runtime in bench.shards:
        bench.log(runtime).lose()


def lead_all(bench: Bench) -> None:
    for runtime in bench.shards:
        bench.log(runtime).lead()


def has_room(bench: Bench, runtime: GroupRuntime) -> bool:
    runtime.requests.observe_room(bench.world.now_ms)
    return runtime.requests.has_room


def test_all_shards_that_are_taken_over_at_once_become_ready_in_bounded_turns(bench: Bench) -> None:
    lose_all(bench)
    bench.later(1_000)
    bench.host.call_soon(lead_all, bench)
    turns = turns_until(bench, lambda: all(runtime.is_ready for runtime in bench.shards))
    assert sum(turns) > NUM_SHARDS * NUM_GROUPS * STEP_MS
    assert max(turns) <= TURN_MS


def test_sessions_that_all_shards_renew_at_once_are_renewed_in_bounded_turns(bench: Bench) -> None:
    for runtime in bench.shards:
        bench.log(runtime).can_append = False
        bench.heartbeat(join_request("more", "one", "orders"), shard=runtime.shard)
    bench.later(10_000)

    def room_again() -> None:
        for runtime in bench.shards:
            bench.log(runtime).can_append = True
            has_room(bench, runtime)

    bench.host.call_soon(room_again)
    turns = turns_until(
        bench, lambda: sum(has_room(bench, runtime) for runtime in bench.shards) == NUM_SHARDS
    )
    assert sum(turns) > NUM_SHARDS * NUM_GROUPS * STEP_MS
    assert max(turns) <= TURN_MS


def test_what_is_due_in_all_shards_at_once_is_decided_in_bounded_turns(bench: Bench) -> None:
    """No member has sent a heartbeat for longer than a session, and all groups were last checked long ago."""
    bench.later(44_000)
    before = [len(bench.log(runtime).bodies) for runtime in bench.shards]

    def expired() -> bool:
        return all(
            len(bench.log(runtime).bodies) >= had + NUM_GROUPS
            for runtime, had in zip(bench.shards, before, strict=True)
        )

    turns = turns_until(bench, expired)
    assert sum(turns) > NUM_SHARDS * NUM_GROUPS * STEP_MS
    assert max(turns) <= TURN_MS


def test_projections_of_all_shards_that_are_not_needed_any_more_go_in_bounded_turns(bench: Bench) -> None:
    lose_all(bench)
    old = [runtime.machine.projection for runtime in bench.shards]

    def reset_all() -> None:
        for runtime in bench.shards:
            bench.log(runtime).machine.reset()

    bench.host.call_soon(reset_all)
    turns = turns_until(bench, lambda: not any(projection.groups for projection in old))
    assert max(turns) <= TURN_MS
