"""Logs with records in any order, which no coordinator writes: rules about keys must hold for them as well.

They have few keys, so that each is written often; tombstones of missing keys; types that this release does
not know; several records of one key in an entry.
"""

from __future__ import annotations

import random

from records import (
    Cause,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    Trigger,
    encode_entry,
    encode_record,
)
from tests.support.memory_log import (
    NOON_MS,
    ORDERS,
    MemoryReader,
    Writer,
    current,
    group_epoch,
    group_topics,
    member,
    target,
    target_epoch,
)

GROUPS = ("g", "h")
OFFSETS_ONLY = "simple"
MEMBERS = ("a", "b", "c")
UNKNOWN_TYPE = 77
STATES = (MemberState.STABLE, MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)


def random_log(seed: int, entries: int = 40) -> MemoryReader:
    """Return the log of a seed, always the same."""
    rng = random.Random(seed)
    log = Writer()
    for _ in range(entries):
        raws = [_record(rng) for _ in range(rng.randint(1, 4))]
        body = encode_entry(Cause(trigger=Trigger.HEARTBEAT), raws)
        log.after(rng.randint(0, 5)).append_raw(body, len(raws))
    return log.log


def _record(rng: random.Random) -> RawRecord:
    if rng.random() < 0.05:
        value = rng.choice([None, rng.randbytes(3)])
        return RawRecord(UNKNOWN_TYPE, 0, rng.choice([b"", b"x"]), value)
    group, who = rng.choice(GROUPS), rng.choice(MEMBERS)
    of_group, of_member = {"group_id": group}, {"group_id": group, "member_id": who}
    partition = rng.randrange(3)
    commit = OffsetCommitValue(offset=rng.randrange(9), commit_timestamp_ms=NOON_MS, topic_id=ORDERS)
    where = {"group_id": rng.choice((group, OFFSETS_ONLY)), "topic": "orders", "partition": partition}
    classic = GroupMetadataValue(
        generation=1,
        current_state_timestamp_ms=NOON_MS,
        protocol_type="consumer",
        protocol=None,
        leader=None,
        members=(),
    )
    epoch = rng.randint(1, 3)
    assigned = tuple(one for one in range(4) if rng.random() < 0.4)
    pending = tuple(one for one in range(4) if one not in assigned and rng.random() < 0.2)
    now = current(who, epoch, assigned, pending, rng.choice(STATES), previous=epoch - 1, group=group)
    possible = [
        (Record(OffsetCommitKey(**where), commit), 2),
        (Record(LegacyOffsetCommitKey(**where), commit), 1),
        (Record(GroupMetadataKey(**of_group), classic), 0.2),
        (group_epoch(epoch, group), 2),
        (group_topics(4, 1, group), 1),
        (member(who, "app", group=group), 4),
        (target_epoch(epoch, group), 2),
        (target(who, *assigned, group=group), 2),
        (now, 8),
        (Record(OffsetCommitKey(**where), None), 1),
        (Record(LegacyOffsetCommitKey(**where), None), 0.5),
        (Record(GroupMetadataKey(**of_group), None), 0.5),
        (Record(ConsumerGroupMetadataKey(**of_group), None), 0.5),
        (Record(ConsumerGroupPartitionMetadataKey(**of_group), None), 0.5),
        (Record(ConsumerGroupTargetAssignmentMetadataKey(**of_group), None), 0.5),
        (Record(ConsumerGroupTargetAssignmentMemberKey(**of_member), None), 0.5),
        (Record(ConsumerGroupMemberMetadataKey(**of_member), None), 1),
        (Record(ConsumerGroupCurrentMemberAssignmentKey(**of_member), None), 1),
    ]
    records, weights = zip(*possible, strict=True)
    return encode_record(rng.choices(records, weights)[0])
