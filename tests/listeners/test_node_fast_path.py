"""The fast path against the slow one, on a real node in virtual time.

Every heartbeat that is answered from the cache also goes to the coordinator in the same turn. The two answers
must be the same bytes, and the coordinator must write nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.kafka.connection import Connection
from cluster.kafka.steady import FastReply
from tests.report import count_fault
from tests.support.requests import HEARTBEAT, setting
from tests.support.sim_node import Consumer, SimNode
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.extended_consumer_group_heartbeat import ExtendedConsumerGroupHeartbeatRequest
from wire.protocol import decode_request, encode_response

STEPS = Counter[str]()


class Shadow:
    """Sends every request that the fast path answers to the slow path, too."""

    def __init__(self, sim: SimNode) -> None:
        self._node = sim.node
        self.compared = 0
        self.differing: list[str] = []

    def appended(self) -> int:
        return sum(shard.counters.entries_appended for shard in self._node.shards)

    def watch(self, connection: Connection, hit: FastReply, payload: bytes) -> None:
        header, body = decode_request(payload)
        fast = hit.length + payload[4:8] + hit.rest
        before = self.appended()

        def compare(answer: Any) -> None:
            slow = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
            self.compared += 1
            if slow != fast:
                self.differing.append(f"{body}: fast {fast.hex()} slow {slow.hex()}")

        self._node.submit(header.api_key, header.api_version, body, connection.client, compare)
        if self.appended() != before:
            self.differing.append(f"{body}: the slow path had something to write")


class watched:
    """Installs a shadow on every connection."""

    def __init__(self, sim: SimNode) -> None:
        self.shadow = Shadow(sim)
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Shadow:
        among_others, alone, shadow = Connection._answer_fast, Connection._answer_alone, self.shadow

        def both_among_others(connection: Connection, hit: FastReply, payload: bytes, now_ms: float) -> None:
            shadow.watch(connection, hit, payload)
            among_others(connection, hit, payload, now_ms)

        def both_alone(connection: Connection, hit: FastReply, data: bytes) -> None:
            shadow.watch(connection, hit, data[4:])
            alone(connection, hit, data)

        self._patch.setattr(Connection, "_answer_fast", both_among_others)
        self._patch.setattr(Connection, "_answer_alone", both_alone)
        return self.shadow

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()


ACTIONS = st.sampled_from(
    ["beat"] * 4 + ["join", "join", "leave", "away", "grow", "create", "wait", "commit", "configure", "load"]
)


class ByExpression(Consumer):
    """Subscribes by a regular expression."""

    def next_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        request = super().next_heartbeat()
        if not self.epoch:
            request.subscribed_topic_names, request.subscribed_topic_regex = [], "orders|l.*"
        return request


class Extended(Consumer):
    """Speaks the protocol's extension, without an assignor of its own."""

    def heartbeat(self) -> Any:
        stock = self.next_heartbeat()
        fields = {name: getattr(stock, name) for name in stock.__slots__}
        request = ExtendedConsumerGroupHeartbeatRequest(**fields)
        answer = self.client.ask(ApiKey.EXTENDED_CONSUMER_GROUP_HEARTBEAT, 0, request)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = answer.assignment.assigned_topic_partitions
        return answer


def consumer(sim: SimNode, number: int) -> Consumer:
    """Return a consumer of one of four kinds, by number; the second is static."""
    name = f"m{number}"
    kind = (Consumer, Consumer, ByExpression, Extended)[number]
    made = kind(sim.client(name), "g", name, "orders", "late")
    made.instance_id = name if number == 1 else None
    return made


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.tuples(ACTIONS, st.integers(0, 3)), min_size=10, max_size=60))
def test_fast_path_equals_slow_path_on_every_heartbeat(seed: int, script: list[tuple[str, int]]) -> None:
    sim = SimNode(seed)
    members: dict[int, Consumer] = {}
    size, is_one_away = 12, False
    with watched(sim) as shadow:
        for action, number in script:
            if action == "join" and number not in members:
                members[number] = consumer(sim, number)
                members[number].heartbeat()
                is_one_away &= number != 1
            elif action == "leave" and number in members:
                members.pop(number).leave()
            elif action == "away" and 1 in members:
                members.pop(1).leave(for_good=False)
                is_one_away = True
            elif action == "configure":
                sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, 1_000 + number, "g"))
            elif action == "load":
                sim.node.group_settings.set_interval(2_000 + number)  # type: ignore[attr-defined]
            elif action == "grow":
                size += 1
                sim.grow_topic("orders", size)
            elif action == "create":
                sim.create_topic("late", 2)
            elif action == "commit":
                sim.commit(sim.admin, "g", {0: 1})
            elif action == "wait":
                sim.world.run_for(400)
            STEPS[action] += 1
            for member in members.values():
                member.heartbeat()
        for _ in range(4):
            for member in members.values():
                member.heartbeat()
    assert shadow.differing == []
    fast = sim.node.kafka.context.counters.fast_heartbeats
    assert shadow.compared == fast
    if members and not is_one_away:  # the others wait for its partitions
        assert fast > 0, "members that are steady for four rounds never took the fast path"
    count_fault("listeners", "fast heartbeats compared with slow ones", fast)


def settle(consumer: Consumer) -> None:
    for _ in range(4):
        consumer.heartbeat()


def test_fast_heartbeats_keep_a_member_alive() -> None:
    sim = SimNode(settings={"group_consumer_heartbeat_interval_adaptive": False})
    consumer = sim.consumer("m1")
    settle(consumer)
    slow = sim.node.shard_for("billing").counters.requests
    for _ in range(20):
        sim.world.run_for(30_000)
        assert consumer.heartbeat().error_code == 0
    assert sim.node.shard_for("billing").counters.requests == slow, "they were not fast"
    sim.world.run_for(50_000)
    assert consumer.heartbeat().error_code == 25, "a silent member stays a member"


@pytest.mark.parametrize("number", range(4))
def test_members_of_every_kind_are_answered_fast(number: int) -> None:
    sim = SimNode()
    member = consumer(sim, number)
    settle(member)
    settle(member)
    fast = sim.node.kafka.context.counters.fast_heartbeats
    member.heartbeat()
    assert sim.node.kafka.context.counters.fast_heartbeats == fast + 1
    sim.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, setting(HEARTBEAT, 3_000, "g"))
    assert member.heartbeat().heartbeat_interval_ms == 3_000


def test_a_rebalance_reaches_a_member_on_the_fast_path_at_its_next_heartbeat() -> None:
    sim = SimNode()
    first = sim.consumer("m1")
    settle(first)
    assert sim.node.kafka.context.counters.fast_heartbeats > 0
    assert first.partitions == list(range(12))
    sim.consumer("m2").heartbeat()
    answer = first.heartbeat()
    assert answer.assignment is not None
    assert len(first.partitions) == 6


def test_a_member_that_expired_hears_it_although_its_reply_was_cached() -> None:
    sim = SimNode()
    consumer = sim.consumer("m1")
    settle(consumer)
    sim.world.run_for(46_000)
    assert consumer.heartbeat().error_code == 25
