"""B.2 to B.6: replay. Every order that compaction leaves behind loads, to the state that the log means."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from coordinator.shard import GroupShard
from coordinator.targets.target import subscribed_ids
from records import (
    ClassicMember,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    LegacyOffsetCommitKey,
    MemberState,
    OffsetCommitKey,
    OffsetCommitValue,
    RawRecord,
    Record,
    Stamped,
    TermStartKey,
    TermStartValue,
    TopicPartitions,
    UnsupportedVersion,
    Value,
    encode_record,
)
from tests.support.group_client import Client, settle
from tests.support.replaying import every_window, load, raw
from tests.support.world import World, check_group

T = b"t" * 16


def test_every_compaction_window_of_a_real_session_loads_to_the_same_state(world: World) -> None:
    """KAFKA-17306, -19862, -21102, -21117: a load may see any window compacted."""
    a, b, c = (Client(world, name) for name in "abc")
    a.beat()
    b.beat()
    world.commit({("orders", 0): 1})
    settle([a, b])
    world.grow_topic("orders", 14)
    world.work()
    c.beat()
    settle([a, b, c], 2)
    world.commit({("orders", 0): 2}, member_id="a", epoch=a.epoch)
    b.leave()
    settle([a, c], 2)
    world.commit({("orders", 5): 2}, group_id="simple")
    world.sleep(50_000)
    a.beat()
    a.leave()
    a.beat()
    world.delete_topic("orders")
    world.work()
    a.beat()
    stamped = world.stamped()
    expected = world.shard.state_hash
    windows = every_window(stamped)
    assert len(windows) > 1_000
    for window in windows:
        assert load(window).state_hash == expected


def _member(epoch: int, *partitions: int, state: MemberState = MemberState.STABLE) -> Value:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch, previous_member_epoch=epoch - 1, state=state,
        assigned_partitions=(TopicPartitions(topic_id=T, partitions=partitions),) if partitions else (),
        partitions_pending_revocation=(),
    )  # fmt: skip


def _subscription(*names: str) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(client_id="", client_host="", subscribed_topic_names=names)


def _key(member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)


def test_a_partition_that_looks_owned_by_two_belongs_to_the_later() -> None:
    """KAFKA-19862: the 8(a) that released p is missing while the 8(b) that took it is there."""
    shard = load([raw(_key("a"), _member(5, 0, 1)), raw(_key("b"), _member(7, 1))])
    assert shard.projection.groups["g"].owners == {T: {0: "a", 1: "b"}}
    shard.apply(raw(_key("a"), _member(7, 0)), 3)
    assert shard.projection.groups["g"].owners == {T: {0: "a", 1: "b"}}
    shard.apply(raw(_key("b"), None), 4)
    assert shard.projection.groups["g"].owners == {T: {0: "a"}}


@pytest.mark.parametrize(
    "key",
    [
        GroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
        _key("a"),
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="x"),
        OffsetCommitKey(group_id="g", topic="t", partition=0),
    ],
)
def test_tombstones_of_what_is_not_there_do_nothing(key: Key) -> None:
    """KAFKA-17306: after compaction a tombstone may be the only survivor."""
    shard = load([raw(key, None)])
    assert shard.projection.groups == {}
    assert shard.state_hash == GroupShard(0).state_hash


def test_records_5_and_8_come_in_either_order() -> None:
    """5 and 8 may come in either order after compaction: both create the member."""
    five = raw(ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"), _subscription("t"))
    eight = raw(_key("a"), _member(3, 0))
    first, second = load([five, eight]), load([eight, five])
    assert first.state_hash == second.state_hash
    assert load([eight]).projection.groups["g"].member("a") is None, "not a member for requests yet"
    assert second.projection.groups["g"].num_members == 1


def _classic(generation: int = 3) -> GroupMetadataValue:
    member = ClassicMember(
        rebalance_timeout_ms=1, session_timeout_ms=1, member_id="old", group_instance_id=None,
        client_id="", client_host="", subscription=b"s", assignment=b"a",
    )  # fmt: skip
    return GroupMetadataValue(
        generation=generation, current_state_timestamp_ms=0, protocol_type="consumer", protocol="range",
        leader="old", members=(member,),
    )  # fmt: skip


def consumer_records(value: bool) -> list[RawRecord]:
    """The records of B.2's upgrade, or (False) the tombstones of its downgrade, in their order."""
    member = {"group_id": "g", "member_id": "old"}
    up: list[tuple[Key, Value]] = [
        (ConsumerGroupMemberMetadataKey(**member), _subscription("t")),
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=3)),
        (
            ConsumerGroupTargetAssignmentMemberKey(**member),
            ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=(TopicPartitions(topic_id=T, partitions=(0,)),)
            ),
        ),
        (
            ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=3),
        ),
        (_key("old"), _member(3, 0)),
    ]
    if value:
        return [raw(key, one) for key, one in up]
    by_type = {type(key): key for key, _ in up}
    order = [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
    ]
    return [raw(by_type[kind], None) for kind in order]


def test_upgrade_and_downgrade_sequences_load_in_every_window() -> None:
    """B.2: ~2, 5, 3, 7, 6, 8 upgrade; ~8 ~7 ~6 ~5 ~3, 2 downgrade. KAFKA-21117: any part may be missing."""
    classic = GroupMetadataKey(group_id="g")
    log = [
        raw(classic, _classic()),
        raw(classic, None),
        *consumer_records(True),
        *consumer_records(False),
        raw(classic, _classic(generation=4)),
    ]
    upgraded = load(log[:7]).projection.groups["g"]
    assert (upgraded.is_consumer, upgraded.classic, upgraded.state.value) == (True, None, "Stable")
    downgraded = load(log)
    group = downgraded.projection.groups["g"]
    assert (group.is_consumer, group.num_members, group.owners) == (False, 0, {})
    assert group.classic is not None
    assert group.classic.generation == 4
    stamped = [Stamped(index, index, one) for index, one in enumerate(log)]
    for window in every_window(stamped):
        assert load(window).state_hash == downgraded.state_hash


def test_regular_expressions_load() -> None:
    """16: get-or-create; set resolved topics; the tombstone removes it, and the group with it."""
    key = ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="o.*")
    value = ConsumerGroupRegularExpressionValue(version=1, timestamp_ms=2, topics=("orders",))
    assert load([raw(key, value)]).projection.groups["g"].regexes == {"o.*": value}
    assert load([raw(key, value), raw(key, None)]).projection.groups == {}


def _resolved(*topics: str) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(version=1, timestamp_ms=2, topics=topics)


def test_resolved_topics_are_subscriptions_in_any_order_of_the_records() -> None:
    """B.4: subscribedTopicNames includes regex-resolved topics; KAFKA-18916 missed that once. An expression
    counts while somebody subscribes by it, also when its record 16 is older than he is, or outlives him."""

    def member(member_id: str, *names: str, regex: str | None) -> RawRecord:
        value = replace(_subscription(*names), subscribed_topic_regex=regex)
        return raw(ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id), value)

    def regex(expression: str, value: ConsumerGroupRegularExpressionValue | None) -> RawRecord:
        return raw(
            ConsumerGroupRegularExpressionKey(group_id="g", regular_expression=expression),
            value,
        )

    records = [
        member("a", "orders", regex="o.*"),
        member("b", regex="o.*"),
        member("c", "bills", regex=""),
        regex("o.*", _resolved("orders", "outages")),
        regex("nobody", _resolved("bills", "news")),
    ]
    for order in permutations(records):
        shard = load(list(order))
        group = shard.projection.groups["g"]
        assert group.subscriptions == {"orders": 2, "outages": 1, "bills": 1}
        assert group.regex_subscribers == {"o.*": 2}
        check_group(group)
        later = [
            regex("o.*", _resolved("outages", "oranges")),
            member("a", "orders", regex="nobody"),
            member("b", regex=None),
            regex("o.*", None),
        ]
        seen = []
        for index, one in enumerate(later, 10):
            shard.apply(one, index)
            check_group(group)
            seen.append(dict(group.subscriptions))
        assert seen == [
            {"orders": 1, "outages": 1, "oranges": 1, "bills": 1},
            {"orders": 1, "outages": 1, "oranges": 1, "bills": 2, "news": 1},
            {"orders": 1, "bills": 2, "news": 1},
            {"orders": 1, "bills": 2, "news": 1},
        ]


def test_a_member_is_subscribed_to_its_names_and_its_resolved_expression() -> None:
    """C.14: names and expression together; another member's expression is not this one's."""
    shard = load(
        [
            raw(
                ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="o.*"),
                _resolved("orders", "gone"),
            ),
        ]
    )
    group = shard.projection.groups["g"]
    ids = {"orders": b"o" * 16, "bills": b"b" * 16, "news": b"n" * 16}
    both = replace(_subscription("bills"), subscribed_topic_regex="o.*")
    assert subscribed_ids(group, both, ids) == {ids["orders"], ids["bills"]}
    assert subscribed_ids(group, _subscription("bills"), ids) == {ids["bills"]}
    unresolved = replace(_subscription(), subscribed_topic_regex="n.*")
    assert subscribed_ids(group, unresolved, ids) == frozenset()


def test_unknown_member_states_load() -> None:
    """State byte 127 = any other number: kept as it is, shown as UNKNOWN."""
    shard = load([raw(_key("a"), _member(1, 0, state=42))])  # type: ignore[arg-type]
    assert shard.projection.groups["g"].members["a"].current.state is MemberState.UNKNOWN


def test_records_without_assignment_epochs_load() -> None:
    """Before 4.3 record 8 has no assignment epochs; the member's own epoch stands for them."""
    shard = load([raw(_key("a"), _member(6, 0, 3))])
    assert shard.projection.groups["g"].members["a"].current.assigned == {T: {0: 6, 3: 6}}


def test_unknown_types_are_skipped_and_unknown_versions_are_not() -> None:
    """Unknown types at load: skipped (so that a downgrade works). Unknown *value* version: error."""
    shard = load([RawRecord(777, 0, b"k", b"v")])
    assert shard.projection.unknown_types == {777: 1}
    assert shard.applied_index == 1
    future = raw(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=1))._replace(
        version=99
    )
    with pytest.raises(UnsupportedVersion):
        shard.apply(future, 2)


def test_the_term_is_projected_and_moves_the_applied_index() -> None:
    """The no-op of a term is a record like any other."""
    shard = GroupShard(0)
    before = shard.state_hash
    value = TermStartValue(term=3, node_id=1, why=0, incarnation="i", boot_id="b")
    shard.apply(raw(TermStartKey(), value), 9)
    assert (shard.applied_index, shard.projection.term) == (9, value)
    assert shard.state_hash != before


def test_legacy_offsets_are_offsets() -> None:
    """Type 0, legacy, same content."""
    value = OffsetCommitValue(offset=5, commit_timestamp_ms=1)
    legacy = load([raw(LegacyOffsetCommitKey(group_id="g", topic="t", partition=0), value)])
    offset = load([raw(OffsetCommitKey(group_id="g", topic="t", partition=0), value)])
    assert legacy.state_hash == offset.state_hash
    assert legacy.projection.offsets.of_group("g")[0].value == value


def test_equal_subscriptions_are_one_list_in_memory_and_go_with_their_members(world: World) -> None:
    """Whatever order the records came in, and not longer than somebody subscribes to it."""
    names = [f"topic-{number}" for number in range(50)]
    world.join("a", names)
    world.join("b", list(reversed(names)))
    world.join("c", names[1:])
    for group in (world.group(), world.replayed(len(world.log)).projection.groups["g"]):
        lists = [member.metadata.subscribed_topic_names for member in group.joined() if member.metadata]
        assert lists[0] is lists[1]
        assert [number for _, number in group.lists.values()] == [2, 1]
    world.heartbeat("b", -1)
    world.heartbeat("c", -1)
    assert [number for _, number in world.group().lists.values()] == [1]
    world.heartbeat("a", world.group().members["a"].current.epoch, subscribed_topic_names=["topic-1"])
    assert list(world.group().lists) == [("topic-1",)]
    world.heartbeat("a", -1)
    assert not world.group().lists


def test_an_instance_id_stays_with_who_took_it_last() -> None:
    """B.4: `staticMembers`; the record that ends the former member may be read after the newer one's own."""

    def metadata(member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> RawRecord:
        key = ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id)
        return encode_record(Record(key, value))

    value = ConsumerGroupMemberMetadataValue(
        instance_id="i", rack_id=None, client_id="", client_host="", subscribed_topic_names=(),
        subscribed_topic_regex=None, rebalance_timeout_ms=1, server_assignor=None,
    )  # fmt: skip
    shard = load([metadata("old", value), metadata("new", value), metadata("old", None)])
    assert shard.projection.groups["g"].static_members == {"i": "new"}
