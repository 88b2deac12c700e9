"""The product's own member (client/core/member), one heartbeat at a time, at the coordinator of a `World`.

A `Client` has no time of its own: `beat()` lets the member wait until its next heartbeat is due, and sends
it. Its callbacks end before that, unless the test says that they still run. A member that met an error that
trying again does not mend is over; the next `beat()` is that of another process with the same member id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from typing import Any

from client.core.assignors import AssignorOffer
from client.core.env import Environment
from client.core.errors import FatalError
from client.core.events import (
    AckPartitionAssignedEvent,
    AckPartitionRevokedEvent,
    AssignPartitionsEvent,
    BackgroundEvent,
    LeaveGroupEvent,
    LosePartitionsEvent,
    RevokePartitionsEvent,
    SubscribeEvent,
)
from client.core.member.member import ConsumerMember
from client.core.member.states import MemberState
from client.core.requests import ClientResponse, RequestFailure, UnsentRequest
from client.core.settings import ConsumerSettings
from client.core.types import TopicPartition
from tests.support.world import World
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

HEARTBEAT_VERSION = 1
LEAVE_MS = 30_000.0


class Surroundings:
    """The parts of a consumer that a lone member does without: topics are named by id, nothing is fetched."""

    fatal: FatalError | None = None

    def topic_name(self, topic_id: bytes) -> str:
        return topic_id.hex()

    def want_ids(self, ids: Iterable[bytes]) -> None: ...
    def begin(self, partitions: Mapping[TopicPartition, int | None], version: int) -> None: ...
    def end(self, partitions: Collection[TopicPartition]) -> None: ...
    def lost(self, node_id: int, why: str, now_ms: float) -> None: ...


class LoneMember(ConsumerMember):
    """A member whose callbacks and requests a `Client` ends."""

    def __init__(self, settings: ConsumerSettings, member_id: str) -> None:
        self.now_ms = 1_000.0
        self.settings = settings
        self._events: list[BackgroundEvent] = []
        self._versions = count(1)
        env = Environment(
            now_ms=lambda: self.now_ms,
            wall_ms=lambda: self.now_ms,
            uniform=lambda: 0.5,
            fresh_id=lambda: member_id,
        )
        around = Surroundings()
        super().__init__(settings, env, self._events.append, around, around, around)

    @property
    def has_ended(self) -> bool:
        return self.membership.state in (MemberState.FATAL, MemberState.UNSUBSCRIBED)

    def subscribe(self, subscription: SubscribeEvent) -> None:
        if subscription != self.membership.subscription or self.has_ended:
            self.membership.subscribe(subscription, self.now_ms)

    def run_callbacks(self) -> None:
        """Reconcile, and end every callback, until there is no other."""
        self.assignment.poll(self.now_ms)
        while self._events:
            self._acknowledge(self._events.pop(0))
            self.assignment.poll(self.now_ms)

    def run_on_lost(self) -> None:
        """End the callback for lost partitions; others may still run."""
        if self._events and isinstance(self._events[-1], LosePartitionsEvent):
            self.run_callbacks()

    def _acknowledge(self, event: BackgroundEvent) -> None:
        if isinstance(event, AssignPartitionsEvent):
            version = next(self._versions)
            self.membership.acknowledge(
                AckPartitionAssignedEvent(round=event.round, version=version), self.now_ms
            )
        elif isinstance(event, RevokePartitionsEvent | LosePartitionsEvent):
            self.membership.acknowledge(AckPartitionRevokedEvent(round=event.round), self.now_ms)

    def next_heartbeat(self) -> UnsentRequest:
        self.now_ms = self.heartbeats.due_ms(self.now_ms)
        (request,) = self.heartbeats.poll(self.now_ms).requests
        return request

    def leave(self, *, closes: bool) -> UnsentRequest | None:
        """Return the heartbeat that leaves, if the coordinator knows the member."""
        event = LeaveGroupEvent(closes=closes, future=Future(), deadline_ms=self.now_ms + LEAVE_MS)
        self.membership.leave(event, self.now_ms)
        self.run_callbacks()
        return next(iter(self.heartbeats.poll(self.now_ms).requests), None)

    def answer(self, request: UnsentRequest, version: int, body: Any) -> None:
        """End a request; without a body, the connection ended before the answer arrived."""
        failure = RequestFailure.DISCONNECTED if body is None else None
        request.then(ClientResponse(body, failure, version, 1, self.now_ms))
        self.run_on_lost()


class Client:
    """One consumer. Its settings may be changed while it is a member, as those of no real process can."""

    def __init__(
        self,
        world: World,
        member_id: str,
        topics: Sequence[str] = ("orders",),
        group_id: str = "g",
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int = 60_000,
        instance_id: str | None = None,
    ) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = tuple(topics)
        self.group_id = group_id
        self.regex = regex
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.offers: Sequence[AssignorOffer] = ()
        self.asks_tokens = False
        self.last_error = 0
        self._member: LoneMember | None = None
        self._named = self._names

    # The member.

    @property
    def member(self) -> LoneMember:
        """The process of now; another one if the last has ended."""
        if self._member is None or self._member.has_ended or self._names != self._named:
            self._named = self._names
            settings = ConsumerSettings(group_id=self.group_id, group_instance_id=self.instance_id)
            self._member = LoneMember(settings, self.member_id)
        for name, value in self._changing().items():
            object.__setattr__(self._member.settings, name, value)
        self._member.subscribe(
            SubscribeEvent(
                topics=frozenset(self.topics),
                regex=self.regex or None,
                assignors=tuple(self.offers),
                leases=self.asks_tokens,
            )
        )
        return self._member

    @property
    def _names(self) -> tuple[str, str, str | None]:
        return self.group_id, self.member_id, self.instance_id

    def _changing(self) -> dict[str, Any]:
        """The settings that tests change while it is a member."""
        return {
            "group_remote_assignor": self.assignor,
            "max_poll_interval_ms": self.rebalance_timeout_ms,
            "client_rack": self.rack_id or "",
        }

    @property
    def epoch(self) -> int:
        """The epoch of its next heartbeat."""
        return 0 if self._member is None else max(self._member.membership.member_epoch, 0)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        """Let it believe in an epoch; 0 is the epoch of a process that has just begun."""
        if epoch:
            self.member.membership.member_epoch = epoch
        else:
            self.crash()

    @property
    def owned(self) -> dict[bytes, set[int]]:
        """The partitions that it was given last, by topic id."""
        found: dict[bytes, set[int]] = {}
        for part in self._member.membership.target if self._member is not None else ():
            found.setdefault(part.topic_id, set()).add(part.partition)
        return found

    def partitions(self, topic_id: bytes) -> list[int]:
        return sorted(self.owned.get(topic_id, ()))

    @property
    def has_news(self) -> bool:
        """Whether its assignment changed since the coordinator last heard that it was taken."""
        return self._member is not None and self._member.membership.state in (
            MemberState.RECONCILING,
            MemberState.ACKNOWLEDGING,
        )

    # What it does.

    def beat(self, *, lose_reply: bool = False, acknowledge: bool = True) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat; without `acknowledge` while its callbacks run. After a lost reply the next one
        says everything."""
        member = self.member
        if acknowledge:
            member.run_callbacks()
        return self._send(member, member.next_heartbeat(), lose_reply)

    def forget(self) -> None:
        """Lose a heartbeat before anybody hears it, so that the next one says everything."""
        request = self.member.next_heartbeat()
        self.member.answer(request, HEARTBEAT_VERSION, None)

    def crash(self) -> None:
        """End the process without leaving; the next heartbeat is another one's."""
        self._member = None

    def subscribe(self, topics: Sequence[str], regex: str = "") -> None:
        self.topics, self.regex = tuple(topics), regex

    def leave(self, *, for_good: bool = True) -> ConsumerGroupHeartbeatResponse:
        """Leave; a static member may mean to return. One that is no member says so all the same."""
        member = self.member
        request = member.leave(closes=not for_good)
        if request is not None:
            return self._send(member, request, False)
        epoch = -1 if for_good else -2
        return self.world.heartbeat(
            self.member_id, epoch, group_id=self.group_id, instance_id=self.instance_id
        )

    def restart(self, member_id: str) -> ConsumerGroupHeartbeatResponse:
        """Stop the process and start another one with its instance id."""
        self.leave(for_good=False)
        self.member_id = member_id
        return self.beat()

    def _send(self, member: LoneMember, request: UnsentRequest, is_lost: bool) -> Any:
        version = HEARTBEAT_VERSION if request.versions is None else request.versions[1]
        answer = self.world.beat(request.api, version, request.build(version))
        member.answer(request, version, None if is_lost else answer)
        if not is_lost:
            self.last_error = answer.error_code
        return answer


def settle(clients: Iterable[Client], rounds: int = 3) -> None:
    """Let every client send heartbeats for some rounds."""
    clients = list(clients)
    for _ in range(rounds):
        for client in clients:
            client.beat()
