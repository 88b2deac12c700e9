"""Reconciliation as a pure function: every row of the member's table, and what holds for any input."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.state.machines import MEMBER_TRANSITIONS, Finding, member_state, member_transition
from coordinator.state.reconcile import NOT_REPORTED, NOTHING_SAID, Current, Report, Target, reconcile
from records import MemberState

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)
SUBSCRIBED = frozenset([T, U])


def current(state: MemberState, epoch: int, assigned: list[int] = (), pending: list[int] = ()) -> Current:  # type: ignore[assignment]
    return Current(
        state,
        epoch,
        epoch - 1,
        {T: dict.fromkeys(assigned, epoch)} if assigned else {},
        {T: dict.fromkeys(pending, epoch)} if pending else {},
    )


def step(
    now: Current,
    target_epoch: int,
    target: list[int],
    owned: list[int] | None,
    others: list[int] = (),  # type: ignore[assignment]
) -> Current:
    had = frozenset(p for part in (now.assigned, now.pending) for p in part.get(T, ()))
    report = NOTHING_SAID if owned is None else Report({T: frozenset(owned)}, now.epoch, {T: had})
    mine = {p: "me" for part in (now.assigned, now.pending) for p in part.get(T, ())}
    owners = {T: {**dict.fromkeys(others, "other"), **mine}}
    return reconcile(
        "me",
        now,
        Target(target_epoch, {T: tuple(target)} if target else {}, SUBSCRIBED, SUBSCRIBED),
        report,
        owners,
    )


ROWS = [
    # now, target, owned, others own -> state, epoch, assigned, pending
    (current(STABLE, 1, [0, 1]), 2, [0, 1, 2], None, [], STABLE, 2, [0, 1, 2], []),
    (current(STABLE, 1, [0, 1]), 2, [0], None, [], UNREVOKED, 1, [0], [1]),
    (current(STABLE, 1, [0, 1]), 2, [0], [0], [], STABLE, 2, [0], []),
    (current(STABLE, 1, [0]), 2, [0, 1], None, [1], UNRELEASED, 2, [0], []),
    (current(STABLE, 1, [0]), 2, [0, 1, 2], None, [1], UNRELEASED, 2, [0, 2], []),
    (current(STABLE, 1, [0, 1]), 2, [0, 2], None, [], UNREVOKED, 1, [0], [1]),
    (current(UNREVOKED, 1, [0], [1]), 2, [0], [0, 1], [], UNREVOKED, 1, [0], [1]),
    (current(UNREVOKED, 1, [0], [1]), 2, [0], None, [], UNREVOKED, 1, [0], [1]),
    (current(UNREVOKED, 1, [0], [1]), 2, [0], [0], [], STABLE, 2, [0], []),
    (current(UNREVOKED, 1, [0], [1]), 2, [0, 2], [0], [2], UNRELEASED, 2, [0], []),
    (current(UNREVOKED, 1, [0], [1]), 3, [], [0], [], UNREVOKED, 1, [], [0]),
    (current(UNRELEASED, 2, [0]), 2, [0, 1], None, [], STABLE, 2, [0, 1], []),
    (current(UNRELEASED, 2, [0]), 2, [0, 1], None, [1], UNRELEASED, 2, [0], []),
    (current(UNRELEASED, 2, [0]), 3, [0, 1], None, [1], UNRELEASED, 3, [0], []),
    (current(UNRELEASED, 2, [0]), 3, [1], None, [1], UNREVOKED, 2, [], [0]),
]


@pytest.mark.parametrize(("now", "epoch", "target", "owned", "others", "state", "to", "has", "gives"), ROWS)
def test_transitions(
    now: Current, epoch: int, target: list[int], owned: list[int] | None, others: list[int],
    state: MemberState, to: int, has: list[int], gives: list[int],
) -> None:  # fmt: skip
    after = step(now, epoch, target, owned, others)
    assert (after.state, after.epoch) == (state, to)
    assert sorted(after.assigned.get(T, ())) == has
    assert sorted(after.pending.get(T, ())) == gives


def test_what_does_not_change_is_the_same_object() -> None:
    settled = current(STABLE, 2, [0])
    waiting = current(UNRELEASED, 2, [0])
    not_acked = current(UNREVOKED, 1, [0], [1])
    assert step(settled, 2, [0], None) is settled
    assert step(waiting, 2, [0, 1], None, [1]) is waiting, "a heartbeat that only waits writes nothing"
    assert step(not_acked, 2, [0], None) is not_acked


def test_own_pending_revocation_does_not_block() -> None:
    """KAFKA-19449: a newer target gives back what the member was asked to give up, and it did give it up."""
    after = step(current(UNREVOKED, 1, [0], [1]), 3, [0, 1], [0])
    assert (after.state, after.epoch, after.assigned[T]) == (STABLE, 3, {0: 1, 1: 3})


def test_partitions_of_unsubscribed_topics_are_taken_at_once() -> None:
    """KAFKA-19431: also when the target is still the old one."""
    now = Current(STABLE, 2, 1, {T: {0: 1}, U: {0: 2}})
    target = Target(2, {T: (0,), U: (0,)}, frozenset([T]), SUBSCRIBED)
    after = reconcile("me", now, target, NOTHING_SAID, {})
    assert (after.state, after.epoch, after.assigned, after.pending) == (
        UNREVOKED,
        2,
        {T: {0: 1}},
        {U: {0: 2}},
    )
    acked = reconcile("me", after, target, Report({T: frozenset([0])}, 2, is_told=True), {})
    assert (acked.state, acked.assigned, acked.pending) == (STABLE, {T: {0: 1}}, {})


def test_partitions_of_unsubscribed_topics_join_a_revocation_under_way() -> None:
    now = Current(UNREVOKED, 2, 1, {T: {0: 1}, U: {0: 2}}, {T: {1: 1}})
    after = reconcile("me", now, Target(3, {U: (0,)}, frozenset([T]), SUBSCRIBED), NOTHING_SAID, {})
    assert (after.state, after.assigned, after.pending) == (UNREVOKED, {T: {0: 1}}, {T: {1: 1}, U: {0: 2}})


def test_given_partitions_carry_the_target_epoch_and_kept_ones_theirs() -> None:
    """KIP-1251."""
    after = step(current(STABLE, 4, [0]), 7, [0, 1], None)
    assert after.assigned[T] == {0: 4, 1: 7}


def test_the_table_refuses_what_cannot_happen() -> None:
    with pytest.raises(KeyError):
        member_transition(MemberState.UNKNOWN, Finding.MUST_REVOKE)
    assert member_state(9) is MemberState.UNKNOWN
    assert {state for state, _ in MEMBER_TRANSITIONS} == set(MemberState)


numbers = st.sets(st.integers(0, 5))


@given(
    st.sampled_from([STABLE, UNREVOKED, UNRELEASED]), numbers, numbers, numbers, numbers, st.none() | numbers,
    st.integers(0, 2),
)  # fmt: skip
def test_partitions_of_other_members_are_never_given(
    state: MemberState, assigned: set[int], pending: set[int], target: set[int], others: set[int],
    owned: set[int] | None, newer: int,
) -> None:  # fmt: skip
    pending = pending - assigned if state is UNREVOKED else set()
    if state is UNREVOKED and not pending:
        return
    others = others - assigned - pending
    now = current(state, 3, sorted(assigned), sorted(pending))
    if state is STABLE and not newer:
        target = assigned  # what STABLE at the target epoch means
    after = step(now, 3 + newer, sorted(target), None if owned is None else sorted(owned), sorted(others))
    has, gives = set(after.assigned.get(T, ())), set(after.pending.get(T, ()))
    assert not (has | gives) & others
    assert not has & gives
    assert bool(gives) == (after.state is UNREVOKED)
    assert after.epoch in (3, 3 + newer)
    gained = has - assigned
    if gives:
        assert not gained, "nothing new before what is to be given up was given up"
    if after.state is STABLE and after is not now:
        assert has == target
    given_up = (assigned | pending) - has - gives
    assert owned is None or not given_up & owned or after is now, "nobody loses what it says it uses"
    if owned is None:
        assert not given_up


@given(
    st.sampled_from([STABLE, UNREVOKED, UNRELEASED]), numbers, numbers, numbers, st.none() | numbers,
    st.none() | numbers, st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_nothing_goes_that_its_member_was_not_told_of(
    state: MemberState, assigned: set[int], pending: set[int], target: set[int], owned: set[int] | None,
    before: set[int] | None, is_full: bool, is_told: bool, was_reported: bool,
) -> None:  # fmt: skip
    """An assigned partition first becomes pending, unless the report before had it and this one has not; a
    pending one that was never reported goes only where its member was told, and not by a full report."""
    pending = pending - assigned if state is UNREVOKED else set()
    now = current(state, 3, sorted(assigned), sorted(pending))
    if pending and not was_reported:
        now = replace(now, previous_epoch=NOT_REPORTED)
    report = Report(
        None if owned is None else {T: owned} if owned else {},
        3,
        None if before is None else {T: before} if before else {},
        is_full,
        is_told,
    )
    after = reconcile("me", now, Target(4, {T: tuple(sorted(target))}, SUBSCRIBED, SUBSCRIBED), report, {})
    has, gives = set(after.assigned.get(T, ())), set(after.pending.get(T, ()))
    gone = assigned - has - gives
    assert gone <= (before or set()) - (owned or set())
    if pending and not was_reported and (is_full or not is_told):
        assert (after.assigned, after.pending) == (now.assigned, now.pending)
    if after.state is UNREVOKED and after.previous_epoch != NOT_REPORTED and not (pending and was_reported):
        assert gives <= (before or set()) | (owned or set())
