"""Members of every kind: static ones, ones with expressions, ones that compute targets; and operators.

A member's process may end without leaving its group (`crash`); no process then owns the partitions of its
id. Operators remove such dead members, and configure groups at any node. They only lengthen sessions, since
clients go by the shortest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from tests.simulated.actors import REJOIN, Actor, Member
from tests.simulated.chronicle import ConfigWrite
from tests.simulated.talking import Connection
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages import consumer_group_install_assignment as install
from wire.messages import consumer_group_prepare_assignment as prepare
from wire.messages import extended_consumer_group_heartbeat as extended
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from wire.schema import Message

AWAY_SHARE: Final = 0.7
"""Share of a static member's departures after which it means to come back."""

EXPRESSIONS: Final = ("orders", "orders|events", "(?i)O.*", "e.+|o.+", "nothing.*")

ASSIGNOR: Final = "round"
COMPUTING_MS: Final = 1_500.0
REBALANCE_TIMEOUT_MS: Final = 3_000
"""Rebalance timeout of members that compute; one computation in ten takes twice as long."""

OPERATING_MS: Final = 700.0

INTERVAL: Final = "consumer.heartbeat.interval.ms"
CONFIGS: Final = {
    INTERVAL: 500,
    "consumer.assignment.interval.ms": 0,
    "consumer.session.timeout.ms": 4_000,
}
"""The least value that operators set, by config."""


class Versatile(Member):
    """A consumer that may be static, may subscribe by an expression, and changes its subscription."""

    def __init__(self, *args: Any, is_static: bool = False, is_regex: bool = False) -> None:
        super().__init__(*args)
        self.instance_id = self.name if is_static else None
        self.is_regex = is_regex
        self.expression = EXPRESSIONS[1]
        self.wanted: tuple[str, ...] = ()
        self.interval_ms = 0

    def _begin(self) -> None:
        super()._begin()
        self.interval_ms = 0

    def resubscribe(self) -> None:
        """Subscribe to other topics from now on."""
        rng = self.host.rng
        self.expression = rng.choice(EXPRESSIONS)
        self.wanted = tuple(name for name in self.topics if rng.random() < 0.7)
        self.must_say_all = True

    def crash(self) -> str:
        """End the process without leaving; another takes its place. Return the dead member's id."""
        dead = self.member_id
        self._own(set())
        self._begin()
        self.caller.moved()
        return dead

    def leave(self) -> None:
        if self.instance_id is None or self.host.rng.random() > AWAY_SHARE:
            super().leave()
        else:
            self._say_goodbye(-2)

    def _say_goodbye(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )
        self._own(set())
        self._begin()
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, lambda _: None)
        )

    def _heartbeat(self, says_all: bool) -> Any:
        request = super()._heartbeat(says_all)
        request.instance_id = self.instance_id
        if says_all:
            names = list(self.wanted or self.topics)
            request.subscribed_topic_names = [] if self.is_regex else names
            request.subscribed_topic_regex = self.expression if self.is_regex else None
        return request

    def _accepted(self, answer: Any) -> None:
        self.interval_ms = answer.heartbeat_interval_ms

    def _refused(self, code: int) -> None:
        if code in (*REJOIN, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self._own(set())
            self.epoch = 0
        else:
            super()._refused(code)


class ComputingMember(Versatile):
    """A consumer that can compute its group's target, and is sometimes late or wrong."""

    api = (ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 1)
    is_computing = False

    def _heartbeat(self, says_all: bool) -> Any:
        stock = super()._heartbeat(says_all)
        request = extended.ExtendedConsumerGroupHeartbeatRequest(
            group_id=stock.group_id,
            member_id=stock.member_id,
            member_epoch=stock.member_epoch,
            instance_id=stock.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            subscribed_topic_names=stock.subscribed_topic_names,
            subscribed_topic_regex=stock.subscribed_topic_regex,
            topic_partitions=stock.topic_partitions,
            fencing_tokens=True,
        )
        if says_all:
            request.client_assignors = [
                extended.Assignor(
                    name=ASSIGNOR, maximum_version=2, metadata_version=1, metadata_bytes=self.name.encode()
                )
            ]
        return request

    def _given(self, answer: Any) -> Iterable[Any]:
        given: list[extended.AssignedTopicPartitions] = answer.assignment.assigned_topic_partitions
        return given

    def _accepted(self, answer: Any) -> None:
        super()._accepted(answer)
        if answer.should_compute_assignment and not self.is_computing:
            self.is_computing = True
            who = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.epoch}
            request = prepare.ConsumerGroupPrepareAssignmentRequest(**who)
            self._ask(
                ApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT, request, lambda shown: self._shown(who, shown)
            )

    def _ask(self, api_key: ApiKey, request: Message, then: Any) -> None:
        self.caller.with_coordinator(lambda connection: connection.ask(api_key, 0, request, then))

    def _shown(self, who: dict[str, Any], shown: Any) -> None:
        if shown is None or shown.error_code:
            self.is_computing = False
            return
        request = install.ConsumerGroupInstallAssignmentRequest(
            **who, group_epoch=shown.group_epoch, members=self._assign(shown)
        )

        def installed(_answer: Any) -> None:
            self.is_computing = False

        def hand_in() -> None:
            self._ask(ApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, request, installed)

        rng = self.host.rng
        late_ms = 2 * REBALANCE_TIMEOUT_MS if rng.random() < 0.1 else rng.random() * COMPUTING_MS
        self.host.call_later(late_ms, hand_in)

    def _assign(self, shown: prepare.ConsumerGroupPrepareAssignmentResponse) -> list[install.Member]:
        """Assign round-robin from a random member on; now and then assign a partition twice."""
        rng = self.host.rng
        parts = {member.member_id: install.Member(member_id=member.member_id) for member in shown.members}
        is_wrong = rng.random() < 0.1
        for topic in shown.topics:
            takers = [one.member_id for one in shown.members if topic.topic_id in one.subscribed_topic_ids]
            if not takers:
                continue
            start = rng.randrange(len(takers))
            owned: dict[str, list[int]] = {}
            for number in range(topic.num_partitions):
                owned.setdefault(takers[(start + number) % len(takers)], []).append(number)
            if is_wrong:
                owned.setdefault(takers[0], []).append(rng.randrange(-1, topic.num_partitions + 1))
            for member_id, numbers in owned.items():
                parts[member_id].topic_partitions.append(
                    TopicPartitions(topic_id=topic.topic_id, partitions=numbers)
                )
        return list(parts.values())


class Operator(Actor):
    """Removes members whose process ended, and changes the configs of one group."""

    def start(self, members: list[Versatile]) -> None:
        self.members = members
        self.every(OPERATING_MS, self._operate)

    def _operate(self) -> None:
        if self.host.rng.random() < 0.4:
            self._remove(self.host.rng.choice(self.members))
        else:
            self._configure()

    def _remove(self, victim: Versatile) -> None:
        identity = MemberIdentity(member_id=victim.crash(), reason="its process is gone")
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.caller.with_coordinator(
            lambda connection: connection.ask(ApiKey.LEAVE_GROUP, 5, request, self._removed)
        )

    def _removed(self, answer: Any) -> None:
        if answer is None or answer.error_code:
            self.caller.moved()

    def finish(self) -> None:
        """Make one last change, of which every member must be notified soon."""
        self.stop()
        self.host.call_soon(self._configure, INTERVAL)

    def _configure(self, name: str = "") -> None:
        rng = self.host.rng
        name = name or rng.choice(sorted(CONFIGS))
        write = self.chronicle.configure(self.group_id, name, CONFIGS[name], self.world.now_ms)
        config = AlterableConfig(name=name, config_operation=0, value=write.value)
        if rng.random() < 0.2:
            config = AlterableConfig(name=name, config_operation=1)
            write.value = None
        resource = AlterConfigsResource(resource_type=32, resource_name=self.group_id, configs=[config])
        asked = Connection(self.host, self.name, rng.choice(self.caller.bootstrap))
        asked.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            IncrementalAlterConfigsRequest(resources=[resource]),
            lambda answer: self._configured(asked, write, answer),
        )

    def _configured(self, asked: Connection, write: ConfigWrite, answer: Any) -> None:
        asked.end()
        if answer is not None and answer.responses[0].error_code == 0:
            write.acked_ms = self.world.now_ms


KINDS: Final[tuple[tuple[type[Versatile], dict[str, bool]], ...]] = (
    (Versatile, {}),
    (Versatile, {"is_static": True}),
    (Versatile, {"is_regex": True}),
    (ComputingMember, {}),
    (ComputingMember, {"is_static": True}),
    (Versatile, {"is_static": True, "is_regex": True}),
    (ComputingMember, {"is_regex": True}),
)


def kind_of(group_number: int, number: int) -> tuple[type[Versatile], dict[str, bool]]:
    """Return the kind of a member: some groups have one kind, the others mix them."""
    return {
        0: KINDS[number % 2],
        1: KINDS[1 + number % 2],
        2: KINDS[3],
        3: KINDS[3 + number % 2 * 3],
        4: KINDS[number % len(KINDS)],
    }[group_number]
