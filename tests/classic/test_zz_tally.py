"""Runs last: every transition and every reason of classic groups must have occurred in this suite."""

from __future__ import annotations

import pytest

from coordinator.state.machines import CLASSIC_TRANSITIONS
from records import ReasonKind
from tests.support.world import TALLY

REASONS = {
    ReasonKind.MEMBER_JOINED,
    ReasonKind.MEMBER_LEFT,
    ReasonKind.MEMBER_REMOVED,
    ReasonKind.SESSION_EXPIRED,
    ReasonKind.SUBSCRIPTION_CHANGED,
    ReasonKind.LEADER_REJOINED,
    ReasonKind.MEMBER_REPLACED,
    ReasonKind.JOIN_TIMED_OUT,
    ReasonKind.SYNC_TIMED_OUT,
}
TRANSITIONS = {("classic", f"{state.name}, {to.name}") for state, to in CLASSIC_TRANSITIONS}


def test_every_transition_and_reason_has_occurred(request: pytest.FixtureRequest) -> None:
    modules = {item.path.name for item in request.session.items if item.path.parent.name == "classic"}
    if len(modules) < len(list(request.path.parent.glob("test_*.py"))):
        pytest.skip("only meaningful when the whole suite runs")
    never = {what for what in TRANSITIONS | {("reason", kind.name) for kind in REASONS} if not TALLY[what]}
    assert not never
