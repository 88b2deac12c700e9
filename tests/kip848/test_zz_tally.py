"""Runs last: every transition, reason and error within scope must have occurred in this suite."""

from __future__ import annotations

import pytest

from coordinator.state.machines import MEMBER_TRANSITIONS
from records import ReasonKind
from tests.support.world import TALLY
from wire.errors import ErrorCode

TRANSITIONS = {("transition", f"{state.name}, {finding.name}") for state, finding in MEMBER_TRANSITIONS}

NOT_OF_CONSUMER_GROUPS = {
    ReasonKind.MEMBER_REMOVED,
    ReasonKind.GROUP_UPGRADED,
    ReasonKind.GROUP_DOWNGRADED,
    ReasonKind.LEADER_REJOINED,
    ReasonKind.MEMBER_REPLACED,
    ReasonKind.JOIN_TIMED_OUT,
    ReasonKind.SYNC_TIMED_OUT,
    ReasonKind.MEMBER_REJOINED,
}
"""Reasons of operators, of classic groups (tests/classic), of changes between the protocols, and of the old
protocols (tests/lineage)."""

REASONS = {("reason", kind.name) for kind in ReasonKind if kind not in NOT_OF_CONSUMER_GROUPS}

ERRORS = {
    ("heartbeat error", code.name)
    for code in (
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    )
}


def test_every_transition_reason_and_error_in_scope_has_occurred(request: pytest.FixtureRequest) -> None:
    modules = {item.path.name for item in request.session.items if item.path.parent.name == "kip848"}
    if len(modules) < len(list(request.path.parent.glob("test_*.py"))):
        pytest.skip("only meaningful when the whole suite runs")
    never = {what for what in TRANSITIONS | REASONS | ERRORS if not TALLY[what]}
    assert not never
