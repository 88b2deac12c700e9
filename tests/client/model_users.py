"""Users of consumers in a model cluster: their programs and callbacks, and what must always be true.

A user's program is what docs/client.md shows: it polls, works on the records, commits in one of the usual
ways, goes on after errors that may pass, and closes after a fatal one. Invariants, checked as soon as they
can fail:

- No partition is used by the programs of two members that are in the group for the coordinator. A program
  uses a partition from the beginning of on_assign to the end of on_revoke or on_lost. One whose member was
  removed or left uses what it had until it hears of it, which no protocol can prevent.
- poll() hands out records of partitions that the program has, each in order and none left out.
- The coordinator's log has no commit that goes back, and none before its records were handed out.
- close() and unsubscribe() end within their time limit.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any, Final

from client.core.application import LEAVE_SHARE
from client.core.effects import Steps
from client.core.env import Environment
from client.core.errors import ConsumerError, FatalError
from client.core.member.states import MemberState
from client.core.rebalance import RebalanceCallbacks
from client.core.settings import read_settings
from client.core.types import ConsumerRecord, TopicPartition
from cluster.simulator.virtual_consumer import GRACE_MS, Cancelled, RunningCall, Sleep, VirtualConsumer
from records import RecordType
from tests.client.model_cluster import GROUP, NODES, Connections, ModelCluster
from tests.support.world import Entry, World

POLL_MS: Final = 2_000.0
MAX_POLL_MS: Final = 8_000
CLOSE_MS: Final = 5_000.0
SETTINGS: Final[dict[str, Any]] = {
    "bootstrap_servers": ",".join(f"n{node}:9092" for node in NODES),
    "group_id": GROUP,
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": 1_000,
    "max_poll_interval_ms": MAX_POLL_MS,
    "request_timeout_ms": 3_000,
    "default_api_timeout_ms": 6_000,
    "fetch_max_wait_ms": 2_500,
    "socket_connection_setup_timeout_ms": 2_000,
}
COMMITS: Final = ("automatic", "sync", "async")


class UserError(Exception):
    """Raised by a user's callback."""


@dataclass
class Habits:
    """The present behaviour of the users' code."""

    callback_ms: float = 0.0
    """The longest time that a callback takes."""
    raises: float = 0.0
    """The share of callbacks that raise, from 0 to 1."""
    never_returns: float = 0.0
    work_ms: float = 0.0
    """The longest time that the work on records takes."""


class Group:
    """All users of one model cluster, and what they have done with the messages."""

    def __init__(self, cluster: ModelCluster) -> None:
        self.cluster = cluster
        self.habits = Habits()
        self.users: list[User] = []
        self.handed_out: dict[TopicPartition, int] = {}
        """The offset before which every record was handed out by some poll()."""
        self.committed: dict[TopicPartition, int] = {}
        self.errors: Counter[str] = Counter()
        """The errors that the programs met."""
        cluster.after_request.append(self.check_owners)
        cluster.on_farewell = self._check_farewell
        cluster.world.after_entry.append(self._check_commits)

    def user(self, name: str, topics: Collection[str], **settings: Any) -> User:
        """Start a consumer and its program."""
        user = User(self, name, topics, **settings)
        self.users.append(user)
        return user

    @property
    def living(self) -> list[User]:
        """The users whose process runs and whose consumer is not closed."""
        return [user for user in self.users if not user.is_over]

    def fail(self, what: str) -> None:
        raise AssertionError(
            "\n".join([f"at {self.cluster.agenda.now_ms:.0f} ms: {what}", *self.cluster.log[-40:]])
        )

    def check_owners(self) -> None:
        """No partition is used by two that are in the group."""
        group = self.cluster.world.shard.projection.groups.get(GROUP)
        members = group.members if group is not None else {}
        owners: dict[TopicPartition, User] = {}
        for user in self.users:
            if not user.holds or user.is_over:
                continue
            member = members.get(user.member_id)
            if member is not None and not member.is_away:
                for at in user.holds:
                    if at in owners:
                        self.fail(f"{at} is used by {owners[at].name} and {user.name}")
                    owners[at] = user

    def _check_farewell(self, member_id: str) -> None:
        """A member leaves when its program has given up everything, or has no time left for it."""
        for user in self.living:
            has_left = user.consumer.assembly.explain().state in (
                MemberState.LEAVING,
                MemberState.UNSUBSCRIBED,
            )
            has_time = self.cluster.agenda.now_ms < user.limit_ms
            if user.member_id == member_id and user.holds and has_left and has_time:
                self.fail(f"{user.name} leaves with {user.holds}")

    def hand_out(self, user: User, records: list[ConsumerRecord]) -> None:
        """Note what a poll() returned."""
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            if at not in user.holds:
                self.fail(f"{user.name} got a record of {at}, which it does not have")
            due = user.next_offset.get(at)
            if due is None:
                is_skipped = record.offset > max(self.handed_out.get(at, 0), self.committed.get(at, 0))
            else:
                is_skipped = record.offset != due
            if is_skipped:
                self.fail(f"{user.name} got offset {record.offset} of {at} and not {due}")
            user.next_offset[at] = record.offset + 1
            if record.offset == self.handed_out.get(at, 0):
                self.handed_out[at] = record.offset + 1

    def _check_commits(self, world: World, entry: Entry) -> None:
        for raw, record in zip(entry.records, entry.typed(), strict=True):
            if raw.type != RecordType.OFFSET_COMMIT or raw.value is None:
                continue
            key, value = record.key, record.value
            at = TopicPartition(key.topic, key.partition)
            if value.offset < self.committed.get(at, 0):
                self.fail(f"the commit of {at} goes back from {self.committed[at]} to {value.offset}")
            if value.offset > self.handed_out.get(at, 0):
                self.fail(f"{value.offset} of {at} is committed, and {self.handed_out.get(at, 0)} handed out")
            self.committed[at] = value.offset

    def is_done(self) -> bool:
        """Whether every message was handed out, and every member has what it should have."""
        logs = self.cluster.logs
        return (
            all(self.handed_out.get(at, 0) == logs[at].end for at in self.cluster.leaders)
            and all(user.is_stable for user in self.living)
            and {at for user in self.living for at in user.holds} == self.cluster.leaders.keys()
        )


class User:
    """A process with one consumer and one program."""

    def __init__(self, group: Group, name: str, topics: Collection[str], **settings: Any) -> None:
        self.group = group
        self.name = name
        self.topics = tuple(topics)
        self.rng = group.cluster.rng
        self.commits = self.rng.choice(COMMITS)
        self.holds: set[TopicPartition] = set()
        """The partitions that the program believes to have."""
        self.next_offset: dict[TopicPartition, int] = {}
        self.orders: deque[Callable[[], Steps[None]]] = deque()
        """The calls that the program makes before its next poll()."""
        self.is_closing = False
        self.is_closed = False
        self.is_stuck = False
        """Whether a callback of poll() runs that never returns."""
        self.limit_ms = 0.0
        """The time at which unsubscribe() or close() ends at the latest."""
        self.wall_ms = 1_700_000_000_000
        self._frozen_until_ms = 0.0
        self._agenda = group.cluster.agenda
        values = SETTINGS | {"enable_auto_commit": self.commits == "automatic"} | settings
        env = Environment(
            now_ms=lambda: self._agenda.now_ms,
            wall_ms=lambda: self.wall_ms,
            uniform=self.rng.random,
            fresh_id=lambda: f"id-of-{name}",
        )
        self.settings = read_settings(values)
        self.connections = Connections(group.cluster, lambda *call: self._arrive(*call))
        self.consumer = VirtualConsumer(self.settings, env, self.connections, self._call_later)
        self.connections.delegate = self.consumer.assembly.delegate
        self.connections.wake = self.consumer.wake
        self.application = self.consumer.application
        self.running: RunningCall = self.consumer.run(self._program(), self._ended)

    # The process.

    def _call_later(self, ms: float, call: Callable[..., object], *arguments: Any) -> None:
        self._agenda.after(ms, self._arrive, call, *arguments)

    def _arrive(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._agenda.now_ms < self._frozen_until_ms:
            self._agenda.at(self._frozen_until_ms, self._arrive, call, *arguments)
        elif not self.consumer.is_dead:
            call(*arguments)

    def freeze(self, ms: float) -> None:
        """Stop the process for a while, as a debugger or a virtual machine does; its clock goes on."""
        self._frozen_until_ms = max(self._frozen_until_ms, self._agenda.now_ms + ms)

    def cancel(self) -> None:
        """Cancel what the program does. Like `async with`, it closes the consumer then."""
        self._arrive(self.running.cancel)

    def kill(self) -> None:
        """End the process, without a word to anybody."""
        self.consumer.kill()
        for link in [*self.connections.links.values()]:
            link.is_open = False

    @property
    def is_over(self) -> bool:
        return self.consumer.is_dead or self.is_closed

    @property
    def member_id(self) -> str:
        return self.consumer.assembly.explain().member_id

    @property
    def is_stable(self) -> bool:
        """Whether the member is at the group's epoch, with nothing to do."""
        member = self.consumer.assembly.explain()
        group = self.group.cluster.world.shard.projection.groups.get(GROUP)
        if group is None or member.state is not MemberState.STABLE:
            return False
        return group.epoch == group.assignment_epoch == member.member_epoch

    # The program.

    def _program(self) -> Steps[None]:
        yield from self.subscribe(self.topics)
        while not self.is_closing:
            try:
                while self.orders:
                    yield from self.orders.popleft()()
                records = yield from self.application.poll(self.rng.choice((2, 7, 500)), POLL_MS)
                self.group.hand_out(self, records)
                if records:
                    yield from self._work()
            except FatalError as error:
                self.group.errors[type(error).__name__] += 1
                break
            except (UserError, ConsumerError) as error:
                self.group.errors[type(error).__name__] += 1
        yield from self._close()

    def _work(self) -> Steps[None]:
        yield Sleep(self.rng.random() * self.group.habits.work_ms)  # type: ignore[misc]
        if self.commits == "sync":
            yield from self.application.commit(None, self.rng.choice((500.0, 6_000.0)))
        elif self.commits == "async":
            self.application.commit_async(None, None)

    def subscribe(self, topics: Collection[str]) -> Steps[None]:
        callbacks = RebalanceCallbacks(self._on_assign, self._on_revoke, self._on_lost)
        return self.application.subscribe(topics, None, callbacks)

    def unsubscribe(self, timeout_ms: float) -> Steps[None]:
        """Give everything up, also if there was no time for on_revoke: the next poll() calls it then."""
        try:
            yield from self._limited("unsubscribe()", self.application.unsubscribe(timeout_ms), timeout_ms)
        finally:
            self.holds.clear()

    def _close(self, timeout_ms: float = CLOSE_MS) -> Steps[None]:
        try:
            yield from self._limited("close()", self.application.close(timeout_ms), timeout_ms)
        except (UserError, ConsumerError) as error:
            self.group.errors[type(error).__name__] += 1
        if self.holds:
            self.group.fail(f"{self.name} still has {self.holds} after close()")

    def _limited(self, what: str, steps: Steps[None], timeout_ms: float) -> Steps[None]:
        begun_ms = self._agenda.now_ms
        self.limit_ms = begun_ms + timeout_ms * LEAVE_SHARE
        try:
            yield from steps
        finally:
            self.limit_ms = 0.0
            end_ms = max(begun_ms + timeout_ms, self._frozen_until_ms) + 2 * GRACE_MS
            if self._agenda.now_ms > end_ms:
                self.group.fail(f"{what} of {self.name} took {self._agenda.now_ms - begun_ms:.0f} ms")

    def _ended(self, result: Any, error: BaseException | None) -> None:
        if isinstance(error, Cancelled) and not self.application.is_closed:
            self.running = self.consumer.run(self._close(), self._ended)
            return
        if error is not None and not isinstance(error, Cancelled):
            raise error
        self.is_closed = True
        self.consumer.kill()  # the flavours make no pass any more
        self.consumer.assembly.delegate.close(self._agenda.now_ms)

    # Its callbacks.

    def _on_assign(self, partitions: list[TopicPartition]) -> Steps[None]:
        for at in partitions:
            self.next_offset.pop(at, None)
        self.holds.update(partitions)
        self.group.check_owners()
        yield from self._take_time()

    def _on_revoke(self, partitions: list[TopicPartition]) -> Steps[None]:
        try:
            if self.commits == "sync":
                yield from self.application.commit(None, 1_000.0)
            yield from self._take_time()
        finally:
            self.holds.difference_update(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> Steps[None]:
        try:
            yield from self._take_time()
        finally:
            self.holds.difference_update(partitions)

    def _take_time(self) -> Generator[Any, Any, None]:
        habits, draw = self.group.habits, self.rng.random()
        if draw < habits.never_returns:
            self.group.errors["a callback that never returns"] += 1
            self.is_stuck = not self.application.is_closed
            try:
                yield Sleep(float("inf"))
            finally:
                self.is_stuck = False
        if habits.callback_ms:
            yield Sleep(self.rng.random() * habits.callback_ms)
        if draw > 1 - habits.raises:
            raise UserError
