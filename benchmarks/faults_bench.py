"""The cost of faults on demand to requests that meet none: CPU time per request, in one process.

A simulated node, so that no socket and no disk is in the figures. The cached heartbeat is a whole one, from
its bytes to those of its reply. For the others, what faults add to a decoded request: a look at a flag
without faults, and otherwise a comparison with each fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.faults.rule import FaultRule, rule_of
from cluster.kafka.connection import Connection
from cluster.kafka.exchange import Exchange
from cluster.kafka.injecting import inject
from cluster.node import Node
from cluster.simulator import Machine, Network, WireClient, World
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.protocol import encode_request

CALLS = 100_000
ROUNDS = 5
FIELDS = (
    *("action", "api", "group", "member", "client_id", "connection", "error", "delay_ms"),
    *("throttle_ms", "after", "times", "rate", "seed", "for_ms"),
)
JOIN = ConsumerGroupHeartbeatRequest(
    group_id="billing",
    member_id="m",
    member_epoch=0,
    rebalance_timeout_ms=45_000,
    subscribed_topic_names=["orders"],
    topic_partitions=[],
)


class Sink:
    """A stream that takes replies."""

    def __init__(self) -> None:
        self.num_written = 0

    def write(self, data: bytes) -> None:
        self.num_written += 1

    def get_write_buffer_size(self) -> int:
        return 0


def rule(**given: str) -> FaultRule:
    return rule_of(dict.fromkeys(FIELDS) | {"action": "close"} | given)


def ns_per_call(call: Callable[[], object]) -> float:
    """Return the least of several rounds: other work on the machine only adds."""
    best_ns = float("inf")
    for _ in range(ROUNDS):
        began_ns = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        best_ns = min(best_ns, (time.thread_time_ns() - began_ns) / CALLS)
    return best_ns


def steady_member() -> tuple[Node, Connection, ConsumerGroupHeartbeatRequest]:
    """Return a node, the connection of a member whose heartbeats are cached, and such a heartbeat."""
    world = World(1)
    network = Network(world)
    node = Machine(world, network).boot_until_ready()
    client = WireClient(world, network, "member")
    topic = CreatableTopic(name="orders", num_partitions=12, replication_factor=1)
    client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    joined = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, JOIN)
    owned = ConsumerGroupHeartbeatRequest(
        group_id="billing",
        member_id="m",
        member_epoch=joined.member_epoch,
        topic_partitions=joined.assignment.topic_partitions,
    )
    client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, owned)
    steady = ConsumerGroupHeartbeatRequest(
        group_id="billing", member_id="m", member_epoch=joined.member_epoch
    )
    client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, steady)
    world.run_for(10)
    (connection,) = node.kafka.connections
    return node, connection, steady


def main() -> None:
    node, connection, steady = steady_member()
    context = node.kafka.context
    frame = encode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 9, "member", steady)
    sink = Sink()
    stream, connection._transport = connection._transport, sink  # type: ignore[assignment]
    cached_ns = ns_per_call(lambda: connection.data_received(frame))
    assert sink.num_written == CALLS * ROUNDS == context.counters.fast_heartbeats
    print(f"cached heartbeat, no fault: {cached_ns:,.0f} ns")
    connection._transport = stream

    exchange = Exchange(connection, 0.0)
    exchange.api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT

    def met() -> bool:
        return context.faults.is_set and inject(context, connection, exchange, steady)

    print(f"decoded request, no fault: {ns_per_call(met):,.0f} ns")
    for number in (1, 100):
        for what, one in (("API", rule(api="OffsetCommit")), ("group", rule(group="audit"))):
            for _ in range(number):
                context.faults.add(one, context.host.monotonic_ms())
            print(f"decoded request, faults on another {what}: {number}: {ns_per_call(met):,.0f} ns")
            context.faults.clear()


if __name__ == "__main__":
    main()
