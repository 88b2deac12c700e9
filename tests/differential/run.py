"""Starts both servers, plays many scripts side by side, and collects the verdict.

Apache Kafka is configured to be comparable: targets without an interval, minimum intervals lowered to ours,
one offsets partition (one queue, see `topics.py`), groups of at most five, no initial delay of classic
groups, and one thread each for connections and requests, so that requests are handled in the order in which
they were sent (see `classic_steps.py`). Quorate has the same heartbeat interval and the same bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.apache import launch_kafka
from cluster.launching.launcher import NodeProcess, prepare_cluster
from tests.differential import topics
from tests.differential.accepted import MASKED_FROM, MASKED_MAX
from tests.differential.classic_steps import NOTHING_EXPIRED
from tests.differential.minimise import minimise
from tests.differential.play import Address, Arena, Played, play
from tests.differential.script import MEMBERS, RANGE_TOPICS, UNIFORM_TOPIC, Script
from tests.differential.side import KAFKAS, OURS, Manners, Side, TopicIds
from tests.support.waiting import until
from wire.apis import ApiKey
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.init_producer_id import InitProducerIdRequest

HEARTBEAT_MS: Final = "5000"
SESSION_MS_MAX: Final = "60000"
CLASSIC_SESSION_MS_MIN: Final = "1000"
KAFKA_SETTINGS: Final = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": SESSION_MS_MAX,
    "group.consumer.max.size": str(len(MEMBERS)),
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": CLASSIC_SESSION_MS_MIN,
    "group.max.session.timeout.ms": SESSION_MS_MAX,
    "group.max.size": str(len(MEMBERS)),
    "transaction.state.log.num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "1",
}
QUORATE_SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.adaptive": "false",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.max.session.timeout.ms": SESSION_MS_MAX,
    "group.consumer.max.size": str(len(MEMBERS)),
    "cluster.shards": "1",
    "scratch.log.enable": "true",  # without it there are no transactions
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": CLASSIC_SESSION_MS_MIN,
    "group.max.session.timeout.ms": SESSION_MS_MAX,
    "group.max.size": str(len(MEMBERS)),
}
SHARED_TOPICS: Final = (*RANGE_TOPICS, UNIFORM_TOPIC)
READY_S_MAX: Final = 60.0
SIDE_BY_SIDE: Final = 24
HEAP_MB: Final = 512


@dataclass(frozen=True, slots=True)
class Servers:
    """Both running servers."""

    addresses: tuple[Address, Address]
    """Kafka's address first."""
    kafka_data: Path
    our_data: Path


@dataclass(slots=True)
class RunResult:
    """The combined result of all scripts."""

    scripts: int = 0
    replies: int = 0
    elapsed_s: float = 0.0
    masked: Counter[str] = field(default_factory=Counter)
    apis: Counter[str] = field(default_factory=Counter)
    failures: list[Played] = field(default_factory=list)
    same: list[Played] = field(default_factory=list)
    """The scripts without any difference, not even an accepted one."""

    def add(self, played: Played) -> None:
        self.scripts += 1
        self.replies += played.replies
        self.masked.update(played.masked)
        self.apis.update(played.apis)
        if played.complaint is not None:
            self.failures.append(played)
        elif not played.masked:
            self.same.append(played)

    @property
    def masked_share(self) -> float:
        return self.masked.total() / self.replies if self.replies else 0.0

    def complaints(self) -> list[str]:
        """Return why the run failed; empty if it did not."""
        found = [f"{one.script.name}: {one.complaint}" for one in self.failures]
        if self.replies >= MASKED_FROM and self.masked_share > MASKED_MAX:
            found.append(
                f"predicates mask {self.masked_share:.1%} of the replies, more than {MASKED_MAX:.0%}"
            )
        return found

    def __str__(self) -> str:
        lines = [
            f"{self.scripts} scripts, {self.replies} replies compared in {self.elapsed_s:.1f} s",
            f"  {len(self.failures)} differ; accepted differences in {self.masked_share:.2%} of the replies",
            "  replies: " + ", ".join(f"{count} {api}" for api, count in self.apis.most_common()),
        ]
        lines += [f"  accepted: {count} × {name}" for name, count in self.masked.most_common()]
        return "\n".join(lines)


@contextlib.contextmanager
def servers(work_dir: Path) -> Iterator[Servers]:
    """Start Kafka and Quorate, and stop both at the end."""
    with launch_kafka(work_dir / "kafka", settings=KAFKA_SETTINGS, heap_mb=HEAP_MB) as kafka:
        node = start_ours(work_dir / "quorate")
        try:
            addresses = (kafka.addresses[0], (node.host, node.port))
            yield Servers(addresses, kafka.data_dir(), node.data)
        finally:
            node.stop()


def start_ours(data: Path, **other: str) -> NodeProcess:
    """Start a node that computes every target at once (`unpaced.py`); `other` overrides settings."""
    (node,) = prepare_cluster(data, 1, settings={**QUORATE_SETTINGS, **other}).nodes
    arguments = node.command[node.command.index("--config") :]
    node.command = [sys.executable, "-m", "tests.differential.unpaced", *arguments]
    node.start()
    return node


async def make_arena(
    addresses: tuple[Address, Address], name: str, manners: tuple[Manners, Manners] = (KAFKAS, OURS)
) -> Arena:
    """Create the shared topics on both sides and wait until both coordinators serve."""
    kafka, ours = [await _prepare(address) for address in addresses]
    return Arena(addresses, (kafka, ours), name, manners)


async def _prepare(address: Address) -> TopicIds:
    side = Side("both", address, {}, OURS)
    await side.connect()
    for name in SHARED_TOPICS:
        code = await topics.create(side, name, int(name[1:]))
        assert code in (0, 36), f"creating {name}: error {code}"  # 36: it exists from an earlier run
    for key_type in (0, 1):
        await side.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="any", key_type=key_type))

    async def are_known() -> bool:
        return len(await side.learn_topics(list(SHARED_TOPICS))) >= len(SHARED_TOPICS)

    await until(partial(_serves, side), READY_S_MAX)
    await until(partial(_serves_producers, side), READY_S_MAX)
    await until(are_known, READY_S_MAX)
    await side.close()
    return {name: side.topic_ids[name] for name in SHARED_TOPICS}


async def _serves(side: Side) -> bool:
    """Return whether the coordinator answers and knows the topic created last."""
    join = ConsumerGroupHeartbeatRequest(
        group_id="ready",
        member_id="ready",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[UNIFORM_TOPIC],
        topic_partitions=[],
    )
    answer = await side.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, join)
    if answer.error_code or not answer.assignment.topic_partitions:
        return False
    return len(answer.assignment.topic_partitions[0].partitions) == int(UNIFORM_TOPIC[1:])


async def _serves_producers(side: Side) -> bool:
    init = InitProducerIdRequest(transactional_id="ready", transaction_timeout_ms=10_000)
    answer = await side.ask(ApiKey.INIT_PRODUCER_ID, 4, init)
    return not answer.error_code


async def play_all(arena: Arena, scripts: Iterable[Script], side_by_side: int = SIDE_BY_SIDE) -> RunResult:
    """Play all scripts, at most `side_by_side` at once."""
    verdict = RunResult()
    waiting = iter(scripts)
    started_s = time.monotonic()

    async def player() -> None:
        for script in waiting:
            verdict.add(await play(arena, script))

    await asyncio.gather(*(player() for _ in range(side_by_side)))
    verdict.elapsed_s = time.monotonic() - started_s
    return verdict


async def explain(arena: Arena, failure: Played) -> str:
    """Return the shortest script that still differs, with the last replies of both sides."""

    async def differs(script: Script) -> bool:
        complaint = (await play(arena, script)).complaint
        return complaint is not None and not complaint.endswith(NOTHING_EXPIRED)

    shortest = await minimise(failure.script, differs)
    again = await play(arena, shortest)
    return "\n".join([str(shortest), "", *again.transcript[-6:], "", f"{again.complaint or 'only once'}", ""])
