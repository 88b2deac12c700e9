"""J.2 Bugs that others had with records and replay, one test each, named after the number.

`test_b_replay.py` replays every compaction window of a session; here is each known failure by itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations

import pytest

from coordinator.shard import GroupShard
from coordinator.state.group_records import MEMBERSHIP_TYPES
from history.checking.secondopinion import disagreements
from records import (
    ClassicMember,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    Stamped,
    TopicPartitions,
    Value,
    encode_record,
)
from records.compaction import compact
from tests.support.group_client import Client, settle
from tests.support.group_view import GroupView, differences
from tests.support.replaying import every_window, load
from tests.support.world import World

T = b"t" * 16


def raw(key: Key, value: Value | None) -> RawRecord:
    return encode_record(Record(key, value))


def five(member_id: str, value: bool = True, instance_id: str | None = None) -> RawRecord:
    said = ConsumerGroupMemberMetadataValue(
        client_id="", client_host="", subscribed_topic_names=("t",), instance_id=instance_id
    )
    return raw(ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id), said if value else None)


def seven(member_id: str, *partitions: int) -> RawRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id=member_id)
    topics = (TopicPartitions(topic_id=T, partitions=partitions),)
    return raw(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics))


def eight(member_id: str, epoch: int, *partitions: int) -> RawRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=epoch - 1, state=MemberState.STABLE,
        assigned_partitions=(TopicPartitions(topic_id=T, partitions=partitions),),
        partitions_pending_revocation=(),
    )  # fmt: skip
    return raw(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id), value)


def gone(record: RawRecord) -> RawRecord:
    return record._replace(value=None)


def three(epoch: int) -> RawRecord:
    return raw(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=epoch))


def six(epoch: int) -> RawRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return raw(ConsumerGroupTargetAssignmentMetadataKey(group_id="g"), value)


GROUP = [three(1), five("a"), seven("a", 0), six(1), eight("a", 1, 0)]
"""The records of a group of one member."""


@pytest.mark.parametrize("record", GROUP, ids=lambda record: str(record.type))
def test_kafka_17306_a_tombstone_alone(record: RawRecord) -> None:
    """After compaction a tombstone may be the only survivor; it threw, and the shard did not load."""
    shard = load([gone(record)])
    assert (shard.projection.groups, shard.state_hash) == ({}, GroupShard(0).state_hash)


@pytest.mark.parametrize("order", list(permutations(range(5))), ids=lambda order: "".join(map(str, order)))
def test_kafka_21102_tombstones_of_a_group_in_any_order(order: tuple[int, ...]) -> None:
    """Those of 3, 5 and 6 had preconditions (no members, no target): a log could not be loaded."""
    shard = load([*GROUP, *(gone(GROUP[position]) for position in order)])
    assert (shard.projection.groups, shard.state_hash) == ({}, GroupShard(0).state_hash)


def test_kafka_19862_the_record_that_released_a_partition_is_missing() -> None:
    """8(a) without p was compacted away while 8(b) with p is there: p seems to be owned twice."""
    shard = load([three(3), five("a"), five("b"), eight("a", 1, 0, 1), eight("b", 3, 1)])
    owners = shard.projection.groups["g"].owners
    assert owners == {T: {0: "a", 1: "b"}}
    shard.apply(eight("a", 3, 0), 6)
    assert owners == {T: {0: "a", 1: "b"}}, "the late release takes nothing from the new owner"


def test_kafka_20254_a_group_of_offsets_and_an_expired_tombstone() -> None:
    """A simple group, beside which only the tombstone of a classic group's record is left."""
    offset = raw(
        OffsetCommitKey(group_id="g", topic="t", partition=0),
        OffsetCommitValue(offset=5, commit_timestamp_ms=1),
    )
    classic = raw(GroupMetadataKey(group_id="g"), None)
    for order in permutations([offset, classic, gone(three(1)), gone(five("a"))]):
        shard = load(list(order))
        assert (shard.projection.groups, shard.projection.offsets.count("g")) == ({}, 1)


def test_kafka_21117_records_of_both_protocols_survive() -> None:
    """A downgrade wrote tombstones and record 2 under different keys; some of each survived."""
    member = ClassicMember(
        rebalance_timeout_ms=1, session_timeout_ms=1, member_id="a", group_instance_id=None,
        client_id="", client_host="", subscription=b"", assignment=b"",
    )  # fmt: skip
    value = GroupMetadataValue(
        generation=4, current_state_timestamp_ms=0, protocol_type="consumer", protocol="range",
        leader="a", members=(member,),
    )  # fmt: skip
    classic = raw(GroupMetadataKey(group_id="g"), value)
    expected = load([classic]).state_hash
    log = [*GROUP, *(gone(GROUP[position]) for position in (4, 2, 3, 1, 0))]
    for place in range(len(log) + 1):
        stamped = [Stamped(i, i, one) for i, one in enumerate([*log[:place], classic, *log[place:]])]
        for window in every_window(stamped):
            assert load(window).state_hash == expected


def test_swapped_targets_load_in_either_order() -> None:
    """B.4: two members swap partitions; the second record 7 must not undo what the first one said."""
    before = [three(1), five("a"), five("b"), seven("a", 0), seven("b", 1)]
    swap = [seven("a", 1), seven("b", 0)]
    hashes = set()
    for order in permutations(swap):
        group = load([*before, *order]).projection.groups["g"]
        assert [group.target[name].topic_partitions[0].partitions for name in "ab"] == [(1,), (0,)]
        hashes.add(load([*before, *order]).state_hash)
    assert len(hashes) == 1


def test_tombstone_order_of_a_leave_and_of_a_group(world: World) -> None:
    """B.3: 8 and 7 before 5; all 5, 7 and 6 before 3. Kafka's replay throws otherwise."""
    a, b = Client(world, "a", instance_id="i"), Client(world, "b")
    settle([a, b])
    a.restart("a2")
    assert world.log[-1].types[:3] == [-8, -7, -5]
    b.leave()
    assert world.log[-1].types[:3] == [-8, -7, -5]
    world.sleep(60_000)
    assert world.log[-1].types[:3] == [-8, -7, -5]
    assert world.group().num_members == 0


def static_session(world: World) -> None:
    """Static members that come, go away, return under other ids, are replaced for good, swap their ids."""
    a, b = Client(world, "a", instance_id="i"), Client(world, "b", instance_id="j")
    settle([a, b])
    a.restart("a2")
    b.leave()
    a.restart("a")
    b.instance_id = "k"
    b.beat()
    a.leave()
    b.leave()
    a.instance_id, b.instance_id = "k", "i"
    settle([a, b])
    a.restart("a3")
    b.leave(for_good=False)


def test_pr_23542_instance_ids_are_the_same_from_every_compaction_window(world: World) -> None:
    """The owner of an instance id follows from the newest record 5 of each member, in every window."""
    static_session(world)
    stamped, expected = world.stamped(), world.shard.projection.groups["g"]
    windows = every_window(stamped)
    assert len(windows) > 1_000
    assert expected.static_members == {"k": "a3", "i": "b"}
    for window in windows:
        shard = load(window)
        assert shard.projection.groups["g"].static_members == expected.static_members
        assert shard.state_hash == world.shard.state_hash


def test_pr_23542_instance_ids_at_every_index(world: World) -> None:
    """Instance ids are the same live, replayed, restored from a snapshot and recomputed, at every index."""
    seen: list[dict[str, str]] = []
    world.after_entry.append(lambda world, entry: seen.append(dict(world.group().static_members)))
    static_session(world)
    for number, expected in enumerate(seen, 1):
        shard = world.replayed(number)
        assert shard.projection.groups["g"].static_members == expected
        index = world.log[number - 1].index
        stamped = [one for one in world.stamped() if one.index <= index]
        kept = compact(stamped, now_ms=stamped[-1].timestamp_ms, delete_retention_ms=0)
        assert load([one.record for one in kept]).projection.groups["g"].static_members == expected
        view = GroupView("g")
        for one in stamped:
            view.apply(one.record)
        assert differences(shard.projection.groups["g"], view) == []
        newest = [one.record for one in kept if one.record.type in MEMBERSHIP_TYPES]
        assert disagreements(shard.projection, newest) == []


def test_kafka_20845_a_decision_without_records_is_nothing(world: World) -> None:
    """A flush of an empty batch made memory and log differ: what writes nothing changes nothing."""
    a, b = Client(world, "a"), Client(world, "b")
    settle([a, b])
    before = (world.shard.state_hash, world.shard.applied_index, len(world.log))
    asks: list[Callable[[], object]] = [
        a.beat,
        lambda: world.heartbeat("a", 99),
        lambda: world.heartbeat("nobody", 1),
        lambda: world.commit({("no such topic", 0): 1}),
        lambda: world.join("a", instance_id="other"),
        lambda: world.fetch("g"),
        world.work,
    ]
    random.Random(1).shuffle(asks)
    for ask in asks:
        ask()
        assert (world.shard.state_hash, world.shard.applied_index, len(world.log)) == before


def test_kafka_16831_a_decision_may_be_large() -> None:
    """A batch buffer of 16 KB refused far below the limit of 1 MB: here a decision has up to 12 MiB."""
    world = World()
    world.create_topic("orders", 2_000)
    a = Client(world, "a")
    a.beat()
    codes = world.commit(
        {("orders", partition): 1 for partition in range(2_000)},
        member_id="a",
        epoch=a.epoch,
        metadata="x" * 600,
    )
    assert set(codes.values()) == {0}
    assert sum(len(record.value or b"") for record in world.log[-1].records) > 1 << 20
