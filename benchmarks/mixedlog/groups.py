"""A generated consumer group: its members, assignments and targets, and the records of each step.

A step is one entry: a member joins or leaves, which makes an epoch and its target at once; or one member
moves towards its target. All members are told to revoke before any revokes, and all revoke before any is
assigned more, so that no partition has two owners.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Expiry,
    MemberState,
    RawRecord,
    Reason,
    ReasonKind,
    Record,
    Ref,
    TermStartKey,
    TermStartValue,
    TermWhy,
    TopicKey,
    TopicMetadata,
    TopicPartitions,
    TopicValue,
    Trigger,
    encode_record,
    offset_commit_key,
)
from records.ids import METADATA_SHARD

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
PARTITIONS = 12
REBALANCE_TIMEOUT_MS = 300_000
SESSION_MS = 45_000
NODES = 3

Step = tuple[Cause, list[RawRecord]]
Share = frozenset[int]
NOTHING: Share = frozenset()


@dataclass(slots=True)
class Member:
    """A member's assignment and epoch."""

    epoch: int = 0
    assigned: Share = NOTHING
    pending: Share = NOTHING


@dataclass(slots=True)
class Group:
    """One group; all its members read the same topic."""

    group_id: str
    epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Share] = field(default_factory=dict)
    commit_keys: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.commit_keys = [offset_commit_key(self.group_id, TOPIC, number) for number in range(PARTITIONS)]

    def join(self, member_id: str, client_id: str, client_host: str) -> Step:
        """Add a member."""
        self.members[member_id] = Member()
        value = ConsumerGroupMemberMetadataValue(
            client_id=client_id,
            client_host=client_host,
            subscribed_topic_names=(TOPIC,),
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )
        records = [Record(ConsumerGroupMemberMetadataKey(**self._key(member_id)), value)]
        cause = Cause(
            trigger=Trigger.MEMBER_JOINED,
            member_id=member_id,
            reasons=(Reason(ReasonKind.MEMBER_JOINED, member_id),),
            refs=(Ref(METADATA_SHARD, 1),),
        )
        return cause, _encoded([*records, *self._retarget(first=self.epoch == 0)])

    def leave(self, member_id: str) -> Step:
        """Remove a member that leaves by itself."""
        cause = Cause(
            trigger=Trigger.MEMBER_LEFT,
            member_id=member_id,
            reasons=(Reason(ReasonKind.MEMBER_LEFT, member_id),),
        )
        return cause, self._without(member_id)

    def expire(self, member_id: str, heard_ms: int, now_ms: int) -> Step:
        """Expire a member whose last heartbeat was at ``heard_ms``; -1: none received by this leader."""
        armed_ms = now_ms - SESSION_MS
        cause = Cause(
            trigger=Trigger.SESSION_EXPIRED,
            member_id=member_id,
            reasons=(Reason(ReasonKind.SESSION_EXPIRED, member_id),),
            expiries=(Expiry(member_id, SESSION_MS, heard_ms, armed_ms, now_ms),),
        )
        return cause, self._without(member_id)

    def settle(self) -> Step | None:
        """A member's next step towards its target: all learn what to revoke, then revoke, then take."""
        for member_id, member in self.members.items():
            surplus = member.assigned - self.target[member_id]
            if surplus:
                member.assigned, member.pending = member.assigned - surplus, member.pending | surplus
                return self._current(member_id, Trigger.HEARTBEAT, MemberState.UNREVOKED_PARTITIONS)
        for member_id, member in self.members.items():
            if member.pending:
                member.pending, member.epoch = NOTHING, self.epoch
                is_done = member.assigned == self.target[member_id]
                state = MemberState.STABLE if is_done else MemberState.UNRELEASED_PARTITIONS
                return self._current(member_id, Trigger.MEMBER_ACKED, state)
        for member_id, member in self.members.items():
            if (member.epoch, member.assigned) != (self.epoch, self.target[member_id]):
                member.epoch, member.assigned = self.epoch, self.target[member_id]
                return self._current(member_id, Trigger.HEARTBEAT, MemberState.STABLE)
        return None

    def _key(self, member_id: str) -> dict[str, str]:
        return {"group_id": self.group_id, "member_id": member_id}

    def _without(self, member_id: str) -> list[RawRecord]:
        del self.members[member_id]
        self.target.pop(member_id, None)
        records = [
            Record(kind(**self._key(member_id)), None)
            for kind in (
                ConsumerGroupCurrentMemberAssignmentKey,
                ConsumerGroupTargetAssignmentMemberKey,
                ConsumerGroupMemberMetadataKey,
            )
        ]
        return _encoded([*records, *self._retarget()])

    def _retarget(self, *, first: bool = False) -> list[Record]:
        """The records of a new epoch and its target."""
        self.epoch += 1
        shares = {
            member_id: frozenset(range(place, PARTITIONS, len(self.members)))
            for place, member_id in enumerate(self.members)
        }
        changed = {one: share for one, share in shares.items() if self.target.get(one) != share}
        self.target = shares
        group = {"group_id": self.group_id}
        topic = TopicMetadata(topic_id=TOPIC_ID, topic_name=TOPIC, num_partitions=PARTITIONS)
        value = ConsumerGroupPartitionMetadataValue(topics=(topic,), catalog_version=1)
        return [
            *([Record(ConsumerGroupPartitionMetadataKey(**group), value)] if first else ()),
            Record(ConsumerGroupMetadataKey(**group), ConsumerGroupMetadataValue(epoch=self.epoch)),
            *(
                Record(
                    ConsumerGroupTargetAssignmentMemberKey(**self._key(one)),
                    ConsumerGroupTargetAssignmentMemberValue(
                        topic_partitions=_parts(share), assignment_epoch=self.epoch
                    ),
                )
                for one, share in changed.items()
            ),
            Record(
                ConsumerGroupTargetAssignmentMetadataKey(**group),
                ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=self.epoch),
            ),
        ]

    def _current(self, member_id: str, trigger: Trigger, state: MemberState) -> Step:
        member = self.members[member_id]
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=max(member.epoch - 1, 0),  # approximate: the generator keeps no history
            state=state,
            assigned_partitions=_parts(member.assigned),
            partitions_pending_revocation=_parts(member.pending),
        )
        record = Record(ConsumerGroupCurrentMemberAssignmentKey(**self._key(member_id)), value)
        cause = Cause(trigger=trigger, member_id=member_id, member_epoch=member.epoch)
        return cause, _encoded([record])


def new_member_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def topic_created() -> Step:
    """The creation of the only topic, in the metadata shard."""
    record = Record(TopicKey(name=TOPIC), TopicValue(num_partitions=PARTITIONS, topic_id=TOPIC_ID))
    return Cause(trigger=Trigger.TOPIC_CREATED, detail=TOPIC), _encoded([record])


def term_opened(term: int) -> Step:
    """A term's first entry: the next of three nodes leads after the previous leader failed."""
    value = TermStartValue(
        term=term,
        node_id=term % NODES,
        why=TermWhy.EXPIRY if term > 1 else TermWhy.START,
        previous_leader=(term - 1) % NODES if term > 1 else -1,
        incarnation="bench",
        boot_id="bench",
    )
    return Cause(trigger=Trigger.TERM_OPENED), _encoded([Record(TermStartKey(), value)])


def _encoded(records: Sequence[Record]) -> list[RawRecord]:
    return [encode_record(record) for record in records]


@lru_cache(maxsize=PARTITIONS * PARTITIONS)
def _parts(partitions: Share) -> tuple[TopicPartitions, ...]:
    return (TopicPartitions(topic_id=TOPIC_ID, partitions=tuple(sorted(partitions))),) if partitions else ()
