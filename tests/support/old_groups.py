"""Coordinators of both old protocols over the shard of a `World`, as a node runs them, without its sockets.

Consumers answer as soon as they are asked. Time is the world's; `tick` lets what is due happen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator.api import Decision
from coordinator.oldgroups import IdsForOldGroups, TopicsByName, committed_offset
from coordinator.shard import GroupShard
from lineage.push.decisions import (
    ConnectionClosed,
    Event,
    Failover,
    FrameReceived,
    PushDecision,
    PushMoment,
    PushSettings,
    Registered,
)
from lineage.push.messages import (
    Command,
    CommandResponse,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterRequest,
    frame,
    partition_name,
)
from lineage.push.protocol import PushGroup
from lineage.push.rounds import partitions_of
from lineage.rewrite.bounds import RewriteSettings
from lineage.rewrite.groups import Now, RewriteOrigin, RewriteResult
from lineage.rewrite.messages import (
    CommitPartition,
    CommitTopic,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
)
from lineage.rewrite.variants import DesignCoordinator
from records import (
    Cause,
    PushGroupKey,
    PushGroupValue,
    RawRecord,
    RewriteGroupKey,
    RewriteGroupValue,
    encode_record,
)
from tests.support.replaying import every_prefix, every_window, load
from tests.support.world import WALL_START_MS, Entry, World
from wire.protocol import RequestHeader

SESSION_MS = 10_000
PING_MS = 1_000


class OldGroups:
    """The coordinators of one leader; make another after `World.failover`."""

    def __init__(
        self, world: World, topics: tuple[str, ...] = ("orders",), failover: Failover = Failover.LOG
    ) -> None:
        self.world, self.topics, self.failover = world, topics, failover
        self.push: dict[str, PushGroup] = {}
        self.lines: dict[int, tuple[str, str]] = {}
        """Connection → group and consumer of the push protocol."""
        self.offsets: dict[int, int] = {}
        """Connection → the position that its consumer tells; -1 is none."""
        self.closed: list[str] = []
        """The reasons why connections of the push protocol were closed."""
        self._ids = 0
        shard = world.shard
        self.rewrite = DesignCoordinator(
            shard.projection.old_groups,
            TopicsByName(lambda: world.catalog.view),
            self._fresh,
            lambda _: None,
            RewriteSettings(),
            IdsForOldGroups(lambda: shard.groups, RewriteGroupKey),
        )
        self.rewrite.elected()
        self.rewrite.loaded(self._now)
        for key in list(shard.projection.old_groups):
            if isinstance(key, PushGroupKey):
                self._tell(key.group_id, PushMoment.LOADED)

    @property
    def _now(self) -> Now:
        return Now(self.world.now_ms, WALL_START_MS + int(self.world.now_ms))

    def _fresh(self) -> str:
        self._ids += 1
        return f"{len(self.world.log)}-{self._ids}"

    def _append(self, group_id: str, cause: Cause, records: Iterable[RawRecord]) -> None:
        raws = list(records)
        self.world.shard.apply_all(raws, self.world.next_index)
        self.world._write(Decision(cause=cause, records=raws))
        self.world.shard.followed_old_group(self.world.ctx(), group_id)

    # Seed 000.

    def value(self, group_id: str = "g") -> RewriteGroupValue:
        return self.world.shard.projection.old_groups[RewriteGroupKey(group_id=group_id)]

    def _carry_out(self, results: list[RewriteResult], mine: RewriteOrigin | None = None) -> Any:
        answer = None
        for result in results:
            if result.cause is not None:
                self._append(result.group_id, result.cause, result.records)
            for origin, body in result.answers:
                answer = body if origin is mine else answer
        return answer

    def _ask(self, request: Any) -> Any:
        mine = RewriteOrigin("connection", RequestHeader(0, 0, 0, "client", 0), "/127.0.0.1")
        return self._carry_out(self.rewrite.handle(request, mine, self._now), mine)

    def join(self, group_id: str = "g", consumer_id: str = "", topics: Iterable[str] = ("orders",)) -> Any:
        """Send JoinGroup once; None if it waits for others."""
        return self._ask(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout=SESSION_MS,
                topics=list(topics),
                consumer_id=consumer_id,
                partition_assignment_strategy="range",
            )
        )

    def beat(self, consumer_id: str, group_id: str = "g") -> int:
        generation = self.value(group_id).generation
        return self._ask(
            HeartbeatRequest(group_id=group_id, group_generation_id=generation, consumer_id=consumer_id)
        ).error_code

    def commit(
        self,
        consumer_id: str,
        offsets: dict[tuple[str, int], int],
        group_id: str = "g",
        timestamp_ms: int = -1,
    ) -> None:
        generation = self.value(group_id).generation
        topics = [
            CommitTopic(
                topic=name,
                partitions=[CommitPartition(partition=number, offset=offset, timestamp=timestamp_ms)],
            )
            for (name, number), offset in offsets.items()
        ]
        answer = self._ask(
            OffsetCommitRequest(
                group_id=group_id, group_generation_id=generation, consumer_id=consumer_id, topics=topics
            )
        )
        assert {one.error_code for topic in answer.topics for one in topic.partitions} == {0}

    def stop_all(self, group_id: str = "g") -> None:
        """Let all consumers be silent until the group has none."""
        for _ in range(3):  # a JoinGroup that waits begins another session
            if self.value(group_id).consumers:
                self.world.sleep(SESSION_MS)
                self.tick()
        assert not self.value(group_id).consumers

    # Seed 004.

    def _tell(self, group_id: str, event: Event) -> PushDecision:
        group = self.push.get(group_id)
        if group is None:
            settings = PushSettings(topics=self.topics, failover=self.failover)
            view = _PushView(self.world, group_id)
            ids = IdsForOldGroups(lambda: self.world.shard.groups, PushGroupKey)
            group = self.push[group_id] = PushGroup(group_id, settings, view, ids)
        decision = group.on(event, int(self.world.now_ms), self._now.wall)
        if decision.cause is not None:
            self._append(group_id, decision.cause, map(encode_record, decision.records))
        for connection, why in decision.closes:
            self.closed.append(why)
            self.lines.pop(connection, None)
        for connection, command in decision.sends:
            if connection in self.lines:
                self._answer(connection, command)
        return decision

    def register(self, consumer_id: str, group_id: str = "g") -> int:
        """Register on a new connection, and let the round end; return the connection."""
        self._ids += 1
        connection = len(self.world.log) * 1_000_000 + self._ids
        self.lines[connection] = group_id, consumer_id
        request = RegisterRequest(
            group_id=group_id, consumer_id=consumer_id, auto_commit=True, ping_interval_ms=PING_MS
        )
        self._tell(group_id, Registered(connection, request))
        return connection

    def push_value(self, group_id: str = "g") -> PushGroupValue | None:
        return self.world.shard.projection.old_groups.get(PushGroupKey(group_id=group_id))

    def pong(self, connection: int, offset: int) -> None:
        """Let the next Ping come, and answer it and all later ones with this offset for every partition."""
        self.offsets[connection] = offset
        self.world.sleep(PING_MS // 2)
        self._tell(self.lines[connection][0], PushMoment.TIME_PASSED)

    def _answer(self, connection: int, command: Command) -> None:
        """Answer what came on a connection."""
        group_id, consumer_id = self.lines[connection]
        if not isinstance(command, PingRequest):
            self._tell(group_id, FrameReceived(connection, frame(CommandResponse())[4:]))
            return
        value = self.push_value(group_id)
        assert value is not None
        (me,) = [one for one in value.consumers if one.consumer_id == consumer_id]
        info = [
            PartitionOffset(
                topic=topic, partition=partition_name(0, number), offset=self.offsets.get(connection, -1)
            )
            for topic, number in partitions_of(me.owned)
        ]
        body = PingResponse(num_partition=len(info), offset_info=info)
        self._tell(group_id, FrameReceived(connection, frame(body, 1)[4:]))

    def hang_up(self, connection: int) -> None:
        if connection in self.lines:
            group_id, _ = self.lines.pop(connection)
            self._tell(group_id, ConnectionClosed(connection))

    # Both.

    def tick(self) -> None:
        self._carry_out(self.rewrite.tick(self._now))
        for group_id in list(self.push):
            self._tell(group_id, PushMoment.TIME_PASSED)

    def topics_changed(self) -> None:
        self._carry_out(self.rewrite.topics_changed(self._now))
        for group_id in list(self.push):
            self._tell(group_id, PushMoment.TOPICS_CHANGED)


class _PushView:
    def __init__(self, world: World, group_id: str) -> None:
        self._world, self._group_id = world, group_id

    def value(self) -> PushGroupValue | None:
        return self._world.shard.projection.old_groups.get(PushGroupKey(group_id=self._group_id))

    def committed(self, topic: str, topic_id: bytes, partition: int) -> int:
        projection = self._world.shard.projection
        return committed_offset(projection, self._group_id, topic, topic_id, partition)

    def topic(self, name: str) -> tuple[bytes, int] | None:
        found = self._world.catalog.view.topic(name)
        return None if found is None else (found.topic_id, found.num_partitions)


# What must hold.


def one_kind(world: World, _entry: Entry) -> None:
    """After every entry, one id has one kind of group, for the log and for the leader."""
    projection, classic = world.shard.projection, world.shard.groups.classic
    assert not projection.groups.keys() & projection.old_ids.keys(), "an id has two kinds of group"
    assert all(len(keys) == 1 for keys in projection.old_ids.values()), "an id has two old protocols"
    assert set(projection.old_groups) == {key for keys in projection.old_ids.values() for key in keys}
    held = [one for one in projection.old_ids if world.shard.groups.has_old_consumers(one)]
    assert not any((known := classic.get(one)) is not None and known.members for one in held)


WINDOWS_OF = 60
"""Records of a log of which every window is compacted; of a longer one, every prefix only."""


def check_log(world: World) -> None:
    """Live equals replay at every index, one id has one kind at each, and every compaction window loads."""
    twin = GroupShard(0)
    for entry in world.log:
        twin.apply_all(entry.records, entry.index)
        assert not twin.projection.groups.keys() & twin.projection.old_ids.keys(), entry.index
    assert twin.state_hash == world.shard.state_hash
    stamped = world.stamped()
    plain = [one.record for one in stamped]
    windows = every_window(stamped) if len(stamped) <= WINDOWS_OF else every_prefix(stamped)
    for window in [plain, *windows]:
        shard = load(window)
        assert shard.state_hash == world.shard.state_hash
        assert shard.projection.old_groups == world.shard.projection.old_groups
        assert shard.projection.old_ids == world.shard.projection.old_ids
        assert shard.projection.groups.keys() == world.shard.projection.groups.keys()
