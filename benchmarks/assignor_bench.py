"""The uniform assignor and the whole decision around it: `python -m benchmarks.assignor_bench`.

Prints the milliseconds that an assignment takes for 1,000 members and 10,000 partitions, and those that the
loop stands still while a group of that size takes in one more member: the heartbeat from request to reply,
with assignor, validation, encoding and apply.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable

from coordinator.api import Context
from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    UniformAssignor,
)
from coordinator.assignors.spi import Partitions
from coordinator.limits import SameForAll
from coordinator.shard import GroupShard
from coordinator.topics import CatalogTopic, CatalogView
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

MEMBERS = 1_000
PARTITIONS = 10_000
REPEATS = 7


def _ids(topics: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(1, topics + 1)]


def _milliseconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def _line(what: str, figures: Iterable[float]) -> None:
    ordered = sorted(figures)
    print(f"{what:<66} {ordered[len(ordered) // 2]:7.1f} ms median {ordered[-1]:7.1f} ms max")


def bench_assignor(topics: int, buckets: int) -> None:
    """From scratch, and with one member more; several buckets: each subscribes to all topics but some."""
    ids = _ids(topics)
    metadata = {topic_id: AssignmentTopicMetadata(topic_id.hex(), PARTITIONS // topics) for topic_id in ids}
    sets = [
        frozenset(ids) - (frozenset(ids[bucket::buckets]) if buckets > 1 else frozenset())
        for bucket in range(buckets)
    ]

    def spec(targets: dict[str, Partitions], count: int) -> AssignmentSpec:
        return AssignmentSpec(
            {
                f"member-{number}": AssignmentMemberSpec(
                    sets[number % buckets], targets.get(f"member-{number}", {})
                )
                for number in range(count)
            },
            metadata,
        )

    assignor = UniformAssignor()
    fresh = spec({}, MEMBERS)
    targets = {
        member_id: part.target_partitions for member_id, part in assignor.assign(fresh).members.items()
    }
    joined = spec(targets, MEMBERS + 1)
    kind = "equal subscriptions" if buckets == 1 else f"{buckets} different subscriptions"
    for name, one in (("from scratch", fresh), ("one more member", joined)):
        figures = [_milliseconds(lambda one=one: assignor.assign(one)) for _ in range(REPEATS)]
        _line(f"uniform, {kind}, {topics} topics, {name}", figures)


def bench_decision(topics: int) -> None:
    """One more join in a full group, from request to reply."""
    catalog = CatalogView(
        (
            CatalogTopic(f"topic-{n}", topic_id, PARTITIONS // topics)
            for n, topic_id in enumerate(_ids(topics))
        ),
        1,
    )
    shard = GroupShard(0)
    index = 0

    def join(member_id: str) -> None:
        nonlocal index
        index += 1
        ctx = Context(
            monotonic_ms=float(index * 10_000),
            wall_ms=index,
            next_index=index,
            catalog=catalog,
            settings=SameForAll(),
            fresh_id=lambda: "",
            fresh_uuid=lambda: b"",
            turn=turn,
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic.name for topic in catalog.topics()],
            topic_partitions=[],
        )
        outcome = shard.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, ctx)
        assert outcome.error is None, outcome.error

    turn = 1  # all in one turn of the loop: one target for the first, none for the others
    for number in range(MEMBERS - 1):
        join(f"member-{number}")
    turn = 0
    _line(
        f"whole decision, {topics} topics, first target of {MEMBERS}", [_milliseconds(lambda: join("last"))]
    )
    figures = [_milliseconds(lambda n=n: join(f"more-{n}")) for n in range(REPEATS)]
    _line(f"whole decision, {topics} topics, one more member", figures)


def main() -> None:
    print(f"{MEMBERS} members, {PARTITIONS} partitions")
    for topics in (1, 10, 100):
        bench_assignor(topics, 1)
    bench_assignor(100, 5)
    gc.collect()
    gc.freeze()  # as the node does once it is loaded
    for topics in (1, 10, 100):
        bench_decision(topics)


if __name__ == "__main__":
    main()
