"""The table of a member's states: complete, walked by every arrow of both drawings, and in the docs."""

from __future__ import annotations

import pytest

from client.core.member.drawings import FIRST_DRAWING, NAMES, SECOND_DRAWING, Arrow, GroupState, group_state
from client.core.member.states import FATAL_ERRORS, IN_GROUP, TRANSITIONS, MemberEvent, MemberState

from .settings_section import PAGE
from .states_section import replaced

THREADING = {"NEW", "JOINING", "JOINED", "ASSIGNING", "TERMINATING", "TERMINATED"}
LISTED = {
    "UNSUBSCRIBE", "JOINING", "STABLE", "RECONCILE_ASSIGNMENT", "ACK_ASSIGNMENT", "UNSUBSCRIBING", "LEAVING",
    "FENCED", "FATAL",
}  # fmt: skip
DRAWN = {
    "NOT_IN_GROUP", "UNJOINED", "STABLE", "RECONCILING", "RECONCILIATION_COMPLETE", "RELEASING_ASSIGNMENT",
    "FATAL",
}  # fmt: skip
ARROWS = [*FIRST_DRAWING, *SECOND_DRAWING]
NOT_AS_DRAWN = {
    ("STABLE", "RECONCILING", "Consumer.unsubscribe()"),
    ("RECONCILIATION_COMPLETE", "UNJOINED", "unsubscribe()"),
}


def walk(state: MemberState, path: tuple[MemberEvent, ...]) -> MemberState:
    for event in path:
        state = TRANSITIONS[state, event]
    return state


def test_the_page_shows_the_table() -> None:
    assert PAGE.read_text() == replaced(PAGE.read_text()), "run python -m tests.client.states_section"


def test_each_state_has_its_other_names_and_no_name_is_left_out() -> None:
    assert NAMES.keys() == set(MemberState)
    rows = NAMES.values()
    assert {row.threading for row in rows} - {""} == THREADING
    assert {row.listed for row in rows} - {""} == LISTED
    assert {row.drawn for row in rows} - {""} == DRAWN
    assert {row.group for row in rows} == set(GroupState)
    assert [group_state(state).name for state in IN_GROUP if state.name == "STABLE"] == ["STABLE"]


@pytest.mark.parametrize("arrow", ARROWS, ids=lambda arrow: f"{arrow.start}-{arrow.end}-{arrow.label[:12]}")
def test_each_arrow_of_the_drawings_can_be_walked_or_has_a_reason(arrow: Arrow) -> None:
    for state in arrow.states:
        assert walk(state, arrow.path) is arrow.ends_in
    if arrow.start not in ("[*]", "RECONCILIATION_LOOP", "RELEASING_ASSIGNMENT_COMPLETE"):
        (state,) = arrow.states
        assert arrow.start in NAMES[state][2:]
    ends_as_drawn = arrow.end in (*NAMES[arrow.ends_in][2:], "[*]", "RELEASING_ASSIGNMENT_COMPLETE")
    assert ends_as_drawn is not bool(arrow.reason)
    assert bool(arrow.reason) == ((arrow.start, arrow.end, arrow.label) in NOT_AS_DRAWN)


def test_both_drawings_are_there_with_all_their_arrows() -> None:
    """Thirteen arrows and nineteen, of which the second drawing has one twice."""
    assert (len(set(FIRST_DRAWING)), len(set(SECOND_DRAWING))) == (13, 18)


def test_each_state_can_be_reached_and_only_a_fatal_error_is_the_end() -> None:
    reached = {MemberState.UNSUBSCRIBED}
    while new := {to for (state, _), to in TRANSITIONS.items() if state in reached} - reached:
        reached |= new
    assert reached == set(MemberState)
    assert set(TRANSITIONS.values()) - {state for state, _ in TRANSITIONS} == {MemberState.FATAL}


def test_each_fence_leads_back_to_stable() -> None:
    for state in IN_GROUP:
        assert (
            walk(state, (MemberEvent.FENCED, MemberEvent.RELEASED, MemberEvent.ADMITTED))
            is MemberState.STABLE
        )


def test_each_state_of_the_group_can_leave_be_fenced_become_stale_and_fail() -> None:
    for event in (MemberEvent.UNSUBSCRIBED, MemberEvent.FENCED, MemberEvent.EXPIRED, MemberEvent.FAILED):
        assert all((state, event) in TRANSITIONS for state in IN_GROUP)


def test_each_fatal_error_has_a_sentence() -> None:
    for code, sentence in FATAL_ERRORS.items():
        assert sentence[0].isupper(), code
        assert not sentence.endswith("."), code
