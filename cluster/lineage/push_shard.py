"""The push groups of one shard on the node that leads it.

Events are decided in the order in which they happen. While the shard has no room for entries they wait: of
each connection at most its registration, one frame, or its end.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cluster.lineage.connections import FramedConnection
from cluster.lineage.shard_door import ShardDoor
from cluster.runtime.answers import Unavailable
from cluster.runtime.requests import NO_ROOM_PAUSE_MS
from coordinator.groupconfigs import PUSH_FAILOVER, PUSH_OFFSET_COMMIT, PUSH_TOPICS, PUSH_WAIT
from coordinator.oldgroups import committed_offset
from lineage.push.decisions import (
    ConnectionClosed,
    Event,
    Failover,
    FrameReceived,
    OffsetsOffered,
    PushDecision,
    PushMoment,
    PushSettings,
    Registered,
)
from lineage.push.messages import RegisterRequest, frame
from lineage.push.protocol import PushGroup
from lineage.shard import Topic
from raftlog.env.host import Host, Timer
from records import PushGroupKey, PushGroupValue, encode_record
from wire.errors import ErrorCode

LOG = logging.getLogger("quorate.lineage")

RELOAD_MS: Final = 1_000.0
"""Pause before a group whose decision failed begins anew with the log."""

TURN_MS: Final = 5.0
"""Decisions of one turn of the loop; the rest of what waits follows in later ones."""

CommitAnswer = Callable[[PushDecision | ErrorCode | None], None]
"""Gets the decision on an OffsetCommit once it is committed, or an error; None if the outcome is unknown."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """An event that waits for its decision, and whom that concerns: a connection or a `CommitAnswer`.

    `event` is None once it is withdrawn."""

    group_id: str
    event: Event | None
    concerns: object


class PushShard:
    """The coordinators of one shard's groups; `node_id` is this node's."""

    def __init__(self, host: Host, node_id: int, door: ShardDoor) -> None:
        self._host = host
        self._node_id = node_id
        self._door = door
        self._term = 0
        self._is_serving = False
        self._groups: dict[str, PushGroup] = {}
        self._timers: dict[str, tuple[float, Timer]] = {}
        self._lines: dict[int, FramedConnection] = {}
        """Registered connections by number."""
        self._group_of: dict[int, str] = {}
        self._events: deque[_Waiting] = deque()
        self._said: dict[int, _Waiting] = {}
        """The newest event of each connection, while it waits."""
        self._moments: set[tuple[str, PushMoment]] = set()
        """The moments of groups that wait."""
        self._is_deciding = False
        self._retry: Timer | None = None

    # The state of the shard.

    def follow(self) -> bool:
        """Begin or end to serve, as the shard does on this node; return whether something ended."""
        door = self._door
        is_over = self._is_serving and not (door.is_ready and door.term == self._term)
        if is_over:
            self._end()
        if door.is_ready and not self._is_serving:
            self._is_serving, self._term = True, door.term
            for key in list(door.projection.old_groups):
                if isinstance(key, PushGroupKey):
                    self.tell(key.group_id, PushMoment.LOADED)
        return is_over

    def _end(self) -> None:
        self._is_serving = False
        for _, timer in self._timers.values():
            timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for kept in (self._groups, self._timers, self._lines, self._group_of):
            kept.clear()
        for waiting in (self._events, self._said, self._moments):
            waiting.clear()

    def settings_of(self, group_id: str) -> PushSettings:
        """The settings of a group; without topics it is not served."""
        configs = self._door.catalog.configs.of(group_id)
        return PushSettings(
            topics=tuple(filter(None, PUSH_TOPICS.value_of(configs).split(","))),
            broker_id=self._node_id,
            failover=Failover(PUSH_FAILOVER.value_of(configs)),
            reregister_wait_ms=int(PUSH_WAIT.value_of(configs)),
            offset_commit=PUSH_OFFSET_COMMIT.value_of(configs) == "true",
        )

    # What happens.

    def register(self, connection: FramedConnection, request: RegisterRequest) -> None:
        """Register a consumer. A connection that cannot is closed: Register has no answer."""
        group_id = request.group_id
        if not self._is_serving:
            connection.close("not the coordinator")
        elif not self.settings_of(group_id).topics:
            connection.refuse(
                "unconfigured",
                f"push group {group_id[:100]!r} has no topics: set them with "
                f"`quorate groups config {group_id[:100]} --set push.topics=TOPIC,…`",
            )
        else:
            self._lines[connection.number] = connection
            self._group_of[connection.number] = group_id
            connection.is_busy = True
            self.tell(group_id, Registered(connection.number, request), connection)

    def lost(self, group_id: str, event: ConnectionClosed) -> None:
        """A registered connection has ended: forget what it said and is not decided, and tell its group."""
        number = event.connection
        self._lines.pop(number, None)
        self._group_of.pop(number, None)
        said = self._said.pop(number, None)
        was_registered = said is None or not isinstance(said.event, Registered)
        if said is not None:
            said.event = None
        if was_registered:
            self.tell(group_id, event)

    def offer(self, group_id: str, event: OffsetsOffered, answer: CommitAnswer) -> None:
        """Commit offsets; `answer` is called once."""
        if not self._is_serving:
            answer(ErrorCode.NOT_COORDINATOR)
        elif self._door.enter() is None:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self.tell(group_id, event, answer)

    def topics_changed(self) -> None:
        """Let every group compare its topics with the catalog."""
        for group_id in list(self._groups):
            self.tell(group_id, PushMoment.TOPICS_CHANGED)

    def configs_changed(self, group_id: str) -> None:
        if (group := self._groups.get(group_id)) is not None:
            group.configure(self.settings_of(group_id))
            self.tell(group_id, PushMoment.TOPICS_CHANGED)

    # Decisions.

    def tell(self, group_id: str, event: Event, concerns: object = None) -> None:
        """Decide on an event, after those that wait."""
        is_waiting = isinstance(event, PushMoment) and (group_id, event) in self._moments
        if not self._is_serving or is_waiting:
            return
        waiting = _Waiting(group_id, event, concerns)
        self._events.append(waiting)
        if isinstance(event, PushMoment):
            self._moments.add((group_id, event))
        elif isinstance(event, Registered | FrameReceived):
            self._said[event.connection] = waiting
        if self._retry is None and not self._is_deciding:
            self._work()

    def _work(self) -> None:
        """Decide on what waits. What a decision brings about meanwhile, such as a next frame, waits too."""
        self._is_deciding = True
        try:
            self._decide_all()
        finally:
            self._is_deciding = False

    def _decide_all(self) -> None:
        self._retry = None
        begun_ms = self._host.monotonic_ms()
        while self._events:
            now_ms = self._door.enter()
            if now_ms is None or now_ms - begun_ms >= TURN_MS:
                pause_ms = NO_ROOM_PAUSE_MS if now_ms is None else 0.0
                self._retry = self._host.call_later(pause_ms, self._work)
                return
            waiting = self._events.popleft()
            event = waiting.event
            if event is None:
                continue
            if isinstance(event, PushMoment):
                self._moments.discard((waiting.group_id, event))
            elif isinstance(event, Registered | FrameReceived):
                self._said.pop(event.connection, None)
            self._decide(now_ms, waiting.group_id, event, waiting.concerns)

    def _decide(self, now_ms: float, group_id: str, event: Event, concerns: object) -> None:
        group, door = self._group(now_ms, group_id, event), self._door
        if group_id not in self._groups:  # its record could not be loaded, and its connections are closed
            if isinstance(event, OffsetsOffered) and callable(concerns):
                concerns(None)
            return
        try:
            decision = group.on(event, int(door.clock_ms(now_ms)), door.wall_ms(now_ms))
            records = [encode_record(one) for one in decision.records]
        except Exception:  # what is in memory may be half changed: the log is not
            LOG.exception("shard %d: a decision about push group %r failed", door.shard, group_id)
            self._begin_anew(group_id)
            if isinstance(event, OffsetsOffered) and callable(concerns):
                concerns(None)
            return
        if decision.cause is not None:
            door.write(now_ms, group_id, decision.cause, records)
        answer = concerns if isinstance(event, OffsetsOffered) else None
        if decision.sends or decision.closes or answer is not None:
            told = functools.partial(self._told, decision, answer)
            door.hold(now_ms, told, has_written=bool(records))
        if isinstance(concerns, FramedConnection):
            concerns.go_on_serving()
        if group.next_ms is None and not self._has_record(group_id):
            self._groups.pop(group_id, None)
        else:
            self._arm(group_id, group)

    def _group(self, now_ms: float, group_id: str, event: Event) -> PushGroup:
        """Return the group's coordinator; one that did not exist loads the group's record first."""
        found = self._groups.get(group_id)
        if found is None:
            view, others = _View(self._door, group_id), self._door.ids_for(PushGroupKey)
            found = PushGroup(group_id, self.settings_of(group_id), view, others)
            self._groups[group_id] = found
            if self._has_record(group_id) and event is not PushMoment.LOADED:
                self._decide(now_ms, group_id, PushMoment.LOADED, None)
        return found

    def _told(self, decision: PushDecision, answer: object, why: Unavailable | None) -> None:
        """Close and send as decided, once the entry is committed; else end the connections concerned."""
        for number, reason in decision.closes:
            if (line := self._lines.get(number)) is not None:
                line.refuse("removed", reason)
        for number, command in decision.sends:
            if (line := self._lines.get(number)) is not None:
                if why is None:
                    line.send(frame(command))
                else:
                    line.close("unknown outcome")
        if callable(answer):
            answer(decision if why is None else None)

    def _has_record(self, group_id: str) -> bool:
        return PushGroupKey(group_id=group_id) in self._door.projection.old_groups

    def _begin_anew(self, group_id: str) -> None:
        """Forget a group's coordinator and end its connections; load it again from the log."""
        self._groups.pop(group_id, None)
        if (timer := self._timers.pop(group_id, None)) is not None:
            timer[1].cancel()
        for number, of in list(self._group_of.items()):
            if of == group_id:
                self._lines[number].close("failed")
        self._host.call_later(RELOAD_MS, self._load_again, group_id)

    def _load_again(self, group_id: str) -> None:
        if self._is_serving and group_id not in self._groups and self._has_record(group_id):
            self.tell(group_id, PushMoment.LOADED)

    # Timers.

    def arm_all(self) -> None:
        """Look at the deadlines of all groups again: the clock has moved."""
        for group_id, group in list(self._groups.items()):
            self._arm(group_id, group)

    def _arm(self, group_id: str, group: PushGroup) -> None:
        if group.next_ms is None:
            return
        delay_ms = self._door.delay_ms(group.next_ms)
        due_ms = self._host.monotonic_ms() + delay_ms
        if (timer := self._timers.get(group_id)) is not None:
            if timer[0] <= due_ms:
                return  # it looks again then
            timer[1].cancel()
        self._timers[group_id] = due_ms, self._host.call_later(max(delay_ms, 1.0), self._fire, group_id)

    def _fire(self, group_id: str) -> None:
        del self._timers[group_id]
        group = self._groups.get(group_id)
        if group is None or group.next_ms is None:
            return
        if self._door.delay_ms(group.next_ms):
            self._arm(group_id, group)
        else:
            self.tell(group_id, PushMoment.TIME_PASSED)


class _View:
    """The state that the coordinator of one group reads (`lineage.push.decisions.PushGroupView`)."""

    def __init__(self, door: ShardDoor, group_id: str) -> None:
        self._door = door
        self._group_id = group_id

    def value(self) -> PushGroupValue | None:
        found = self._door.projection.old_groups.get(PushGroupKey(group_id=self._group_id))
        return found if isinstance(found, PushGroupValue) else None

    def committed(self, topic: str, topic_id: bytes, partition: int) -> int:
        return committed_offset(self._door.projection, self._group_id, topic, topic_id, partition)

    def topic(self, name: str) -> Topic | None:
        found = self._door.catalog.topic(name)
        return None if found is None else (found.topic_id, found.num_partitions)
