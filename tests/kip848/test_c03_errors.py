"""C.3 What a group may have against a heartbeat."""

from __future__ import annotations

from coordinator.limits import GroupSettings, Limits
from records import ClassicMember, GroupMetadataKey, GroupMetadataValue, Record, encode_record
from tests.coordinator.world import Client, World
from wire.errors import ErrorCode


def classic_group(members: int) -> Record:
    member = ClassicMember(
        rebalance_timeout_ms=1, session_timeout_ms=1, member_id="old", group_instance_id=None,
        client_id="", client_host="", subscription=b"", assignment=b"",
    )  # fmt: skip
    value = GroupMetadataValue(
        generation=3, current_state_timestamp_ms=0, protocol_type="consumer", protocol="range", leader=None,
        members=(member,) * members,
    )  # fmt: skip
    return Record(GroupMetadataKey(group_id="g"), value)


def test_group_id_not_found(world: World) -> None:
    """GROUP_ID_NOT_FOUND 69: epoch ≠ 0 and the group is missing."""
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat("a", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_offsets_only_is_no_consumer_group(world: World) -> None:
    """GROUP_ID_NOT_FOUND 69: the group exists with another type."""
    world.commit({("orders", 0): 1})
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.join("a").member_epoch == 1


def test_a_classic_group_with_members_is_not_taken_over(world: World) -> None:
    """GROUP_ID_NOT_FOUND 69: a non-empty classic group that cannot be upgraded."""
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    assert world.join("a").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat("a", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_consumer_group(world: World) -> None:
    """Empty classic → consumer, at the first consumer heartbeat: ~2, then a fresh group."""
    world.shard.apply(encode_record(classic_group(members=0)), 1)
    assert world.join("a").member_epoch == 1
    assert world.log[0].types == [-2, 5, 4, 3, 7, 6, 8]


def test_unknown_member_id(world: World) -> None:
    """UNKNOWN_MEMBER_ID 25: epoch ≠ 0 and the member is missing."""
    world.join("a")
    assert world.heartbeat("b", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_max_size() -> None:
    """GROUP_MAX_SIZE_REACHED 81: the member is one too many; members that are in are unaffected."""
    world = World(GroupSettings(max_size=2))
    world.create_topic("orders", 4)
    world.join("a")
    world.join("b")
    entries = len(world.log)
    refused = world.join("c")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "2 members" in (refused.error_message or "")
    assert len(world.log) == entries
    assert world.join("b").error_code == 0, "a member joins again whatever the size"


def test_groups_per_shard_are_bounded() -> None:
    """Reaching a limit gives a clear Kafka error, never unbounded memory."""
    world = World(limits=Limits(groups_max=1))
    world.join("a", group_id="g1")
    assert world.join("a", group_id="g2").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join("b", group_id="g1").error_code == 0


def test_a_group_never_decides_on_an_older_catalog(world: World) -> None:
    """COORDINATOR_LOAD_IN_PROGRESS 14: this node's catalog is older than the group's record 4."""
    world.join("a")
    world.catalog.view.version -= 1
    for answer in (world.heartbeat("a", 1), world.join("a"), world.join("b"), world.heartbeat("a", -1)):
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.catalog.view.version += 1
    assert world.heartbeat("a", 1).error_code == 0


def test_a_fenced_member_stays_in_the_group(world: World) -> None:
    """The server does not remove the member on 110: it stays until its session times out or it rejoins."""
    world.join("a")
    assert world.heartbeat("a", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert "a" in world.group().members
    assert world.join("a").member_epoch == 1


def test_what_is_left_of_a_downgrade_does_not_take_the_group_with_it(world: World) -> None:
    """KAFKA-21117: a record 2 beside the records of a consumer group. The next heartbeat removes it alone."""
    a = Client(world, "a")
    a.beat()
    world.shard.apply(encode_record(classic_group(members=1)), 1)
    a.beat()
    assert world.log[-1].types == [-2]
    assert (world.group().num_members, world.group().classic, a.epoch) == (1, None, 1)
