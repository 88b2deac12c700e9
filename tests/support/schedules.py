"""A random schedule of two groups: joins, heartbeats, lost replies, leaves, expiries, changes of topics."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from coordinator.limits import GroupSettings
from coordinator.shard import GroupShard
from coordinator.state.reconcile import PartitionEpochs
from records import Stamped
from records.compaction import compact
from tests.support.group_client import Client, settle
from tests.support.world import Entry, World
from wire.apis import ApiKey
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

GROUPS = ("g", "h")
TOPICS = {"orders": 6, "events": 3, "late": 2}
NAMES = ("a", "b", "c", "d")
STATIC = ("c", "d")
"""Static members of each group: their names are instance ids, and every return may have a new member id."""
subscriptions = st.sets(st.sampled_from(sorted(TOPICS)), min_size=1).map(sorted)


class Twin:
    """A follower: it applies every entry and must have the same state.

    Now and then it restarts from a snapshot: the newest record of each key, without tombstones."""

    def __init__(self, seed: int) -> None:
        self.shard = GroupShard(0)
        self.rng = random.Random(seed)

    def __call__(self, world: World, entry: Entry) -> None:
        if self.rng.random() < 0.2:
            self.restart(world.stamped()[: -len(entry.records)])
        for raw in entry.records:
            self.shard.apply(raw, entry.index)
        assert self.shard.state_hash == world.shard.state_hash
        assert snapshot(self.shard) == snapshot(world.shard)

    def restart(self, stamped: list[Stamped]) -> None:
        self.shard = GroupShard(0)
        now_ms = stamped[-1].timestamp_ms if stamped else 0
        for one in compact(stamped, now_ms=now_ms, delete_retention_ms=0):
            self.shard.apply(one.record, one.index)


def snapshot(shard: GroupShard) -> dict[str, object]:
    """The projection without its hash, so that the hash is not its own witness."""

    def flat(part: PartitionEpochs) -> dict[bytes, dict[int, int]]:
        return {topic_id: dict(epochs) for topic_id, epochs in part.items()}

    offsets = shard.projection.offsets
    return {
        group_id: (
            group.metadata,
            group.target_metadata,
            group.partition_metadata,
            group.classic,
            group.target,
            group.owners,
            dict(group.subscriptions),
            dict(group.regex_subscribers),
            group.regexes,
            dict(group.server_assignors),
            dict(group.static_members),
            group.num_members,
            {
                m.member_id: (
                    m.metadata,
                    m.current.state,
                    m.current.epoch,
                    m.current.previous_epoch,
                    flat(m.current.assigned),
                    flat(m.current.pending),
                )
                for m in group.members.values()
            },
        )
        for group_id, group in shard.projection.groups.items()
    } | {"offsets": [offsets.of_group(group_id) for group_id in sorted(offsets.group_ids())]}


class Schedules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(GroupSettings(session_timeout_ms=10_000))
        self.clients = {(g, n): Client(self.world, n, group_id=g) for g in GROUPS for n in NAMES}
        self.committed: dict[tuple[str, str, int], int] = {}
        self.world.after_entry.append(Twin(1))
        for client in self.clients.values():
            client.rebalance_timeout_ms = 4_000
        for (_, name), client in self.clients.items():
            client.instance_id = name if name in STATIC else None
        self.returns = 0

    def client(self, group: str, name: str) -> Client:
        return self.clients[group, name]

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES), topics=subscriptions)
    def join(self, group: str, name: str, topics: list[str]) -> None:
        client = self.client(group, name)
        if client.epoch == 0:
            client.topics = tuple(topics)
        client.beat()

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES), ack=st.booleans(), lost=st.booleans())
    def heartbeat(self, group: str, name: str, ack: bool, lost: bool) -> None:
        client = self.client(group, name)
        if client.epoch:
            client.beat(acknowledge=ack, lose_reply=lost)

    @rule(group=st.sampled_from(GROUPS))
    def everybody(self, group: str) -> None:
        settle([c for (g, _), c in self.clients.items() if g == group and c.epoch], rounds=1)

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES))
    def rejoin(self, group: str, name: str) -> None:
        self.client(group, name).epoch = 0
        self.client(group, name).beat()

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES), topics=subscriptions)
    def subscribe(self, group: str, name: str, topics: list[str]) -> None:
        self.client(group, name).subscribe(topics)

    @rule(
        group=st.sampled_from(GROUPS),
        name=st.sampled_from(NAMES),
        assignor=st.sampled_from(["range", "uniform"]),
    )
    def vote(self, group: str, name: str, assignor: str) -> None:
        self.client(group, name).assignor = assignor
        self.client(group, name).forget()

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES))
    def leave(self, group: str, name: str) -> None:
        if self.client(group, name).epoch:
            self.client(group, name).leave()

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(STATIC))
    def go_away(self, group: str, name: str) -> None:
        if self.client(group, name).epoch:
            self.client(group, name).leave(for_good=False)

    @rule(
        group=st.sampled_from(GROUPS), name=st.sampled_from(STATIC), new_id=st.booleans(), lost=st.booleans()
    )
    def come_back(self, group: str, name: str, new_id: bool, lost: bool) -> None:
        """Return under a new member id, or the old one; after a lost reply the same request is repeated."""
        client = self.client(group, name)
        if client.epoch:
            return
        self.returns += new_id
        client.member_id = f"{name}-{self.returns}" if new_id else client.member_id
        if lost:
            client.beat(lose_reply=True)
        entries = len(self.world.log)
        answer = client.beat()
        assert answer.error_code in (0, 14, 111, 128)
        if lost and answer.error_code == 0:
            assert len(self.world.log) <= entries + 1

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(STATIC))
    def a_twin_is_refused(self, group: str, name: str) -> None:
        """A second process with the instance id of a present member is refused."""
        client = self.client(group, name)
        projected = self.world.shard.projection.groups.get(group)
        if projected is None or projected.static_members.get(name) != client.member_id or not client.epoch:
            return
        answer = self.world.join("twin", client.topics, group_id=group, instance_id=name)
        assert answer.error_code == 111
        assert self.world.heartbeat("twin", 1, group_id=group, instance_id=name).error_code == 82

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(NAMES), offset=st.integers(0, 99))
    def commit(self, group: str, name: str, offset: int) -> None:
        client = self.client(group, name)
        for topic_id, partitions in client.owned.items():
            topic = self.world.catalog.view.topic_by_id(topic_id)
            for partition in partitions if topic is not None else ():
                assert topic is not None
                asked = {(topic.name, partition): offset}
                codes = self.world.commit(
                    asked, group_id=group, member_id=client.member_id, epoch=client.epoch
                )
                if codes[topic.name, partition] == 0:
                    self.committed[group, topic.name, partition] = offset

    @rule(ms=st.sampled_from([1, 500, 3_000, 6_000, 11_000]))
    def time_passes(self, ms: int) -> None:
        self.world.sleep(ms)

    @rule()
    def the_node_stands_still(self) -> None:
        self.world.now_ms += 60_000
        self.world.shard.shift_deadlines(60_000)
        members = self._members()
        self.world.work()
        assert members == self._members()

    def _members(self) -> set[tuple[str, str]]:
        groups = self.world.shard.projection.groups
        return {(group_id, member_id) for group_id, group in groups.items() for member_id in group.members}

    @rule(turn=st.sampled_from([0, 0, 1, 2]))
    def another_turn(self, turn: int) -> None:
        self.world.turn = turn

    @rule()
    def due_work(self) -> None:
        """Run all due work; then no offset is left of a deleted topic, even if another has its name now."""
        self.world.work()
        offsets = self.world.shard.projection.offsets
        for group in GROUPS:
            for _, topic_id in offsets.topic_ids(group):
                assert self.world.catalog.view.topic_by_id(topic_id) is not None

    @rule(group=st.sampled_from(GROUPS), names=st.sets(st.sampled_from(NAMES), min_size=1))
    def remove(self, group: str, names: set[str]) -> None:
        """Remove members as an operator, some of whom may not exist."""
        present = self.world.shard.projection.groups.get(group)
        asked = [MemberIdentity(member_id=self.client(group, name).member_id) for name in sorted(names)]
        known = {m.member_id for m in present.joined()} if present is not None else set()
        request = LeaveGroupRequest(group_id=group, members=asked)
        answer = self.world.handle(ApiKey.LEAVE_GROUP, 5, request)
        if answer.error_code == 0:
            said = {member.member_id: member.error_code for member in answer.members}
            assert said == {one.member_id: 0 if one.member_id in known else 25 for one in asked}

    @rule(group=st.sampled_from(GROUPS), name=st.sampled_from(sorted(TOPICS)), partition=st.integers(0, 11))
    def delete_offset(self, group: str, name: str, partition: int) -> None:
        """Delete an offset as an operator, unless a member subscribes to its topic."""
        parts = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=parts)]
        answer = self.world.handle(
            ApiKey.OFFSET_DELETE, 0, OffsetDeleteRequest(group_id=group, topics=topics)
        )
        projected = self.world.shard.projection.groups.get(group)
        if answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0:
            assert projected is None or name not in projected.subscriptions
            self.committed.pop((group, name, partition), None)

    @rule(name=st.sampled_from(sorted(TOPICS)))
    def create_or_grow(self, name: str) -> None:
        topic = self.world.catalog.view.topic(name)
        if topic is None:
            self.world.create_topic(name, TOPICS[name])
        elif topic.num_partitions < 10:
            self.world.grow_topic(name, topic.num_partitions + 2)

    @rule(name=st.sampled_from(sorted(TOPICS)), again=st.booleans())
    def delete(self, name: str, again: bool) -> None:
        if self.world.catalog.view.topic(name) is not None:
            self.world.delete_topic(name)
            self.committed = {key: offset for key, offset in self.committed.items() if key[1] != name}
            if again:
                self.world.create_topic(name, TOPICS[name])

    @rule()
    def failover(self) -> None:
        self.world.failover()

    @precondition(lambda self: self.committed)
    @invariant()
    def acknowledged_commits_are_read_back(self) -> None:
        for group in GROUPS:
            found = self.world.fetch(group)
            for (committed_to, name, partition), offset in self.committed.items():
                if committed_to == group:
                    assert found[name, partition] == offset

    def teardown(self) -> None:
        self.world.turn = 0
        for (_, name), client in self.clients.items():
            if name in STATIC and not client.epoch:
                client.beat()
        self.world.sleep(2_000)
        alive = [client for client in self.clients.values() if client.epoch]
        settle(alive, rounds=2)  # whoever was fenced or expired learns it, and joins again: the last change
        settle(alive, rounds=3)
        self.world.work()
        for group_id, group in self.world.shard.projection.groups.items():
            members = [c for c in alive if c.group_id == group_id and c.epoch]
            ghosts = set(group.members) - {c.member_id for c in members}
            if group.is_consumer and not ghosts:
                assert group.state.value in ("Stable", "Empty")
                self._all_partitions_are_owned(members)

    def _all_partitions_are_owned(self, members: list[Client]) -> None:
        owned = Counter((t, p) for c in members for t, numbers in c.owned.items() for p in numbers)
        assert set(owned.values()) <= {1}, "clients themselves never share a partition"
        names = {name for client in members for name in client.topics}
        topics = [topic for topic in self.world.catalog.view.topics() if topic.name in names]
        assert owned.keys() == {(t.topic_id, p) for t in topics for p in range(t.num_partitions)}
