"""The member's states under other names: two earlier designs of the Java client, and their drawings.

`NAMES` is the dictionary; the two drawings have every arrow with the events that take it. An arrow that
this client does not take as drawn has a reason. Tests walk all of them through the table of states, and
docs/client.md is rendered from here.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from client.core.member.states import IN_GROUP, MemberEvent, MemberState

_S, _E = MemberState, MemberEvent


class GroupState(Enum):
    """The rebalance as the design of the consumer's threads names it: a view of the member's state."""

    UNJOINED = "there is no rebalance"
    PREPARE = "a heartbeat that joins is sent and its answer awaited"
    ASSIGN = "callbacks are triggered, and their end awaited"
    COMPLETE = "the callbacks have ended"
    STABLE = "stable group"


class StateNames(NamedTuple):
    """One state under its other names; empty where a design has no such state."""

    group: GroupState
    threading: str
    """The name in the design of the consumer's threads (its group member state machine)."""
    listed: str
    """The name in the list, and the first drawing, of the design of the member's states."""
    drawn: str
    """The name in that design's second drawing."""


NAMES: Final[dict[MemberState, StateNames]] = {
    _S.UNSUBSCRIBED: StateNames(GroupState.UNJOINED, "NEW", "UNSUBSCRIBE", "NOT_IN_GROUP"),
    _S.JOINING: StateNames(GroupState.PREPARE, "JOINING", "JOINING", "UNJOINED"),
    _S.RECONCILING: StateNames(GroupState.ASSIGN, "ASSIGNING", "RECONCILE_ASSIGNMENT", "RECONCILING"),
    _S.ACKNOWLEDGING: StateNames(
        GroupState.COMPLETE, "ASSIGNING", "ACK_ASSIGNMENT", "RECONCILIATION_COMPLETE"
    ),
    _S.STABLE: StateNames(GroupState.STABLE, "JOINED", "STABLE", "STABLE"),
    _S.FENCED: StateNames(GroupState.UNJOINED, "JOINING", "FENCED", "RELEASING_ASSIGNMENT"),
    _S.STALE: StateNames(GroupState.UNJOINED, "", "", ""),
    _S.PREPARE_LEAVING: StateNames(GroupState.ASSIGN, "TERMINATING", "UNSUBSCRIBING", ""),
    _S.LEAVING: StateNames(GroupState.UNJOINED, "TERMINATING", "LEAVING", ""),
    _S.FATAL: StateNames(GroupState.UNJOINED, "TERMINATED", "FATAL", "FATAL"),
}
"""Every state. RELEASING_ASSIGNMENT_COMPLETE is JOINING too, and TERMINATED is UNSUBSCRIBED after the end."""


class Arrow(NamedTuple):
    """One arrow of a drawing, and the way that this client takes."""

    start: str
    end: str
    label: str
    states: frozenset[MemberState]
    """The states that `start` stands for."""
    path: tuple[MemberEvent, ...]
    ends_in: MemberState
    reason: str = ""
    """The reason why the arrow is not taken as drawn; empty if it is."""


def _arrow(
    start: str, end: str, label: str, state: MemberState, *path: MemberEvent, to: MemberState
) -> Arrow:
    return Arrow(start, end, label, frozenset({state}), path, to)


FIRST_DRAWING: Final = (
    _arrow("JOINING", "STABLE", "", _S.JOINING, _E.ADMITTED, to=_S.STABLE),
    _arrow("JOINING", "RECONCILE_ASSIGNMENT", "", _S.JOINING, _E.ASSIGNED, to=_S.RECONCILING),
    _arrow("STABLE", "RECONCILE_ASSIGNMENT", "", _S.STABLE, _E.ASSIGNED, to=_S.RECONCILING),
    _arrow("RECONCILE_ASSIGNMENT", "ACK_ASSIGNMENT", "", _S.RECONCILING, _E.RECONCILED, to=_S.ACKNOWLEDGING),
    _arrow("ACK_ASSIGNMENT", "STABLE", "", _S.ACKNOWLEDGING, _E.HEARTBEAT_SENT, to=_S.STABLE),
    Arrow("[*]", "UNSUBSCRIBE", "", frozenset({_S.UNSUBSCRIBED}), (), _S.UNSUBSCRIBED),
    _arrow("UNSUBSCRIBE", "JOINING", "", _S.UNSUBSCRIBED, _E.SUBSCRIBED, to=_S.JOINING),
    Arrow("RECONCILIATION_LOOP", "LEAVING", "", IN_GROUP, (_E.UNSUBSCRIBED, _E.RELEASED), _S.LEAVING),
    Arrow("RECONCILIATION_LOOP", "FENCED", "", IN_GROUP, (_E.FENCED,), _S.FENCED),
    Arrow("RECONCILIATION_LOOP", "FATAL", "", IN_GROUP, (_E.FAILED,), _S.FATAL),
    _arrow("FENCED", "JOINING", "", _S.FENCED, _E.RELEASED, to=_S.JOINING),
    _arrow("LEAVING", "UNSUBSCRIBE", "", _S.LEAVING, _E.LEFT, to=_S.UNSUBSCRIBED),
    Arrow("FATAL", "[*]", "", frozenset({_S.FATAL}), (), _S.FATAL),
)
"""The drawing with the reconciliation loop."""

SECOND_DRAWING: Final = (
    Arrow("[*]", "NOT_IN_GROUP", "", frozenset({_S.UNSUBSCRIBED}), (), _S.UNSUBSCRIBED),
    _arrow("NOT_IN_GROUP", "UNJOINED", "Consumer.subscribe()", _S.UNSUBSCRIBED, _E.SUBSCRIBED, to=_S.JOINING),
    _arrow("UNJOINED", "UNJOINED", "Heartbeat on retries", _S.JOINING, _E.HEARTBEAT_SENT, to=_S.JOINING),
    _arrow("UNJOINED", "STABLE", "Heartbeat, epoch = 0", _S.JOINING, _E.ADMITTED, to=_S.STABLE),
    _arrow("UNJOINED", "FATAL", "", _S.JOINING, _E.FAILED, to=_S.FATAL),
    _arrow(
        "STABLE", "RECONCILING", "new assignment received, trigger callbacks", _S.STABLE, _E.ASSIGNED,
        to=_S.RECONCILING,
    ),
    Arrow(
        "STABLE", "RECONCILING", "Consumer.unsubscribe()", frozenset({_S.STABLE}), (_E.UNSUBSCRIBED,),
        _S.PREPARE_LEAVING,
        "A member that leaves gives up everything and takes no new assignment, so it has a state of its own: "
        "an assignment that arrives meanwhile must not be reconciled.",
    ),
    _arrow(
        "STABLE", "RELEASING_ASSIGNMENT", "on HB fencing error, reset epoch, trigger callbacks", _S.STABLE,
        _E.FENCED, to=_S.FENCED,
    ),
    _arrow("STABLE", "FATAL", "", _S.STABLE, _E.FAILED, to=_S.FATAL),
    _arrow("STABLE", "STABLE", "Heartbeat", _S.STABLE, _E.HEARTBEAT_SENT, to=_S.STABLE),
    _arrow("RECONCILING", "RECONCILING", "Heartbeat", _S.RECONCILING, _E.HEARTBEAT_SENT, to=_S.RECONCILING),
    _arrow(
        "RECONCILING", "RECONCILIATION_COMPLETE", "callback completed", _S.RECONCILING, _E.RECONCILED,
        to=_S.ACKNOWLEDGING,
    ),
    _arrow(
        "RECONCILIATION_COMPLETE", "STABLE",
        "Send heartbeat w/ full assignment, reset interval timer to heartbeat.interval.ms",
        _S.ACKNOWLEDGING, _E.HEARTBEAT_SENT, to=_S.STABLE,
    ),
    Arrow(
        "RECONCILIATION_COMPLETE", "UNJOINED", "unsubscribe()", frozenset({_S.ACKNOWLEDGING}),
        (_E.UNSUBSCRIBED,), _S.PREPARE_LEAVING,
        "UNJOINED joins the group, which unsubscribe() must not. The member gives up what it has and leaves, "
        "as from any other state.",
    ),
    _arrow(
        "RELEASING_ASSIGNMENT", "RELEASING_ASSIGNMENT_COMPLETE", "'onLost' callback completed", _S.FENCED,
        _E.RELEASED, to=_S.JOINING,
    ),
    _arrow(
        "RELEASING_ASSIGNMENT_COMPLETE", "UNJOINED", "Send out-of-interval HB", _S.JOINING, _E.HEARTBEAT_SENT,
        to=_S.JOINING,
    ),
    _arrow("RELEASING_ASSIGNMENT", "FATAL", "", _S.FENCED, _E.FAILED, to=_S.FATAL),
    Arrow("FATAL", "[*]", "", frozenset({_S.FATAL}), (), _S.FATAL),
)  # fmt: skip
"""The drawing with the callbacks; it draws RECONCILIATION_COMPLETE to STABLE twice."""


def group_state(state: MemberState) -> GroupState:
    """Return the rebalance state that a member's state stands for."""
    return NAMES[state].group
