"""The assignors and the decisions around them: `python -m benchmarks.assignor_bench`.

Prints the CPU milliseconds of assignments, from the usual size to the largest allowed group, and how long the
event loop is blocked while a group takes in one more member: the heartbeat from request to reply, with
assignor, validation, encoding and apply. A large group's target is computed by a child process and installed
in parts, and its description takes several turns of the loop; for these, the longest turn counts.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

import msgpack

from benchmarks.figures import cpu_seconds_of
from cluster.collector import look_at_the_young
from coordinator.api import Context, Decision, Job
from coordinator.assignors import (
    AssignmentMemberSpec,
    AssignmentSpec,
    AssignmentTopicMetadata,
    MemberAssignment,
    UniformAssignor,
)
from coordinator.assignors.assigning import answer
from coordinator.limits import GroupSettings, SameForAll
from coordinator.shard import GroupShard
from coordinator.topics import CatalogTopic, CatalogView
from records.entry import encode_entry
from wire.apis import ApiKey
from wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.protocol import encode_response

MEMBERS = 1_000
PARTITIONS = 10_000
REPEATS = 7


def _ids(topics: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in range(1, topics + 1)]


def _line(what: str, figures: Iterable[float]) -> None:
    ordered = sorted(figures)
    median = ordered[len(ordered) // 2]
    print(
        f"{what:<78} {ordered[0]:7.1f} ms best {median:7.1f} ms median {ordered[-1]:7.1f} ms max", flush=True
    )


def bench_assignor(members: int, partitions: int, topics: int, kind: str, chosen: int = 0) -> None:
    """Assign from scratch, and with one member more.

    There are five different subscriptions, as in Kafka's benchmark, each to all topics but a fifth; or
    `chosen` random topics each.
    """
    ids = _ids(topics)
    metadata = {topic_id: AssignmentTopicMetadata(topic_id.hex(), partitions // topics) for topic_id in ids}
    random = Random(1)
    buckets = [frozenset(ids) - frozenset(ids[bucket::5]) for bucket in range(5)]
    everything = frozenset(ids)

    def subscribed(number: int) -> frozenset[bytes]:
        if chosen:
            return frozenset(random.sample(ids, chosen))
        return buckets[number % 5] if kind == "five different subscriptions" else everything

    sets = [subscribed(number) for number in range(members + 1)]

    def spec(targets: Mapping[str, MemberAssignment], count: int) -> AssignmentSpec:
        nothing = MemberAssignment({})
        return AssignmentSpec(
            {
                (name := f"member-{number * 7_919 % 100_003}"): AssignmentMemberSpec(
                    sets[number], targets.get(name, nothing).target_partitions
                )
                for number in range(count)
            },
            metadata,
        )

    assignor = UniformAssignor()
    fresh = spec({}, members)
    joined = spec(assignor.assign(fresh).members, members + 1)
    for name, one in (("from scratch", fresh), ("one more member", joined)):
        figures = [1e3 * cpu_seconds_of(lambda one=one: assignor.assign(one)) for _ in range(REPEATS)]
        _line(f"{members} x {partitions}, {topics} topics, {kind}, {name}", figures)


def _catalog(partitions: int, topics: int) -> CatalogView:
    return CatalogView(
        (CatalogTopic(f"topic-{n}", i, partitions // topics) for n, i in enumerate(_ids(topics))), 1
    )


class _GrowingGroup:
    """A group whose members subscribe to all topics; each call has a context of its own."""

    def __init__(self, catalog: CatalogView, settings: GroupSettings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._names = [topic.name for topic in catalog.topics()]
        self._index = 0
        self.shard = GroupShard(0)
        self.turn = 0
        """The turn of the loop: the group gets one target at most in each, but any number in turn 0."""

    def ctx(self) -> Context:
        self._index += 1
        return Context(
            monotonic_ms=float(self._index * 10_000),
            wall_ms=self._index,
            next_index=self._index,
            catalog=self._catalog,
            settings=SameForAll(self._settings),
            fresh_id=lambda: "",
            fresh_uuid=lambda: b"",
            turn=self.turn,
        )

    def join(self, number: int) -> Decision:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=f"member-{number}",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=self._names,
            topic_partitions=[],
        )
        decision = self.shard.handle(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, self.ctx())
        assert decision.error is None, decision.error
        return decision

    def fill(self, members: int) -> None:
        """Let members join in one turn of the loop: a target for the first, none for the others."""
        self.turn = 1
        for number in range(members):
            for job in self.join(number).jobs:
                self.shard.job_ended(job, _worked_out(job), None, self.ctx())
        self.turn = 0


def _worked_out(job: Job) -> object:
    asked = msgpack.unpackb(msgpack.packb(job.request))
    return answer(asked, {"uniform": UniformAssignor()}.__getitem__)


def _measured(turns: list[float], decide: Callable[[], Decision | None]) -> Decision:
    """Decide, with what the runtime does in the same turn; append the milliseconds to `turns`."""
    started = time.process_time()
    decision = decide()
    assert decision is not None
    assert decision.error is None
    if decision.cause is not None:
        encode_entry(decision.cause, decision.records)
    for job in decision.jobs:
        msgpack.packb(job.request)
    turns.append((time.process_time() - started) * 1e3)
    return decision


def bench_large(members: int, partitions: int, topics: int) -> None:
    """Loop turns for a large group's target and its description.

    The target takes turns to request, receive and install it, first for all members, then for one more and
    another.
    """
    settings = GroupSettings(max_size=members + REPEATS, session_timeout_ms=2**30)
    group = _GrowingGroup(_catalog(partitions, topics), settings)
    group.fill(members - 1)
    turns: dict[str, list[float]] = defaultdict(list)
    shard = group.shard
    for number in range(members - 1, members + REPEATS):
        (job,) = _measured(turns["ask"], partial(group.join, number)).jobs
        result = _worked_out(job)
        _measured(turns["take the answer"], partial(shard.job_ended, job, result, None, group.ctx()))
        while shard.groups.installs:
            _measured(turns["install a part"], lambda: shard.next_work(group.ctx()))
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    for _ in range(REPEATS):
        describe = partial(shard.handle, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request, group.ctx())
        decision = _measured(turns["describe"], describe)
        while (continuation := decision.continuation) is not None:
            decision = _measured(turns["describe"], partial(continuation, group.ctx()))
    reply: Any = decision.reply
    turns["encode the description"] = [
        1e3 * cpu_seconds_of(lambda: encode_response(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, 0, reply))
        for _ in range(REPEATS)
    ]
    for what, figures in turns.items():
        _line(f"{members} x {partitions}, {topics} topics: {what}", figures)


def bench_decision(topics: int) -> None:
    """One more join in a full group, from request to reply."""
    group = _GrowingGroup(_catalog(PARTITIONS, topics), GroupSettings())
    group.fill(MEMBERS - 1)
    _line(
        f"whole decision, {topics} topics, first target of {MEMBERS}",
        [1e3 * cpu_seconds_of(lambda: group.join(MEMBERS - 1))],
    )
    figures = [1e3 * cpu_seconds_of(lambda n=n: group.join(MEMBERS + n)) for n in range(REPEATS)]
    _line(f"whole decision, {topics} topics, one more member", figures)


def main() -> None:
    for topics in (1, 10, 100):
        bench_assignor(MEMBERS, PARTITIONS, topics, "equal subscriptions")
    bench_assignor(MEMBERS, PARTITIONS, 100, "five different subscriptions")
    for topics in (1, 100, 1_000):
        bench_assignor(10_000, 100_000, topics, "equal subscriptions")
    bench_assignor(1_000, 50_000, 1_000, "five different subscriptions")
    for chosen in (5, 100, 500):
        bench_assignor(1_000, 50_000, 1_000, f"{chosen} topics each at random", chosen)
    gc.collect()
    gc.freeze()  # as the node does once it is loaded
    look_at_the_young()
    for topics in (1, 10, 100):
        bench_decision(topics)
    for topics in (1, 100):
        bench_large(10_000, 100_000, topics)


if __name__ == "__main__":
    main()
