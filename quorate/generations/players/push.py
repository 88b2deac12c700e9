"""The push protocol (seed 004): the coordinator pings, stops and starts its consumers; `lineage.push`.

Coordinator and consumers are the package's own, without sockets; here they get connections, three brokers
and time. A network thread answers Pings, with the positions of the program's work. Stop and Start wait until
the program polls, and so does what comes after them on the connection: a program that is slow is late with
its answer. Commits are the coordinator's records, and Start names the offsets in them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final

from cluster.simulator import World
from cluster.simulator.world import START_WALL_MS
from coordinator.oldgroups import committed_offset
from coordinator.state.projection import Projection
from history.render import plural
from lineage.push.consumer import (
    Action,
    AskBroker,
    CloseConnection,
    GiveUp,
    PartitionId,
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
from lineage.push.messages import (
    Broker,
    Command,
    PingRequest,
    RegisterRequest,
    decode_lookup_response,
    frame,
    lookup_response,
    partition_number,
)
from lineage.push.protocol import PushGroup
from lineage.shard import Topic
from quorate.generations.contest import COMMIT_MS, ELECTION_MS, GROUP, HEARTBEAT_MS, POLL_MS, SESSION_MS
from quorate.generations.ledger import Ledger, Part, RunFigures
from quorate.generations.schedule import (
    GrowTopic,
    Join,
    KillCoordinator,
    Leave,
    Schedule,
    ScheduledEvent,
    Slow,
)
from records import ZERO_UUID, PushGroupKey, PushGroupValue, encode_record

LINK_MS: Final = 1.0
"""Time of one message."""
ENTRY_MS: Final = 2.0
"""Time until an entry is committed."""
RESUME_MS: Final = 1_000.0
"""Time until an operator starts a consumer again that found no broker."""
RETRIES: Final = SESSION_MS // HEARTBEAT_MS - 1
"""Failed Pings are repeated so often, which makes up about a session timeout."""
BROKERS: Final = [Broker(creator_id=f"b{one}", id=one, host=f"b{one}", port=9) for one in range(3)]
ADDRESSES: Final = tuple((one.host, one.port) for one in BROKERS)
SIZE_BYTES: Final = 4


class Commits(Enum):
    """How a consumer's offsets are committed."""

    PING = "by the replies to Ping"
    OFFSET_COMMIT = "by OffsetCommit in an interval"
    NONE = "not at all"


class PushPlayer:
    """Seed 004. As in the seed, a new coordinator waits for all to register again, and Ping commits.

    A variant has another failover, or other commits."""

    def __init__(self, failover: Failover = Failover.WAIT, commits: Commits = Commits.PING) -> None:
        self.failover = failover
        self.commits = commits
        self.name, self.idea = VARIANTS[failover, commits], ""
        self.is_variant = (failover, commits) != (Failover.WAIT, Commits.PING)
        if not self.is_variant:
            self.idea = (
                "The coordinator calls the consumers: it pings them, which commits their offsets, and for "
                "each change sends Stop to all, waits for the last answer, and sends Start to all; a new one "
                "waits until they have registered again."
            )

    def sentence(self, figures: RunFigures, base: RunFigures) -> str:
        if self.failover is Failover.LOG:
            return (
                "A new coordinator reads the log, and stops nobody who registers again: "
                f"{figures.unowned_s:,.0f} partition-seconds without work instead of {base.unowned_s:,.0f}, "
                f"{figures.needless_stops:,} needless stops instead of {base.needless_stops:,}."
            )
        if self.commits is Commits.OFFSET_COMMIT:
            more = figures.messages.total() - base.messages.total()
            return (
                f"Without auto_commit, consumers send OffsetCommit every {COMMIT_MS // 1000} s: "
                f"{figures.repeated_items:,} items repeated instead of {base.repeated_items:,}, for "
                f"{plural(more, 'message')} more."
            )
        if self.commits is Commits.NONE:
            return (
                "Without auto_commit or OffsetCommit, each Start begins at the first item: "
                f"{figures.repeated_items:,} items repeated instead of {base.repeated_items:,}."
            )
        return (
            "Every change, and every new coordinator, stopped all members until the last one had answered: "
            f"{plural(figures.needless_stops, 'needless stop')}, {figures.unowned_s:,.0f} partition-seconds "
            f"without work, and {figures.repeated_items:,} items repeated, done since the last Ping."
        )

    def begin(self, schedule: Schedule, ledger: Ledger) -> None:
        self.ledger = ledger
        self.world = World(schedule.seed)
        self.rng = random.Random(f"{schedule.seed}/push")
        self.topics = dict(schedule.topics)
        self.view = _View(self.topics)
        self.members: dict[str, _PushMember] = {}
        self.lines: dict[int, _Line] = {}
        self.numbers = count(1)
        self.leader: int | None = None
        self.down: set[int] = set()
        self._next_leader = 0
        self._group: PushGroup | None = None
        self._incarnation = 0
        self._elect(Failover.LOG)

    def run_until(self, at_ms: float) -> None:
        self.world.run_for(max(at_ms - self.world.now_ms, 0.0))

    def meet(self, event: ScheduledEvent) -> None:
        match event:
            case Join():
                self.members[event.member] = _PushMember(self, event.member)
            case Leave():
                self.members.pop(event.member).leave()
            case Slow():
                self.members[event.member].slow(event.for_ms)
            case GrowTopic():
                self.topics[event.topic] = event.num_partitions
                self.tell(PushMoment.TOPICS_CHANGED)
            case KillCoordinator():
                self._kill(event.for_ms)

    # The coordinator.

    def _elect(self, failover: Failover) -> None:
        """A broker becomes coordinator, with the state of the log; the first one has nothing to wait for."""
        self._incarnation += 1
        while self._next_leader in self.down:
            self._next_leader = (self._next_leader + 1) % len(BROKERS)
        self.leader = self._next_leader
        settings = PushSettings(topics=tuple(self.topics), failover=failover)
        self._group = PushGroup(GROUP, settings, self.view)
        self.tell(PushMoment.LOADED)

    def _kill(self, for_ms: float) -> None:
        if self.leader is None:
            return
        killed, self.leader, self._group = self.leader, None, None
        self.down.add(killed)
        self._incarnation += 1
        for line in list(self.lines.values()):
            self.close(line)
        self.later(ELECTION_MS, lambda: self._elect(self.failover))
        self.later(for_ms, lambda: self.down.discard(killed))

    def tell(self, event: Event) -> None:
        """Let the coordinator decide; its messages leave when its entry is committed."""
        group = self._group
        if group is None:
            return
        now_ms = int(self.world.now_ms)
        decision = group.on(event, now_ms, START_WALL_MS + now_ms)
        self.view.write(decision)
        self.later(ENTRY_MS, lambda: self._committed(decision))
        if group.next_ms is not None:
            self.later(max(group.next_ms - self.world.now_ms, 0.0), lambda: self._look(group))

    def _look(self, group: PushGroup) -> None:
        is_due = group.next_ms is not None and group.next_ms <= self.world.now_ms
        if group is self._group and is_due:
            self.tell(PushMoment.TIME_PASSED)

    def _committed(self, decision: PushDecision) -> None:
        for number, command in decision.sends:
            if (line := self.lines.get(number)) is not None:
                self.ledger.message(type(command).__name__.removesuffix("Request"))
                self._to_member(line, command)
        for number, _ in decision.closes:
            if (line := self.lines.get(number)) is not None:
                self.close(line)

    def _to_member(self, line: _Line, command: Command | None) -> None:
        self.later(LINK_MS, lambda: line.member.reached(line, command))

    def close(self, line: _Line) -> None:
        """Close a connection from the coordinator's side."""
        if self.lines.pop(line.number, None) is not None:
            self._to_member(line, None)
            self.tell(ConnectionClosed(line.number))

    # What members use.

    def later(self, delay_ms: float, do: Callable[[], object]) -> None:
        self.world.at(self.world.now_ms + delay_ms, do)

    def register(self, member: _PushMember, action: RegisterAt) -> _Line:
        """Open a connection to an address, and send Register."""
        line = _Line(next(self.numbers), member)
        incarnation = self._incarnation

        def reach() -> None:
            if self.leader is None or ADDRESSES[self.leader] != action.address:
                self._to_member(line, None)
            elif incarnation == self._incarnation and line.is_open:
                self.lines[line.number] = line
                self.tell(Registered(line.number, action.request))

        self.ledger.message("Register")
        self.later(LINK_MS, reach)
        return line

    def answer(self, line: _Line, payload: bytes) -> None:
        """Carry an answer of a member."""

        def reach() -> None:
            if line.number in self.lines:
                self.tell(FrameReceived(line.number, payload))

        self.later(LINK_MS, reach)

    def offset_commit(self, member: str, positions: dict[PartitionId, int]) -> None:
        """Carry an OffsetCommit on a connection of its own. One that is lost or refused is not repeated."""
        offsets = [
            OfferedOffset(topic, partition_number(name), offset)
            for (topic, name), offset in positions.items()
        ]

        def reach() -> None:
            if self._group is not None:
                self.tell(OffsetsOffered(member, offsets))
                self.later(ENTRY_MS, lambda: self.ledger.message("OffsetCommit"))

        self.ledger.message("OffsetCommit")
        self.later(LINK_MS, reach)

    def hang_up(self, line: _Line) -> None:
        """Close a connection from the member's side."""
        line.is_open = False

        def reach() -> None:
            if self.lines.pop(line.number, None) is not None:
                self.tell(ConnectionClosed(line.number))

        self.later(LINK_MS, reach)


VARIANTS: Final = {
    (Failover.WAIT, Commits.PING): "Push",
    (Failover.LOG, Commits.PING): "Push, from the log",
    (Failover.WAIT, Commits.OFFSET_COMMIT): "Push, OffsetCommit",
    (Failover.WAIT, Commits.NONE): "Push, no commits",
}
"""Names of the player and its variants."""


class _View:
    """What the coordinator reads of its log."""

    def __init__(self, topics: dict[str, int]) -> None:
        self._topics = topics
        self._projection = Projection()
        self._index = 0

    def value(self) -> PushGroupValue | None:
        found = self._projection.old_groups.get(PushGroupKey(group_id=GROUP))
        return found if isinstance(found, PushGroupValue) else None

    def committed(self, topic: str, topic_id: bytes, partition: int) -> int:
        return committed_offset(self._projection, GROUP, topic, topic_id, partition)

    def topic(self, name: str) -> Topic | None:
        return (ZERO_UUID, self._topics[name]) if name in self._topics else None

    def write(self, decision: PushDecision) -> None:
        if decision.records:
            self._index += 1
            self._projection.apply_all([encode_record(one) for one in decision.records], self._index)


@dataclass(eq=False, slots=True)
class _Line:
    """One connection of a member to the coordinator."""

    number: int
    member: _PushMember
    is_open: bool = True
    held: deque[Command] = field(default_factory=deque)
    """What came while the program did not poll."""


class _PushMember:
    """A consumer and its program."""

    def __init__(self, player: PushPlayer, name: str) -> None:
        register = RegisterRequest(
            group_id=GROUP,
            consumer_id=name,
            auto_commit=player.commits is Commits.PING,
            ping_interval_ms=HEARTBEAT_MS,
            max_ping_retries=RETRIES,
        )
        self._player = player
        self._name = name
        self._core = PushConsumerCore(register, ADDRESSES)
        self._line: _Line | None = None
        self._slow_until_ms = 0.0
        self._is_leaving = self._has_ended = False
        self._lookups = 0
        self._act(self._core.begin())
        if player.commits is Commits.OFFSET_COMMIT:
            player.later(COMMIT_MS, self._offset_commit)

    def slow(self, for_ms: float) -> None:
        """Do not poll for so long."""
        self._slow_until_ms = self._now_ms + for_ms
        self._player.later(for_ms, self._poll)

    def leave(self) -> None:
        """Quit as soon as the program polls."""
        self._is_leaving = True
        self._poll()

    @property
    def _now_ms(self) -> float:
        return self._player.world.now_ms

    @property
    def _slow_ms(self) -> float:
        """How long the program stays slow; 0 if it is not."""
        return max(self._slow_until_ms - self._now_ms, 0.0)

    def _poll(self) -> None:
        if self._slow_ms or self._has_ended:
            return
        if self._is_leaving:
            self._act(self._core.quit())
            self._has_ended = True
            return
        while self._line is not None and self._line.held:
            self._take(self._line.held.popleft())

    def reached(self, line: _Line, command: Command | None) -> None:
        """Take what came on a connection; None is its end."""
        if line is not self._line or self._has_ended:
            return
        if command is None:
            self._line = None
            self._act(self._core.closed(int(self._now_ms)))
        elif line.held or not isinstance(command, PingRequest):
            line.held.append(command)
            self._player.later(POLL_MS * self._player.rng.random(), self._poll)
        else:
            self._take(command)

    def _move_on(self) -> None:
        """Do what a fetcher does: move the positions on to what the program has done."""
        for topic, name in self._core.positions:
            part = topic, partition_number(name)
            at = self._player.ledger.next_item(self._name, part, self._now_ms)
            self._core.positions[topic, name] = at

    def _offset_commit(self) -> None:
        """Commit as the program does: one that is slow commits later."""
        if self._has_ended:
            return
        if not self._slow_ms and self._core.positions:
            self._move_on()
            self._player.offset_commit(self._name, dict(self._core.positions))
        self._player.later(self._slow_ms or COMMIT_MS, self._offset_commit)

    def _take(self, command: Command) -> None:
        self._move_on()
        self._act(self._core.received(frame(command)[SIZE_BYTES:], int(self._now_ms)))

    def _tick(self) -> None:
        is_due = self._core.next_ms is not None and self._core.next_ms <= self._now_ms
        is_held = self._line is not None and self._line.held
        if is_due and not is_held and not self._has_ended:
            self._act(self._core.time_passed(int(self._now_ms)))

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case AskBroker():
                    self._ask(action)
                case RegisterAt():
                    self._line = self._player.register(self, action)
                case SendAnswer() if self._line is not None:
                    self._player.ledger.message(type(action.answer).__name__)
                    self._player.answer(self._line, frame(action.answer, action.version)[SIZE_BYTES:])
                case CloseConnection() if self._line is not None:
                    line, self._line = self._line, None
                    self._player.hang_up(line)
                case GiveUp():
                    self._player.later(RESUME_MS, self._resume)
        first_items: dict[Part, int] = {
            (topic, partition_number(name)): max(offset, 0)  # auto_offset_reset is smallest
            for (topic, name), offset in self._core.positions.items()
        }
        self._player.ledger.works_on(self._name, first_items, self._now_ms)
        if self._core.next_ms is not None:
            self._player.later(max(self._core.next_ms - self._now_ms, 0.0), self._tick)

    def _resume(self) -> None:
        if not self._has_ended:
            self._act(self._core.begin())

    def _ask(self, action: AskBroker) -> None:
        self._lookups += 1
        lookup = self._lookups
        broker = ADDRESSES.index(action.address)
        self._player.ledger.message("Lookup")

        def answered() -> None:
            if self._has_ended or lookup != self._lookups:
                return
            response = None
            if broker not in self._player.down:
                self._player.ledger.message("Lookup")
                answer = lookup_response(self._player.leader, BROKERS)
                response = decode_lookup_response(frame(answer)[SIZE_BYTES:])
            self._act(self._core.looked_up(response, int(self._now_ms)))

        self._player.later(2 * LINK_MS, answered)
