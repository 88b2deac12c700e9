"""Keyed deadlines: they move cheaply, fire once, and never for a member that left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.leader_state.timers import MOVED_MAX, Deadlines

A, B = ("g", "a"), ("g", "b")


def fired(timers: Deadlines, now_ms: float) -> list[tuple[str, str]]:
    return [key for key, _ in timers.take_due(now_ms)]


def test_a_timer_fires_at_its_deadline_and_not_before() -> None:
    timers = Deadlines()
    timers.arm(A, 100.0, 5, 50)
    assert timers.next_ms() == 150.0
    assert fired(timers, 149.9) == []
    assert fired(timers, 150.0) == [A]
    assert fired(timers, 1_000.0) == []


def test_a_cancelled_timer_never_fires_and_an_armed_one_after_it_does() -> None:
    timers = Deadlines()
    timers.arm(A, 0.0, 0, 50)
    timers.cancel(A)
    assert timers.next_ms() is None
    timers.arm(A, 10.0, 0, 50)
    assert fired(timers, 59.0) == []
    assert fired(timers, 60.0) == [A]


def test_a_restart_moves_the_deadline_and_a_shorter_timeout_brings_it_forward() -> None:
    timers = Deadlines()
    timers.arm(A, 0.0, 0, 50)
    timer = timers.get(A)
    assert timer is not None
    timer.restart(40.0, 40)
    assert fired(timers, 89.9) == []
    assert timers.next_ms() == 90.0
    timers.arm(A, 40.0, 40, 10)
    assert timers.next_ms() == 50.0
    assert fired(timers, 50.0) == [A]


def test_shifted_timers_keep_their_order() -> None:
    timers = Deadlines()
    timers.arm(A, 0.0, 0, 50)
    timers.arm(B, 0.0, 0, 20)
    timers.shift(1_000.0)
    assert fired(timers, 1_049.0) == [B]
    assert fired(timers, 1_050.0) == [A]


def test_evidence_is_in_wall_clock_times() -> None:
    timers = Deadlines()
    timers.arm(A, 100.0, 5_000, 50, last_heartbeat_wall_ms=5_000)
    timers.shift(30.0)
    timer = timers.get(A)
    assert timer is not None
    expiry = timer.evidence("a")
    assert (expiry.timeout_ms, expiry.armed_ms, expiry.last_heartbeat_ms, expiry.deadline_ms) == (
        50, 5_000, 5_000, 5_080,
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["arm", "touch", "cancel"]), st.integers(1, 30))
    )
)
def test_against_a_plain_table(steps: list[tuple[str, str, int]]) -> None:
    timers, plain, now = Deadlines(), dict[tuple[str, str], float](), 0.0
    for name, action, amount in steps:
        key = ("g", name)
        timer = timers.get(key)
        if action == "arm":
            timers.arm(key, now, 0, amount)
            plain[key] = now + amount
        elif action == "cancel":
            timers.cancel(key)
            plain.pop(key, None)
        elif timer is not None:
            timer.restart(now, 0)
            plain[key] = now + timer.timeout_ms
        now += amount / 3
        next_ms, earliest_ms = timers.next_ms(), min(plain.values(), default=None)
        assert (next_ms is None) == (earliest_ms is None)
        assert next_ms is None or earliest_ms is None or next_ms <= earliest_ms
        due = {key for key, deadline in plain.items() if deadline <= now}
        assert set(fired(timers, now)) == due
        for key in due:
            del plain[key]


def test_many_that_were_heard_are_moved_some_at_a_time() -> None:
    """The search for the next deadline moves none of them, so no request waits for thousands of others."""
    timers = Deadlines()
    members = [("g", str(number)) for number in range(2 * MOVED_MAX + 10)]
    for key in members:
        timers.arm(key, 0.0, 0, 50)
    silent = members.pop()
    for key in members:
        timer = timers.get(key)
        assert timer is not None
        timer.restart(40.0, 40)
    seen, calls = [], 0
    while (next_ms := timers.next_ms()) is not None and next_ms <= 50.0:
        seen += fired(timers, 50.0)
        calls += 1
    assert (seen, calls, timers.next_ms()) == ([silent], 3, 90.0)


def test_a_table_is_empty_at_once_and_let_go_of_in_steps() -> None:
    timers = Deadlines()
    for number in range(2_500):
        timers.arm(("g", str(number)), 0.0, 0, 50)
    steps = timers.clear()
    assert (len(timers), timers.next_ms()) == (0, None)
    timers.arm(A, 10.0, 0, 50)
    assert len(list(steps)) == 6, "three for the table, three for the heap"
    assert fired(timers, 60.0) == [A]


def test_members_that_come_and_go_leave_nothing_behind() -> None:
    """A key that is armed and cancelled a thousand times, or armed anew, keeps a heap of its size."""
    timers = Deadlines()
    for now_ms in range(1_000):
        timers.arm(A, now_ms, 0, 45_000)
        timers.arm(B, now_ms, 0, 60_000)
        timers.cancel(A)
    assert len(timers) == 1
    assert timers.heap_size < 100
    assert timers.next_ms() == 999 + 60_000
