"""Random schedules of both old protocols, consumer groups, classic groups and operators on shared ids."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.limits import GroupSettings, Limits
from lineage.push.decisions import Failover
from records import OffsetCommitKey, OffsetCommitValue, RewriteConsumer, Trigger, decode_record
from tests.support.classic_member import ClassicConsumer
from tests.support.group_client import Client
from tests.support.leader_state_checks import nothing_is_forgotten, nothing_is_left
from tests.support.old_groups import OldGroups, check_log, one_kind
from tests.support.schedules import Twin
from tests.support.world import WALL_START_MS, Entry, World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

GROUPS = ("g", "h")
TOPICS = ("orders", "more")
MINUTE_MS = 60_000
RETENTION_MS = 30 * MINUTE_MS
CHECK_MS = 5 * MINUTE_MS
SETTINGS = GroupSettings(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)


class Offsets:
    """Watches that offsets expire neither early nor while the group subscribes to their topic.

    Those of a classic group without members expire by when it lost the last one, as in Kafka."""

    def __init__(self) -> None:
        self.committed_ms: dict[tuple[str, str, int], int] = {}
        self.num_expired = 0

    def __call__(self, world: World, entry: Entry) -> None:
        for raw in entry.records:
            record = decode_record(raw)
            if not isinstance(record.key, OffsetCommitKey):
                continue
            key = record.key.group_id, record.key.topic, record.key.partition
            if isinstance(record.value, OffsetCommitValue):
                self.committed_ms[key] = record.value.commit_timestamp_ms
                continue
            committed_ms = self.committed_ms.pop(key)
            if entry.cause.trigger == Trigger.OFFSETS_EXPIRED:
                self.num_expired += 1
                group = world.shard.projection.groups.get(key[0])
                is_classic = -2 in entry.types or (group is not None and group.classic is not None)
                is_over = committed_ms + RETENTION_MS <= WALL_START_MS + world.now_ms
                assert is_over or is_classic, f"{key} expired early"
                assert key[1] not in subscribed(world, key[0]), f"{key} expired under a subscription"


def subscribed(world: World, group_id: str) -> set[str]:
    """The topics to which the group's members subscribe, from their requests."""
    projection = world.shard.projection
    topics: set[str] = set()
    for _, value in projection.old_groups_of(group_id):
        for one in value.consumers:  # those of push groups have all topics, which are a setting
            topics.update(one.topics if isinstance(one, RewriteConsumer) else TOPICS)
    group = projection.groups.get(group_id)
    return topics | set(group.subscriptions if group is not None and group.is_consumer else ())


class Schedule:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World(SETTINGS, Limits(groups_max=3))
        for topic in TOPICS:
            self.world.create_topic(topic, 3)
        self.offsets = Offsets()
        self.world.after_entry += [one_kind, self.offsets, Twin(seed)]
        self.failover = self.random.choice(list(Failover))
        self.old = OldGroups(self.world, TOPICS, self.failover)
        self.rewrite: dict[str, list[str]] = {}
        """Group → the ids that its consumers were given."""
        self.clients: list[Client] = []
        self.classic: list[ClassicConsumer] = []
        self.seen: set[str] = set()
        """The events that happened, so that a search which reaches too little is noticed."""

    def note(self, what: str, code: int | None) -> None:
        self.seen.add(f"{what}: {'waits' if code is None else 'ok' if not code else 'refused'}")

    # What may happen.

    def old_join(self, group_id: str) -> None:
        consumer_id = self.random.choice(["", *self.rewrite.get(group_id, [])])
        topics = self.random.choice([TOPICS, ("orders",), ("more",)])
        answer = self.old.join(group_id, consumer_id, topics)
        self.note("rewrite join", None if answer is None else answer.error_code)
        if answer is not None and not answer.error_code:
            self.rewrite.setdefault(group_id, []).append(answer.consumer_id)

    def old_commit(self, group_id: str) -> None:
        """A consumer of the group commits, by the reply to a Ping or by OffsetCommit."""
        for connection, (of, _) in list(self.old.lines.items()):
            if of == group_id:
                if self.random.random() < 0.5:
                    self.old.pong(connection, self.random.randrange(100))
                return
        groups = self.world.shard.projection.old_groups_of(group_id)
        consumers = [
            one for _, value in groups for one in value.consumers if isinstance(one, RewriteConsumer)
        ]
        one: Any = self.random.choice(consumers or [None])
        if one is None or self.old.rewrite.group_state(group_id).value not in ("Steady", "Ready"):
            return
        at_ms = self.random.choice([-1, -1, self.now_ms - RETENTION_MS + MINUTE_MS])
        part = self.random.choice(one.topics), self.random.randrange(3)
        self.old.commit(one.consumer_id, {part: self.random.randrange(100)}, group_id, at_ms)
        self.seen.add("rewrite commit")

    @property
    def now_ms(self) -> int:
        return WALL_START_MS + int(self.world.now_ms)

    def old_register(self, group_id: str) -> None:
        before = len(self.old.closed)
        self.old.register(self.random.choice("pqr"), group_id)
        self.note("push register", len(self.old.closed) - before)

    def old_hang_up(self, group_id: str) -> None:
        for connection, (of, _) in list(self.old.lines.items()):
            if of == group_id:
                self.old.hang_up(connection)

    def consumer(self, group_id: str) -> None:
        answer = self.world.join(self.random.choice("ab"), self.random.choice([TOPICS, ("more",)]),
                                 group_id=group_id)  # fmt: skip
        self.note("consumer join", answer.error_code)

    def consumer_leaves(self, group_id: str) -> None:
        group = self.world.shard.projection.groups.get(group_id)
        for member_id in list(group.members) if group is not None else "a":
            answer = self.world.heartbeat(member_id, -1, group_id=group_id)
            self.note("consumer leave", answer.error_code)

    def classic_join(self, group_id: str) -> None:
        one = ClassicConsumer(self.world, "c", group_id=group_id)
        answer = one.join()
        self.note("classic join", None if answer is None else answer.error_code)
        self.classic.append(one)

    def classic_leaves(self, group_id: str) -> None:
        for one in self.classic:
            if one.group_id == group_id and one.member_id:
                one.leave()
        self.classic = [one for one in self.classic if one.group_id != group_id]

    def simple_commit(self, group_id: str) -> None:
        part = self.random.choice(TOPICS), self.random.randrange(3)
        (code,) = self.world.commit({part: 5}, group_id=group_id).values()
        self.note("simple commit", code)

    def delete_group(self, group_id: str) -> None:
        answer = self.world.handle(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[group_id]))
        self.seen.add(f"delete group: {ErrorCode(answer.results[0].error_code).name}")

    def delete_offset(self, group_id: str) -> None:
        part = OffsetDeleteRequestPartition(partition_index=self.random.randrange(3))
        asked = [OffsetDeleteRequestTopic(name=self.random.choice(TOPICS), partitions=[part])]
        request = OffsetDeleteRequest(group_id=group_id, topics=asked)
        answer = self.world.handle(ApiKey.OFFSET_DELETE, 0, request)
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        self.seen.add(f"delete offset: {ErrorCode(code).name}")

    def recreate(self, _group_id: str) -> None:
        topic = self.random.choice(TOPICS)
        self.world.delete_topic(topic)
        self.world.create_topic(topic, 3)
        self.old.topics_changed()
        self.world.work()

    def fail_over(self, _group_id: str) -> None:
        self.world.failover()
        self.classic.clear()
        self.old = OldGroups(self.world, TOPICS, self.failover)

    def rest(self, _group_id: str) -> None:
        self.world.sleep(self.random.choice([100, 5_000, 15_000, MINUTE_MS, CHECK_MS, RETENTION_MS]))
        if self.random.random() < 0.7:
            self.old.tick()

    def go(self, num_steps: int) -> None:
        steps: list[Callable[[str], Any]] = [
            self.old_join, self.old_join, self.old_commit, self.old_commit, self.old_register,
            self.old_hang_up, self.consumer, self.consumer_leaves, self.classic_join, self.classic_leaves,
            self.simple_commit, self.delete_group, self.delete_offset, self.recreate, self.fail_over,
            self.rest, self.rest, self.rest,
        ]  # fmt: skip
        for _ in range(num_steps):
            self.random.choice(steps)(self.random.choice(GROUPS))
            self.world.work()
            nothing_is_forgotten(self.world)

    def end(self) -> None:
        """Everybody stops: in the end nothing is left."""
        check_log(self.world)
        for group_id in GROUPS:
            self.old_hang_up(group_id)
        for _ in range(12):
            self.world.sleep(RETENTION_MS)
            self.old.tick()
        nothing_is_left(self.world)
        assert not self.offsets.committed_ms, "offsets stay for ever"
        assert len(self.world.shard.projection.offsets) == 0


REACHED = {
    *(f"{what}: {how}" for what in ("rewrite join", "consumer join", "classic join", "push register",
                                    "simple commit", "consumer leave") for how in ("ok", "refused")
      if (what, how) != ("classic join", "ok")),
    "classic join: waits", "rewrite join: waits", "rewrite commit",
    *(f"delete group: {name}" for name in ("NONE", "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND")),
    *(f"delete offset: {name}" for name in ("NONE", "GROUP_SUBSCRIBED_TO_TOPIC", "GROUP_ID_NOT_FOUND")),
}  # fmt: skip


def play_seeds(seeds: range) -> None:
    seen: set[str] = set()
    num_expired = 0
    for seed in seeds:
        schedule = Schedule(seed)
        schedule.go(80)
        schedule.end()
        seen |= schedule.seen
        num_expired += schedule.offsets.num_expired
    assert not REACHED - seen, REACHED - seen
    assert num_expired > len(seeds)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_any_order_of_all_protocols(first: int) -> None:
    play_seeds(range(first, first + 20))


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_thousand_orders_of_all_protocols() -> None:
    play_seeds(range(1_000, 2_000))
