"""The fast path against the slow one, on a real node in virtual time.

Every heartbeat that is answered from the cache is also asked of the coordinator in the same turn; the two
answers must be the same bytes, and the coordinator must not have had anything to write.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.kafka.connection import Connection, FastReply
from tests.cluster.lab import Consumer, Lab
from tests.report import count_fault
from wire.protocol import decode_request, encode_response

STEPS = Counter[str]()


class Shadow:
    """Asks the slow path whatever the fast one answers."""

    def __init__(self, lab: Lab) -> None:
        self._node = lab.node
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

    def __init__(self, lab: Lab) -> None:
        self.shadow = Shadow(lab)
        self._original = Connection._answer_fast

    def __enter__(self) -> Shadow:
        original, shadow = self._original, self.shadow

        def both(connection: Connection, hit: FastReply, payload: bytes, now_ms: float) -> None:
            shadow.watch(connection, hit, payload)
            original(connection, hit, payload, now_ms)

        Connection._answer_fast = both  # type: ignore[method-assign]
        return self.shadow

    def __exit__(self, *exc: object) -> None:
        Connection._answer_fast = self._original  # type: ignore[method-assign]


ACTIONS = st.sampled_from(
    ["beat", "beat", "beat", "beat", "join", "leave", "grow", "create", "wait", "commit"]
)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.tuples(ACTIONS, st.integers(0, 3)), min_size=10, max_size=60))
def test_fast_path_equals_slow_path_on_every_heartbeat(seed: int, script: list[tuple[str, int]]) -> None:
    lab = Lab(seed)
    members: dict[int, Consumer] = {}
    size = 12
    with watched(lab) as shadow:
        for action, number in script:
            if action == "join" and number not in members:
                members[number] = lab.consumer(f"m{number}", "g", "orders", "late")
                members[number].heartbeat()
            elif action == "leave" and number in members:
                members.pop(number).leave()
            elif action == "grow":
                size += 1
                lab.grow_topic("orders", size)
            elif action == "create":
                lab.create_topic("late", 2)
            elif action == "commit":
                lab.commit(lab.admin, "g", {0: 1})
            elif action == "wait":
                lab.world.run_for(400)
            STEPS[action] += 1
            for member in members.values():
                member.heartbeat()
        for _ in range(4):
            for member in members.values():
                member.heartbeat()
    assert shadow.differing == []
    fast = lab.node.kafka.counters.fast_heartbeats
    assert shadow.compared == fast
    if members:
        assert fast > 0, "members that are steady for four rounds never took the fast path"
    count_fault("listeners", "fast heartbeats compared with slow ones", fast)


def settle(consumer: Consumer) -> None:
    for _ in range(3):
        consumer.heartbeat()


def test_fast_heartbeats_keep_a_member_alive() -> None:
    lab = Lab(settings={"group_consumer_heartbeat_interval_adaptive": False})
    consumer = lab.consumer("m1")
    settle(consumer)
    slow = lab.node.shard_for("billing").counters.requests
    for _ in range(20):
        lab.world.run_for(30_000)
        assert consumer.heartbeat().error_code == 0
    assert lab.node.shard_for("billing").counters.requests == slow, "they were not fast"
    lab.world.run_for(50_000)
    assert consumer.heartbeat().error_code == 25, "a silent member stays a member"


def test_a_rebalance_reaches_a_member_on_the_fast_path_at_its_next_heartbeat() -> None:
    lab = Lab()
    first = lab.consumer("m1")
    settle(first)
    assert lab.node.kafka.counters.fast_heartbeats > 0
    assert first.partitions == list(range(12))
    lab.consumer("m2").heartbeat()
    answer = first.heartbeat()
    assert answer.assignment is not None
    assert len(first.partitions) == 6


def test_a_member_that_expired_hears_it_although_its_reply_was_cached() -> None:
    lab = Lab()
    consumer = lab.consumer("m1")
    settle(consumer)
    lab.world.run_for(46_000)
    assert consumer.heartbeat().error_code == 25
