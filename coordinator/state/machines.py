"""The state machines of groups and of transactions, as tables.

A *member* changes state by reconciliation (KIP-848, "Member's State Machine"). `MEMBER_TRANSITIONS` maps its
state and the finding of reconciliation to the next state and epoch; `coordinator.state.reconcile` computes
the finding. A *group's* state is never stored: it is the first row of `GROUP_STATES` whose condition holds.

docs/proofs/state-machines.md is rendered from these tables by `tests/state_machines.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from records import MemberState, TransactionState


class Finding(Enum):
    """Result of comparing a member with its target; the value is shown to readers of the state table."""

    SETTLED = "at the target epoch, subscribed to all topics it owns"
    NOT_ACKED = "has not acknowledged the pending revocation"
    MUST_REVOKE = "owns partitions outside its target that it has not revoked yet"
    BLOCKED = "nothing to revoke; partitions of its target are still owned by others"
    FREE = "nothing to revoke; all partitions of its target are free or its own"


class Epoch(Enum):
    """The member's epoch after the transition: unchanged, or that of the target."""

    SAME = "same"
    TARGET = "target"


@dataclass(frozen=True, slots=True)
class Transition:
    to: MemberState
    epoch: Epoch


_STABLE = MemberState.STABLE
_UNREVOKED = MemberState.UNREVOKED_PARTITIONS
_UNRELEASED = MemberState.UNRELEASED_PARTITIONS
_UNKNOWN = MemberState.UNKNOWN

MEMBER_TRANSITIONS: dict[tuple[MemberState, Finding], Transition] = {
    (_STABLE, Finding.SETTLED): Transition(_STABLE, Epoch.SAME),
    (_STABLE, Finding.FREE): Transition(_STABLE, Epoch.TARGET),
    (_STABLE, Finding.BLOCKED): Transition(_UNRELEASED, Epoch.TARGET),
    (_STABLE, Finding.MUST_REVOKE): Transition(_UNREVOKED, Epoch.SAME),
    (_UNREVOKED, Finding.NOT_ACKED): Transition(_UNREVOKED, Epoch.SAME),
    (_UNREVOKED, Finding.FREE): Transition(_STABLE, Epoch.TARGET),
    (_UNREVOKED, Finding.BLOCKED): Transition(_UNRELEASED, Epoch.TARGET),
    (_UNREVOKED, Finding.MUST_REVOKE): Transition(_UNREVOKED, Epoch.SAME),
    (_UNRELEASED, Finding.FREE): Transition(_STABLE, Epoch.TARGET),
    (_UNRELEASED, Finding.BLOCKED): Transition(_UNRELEASED, Epoch.TARGET),
    (_UNRELEASED, Finding.MUST_REVOKE): Transition(_UNREVOKED, Epoch.SAME),
    # A state byte of a newer release. Such a member is only served if it owns nothing; otherwise it is
    # fenced.
    (_UNKNOWN, Finding.FREE): Transition(_STABLE, Epoch.TARGET),
    (_UNKNOWN, Finding.BLOCKED): Transition(_UNRELEASED, Epoch.TARGET),
}


def member_transition(state: MemberState, finding: Finding) -> Transition:
    """Look up a transition. A pair that is not in the table cannot occur and raises KeyError."""
    return MEMBER_TRANSITIONS[state, finding]


_MEMBER_STATES = {int(state): state for state in MemberState}


def member_state(number: int) -> MemberState:
    """Decode the state number of a record; numbers of newer releases are UNKNOWN."""
    return _MEMBER_STATES.get(number, MemberState.UNKNOWN)


class GroupState(Enum):
    """States of a group, named as Kafka writes them in ListGroups and in the describe APIs."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class GroupFacts:
    """The values that determine the state of a consumer group."""

    has_members: bool
    epoch: int
    assignment_epoch: int
    all_members_settled: bool


@dataclass(frozen=True, slots=True)
class GroupStateRow:
    state: GroupState
    holds: Callable[[GroupFacts], bool]
    when: str


GROUP_STATES: tuple[GroupStateRow, ...] = (
    GroupStateRow(GroupState.EMPTY, lambda facts: not facts.has_members, "no members"),
    GroupStateRow(
        GroupState.ASSIGNING,
        lambda facts: facts.epoch > facts.assignment_epoch,
        "group epoch > assignment epoch: the target is not computed yet",
    ),
    GroupStateRow(
        GroupState.RECONCILING,
        lambda facts: not facts.all_members_settled,
        "some member is not STABLE at the assignment epoch",
    ),
    GroupStateRow(GroupState.STABLE, lambda facts: True, "every member is STABLE at the assignment epoch"),
)


def group_state(facts: GroupFacts) -> GroupState:
    """The state given by the first row that holds. DEAD is only reported for a group that does not exist."""
    return next(row.state for row in GROUP_STATES if row.holds(facts))


class ClassicState(Enum):
    """States of a group of the classic protocol, named as Kafka writes them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


CLASSIC_TRANSITIONS: dict[tuple[ClassicState, ClassicState], str] = {
    (ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE): "a member joins",
    (ClassicState.PREPARING_REBALANCE, ClassicState.COMPLETING_REBALANCE): "the join phase ends",
    (ClassicState.PREPARING_REBALANCE, ClassicState.EMPTY): "the join phase ends without members",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE): "the leader's assignments are written",
    (ClassicState.COMPLETING_REBALANCE, ClassicState.PREPARING_REBALANCE): (
        "a member joins, changes, leaves, expires or does not send SyncGroup in time"
    ),
    (ClassicState.STABLE, ClassicState.PREPARING_REBALANCE): "a member joins, changes, leaves or expires",
}
"""State of a classic group and its next state → what leads there. Any group may be deleted (DEAD)."""


@dataclass(slots=True)
class ClassicMemberFacts:
    """The values that determine whether a classic member of a consumer group has to join again."""

    epoch: int
    assignment_epoch: int
    state: MemberState
    waits: bool
    """Whether another member still owns a partition of its target."""


@dataclass(frozen=True, slots=True)
class JoinAgainRow:
    holds: Callable[[ClassicMemberFacts], bool]
    when: str


JOIN_AGAIN: tuple[JoinAgainRow, ...] = (
    JoinAgainRow(
        lambda facts: facts.epoch < facts.assignment_epoch,
        "its epoch is below the assignment epoch: there is a newer target",
    ),
    JoinAgainRow(
        lambda facts: facts.state is _UNREVOKED,
        "it has to give up partitions, and acknowledges that by joining again",
    ),
    JoinAgainRow(
        lambda facts: facts.state is _UNRELEASED and not facts.waits,
        "all partitions that it waited for are free",
    ),
)
"""The cases in which a classic member's Heartbeat in a consumer group is answered REBALANCE_IN_PROGRESS."""


def must_join_again(facts: ClassicMemberFacts) -> bool:
    return any(row.holds(facts) for row in JOIN_AGAIN)


TRANSACTION_TRANSITIONS: dict[tuple[TransactionState, TransactionState], str] = {
    (TransactionState.EMPTY, TransactionState.EMPTY): "a producer is initialized",
    (TransactionState.EMPTY, TransactionState.ONGOING): "the producer adds partitions or a group",
    (TransactionState.ONGOING, TransactionState.ONGOING): "the producer adds partitions or a group",
    (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT): "the producer commits",
    (TransactionState.ONGOING, TransactionState.PREPARE_ABORT): (
        "the producer aborts, the transaction times out, or another producer is initialized"
    ),
    (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT): (
        "every shard of its groups has committed the pending offsets"
    ),
    (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT): (
        "every shard of its groups has dropped the pending offsets"
    ),
    (TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY): "a producer is initialized",
    (TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING): "the producer adds partitions or a group",
    (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY): "a producer is initialized",
    (TransactionState.COMPLETE_ABORT, TransactionState.ONGOING): "the producer adds partitions or a group",
}
"""State of a transactional id and its next state → what leads there. An id that is neither in a transaction
nor completing one may expire."""
