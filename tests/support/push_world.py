"""A push group in virtual time: its coordinator, its consumers, brokers and connections, from one seed.

Everything that is sent is bytes. A decision's messages leave when its entry is committed; a coordinator that
is killed loses entries that were not. A consumer works whenever it has positions, also while it hears
nothing.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar
from uuid import NAMESPACE_OID, uuid5

from coordinator.oldgroups import committed_offset
from coordinator.state.projection import Projection
from lineage.push.consumer import (
    Action,
    AskBroker,
    GiveUp,
    PushConsumerCore,
    RegisterAt,
    SendAnswer,
)
from lineage.push.decisions import (
    ConnectionClosed,
    Event,
    Failover,
    FrameReceived,
    OfferedOffset,
    OffsetsOffered,
    PushDecision,
    PushMoment,
    PushSettings,
    Registered,
)
from lineage.push.machines import ConsumerState
from lineage.push.messages import (
    Broker,
    RegisterRequest,
    decode_lookup_response,
    decode_request,
    frame,
    lookup_response,
    partition_number,
)
from lineage.push.protocol import PushGroup
from lineage.push.rounds import partition_list, partitions_of
from lineage.shard import NO_TOPIC, Topic
from records import Cause, PushGroupKey, PushGroupValue, RawRecord, encode_record

GROUP = "g"
TOPIC = "t"
WALL_MS = 1_790_000_000_000
PING_MS = 200
RETRIES = 1
WAIT_MS = 700
WORK_MS = 25
RESUME_MS = 300
BROKERS = [Broker(creator_id=f"b{one}", id=one, host=f"b{one}", port=9) for one in range(3)]
KNOWN = tuple((one.host, one.port) for one in BROKERS)
HEARD = (ConsumerState.WAITING, ConsumerState.CONSUMING)


def register_of(consumer_id: str, *, auto_commit: bool = True) -> RegisterRequest:
    return RegisterRequest(
        group_id=GROUP,
        consumer_id=consumer_id,
        auto_commit=auto_commit,
        ping_interval_ms=PING_MS,
        max_ping_retries=RETRIES,
    )


class ProjectedPushGroup:
    """The state that a `PushGroup` reads, over a real projection; and the log that it writes."""

    def __init__(self, num_partitions: dict[str, int]) -> None:
        self.projection = Projection()
        self.topics = num_partitions
        self.lives: dict[str, int] = {}
        self.log: list[tuple[Cause, list[RawRecord]]] = []
        self.hashes: list[int] = []

    def value(self) -> PushGroupValue | None:
        return self.projection.old_groups.get(PushGroupKey(group_id=GROUP))

    def committed(self, topic: str, topic_id: bytes, partition: int) -> int:
        return committed_offset(self.projection, GROUP, topic, topic_id, partition)

    def position(self, name: str, partition: int) -> int:
        """The committed offset of a partition of the present topic."""
        return self.committed(name, (self.topic(name) or NO_TOPIC)[0], partition)

    def topic(self, name: str) -> Topic | None:
        if name not in self.topics:
            return None
        return uuid5(NAMESPACE_OID, f"{name} {self.lives.get(name, 0)}").bytes, self.topics[name]

    def recreate(self, name: str) -> None:
        """Delete the topic and create it again, with as many partitions."""
        self.lives[name] = self.lives.get(name, 0) + 1

    def write(self, decision: PushDecision) -> None:
        """Apply the decision's records as one entry, and check what must hold of every entry."""
        assert (decision.cause is None) is (not decision.records)
        if decision.cause is None:
            return
        raws = [encode_record(record) for record in decision.records]
        self.log.append((decision.cause, raws))
        self.projection.apply_all(raws, len(self.log))
        self.hashes.append(self.projection.state_hash)
        value = self.value()
        if value is not None:
            owned = [one for consumer in value.consumers for one in partitions_of(consumer.owned)]
            assert len(owned) == len(set(owned)), "a partition has two owners"
            assert [one.consumer_id for one in value.consumers] == sorted(
                one.consumer_id for one in value.consumers
            )

    def cut(self, length: int) -> None:
        """Lose the entries after `length`, and start again from what is left, as a new leader does."""
        del self.log[length:], self.hashes[length:]
        self.projection = Projection()
        for index, (_, raws) in enumerate(self.log, 1):
            self.projection.apply_all(raws, index)
            assert self.projection.state_hash == self.hashes[index - 1], f"live and replay differ at {index}"


@dataclass(eq=False, slots=True)
class PushLine:
    """One registered connection; each direction keeps its order."""

    number: int
    consumer: PushActor
    incarnation: int
    is_open: bool = True
    last_ms: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class PushActor:
    """A consumer's process. `epoch` numbers its lives, so that what was meant for an earlier one is lost."""

    consumer_id: str
    auto_commit: bool
    core: PushConsumerCore
    is_running: bool = False
    frozen_until_ms: int = 0
    epoch: int = 0
    lookup: int = 0
    line: PushLine | None = None


class PushWorld:
    def __init__(self, seed: int, failover: Failover = Failover.LOG, num_partitions: int = 6) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.view = ProjectedPushGroup({TOPIC: num_partitions})
        self.settings = PushSettings(topics=(TOPIC,), failover=failover, reregister_wait_ms=WAIT_MS)
        self.actors: dict[str, PushActor] = {}
        self.lines: dict[int, PushLine] = {}
        self.leader: int | None = None
        self.incarnation = 0
        self.are_brokers_up = True
        self.stalled_until_ms = 0
        self.group: PushGroup | None = None
        self.committed = 0
        self.commits_ms = 0
        self.work: Counter[tuple[str, str, int]] = Counter()
        self.given_up: list[str] = []
        self.num_messages = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = count(1)
        self.at(WORK_MS, self._work)
        self.elect()

    def at(self, time_ms: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (time_ms, next(self._number), do))

    def after(self, do: Callable[[], None]) -> None:
        self.at(self.now_ms + self.random.randint(1, 20), do)

    def run_until(self, end_ms: int) -> None:
        """Play events and timers in the order of time; what arrives at a time comes before its timers."""
        while True:
            timers: list[tuple[int, Callable[[], None]]] = []
            group = self.group
            if group is not None and group.next_ms is not None:
                timers.append(
                    (max(group.next_ms, self.stalled_until_ms), lambda: self.tell(PushMoment.TIME_PASSED))
                )
            for actor in self.actors.values():
                due_ms = actor.core.next_ms
                if actor.is_running and due_ms is not None:
                    timers.append((max(due_ms, actor.frozen_until_ms), lambda one=actor: self._tick(one)))
            time_ms, do = min(timers, key=lambda timer: timer[0], default=(end_ms + 1, None))
            if self._queue and self._queue[0][0] <= time_ms:
                time_ms, _, do = self._queue[0]
                if time_ms <= end_ms:
                    heapq.heappop(self._queue)
            if time_ms > end_ms or do is None:
                break
            self.now_ms = max(self.now_ms, time_ms)
            do()
            self.check()
        self.now_ms = end_ms

    # The coordinator

    def elect(self) -> None:
        """A broker becomes coordinator, with the state of the log."""
        self.incarnation += 1
        self.leader = self.random.randrange(len(BROKERS))
        self.group = PushGroup(GROUP, self.settings, self.view)
        self.tell(PushMoment.LOADED)

    def kill(self) -> None:
        """The coordinator dies: entries that are not committed may be lost, and connections break."""
        if self.leader is None:
            return
        self.leader = self.group = None
        self.incarnation += 1
        self.view.cut(self.random.randint(min(self.committed, len(self.view.log)), len(self.view.log)))
        for line in list(self.lines.values()):
            self._break(line)
        self.at(self.now_ms + self.random.randint(20, 300), self.elect)

    def grow(self, by: int = 1) -> None:
        self.view.topics[TOPIC] += by
        self.tell(PushMoment.TOPICS_CHANGED)

    def recreate(self) -> None:
        self.view.recreate(TOPIC)
        self.tell(PushMoment.TOPICS_CHANGED)

    def tell(self, event: Event) -> PushDecision | None:
        if self.group is None:
            return None
        decision = self.group.on(event, self.now_ms, WALL_MS + self.now_ms)
        self.view.write(decision)
        length, incarnation = len(self.view.log), self.incarnation
        self.commits_ms = max(self.commits_ms, self.now_ms + self.random.randint(0, 10))
        self.at(self.commits_ms, lambda: self._commit(decision, length, incarnation))
        return decision

    def _commit(self, decision: PushDecision, length: int, incarnation: int) -> None:
        if incarnation != self.incarnation:
            return
        self.committed = max(self.committed, length)
        for number, _ in decision.closes:
            if number in self.lines:
                self._break(self.lines[number])
        for number, command in decision.sends:
            if number in self.lines:
                self.num_messages += 1
                self._to_consumer(self.lines[number], frame(command)[4:])

    def _break(self, line: PushLine) -> None:
        """Both ends learn that the connection is closed, after what was sent before."""
        if line.is_open:
            line.is_open = False
            self._to_consumer(line, None)
            self._to_coordinator(line, None)

    def _deliver(self, line: PushLine, direction: str, do: Callable[[], None]) -> None:
        time_ms = max(line.last_ms.get(direction, 0), self.now_ms + self.random.randint(1, 20))
        line.last_ms[direction] = time_ms
        self.at(time_ms, do)

    def _to_consumer(self, line: PushLine, payload: bytes | None) -> None:
        self._deliver(line, "consumer", lambda: self._reach_consumer(line, payload))

    def _reach_consumer(self, line: PushLine, payload: bytes | None) -> None:
        actor = line.consumer
        if self.now_ms < actor.frozen_until_ms:
            self.at(actor.frozen_until_ms, lambda: self._reach_consumer(line, payload))
        elif actor.line is line and actor.is_running:
            if payload is None:
                actor.line = None
                self._act(actor, actor.core.closed(self.now_ms))
            else:
                self._act(actor, actor.core.received(payload, self.now_ms))

    def _to_coordinator(self, line: PushLine, payload: bytes | None) -> None:
        def reach() -> None:
            if line.incarnation != self.incarnation:
                return
            if self.now_ms < self.stalled_until_ms:
                self.at(self.stalled_until_ms, reach)
            elif payload is None:
                del self.lines[line.number]
                self.tell(ConnectionClosed(line.number))
            elif line.number in self.lines:
                self.num_messages += 1
                self.tell(FrameReceived(line.number, payload))

        self._deliver(line, "coordinator", reach)

    # The consumers

    def join(self, consumer_id: str, *, auto_commit: bool = True) -> PushActor:
        """Start a consumer, or start it again."""
        core = PushConsumerCore(register_of(consumer_id, auto_commit=auto_commit), KNOWN)
        actor = self.actors.setdefault(consumer_id, PushActor(consumer_id, auto_commit, core))
        if not actor.is_running:
            actor.core, actor.is_running = core, True
            actor.epoch += 1
            self._act(actor, actor.core.begin())
        return actor

    def quit(self, actor: PushActor) -> None:
        if actor.is_running:
            self._act(actor, actor.core.quit())
            actor.is_running = False

    def crash(self, actor: PushActor) -> None:
        if actor.is_running:
            actor.is_running = False
            actor.core.positions.clear()
            self._hang_up(actor)

    def freeze(self, actor: PushActor, for_ms: int) -> None:
        """The consumer works on, and neither reads nor sends."""
        actor.frozen_until_ms = self.now_ms + for_ms

    def stall(self, for_ms: int) -> None:
        """The coordinator does nothing for so long."""
        self.stalled_until_ms = self.now_ms + for_ms

    def _hang_up(self, actor: PushActor) -> None:
        line, actor.line = actor.line, None
        if line is not None and line.is_open:
            line.is_open = False
            self._to_coordinator(line, None)

    def _tick(self, actor: PushActor) -> None:
        self._act(actor, actor.core.time_passed(self.now_ms))

    def _act(self, actor: PushActor, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case AskBroker():
                    self._ask(actor, action)
                case RegisterAt():
                    self._register(actor, action)
                case SendAnswer():
                    if actor.line is not None and actor.line.is_open:
                        self._to_coordinator(actor.line, frame(action.answer, action.version)[4:])
                case GiveUp():
                    self.given_up.append(action.why)
                    self.at(self.now_ms + RESUME_MS, lambda epoch=actor.epoch: self._resume(actor, epoch))
                case _:
                    self._hang_up(actor)

    def _resume(self, actor: PushActor, epoch: int) -> None:
        """The operator starts the consumer again."""
        if (actor.epoch, actor.is_running) == (epoch, True):
            self._act(actor, actor.core.begin())

    def _ask(self, actor: PushActor, action: AskBroker) -> None:
        actor.lookup += 1
        lookup, epoch = actor.lookup, actor.epoch
        assert decode_request(frame(action.request)[4:]) == action.request

        def answer() -> None:
            if self.now_ms < actor.frozen_until_ms:
                self.at(actor.frozen_until_ms, answer)
            elif (actor.lookup, actor.epoch, actor.is_running) == (lookup, epoch, True):
                response = None
                if self.are_brokers_up:
                    response = decode_lookup_response(frame(lookup_response(self.leader, BROKERS))[4:])
                self._act(actor, actor.core.looked_up(response, self.now_ms))

        self.after(answer)

    def _register(self, actor: PushActor, action: RegisterAt) -> None:
        line = PushLine(next(self._number), actor, self.incarnation)
        actor.line = line
        request = decode_request(frame(action.request)[4:])
        if self.leader is None or action.address != KNOWN[self.leader]:
            line.is_open = False
            self._to_consumer(line, None)
            return

        def reach() -> None:
            if line.incarnation != self.incarnation:
                return
            if self.now_ms < self.stalled_until_ms:
                self.at(self.stalled_until_ms, reach)
            else:
                self.num_messages += 1
                self.tell(Registered(line.number, request))

        self.lines[line.number] = line
        self._deliver(line, "coordinator", reach)

    def _work(self) -> None:
        self.at(self.now_ms + WORK_MS, self._work)
        for actor in self.actors.values():
            for (topic, partition), offset in actor.core.positions.items():
                self.work[topic, partition.partition("-")[2], max(offset, 0)] += 1
                actor.core.positions[topic, partition] = max(offset, 0) + 1
            if not actor.auto_commit and actor.core.positions and self.group is not None:
                offsets = [
                    OfferedOffset(topic, partition_number(name), offset)
                    for (topic, name), offset in actor.core.positions.items()
                ]
                self.tell(OffsetsOffered(actor.consumer_id, offsets))

    # What must hold

    def check(self) -> None:
        """No two consumers that are not silent consume one partition."""
        seen: set[tuple[str, int]] = set()
        for actor in self.actors.values():
            line = actor.line
            is_silent = (
                not actor.is_running
                or self.now_ms < actor.frozen_until_ms
                or actor.core.state not in HEARD
                or line is None
                or not line.is_open
                or line.incarnation != self.incarnation
            )
            if not is_silent:
                mine = {(topic, int(name.partition("-")[2])) for topic, name in actor.core.positions}
                assert not seen & mine, f"{seen & mine} consumed twice at {self.now_ms}"
                seen |= mine

    def check_rest(self) -> None:
        """After quiet time each partition is consumed by the consumer that the log says, if there is one."""
        running = {one for one, actor in self.actors.items() if actor.is_running}
        value = self.view.value()
        assert {one.consumer_id for one in value.consumers} == running if value else not running
        consumed = {
            (topic, int(name.partition("-")[2])): actor.consumer_id
            for actor in self.actors.values()
            for topic, name in actor.core.positions
        }
        assert consumed == partition_list(value)
        assert len(consumed) == (self.view.topics[TOPIC] if running else 0)

    @property
    def done_twice(self) -> int:
        """Offsets that were worked on again, by the same consumer or by another."""
        return sum(number - 1 for number in self.work.values())


CHURN_MS = 4_000
REST_MS = 2_500


World = TypeVar("World", bound=PushWorld)


def play(seed: int, failover: Failover, make: Callable[..., World] = PushWorld) -> World:
    """A random life of a group, and then a rest in which nothing happens to it."""
    chance = random.Random(f"mishaps of {seed}")
    world = make(seed, failover, chance.choice((1, 3, 6)))
    names = [f"c{one}" for one in range(chance.randint(1, 5))]

    def mishap() -> None:
        actor = world.actors.get(chance.choice(names))
        what = chance.randrange(10)
        if what <= 1 or actor is None:
            one = chance.choice(names)
            world.join(one, auto_commit=one != "c1")
        elif what == 2:
            world.quit(actor)
        elif what == 3:
            world.crash(actor)
        elif what == 4:
            world.freeze(actor, chance.choice((150, 450, 1_500)))
        elif what == 5:
            world.kill()
        elif what == 6:
            world.grow()
        elif what == 9:
            world.recreate()
        elif what == 7:
            world.stall(chance.choice((100, 250, 600)))
        else:
            world.are_brokers_up = False
            world.at(world.now_ms + 200, bring_up)

    def bring_up() -> None:
        world.are_brokers_up = True

    for _ in range(chance.randint(5, 60)):
        world.at(chance.randint(0, CHURN_MS), mishap)
    world.run_until(CHURN_MS + REST_MS)
    world.check_rest()
    return world
