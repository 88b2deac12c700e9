"""Members of the client's core and the coordinator of tests/support/world.py, joined in virtual time.

There is no network: `WorldLink` hands each request to the coordinator and the answer back, and does with both
what a network can do. A request may be lost or handled late, after the member has given up on it; an answer
may be lost or arrive twice. The coordinator handles the requests of one member in the order of their
sending: the protocol counts on it, as heartbeats have no numbers.

Invariant, checked whenever an application's partitions change and after each request: no partition is used by
the applications of two members that are in the group for the coordinator. Two uses do not count, because no
protocol can prevent them: an application whose member was removed or left uses what it had until it hears of
it, and a callback that exceeds its deadline uses what it should have given up. Commits of both are refused.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from client.core.requests import RequestFailure, UnsentRequest
from client.core.types import TopicPartition
from tests.client.member_host import Agenda, MemberHost
from tests.support.world import World
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.protocol import decode_request, decode_response, encode_request, encode_response

DELAY_MS = 10.0
"""The longest way of a request or an answer that is on time."""
REQUEST_TIMEOUT_MS = 1_000.0
LATE_MS = 3_000.0
"""The longest delay before a request is handled."""


@dataclass(frozen=True)
class Faults:
    """The rates at which the network fails, each from 0 to 1."""

    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    doubled: float = 0.0


NO_FAULTS = Faults()
BEATS = (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT)


@dataclass
class _Carried:
    """A request on its way, which ends once for the member."""

    host: MemberHost
    request: UnsentRequest
    version: int
    frame: bytes
    has_ended: bool = False

    def answer(self, body: Any, *, again: bool = False) -> None:
        if again or not self.has_ended:
            self.has_ended = True
            self.host.answer(self.request, body, version=self.version)

    def fail(self, failure: RequestFailure) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.host.answer(self.request, None, failure, words=failure.value)


class WorldLink:
    """A coordinator, and the members that talk to it."""

    def __init__(self, seed: int = 0, faults: Faults = NO_FAULTS, *, version: int = 1) -> None:
        self.rng = random.Random(seed)
        self.agenda = Agenda()
        self.world = World()
        self.faults = faults
        self.version = version
        self.members: list[MemberHost] = []
        self.names: dict[bytes, str] = {}
        self.log: list[str] = []
        """The events so far, for a person who reads a failure."""
        self.met: Counter[str] = Counter()
        """Faults that were injected, and errors that were answered."""
        self.world.now_ms = self.agenda.now_ms
        self.tokens: dict[TopicPartition, int] = {}
        """The highest fencing token of each partition so far."""
        self.cut: set[str] = set()
        """Members whose requests are all lost."""
        self._last_ms: dict[str, float] = {}
        """The time at which the last request of each member is handled."""

    def create_topic(self, name: str, partitions: int) -> None:
        self.names[self.world.create_topic(name, partitions)] = name

    def member(self, member_id: str, **settings: Any) -> MemberHost:
        settings = {"request_timeout_ms": int(REQUEST_TIMEOUT_MS), **settings}
        host = MemberHost(self.agenda, self.send, member_id, names=self.names, **settings)
        host.names.known = self.names
        host.application.changed = self.check
        host.application.gained = partial(self.check_tokens, host)
        self.members.append(host)
        return host

    # The network.

    def send(self, host: MemberHost, request: UnsentRequest) -> None:
        """Carry a request to the coordinator and its answer back, or fail to."""
        version = self.version if request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT else 0
        version = request.versions[1] if request.versions is not None else version
        carried = _Carried(
            host, request, version, encode_request(request.api, version, 1, "", request.build(version))
        )
        fault = "lost" if host.membership.member_id in self.cut else self._fault()
        self.met[fault] += 1
        self.agenda.after(request.timeout_ms, lambda: carried.fail(RequestFailure.TIMED_OUT))
        if fault in ("lost", "unanswered"):
            self.agenda.after(self._way(), lambda: carried.fail(RequestFailure.DISCONNECTED))
        if fault == "lost":
            return
        member_id = host.membership.member_id
        way_ms = request.timeout_ms + LATE_MS * self.rng.random() if fault == "late" else self._way()
        handled_ms = max(self.agenda.now_ms + way_ms, self._last_ms.get(member_id, 0.0))
        self._last_ms[member_id] = handled_ms
        self.agenda.at(handled_ms, partial(self._handle, carried, fault))

    def _way(self) -> float:
        return 1 + self.rng.random() * DELAY_MS

    def _fault(self) -> str:
        draw = self.rng.random()
        for name in ("lost", "unanswered", "late", "doubled"):
            draw -= getattr(self.faults, name)
            if draw < 0:
                return name
        return ""

    def _handle(self, carried: _Carried, fault: str) -> None:
        """Let the coordinator handle a request, and carry its answer back unless that is lost."""
        self.tick()
        header, body = decode_request(carried.frame[4:])
        api = ApiKey(header.api_key)
        handle = self.world.beat if api in BEATS else self.world.handle
        reply = handle(api, carried.version, body)
        self.log.append(f"{self.agenda.now_ms:.0f} {body} -> {'unheard' if fault == 'unanswered' else reply}")
        self.met[ErrorCode(reply.error_code).name] += 1
        if fault != "unanswered":
            frame = encode_response(api, carried.version, 1, reply)[4:]
            _, answer = decode_response(api, carried.version, frame)
            self.agenda.after(self._way(), partial(carried.answer, answer))
            if fault == "doubled":
                self.agenda.after(2 * DELAY_MS, partial(carried.answer, answer, again=True))
        self.check()

    def tick(self) -> None:
        """Let the coordinator's time catch up."""
        self.world.sleep(self.agenda.now_ms - self.world.now_ms)

    def run(self, ms: float, step_ms: float = 100.0) -> None:
        """Let time pass for everyone."""
        for _ in range(int(ms / step_ms)):
            self.agenda.run(step_ms)
            self.tick()

    def living(self) -> list[MemberHost]:
        """The members whose process has not stopped."""
        return [host for host in self.members if not host.is_stopped]

    def known_late(self, ms: float) -> None:
        """Let members know no topic's name for a while."""
        for host in self.members:
            host.names.known = {}

            def learn(host: MemberHost = host) -> None:
                host.names.known = self.names
                host.run()

            self.agenda.after(ms, learn)

    # What must always be true.

    def owners(self) -> dict[TopicPartition, list[str]]:
        """The members, of those that are in the group, whose applications use a partition."""
        group = self.world.shard.projection.groups.get("g")
        members = group.members if group is not None else {}
        present = {member_id for member_id, member in members.items() if not member.is_away}
        found: dict[TopicPartition, list[str]] = {}
        for host in self.living():
            if host.membership.member_id in present:
                for partition in host.application.in_use():
                    found.setdefault(partition, []).append(host.membership.member_id)
        return found

    def check_tokens(self, host: MemberHost, tokens: Mapping[TopicPartition, int]) -> None:
        """Each lease that an application begins has a higher token than all before."""
        group = self.world.shard.projection.groups.get("g")
        if group is None or host.membership.member_id not in group.members:
            return
        for partition, token in tokens.items():
            had = self.tokens.get(partition, -1)
            assert token > had, "\n".join([f"{partition} had {had}, now {token}", *self.log[-40:]])
            self.tokens[partition] = token

    def check(self) -> None:
        doubled = {partition: who for partition, who in self.owners().items() if len(who) > 1}
        assert not doubled, "\n".join([f"two owners: {doubled}", *self.log[-40:]])

    def is_settled(self) -> bool:
        """Whether every member is STABLE at the group's epoch and all partitions have an owner."""
        expected = {
            TopicPartition(name, number)
            for name in self.names.values()
            for number in range(self.partitions(name))
        }
        return (
            all(host.state == "STABLE" and self._is_current(host) for host in self.living())
            and self.owners().keys() == expected
        )

    def _is_current(self, host: MemberHost) -> bool:
        """Whether the coordinator has nothing to tell the member."""
        group = self.world.group()
        epochs = {group.epoch, group.assignment_epoch, host.membership.member_epoch}
        return len(epochs) == 1 and not host.membership.steps.running

    def partitions(self, name: str) -> int:
        topic = self.world.catalog.view.topic(name)
        return topic.num_partitions if topic is not None else 0
