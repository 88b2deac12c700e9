"""One group for one situation: members of any stock client, its topic, and the faults that it meets."""

from __future__ import annotations

import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cluster.launching.launcher import NodeProcess
from quorate.client import Client
from quorate.http_client import ask_json
from tests.support import stock_clients
from tests.support.python_clients import MEMBERS, Feed, PolledMember
from tests.support.verifiable import VerifiableConsumer
from tests.support.waiting import wait_for

SETTINGS = {
    "faults.enable": "true",
    "scratch.log.enable": "true",
    "auto.create.topics.enable": "false",  # a topic that is deleted stays so
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
}
ROOT = Path(__file__).parents[2]
PARTITIONS = 4
ALL = frozenset(range(PARTITIONS))
WITHIN_S = 40.0
"""Longer than a session, and than what a client waits before it asks again."""


class StagedMember(ABC):
    """The parts of a running consumer that a situation needs."""

    name: str

    @property
    @abstractmethod
    def assigned(self) -> frozenset[int]: ...

    @property
    @abstractmethod
    def committed(self) -> dict[int, int]:
        """The newest offset of each partition whose commit succeeded."""

    @property
    @abstractmethod
    def errors(self) -> list[str]:
        """The events that the client told its application."""

    @property
    @abstractmethod
    def has_lost(self) -> bool:
        """Whether it was told to have lost partitions."""

    @property
    @abstractmethod
    def gave_up(self) -> bool:
        """Whether it lost partitions, also if its client only says that they were revoked."""

    @abstractmethod
    def when_revoking(self, call: Callable[[], None]) -> bool:
        """Run `call` once in the callback for revoked partitions; False if this client cannot be told to."""

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class InThisProcess(StagedMember):
    """A client of Python."""

    def __init__(self, polled: PolledMember) -> None:
        self.name, self._polled = polled.name, polled

    assigned = property(lambda self: self._polled.assigned)
    committed = property(lambda self: dict(self._polled.acknowledged))
    errors = property(lambda self: self._polled.errors)
    has_lost = property(lambda self: bool(self._polled.lost))
    gave_up = has_lost

    def when_revoking(self, call: Callable[[], None]) -> bool:
        def once() -> None:
            self._polled.while_revoking = lambda: None
            call()

        self._polled.while_revoking = once
        return True

    def kill(self) -> None:
        raise NotImplementedError("a thread cannot be killed")

    def close(self) -> None:
        self._polled.while_revoking = lambda: None  # the situation is over
        self._polled.close()


class InAnotherProcess(StagedMember):
    """A client that tells in lines what happens to it."""

    def __init__(self, name: str, consumer: VerifiableConsumer, waits_in_callback: bool = False) -> None:
        self.name, self._consumer, self._waits_in_callback = name, consumer, waits_in_callback

    assigned = property(lambda self: frozenset(self._consumer.assigned))
    committed = property(lambda self: {number: at for (_, number), at in [*self._consumer.committed.items()]})
    has_lost = property(lambda self: "partitions_lost" in self._consumer.events)
    gave_up = property(lambda self: bool(self._consumer.revoked))

    @property
    def errors(self) -> list[str]:
        told = [event for event in self._consumer.events if event in ("fetch_failed", "crash")]
        ended = [] if self._consumer.is_running else ["the process ended"]
        return [*self._consumer.commit_errors, *told, *ended]

    def when_revoking(self, call: Callable[[], None]) -> bool:
        def once() -> None:
            self._consumer.while_revoking = lambda: None
            call()

        self._consumer.while_revoking = once
        return self._waits_in_callback

    def kill(self) -> None:
        self._consumer.kill()

    def close(self) -> None:
        self._consumer.forget()


class StagedGroup:
    """One group with its topic, its members and its faults."""

    def __init__(self, node: NodeProcess, client: str) -> None:
        self.node, self.client = node, client
        self.bootstrap = f"{node.host}:{node.port}"
        self.group = f"group-{uuid.uuid4().hex[:12]}"
        self.topic = f"of-{self.group}"
        self.is_classic = "consumer" not in client
        self.beats = "Heartbeat" if self.is_classic else "ConsumerGroupHeartbeat"
        self.joins = "JoinGroup" if self.is_classic else "ConsumerGroupHeartbeat"
        self._ends = ExitStack()

    def __enter__(self) -> StagedGroup:
        with Client(self.bootstrap) as client:
            client.create_topic(self.topic, PARTITIONS)
        self._feeding = self._ends.enter_context(ExitStack())
        self._feed = self._feeding.enter_context(Feed(self.bootstrap, self.topic, PARTITIONS, every_s=0.1))
        return self

    def falls_silent(self, member: StagedMember) -> None:
        """Produce no more, and wait until the only member has committed everything."""
        self._feeding.close()
        self.wait(lambda: [*member.committed.values()] == [self._feed.produced] * PARTITIONS, "all commits")

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def join(
        self,
        name: str,
        instance: str | None = None,
        in_process: bool = False,
        session_ms: int | None = None,
    ) -> StagedMember:
        """Start one more member under a client id of its own; its session has that length if given."""
        if session_ms is not None and not self.is_classic:
            with Client(self.bootstrap) as client:
                client.configure_group(self.group, {"consumer.session.timeout.ms": str(session_ms)})
        return self._joined(self._start(self.named(name), instance, in_process, session_ms))

    def join_to_revoke(self, name: str) -> StagedMember:
        """Start a member that can be told what to do in its callback, if its client has one."""
        stock = stock_clients.CLIENTS.get(self.client)
        if stock is None or not stock.waits_in_callback:
            return self.join(name)
        named = self.named(name)
        consumer = stock.consumer(self.bootstrap, self.topic, self.group, client_id=named, role="wait")
        return self._joined(InAnotherProcess(named, consumer, waits_in_callback=True))

    def _joined(self, member: StagedMember) -> StagedMember:
        self._ends.callback(member.close)
        return member

    def named(self, name: str) -> str:
        """The client id that a member of this name has."""
        return f"{name}-{self.group}"

    def _start(
        self, name: str, instance: str | None, in_process: bool, session_ms: int | None
    ) -> StagedMember:
        if self.client in MEMBERS and not in_process:
            settings: dict[str, Any] = {"group.instance.id": instance} if instance else {}
            if session_ms is not None:
                settings["session.timeout.ms"] = session_ms
            return InThisProcess(
                MEMBERS[self.client](self.bootstrap, self.group, self.topic, name, **settings)
            )
        if self.client in MEMBERS:
            words = (self.client, self.bootstrap, self.group, self.topic, name)
            command = [sys.executable, "-W", "ignore", "-m", "tests.support.python_clients", *words]
            return InAnotherProcess(name, VerifiableConsumer(command, {"PYTHONPATH": str(ROOT)}))
        options = ["--group-instance-id", instance] if instance else []
        if session_ms is not None and self.is_classic:
            options += ["--session-timeout", str(session_ms)]
        stock = stock_clients.CLIENTS[self.client]
        consumer = stock.consumer(self.bootstrap, self.topic, self.group, *options, client_id=name)
        return InAnotherProcess(name, consumer)

    def fault(
        self, action: str, api: str, member: StagedMember | None = None, **more: Any
    ) -> Callable[[], int]:
        """Set a fault; the result tells how often it was applied."""
        body = {"action": action, "api": api, "group": self.group, **more}
        if member is not None:
            body["client_id"] = member.name
        number = ask_json(f"{self.node.url}/v1/faults", 5, body, method="POST")["id"]

        def applied() -> int:
            faults = ask_json(f"{self.node.url}/v1/faults", 5)["faults"]
            return int(next(one["applied"] for one in faults if one["id"] == number))

        return applied

    def wait(self, condition: Callable[[], object], what: str) -> None:
        wait_for(condition, f"{self.client}: {what}", WITHIN_S)

    def members(self) -> int:
        """The number of members that the coordinator has."""
        described: dict[str, Any] = ask_json(f"{self.node.url}/v1/groups/{self.group}", 5)["group"]
        return int(described["num_members"])

    def wait_until_shared(self, *members: StagedMember) -> None:
        def are_shared() -> bool:
            owned = [member.assigned for member in members]
            return all(owned) and sum(map(len, owned)) == PARTITIONS and frozenset().union(*owned) == ALL

        def report() -> str:
            return f"{self.client}: shared {[(sorted(one.assigned), one.errors[-3:]) for one in members]}"

        wait_for(are_shared, report, WITHIN_S)

    def wait_until_all_commit(self, *members: StagedMember) -> None:
        before = [member.committed for member in members]
        self.wait(
            lambda: all(one.committed != old for one, old in zip(members, before, strict=True)), "commits"
        )

    def goes_on(self, *members: StagedMember) -> None:
        """Wait until these members, and no others, share all partitions and commit."""
        self.wait_until_shared(*members)
        self.wait_until_all_commit(*members)
        self.wait(lambda: self.members() == len(members), "no other member")
