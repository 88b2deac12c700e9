"""A member without a network: its managers in virtual time, with an application that runs callbacks.

`Agenda` is the time, `Application` what the member's events do on the application side, and `MemberHost` the
member itself. Its requests go to a function that a test gives: one that looks at them and answers by hand, or
`WorldLink` (tests/client/member_world.py), which asks the real coordinator.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from client.core.assignors import GroupToAssign, MemberPart
from client.core.env import Environment
from client.core.errors import FatalError
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    ApplicationEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    ComputeAssignmentEvent,
    ErrorEvent,
    InstallAssignmentEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    PollEvent,
    RevokePartitionsEvent,
    SubscribeEvent,
)
from client.core.member.member import ConsumerMember
from client.core.requests import ClientResponse, RequestFailure, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import ConsumerAssignment, TopicPartition
from wire.protocol import encode_request
from wire.schema import Message

PASSES_MAX = 100
"""Passes of a background side without time going on, before a test takes it for a storm."""


class Agenda:
    """Virtual time, and what happens when."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self._due: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = itertools.count()

    def at(self, time_ms: float, call: Callable[..., object], *arguments: Any) -> None:
        heapq.heappush(self._due, (max(time_ms, self.now_ms), next(self._count), call, arguments))

    def after(self, ms: float, call: Callable[..., object], *arguments: Any) -> None:
        self.at(self.now_ms + ms, call, *arguments)

    def run(self, ms: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + ms
        while self._due and self._due[0][0] <= end_ms:
            self.now_ms, _, call, arguments = heapq.heappop(self._due)
            call(*arguments)
        self.now_ms = end_ms


@dataclass
class Names:
    """The names of topics, of which some may not be known yet."""

    known: dict[bytes, str] = field(default_factory=dict)
    wanted: set[bytes] = field(default_factory=set)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.known.get(topic_id)

    def want_ids(self, ids: Collection[bytes]) -> None:
        self.wanted |= set(ids)


@dataclass
class Positions:
    """The partitions that are fetched."""

    fetched: set[TopicPartition] = field(default_factory=set)

    def begin(self, partitions: Mapping[TopicPartition, int | None], version: int) -> None:
        self.fetched |= partitions.keys()

    def end(self, partitions: Collection[TopicPartition]) -> None:
        self.fetched -= set(partitions)


@dataclass
class Coordinator:
    """Counts how often the coordinator had to be found again."""

    losses: list[str] = field(default_factory=list)
    fatal: FatalError | None = None

    def lost(self, node_id: int, why: str, now_ms: float) -> None:
        self.losses.append(why)


@dataclass
class Application:
    """The application side, one callback at a time: what it has, and what it was told."""

    agenda: Agenda
    tell: Callable[[ApplicationEvent], None]
    callback_ms: Callable[[], float] = lambda: 0.0
    holds_callbacks: bool = False
    """Whether callbacks end only when a test says so."""
    has: set[TopicPartition] = field(default_factory=set)
    tokens: dict[TopicPartition, int] = field(default_factory=dict)
    """The fencing token of each partition that it got, if it asks for them."""
    told: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    assignments: list[ConsumerAssignment] = field(default_factory=list)
    """The arguments of a client-side assignor's on_assignment."""
    assign: Callable[[GroupToAssign], Mapping[str, MemberPart]] = lambda group: {}
    """The client-side assignor."""
    computed: list[GroupToAssign] = field(default_factory=list)
    """The groups for which it was run."""
    changed: Callable[[], None] = lambda: None
    """Called whenever `has` changes."""
    gained: Callable[[Mapping[TopicPartition, int]], None] = lambda tokens: None
    """Called with the tokens of partitions that it got."""
    _events: deque[BackgroundEvent] = field(default_factory=deque)
    _running: BackgroundEvent | None = None
    _version: int = 0

    def add(self, event: BackgroundEvent) -> None:
        self._events.append(event)
        self._next()

    @property
    def is_busy(self) -> bool:
        """Whether a callback runs, in a poll() that has not returned."""
        return self._running is not None

    def in_use(self) -> set[TopicPartition]:
        """The partitions that it has, without those that are lost or should have been given up by now."""
        given_up = [
            event.partitions
            for event in (self._running, *self._events)
            if isinstance(event, LosePartitionsEvent)
            or (isinstance(event, RevokePartitionsEvent) and event.deadline_ms <= self.agenda.now_ms)
        ]
        return self.has.difference(*given_up)

    def _next(self) -> None:
        while self._running is None and self._events:
            event = self._events.popleft()
            if isinstance(event, ErrorEvent):
                self.errors.append(event.error)
                continue
            if isinstance(event, ComputeAssignmentEvent):
                self._compute(event)
                continue
            self._running = event
            if isinstance(event, AssignPartitionsEvent):
                self.has |= event.partitions
                self.tokens |= event.tokens
                self.gained({part: token for part, token in event.tokens.items() if part in self.in_use()})
                self.changed()
                self._say("assigned", event.partitions)
                if event.assignment is not None:
                    self.assignments.append(event.assignment)
            elif isinstance(event, RevokePartitionsEvent):
                self._say("revoking", event.partitions & self.has)
            if not self.holds_callbacks:
                self.agenda.after(self.callback_ms(), partial(self.end_callback, event))

    def end_callback(self, event: BackgroundEvent | None = None) -> None:
        """End the callback that runs, and acknowledge its event."""
        event = event or self._running
        if event is not self._running or event is None:
            return
        self._running = None
        if isinstance(event, AssignPartitionsEvent):
            self._version += 1
            self.tell(AckPartitionAssignedEvent(round=event.round, version=self._version))
        elif isinstance(event, RevokePartitionsEvent | LosePartitionsEvent):
            gone = event.partitions & self.has
            self.has -= gone
            self.changed()
            self._say("revoked" if isinstance(event, RevokePartitionsEvent) else "lost", gone)
            self.tell(AckPartitionRevokedEvent(round=event.round))
        self._next()

    def _compute(self, event: ComputeAssignmentEvent) -> None:
        self.computed.append(event.group)
        result: Any
        try:
            result = self.assign(event.group)
        except Exception as error:
            result = error
        self.agenda.after(
            self.callback_ms(), lambda: self.tell(InstallAssignmentEvent(round=event.round, result=result))
        )

    def _say(self, what: str, partitions: Iterable[TopicPartition]) -> None:
        self.told.append(" ".join([what, *(f"{name}:{number}" for name, number in sorted(partitions))]))


class MemberHost:
    """One member, whose background side makes a pass whenever something happened."""

    def __init__(
        self,
        agenda: Agenda,
        send: Callable[[MemberHost, UnsentRequest], None],
        member_id: str = "m1",
        *,
        names: Mapping[bytes, str] | None = None,
        **settings: Any,
    ) -> None:
        self.agenda = agenda
        self.env = Environment(
            now_ms=lambda: agenda.now_ms,
            wall_ms=lambda: 1_700_000_000_000 + int(agenda.now_ms),
            uniform=lambda: 0.5,
            fresh_id=lambda: member_id,
        )
        self.settings = ConsumerSettings(**{"group_id": "g", **settings})
        self.names = Names(dict(names or {}))
        self.positions = Positions()
        self.coordinator = Coordinator()
        self.application = Application(agenda, self.tell)
        self.member = ConsumerMember(
            self.settings, self.env, self._emit, self.names, self.coordinator, self.positions
        )
        self.states: list[str] = [self.membership.state.name]
        """Every state that it was in, in order."""
        self.is_stopped = False
        """Whether its process is gone."""
        self.polls = True
        """Whether the application is in its loop of polls, rather than lost in its own work."""
        self.send = send
        self._has_emitted = False
        self._wake_ms = -1.0

    @property
    def membership(self) -> Any:
        return self.member.membership

    @property
    def state(self) -> str:
        name: str = self.membership.state.name
        return name

    # The application's calls.

    def tell(self, event: ApplicationEvent) -> None:
        if self.is_stopped:
            return
        self.member.handlers[event.type](event, self.agenda.now_ms)
        self.run()

    def subscribe(self, *topics: str, **fields: Any) -> None:
        self.tell(SubscribeEvent(topics=frozenset(topics), **fields))

    def leave(self, *, closes: bool = False, timeout_ms: float = 30_000) -> Future[None]:
        future: Future[None] = Future()
        self.tell(LeaveGroupEvent(closes=closes, future=future, deadline_ms=self.agenda.now_ms + timeout_ms))
        return future

    def poll(self) -> None:
        self.tell(PollEvent())

    def poll_every(self, ms: float) -> None:
        """Poll from now on as long as the process lives, unless a callback runs."""

        def again() -> None:
            if not self.is_stopped:
                if self.polls and not self.application.is_busy:
                    self.poll()
                self.agenda.after(ms, again)

        again()

    # The background side.

    def run(self) -> None:
        """Make passes until the member has nothing to do now."""
        for _ in range(PASSES_MAX):
            if self.is_stopped:
                return
            self._note()
            wait_ms = float("inf")
            for manager in self.member.managers:
                wanted = manager.poll(self.agenda.now_ms)
                self._note()
                for request in wanted.requests:
                    self.send(self, request)
                wait_ms = min(wait_ms, wanted.wait_ms)
            if wait_ms > 0:
                self._wake(wait_ms)
                return
        raise AssertionError("the background side does not come to rest")

    def _wake(self, wait_ms: float) -> None:
        time_ms = self.agenda.now_ms + wait_ms
        if wait_ms != float("inf") and not self.agenda.now_ms < self._wake_ms <= time_ms:
            self._wake_ms = time_ms
            self.agenda.at(time_ms, self.run)

    def _emit(self, event: BackgroundEvent) -> None:
        self.agenda.after(0, lambda: None if self.is_stopped else self.application.add(event))

    def _note(self) -> None:
        if self.states[-1] != self.state:
            self.states.append(self.state)

    def answer(
        self,
        request: UnsentRequest,
        body: Message | None,
        failure: RequestFailure | None = None,
        *,
        version: int = 1,
        words: str = "",
    ) -> None:
        """End a request."""
        if self.is_stopped:
            return
        now_ms = self.agenda.now_ms
        request.then(ClientResponse(body, failure, version, 1, now_ms, words))
        self._note()
        self.run()


def built(request: UnsentRequest, version: int) -> Any:
    """The body of a request, after it was encoded once."""
    body = request.build(version)
    encode_request(request.api, version, 1, "client", body)
    return body
