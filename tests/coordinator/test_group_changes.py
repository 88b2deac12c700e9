"""The changes that an entry makes to a group: values before and after it, as the projection applies them."""

from __future__ import annotations

from coordinator.state.changes import GroupSummary, apply_and_compare
from coordinator.state.group_records import MEMBERSHIP_TYPES
from coordinator.state.model import Group, Member
from records import ConsumerGroupTargetAssignmentMemberValue, decode_key_and_value
from tests.support.group_client import Client, settle
from tests.support.world import World


def session() -> World:
    """Members join, move partitions, return under other ids, leave for a while and for good."""
    world = World()
    world.create_topic("orders", 6)
    a, b = Client(world, "a", instance_id="i"), Client(world, "b")
    settle([a, b])
    a.restart("a2")
    world.grow_topic("orders", 8)
    settle([a, b])
    b.leave()
    a.leave(for_good=False)
    world.sleep(3_600_000)
    settle([Client(world, "c")])
    return world


def test_each_change_begins_where_the_one_before_ended() -> None:
    world = session()
    group = Group("g")
    last, members = GroupSummary.of(group), dict[str, Member]()
    target: dict[str, ConsumerGroupTargetAssignmentMemberValue] = {}
    for entry in world.log:
        raws = [raw for raw in entry.records if raw.type in MEMBERSHIP_TYPES]
        change = apply_and_compare(group, [decode_key_and_value(raw) for raw in raws])
        assert change.before == last
        last = change.after
        for member_id, (before, after) in change.members.items():
            assert before == members.pop(member_id, None)
            if after is not None:
                members[member_id] = after
        for member_id, (part_before, part) in change.targets.items():
            assert part_before == target.pop(member_id, None)
            if part is not None:
                target[member_id] = part
        assert (members, target) == (group.members, group.target)
    assert group == world.shard.projection.groups["g"]
    assert last.state == group.state.value


def test_who_asks_what_changed_does_not_change_it_later() -> None:
    """Members are changed in place; a summary that was returned earlier stays as it was."""
    world = session()
    group = Group("g")
    told: list[tuple[Member, Member]] = []
    for entry in world.log:
        raws = [raw for raw in entry.records if raw.type in MEMBERSHIP_TYPES]
        change = apply_and_compare(group, [decode_key_and_value(raw) for raw in raws])
        told += [(after, after.copy()) for _, after in change.members.values() if after is not None]
    assert len(told) > 10
    assert all(after == copy for after, copy in told)
