"""The reason why an entry was written: its cause, as typed values.

Every entry of the log opens with one cause: what happened (`trigger`), each reason for which the group epoch
moved (`reasons`), references to entries that it answers (`refs`, such as the catalog change behind a
rebalance), and for an expiry the four times that prove it (`expiries`).  "Why did my group rebalance?" is
answered from these values and from nothing else, so they are data, not prose.

Triggers and reasons are numbers with names.  A number that this release does not know is kept and shown as a
number: a newer release may have added a reason, and an older tool must still read its log.  As in records,
fields are only ever appended; the cause carries a version of its own.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from records.kinds import I32, I64, Since, named_i8, named_i16
from records.values import TopicPartitions

CAUSE_VERSION = 1
"""A cause that needs none of the newer fields is written as version 0, so that older tools can read it."""


class Trigger(IntEnum):
    """The event that led to an entry; docs/records.md lists the fields of the cause that each one fills."""

    TERM_OPENED = 1
    MEMBER_JOINED = 2
    MEMBER_REJOINED = 3
    MEMBER_UPDATED = 4
    MEMBER_ACKED = 5
    HEARTBEAT = 6
    MEMBER_LEFT = 7
    SESSION_EXPIRED = 8
    REBALANCE_EXPIRED = 9
    OFFSETS_COMMITTED = 10
    OFFSETS_DELETED = 11
    GROUP_DELETED = 12
    TOPIC_CREATED = 13
    TOPIC_GROWN = 14
    TOPIC_DELETED = 15
    CATALOG_CHANGED = 16
    READY_CHECK = 17
    TARGET_COMPUTED = 18
    CONFIG_CHANGED = 19
    CLUSTER_FORMATTED = 20
    IMPORTED = 21
    FORMAT_RAISED = 22
    MEMBER_REPLACED = 23
    MEMBER_AWAY = 24
    REGEX_RESOLVED = 25
    ASSIGNMENT_INSTALLED = 26
    MEMBER_REMOVED = 27
    OFFSETS_EXPIRED = 28
    GENERATION_COMPLETED = 29
    PRODUCER_INITIALIZED = 30
    TRANSACTION_EXTENDED = 31
    TRANSACTION_ENDED = 32
    TRANSACTION_TIMED_OUT = 33
    TRANSACTION_COMPLETED = 34
    TRANSACTIONAL_ID_EXPIRED = 35
    OFFSETS_PENDING = 36
    OFFSETS_RESOLVED = 37
    LEADERSHIP_ASKED = 38


class ReasonKind(IntEnum):
    """The reason why a group epoch moved (KIP-848, "Group Epoch - Trigger a rebalance")."""

    MEMBER_JOINED = 1
    MEMBER_LEFT = 2
    SESSION_EXPIRED = 3
    REBALANCE_EXPIRED = 4
    SUBSCRIPTION_CHANGED = 5
    REGEX_CHANGED = 6
    REGEX_RESOLUTION_CHANGED = 7
    TOPIC_CREATED = 8
    TOPIC_GROWN = 9
    TOPIC_DELETED = 10
    TOPIC_RECREATED = 11
    ASSIGNOR_CHANGED = 12
    MEMBER_REMOVED = 13
    GROUP_UPGRADED = 14
    GROUP_DOWNGRADED = 15
    CLIENT_ASSIGNORS_CHANGED = 16
    RACK_CHANGED = 17
    TOPIC_RACKS_CHANGED = 18
    LEADER_REJOINED = 19
    MEMBER_REPLACED = 20
    JOIN_TIMED_OUT = 21
    SYNC_TIMED_OUT = 22
    MEMBER_REJOINED = 23


class Certainty(IntEnum):
    """Tells whether the writer saw the cause, or a tool inferred it later (imports carry no causes)."""

    RECORDED = 0
    INFERRED = 1


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason for a group epoch bump.

    `member_id`, `topic` and `detail` (in words) are set where they apply.
    """

    kind: Annotated[int, named_i16(ReasonKind)]
    member_id: str = ""
    topic: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ref:
    """Another entry that this one answers: its shard (-1 = metadata) and Raft index."""

    shard: I32
    index: I64


@dataclass(frozen=True, slots=True)
class Expiry:
    """The times behind one expiry, in ms; all but the timeout are wall-clock times since the epoch."""

    member_id: str
    timeout_ms: I64
    armed_ms: I64
    last_heartbeat_ms: I64
    deadline_ms: I64


@dataclass(frozen=True, slots=True)
class Arrival:
    """A member of a classic group, and when its JoinGroup came, in ms since the epoch."""

    member_id: str
    at_ms: I64


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases of a rebalance of a classic group, in ms since the epoch; its entry ends the sync phase.

    `waited_for` are the members that joined last, the last one first; none if the group waited for a timer.
    """

    began_ms: I64
    joined_ms: I64
    waited_for: tuple[Arrival, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The cause of one entry.

    `member_id` and `member_epoch` (-1 = none) name the member whose request it answers; `principal` and
    `address` the operator; `owned` are the partitions that the member reported as owned in an acknowledgement
    (None = not reported).  `phases` are those of the rebalance behind a generation of a classic group.
    """

    trigger: Annotated[int, named_i16(Trigger)]
    certainty: Annotated[int, named_i8(Certainty)] = Certainty.RECORDED
    member_epoch: I32 = -1
    member_id: str = ""
    principal: str = ""
    address: str = ""
    detail: str = ""
    reasons: tuple[Reason, ...] = ()
    refs: tuple[Ref, ...] = ()
    expiries: tuple[Expiry, ...] = ()
    owned: tuple[TopicPartitions, ...] | None = None
    phases: Annotated[Phases | None, Since(1)] = None
