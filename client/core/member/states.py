"""The states of a member, and every transition between them.

A consumer that subscribes is a member of its group until it leaves. The coordinator decides what it owns; the
member's part is to say where it is on the way there. It joins (JOINING), takes an assignment by giving up
first and taking only then (RECONCILING), tells the coordinator so (ACKNOWLEDGING), and is STABLE. It stops
being a member in one of four ways: it leaves (PREPARE_LEAVING while its callbacks run, LEAVING while the
coordinator is told), the coordinator removed it (FENCED), its application does not poll (STALE), or it met
an error that trying again does not mend (FATAL). The names are the Java client's; `drawings` has those of
earlier designs.

Invariants: `MembershipManager` changes states only by this table; a pair that the table lacks is a bug of
this client, not of a server, and raises. Heartbeats are sent in the states of `IN_GROUP` only.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from wire.errors import ErrorCode


class MemberState(Enum):
    """A state; the value says what it means and what ends it."""

    UNSUBSCRIBED = "not in a group"
    JOINING = "a heartbeat with epoch 0 is sent until the coordinator answers with an epoch"
    RECONCILING = "gives up and takes partitions, with their callbacks, until it owns what it is assigned"
    ACKNOWLEDGING = "the next heartbeat leaves at once and names all that it owns"
    STABLE = "owns what it is assigned; sends heartbeats"
    FENCED = "removed by the coordinator: on_lost runs, then it joins again"
    STALE = "left because poll() was not called in time: on_lost runs, and poll() joins again"
    PREPARE_LEAVING = "unsubscribe() or close(): commits and callbacks run, still as a member"
    LEAVING = "the coordinator is told; its answer, or the deadline, ends it"
    FATAL = "met an error that trying again does not mend; every poll() raises it"


class MemberEvent(Enum):
    """A cause of a transition."""

    SUBSCRIBED = "subscribe()"
    HEARTBEAT_SENT = "a heartbeat is sent"
    ADMITTED = "the join is answered, with nothing to reconcile"
    ASSIGNED = "the assignment is not what the member owns"
    RECONCILED = "it owns what it is assigned, and the callbacks have ended"
    FENCED = "the coordinator does not know the member, or not with this epoch"
    RELEASED = "the callback for all that it had has ended"
    UNSUBSCRIBED = "unsubscribe() or close()"
    LEFT = "the coordinator has answered that it left, or there is nothing to wait for"
    EXPIRED = "max.poll.interval.ms passed without poll()"
    POLLED = "poll() again, and the callback has ended"
    FAILED = "a fatal error"


_S, _E = MemberState, MemberEvent

IN_GROUP: Final = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
"""The states of a member that is in the group or on its way into it, and means to stay."""

TRANSITIONS: Final[dict[tuple[MemberState, MemberEvent], MemberState]] = {
    (_S.UNSUBSCRIBED, _E.SUBSCRIBED): _S.JOINING,
    (_S.JOINING, _E.HEARTBEAT_SENT): _S.JOINING,
    (_S.JOINING, _E.ADMITTED): _S.STABLE,
    (_S.JOINING, _E.ASSIGNED): _S.RECONCILING,
    (_S.STABLE, _E.HEARTBEAT_SENT): _S.STABLE,
    (_S.STABLE, _E.ASSIGNED): _S.RECONCILING,
    (_S.RECONCILING, _E.HEARTBEAT_SENT): _S.RECONCILING,
    (_S.RECONCILING, _E.ASSIGNED): _S.RECONCILING,
    (_S.RECONCILING, _E.RECONCILED): _S.ACKNOWLEDGING,
    (_S.ACKNOWLEDGING, _E.HEARTBEAT_SENT): _S.STABLE,
    (_S.ACKNOWLEDGING, _E.ASSIGNED): _S.RECONCILING,
    **{(state, _E.FENCED): _S.FENCED for state in _S if state in IN_GROUP},
    (_S.FENCED, _E.RELEASED): _S.JOINING,
    **{(state, _E.EXPIRED): _S.STALE for state in _S if state in IN_GROUP},
    (_S.STALE, _E.POLLED): _S.JOINING,
    **{(state, _E.UNSUBSCRIBED): _S.PREPARE_LEAVING for state in _S if state in IN_GROUP},
    (_S.FENCED, _E.UNSUBSCRIBED): _S.PREPARE_LEAVING,
    (_S.STALE, _E.UNSUBSCRIBED): _S.PREPARE_LEAVING,
    (_S.PREPARE_LEAVING, _E.HEARTBEAT_SENT): _S.PREPARE_LEAVING,
    (_S.PREPARE_LEAVING, _E.FENCED): _S.PREPARE_LEAVING,
    (_S.PREPARE_LEAVING, _E.RELEASED): _S.LEAVING,
    (_S.LEAVING, _E.LEFT): _S.UNSUBSCRIBED,
    **{
        (state, _E.FAILED): _S.FATAL
        for state in _S
        if state in IN_GROUP | {_S.FENCED, _S.STALE, _S.PREPARE_LEAVING}
    },
}
"""The next state by state and cause."""

_C = ErrorCode

FENCING: Final = (_C.UNKNOWN_MEMBER_ID, _C.FENCED_MEMBER_EPOCH)
"""The member joins again with the same id. GROUP_ID_NOT_FOUND does the same to a member that has joined:
its group was deleted."""

COORDINATOR_MOVED: Final = (_C.NOT_COORDINATOR, _C.COORDINATOR_NOT_AVAILABLE)
"""The coordinator is looked for again."""

FATAL_ERRORS: Final[dict[int, str]] = {
    _C.GROUP_AUTHORIZATION_FAILED: "The client may not read the group. Grant READ on it to its principal",
    _C.INVALID_REQUEST: "The coordinator refused the heartbeat as invalid",
    _C.INVALID_GROUP_ID: "The group id is empty or not allowed. Set group.id",
    _C.GROUP_MAX_SIZE_REACHED: "The group is full. Raise group.consumer.max.size, or start fewer consumers",
    _C.UNSUPPORTED_ASSIGNOR: "The coordinator does not have the assignor of group.remote.assignor",
    _C.UNRELEASED_INSTANCE_ID: (
        "Another consumer uses this group.instance.id and has not left. Give each consumer its own. If it is "
        "this one's former process, which has crashed, start again when the session of that one is over "
        "(consumer.session.timeout.ms of the group, 45 s by default)"
    ),
    _C.FENCED_INSTANCE_ID: (
        "Another consumer has taken over this group.instance.id. Give each consumer its own"
    ),
    _C.INVALID_REGULAR_EXPRESSION: "The subscription is not a regular expression of RE2",
    _C.UNSUPPORTED_VERSION: (
        "The coordinator does not serve the consumer protocol (KIP-848), or not in a version that has this "
        "subscription. Apache Kafka 4.0 and Quorate do"
    ),
    _C.GROUP_ID_NOT_FOUND: (
        "The group exists with another protocol or type, and its members cannot be migrated. Use another "
        "group.id, or stop its members first"
    ),
    _C.UNKNOWN_SERVER_ERROR: "The coordinator failed on the heartbeat. Its log has the reason",
}
"""Advice for each error that trying again does not mend."""

NO_LEASES: Final = (
    "The coordinator gives no fencing tokens, and leases without them would not keep late writes out. "
    "Quorate has them from this release on, Apache Kafka has none"
)
"""The sentence for a lease whose coordinator does not know the heartbeat with tokens."""

UNKNOWN_ERROR: Final = "The coordinator answered with an error that this client cannot handle"
"""The sentence for a code that neither `FATAL_ERRORS` nor the heartbeat's handling has; it is fatal too."""

TOPIC_REFUSED: Final = (
    "The client may not read a topic of its subscription. Grant DESCRIBE and READ on it; until then the "
    "member goes on trying"
)
"""The sentence for TOPIC_AUTHORIZATION_FAILED: the next poll() raises it, and the member stays as it is."""
