"""Random scripts of classic groups: answers, generations, commits, and what the log says at any index."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from records import GroupMetadataKey, GroupMetadataValue, RecordType, decode_record
from tests.classic.watched import GROUP, Watched, act, consumers_of
from tests.support.replaying import every_window, load
from tests.support.world import Entry, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.heartbeat import HeartbeatRequest

FOREVER_MS = 9 * 24 * 3_600_000
"""Longer than offsets are kept."""


def played(seed: int, steps: int = 200) -> Watched:
    """A world after a random script."""
    random = Random(seed)
    world = Watched(random)
    consumers = consumers_of(world, random)
    for _ in range(steps):
        act(world, random, consumers)
        world.check()
    return world


@pytest.mark.parametrize("seed", range(20))
def test_every_request_is_answered_once(seed: int) -> None:
    world = played(seed)
    world.sleep(FOREVER_MS)
    world.check()
    assert not world.unanswered
    assert GROUP not in world.shard.projection.groups, "an empty group is removed"


@pytest.mark.parametrize("seed", range(100, 110))
def test_one_generation_accepts_commits(seed: int) -> None:
    random = Random(seed)
    world = Watched(random)
    consumers = consumers_of(world, random)
    times_accepted = 0
    for _ in range(40):
        for _ in range(5):
            act(world, random, consumers)
        accepted = world.accepted()
        world.check()
        times_accepted += bool(accepted)
        assert len({generation for _, generation in accepted}) <= 1
        group = world.shard.groups.classic.get(GROUP)
        assert not accepted or (group is not None and {one for one, _ in accepted} <= group.members.keys())
    assert times_accepted


def generation_in(log: list[Entry]) -> GroupMetadataValue | None:
    """The newest record 2 of the group; None if it is a tombstone or there is none."""
    newest = None
    for entry in log:
        for raw in entry.records:
            record = decode_record(raw)
            if isinstance(record.key, GroupMetadataKey) and record.key.group_id == GROUP:
                assert record.value is None or isinstance(record.value, GroupMetadataValue)
                newest = record.value
    return newest


def taken_over(world: World, index: int) -> World:
    """The world of a node that takes over when the log ends at this index."""
    other = World(limits=world.limits)
    other.catalog, other.settings = world.catalog, world.settings
    other.log = world.log[:index]
    other.now_ms = world.now_ms
    other.shard = other.replayed(index)
    other.shard.on_ready(other.ctx())
    return other


@pytest.mark.parametrize("seed", range(200, 204))
def test_a_failover_at_any_index_goes_on_from_the_last_generation_written(seed: int) -> None:
    world = played(seed)
    for index in range(len(world.log) + 1):
        other = taken_over(world, index)
        value = generation_in(other.log)
        now = set() if value is None else {(one.member_id, value.generation) for one in value.members}
        for member_id, generation in sorted(world.told | now):
            request = HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
            is_of_it = (member_id, generation) in now
            code = other.handle(ApiKey.HEARTBEAT, 4, request).error_code
            assert (code == ErrorCode.NONE) == is_of_it
            committed = other.commit(
                {("orders", 0): 1}, group_id=GROUP, member_id=member_id, epoch=generation, version=8
            )
            assert (committed == {("orders", 0): ErrorCode.NONE}) == is_of_it
        assert not other.late_answers, "requests to the former leader are answered by its node"
        other.sleep(1_000_000)
        newest = generation_in(other.log)
        assert newest is None or not newest.members, "all sessions ended"


@pytest.mark.parametrize("seed", range(300, 302))
def test_every_compaction_window_loads_to_the_same_state(seed: int) -> None:
    world = played(seed, steps=500)
    if seed % 2:
        world.sleep(FOREVER_MS)
    stamped = world.stamped()
    windows = every_window(stamped)
    types = Counter(one.record.type for one in stamped)
    assert types[RecordType.GROUP_METADATA] > 10, types
    for window in windows:
        assert load(window).state_hash == world.shard.state_hash
