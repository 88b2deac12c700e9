"""`quorate.Consumer` through kill -9 of the group's coordinator, and of the node that has the messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cluster.launching.launcher import ClusterProcess, launch_cluster
from quorate import Consumer
from tests.support.real_cluster import (
    NUM_SHARDS,
    TOPIC,
    create_topic,
    group_in,
    leader_of,
    metadata_leader,
)

SETTINGS = {
    "scratch.log.enable": "true",
    "leader.balance.delay.ms": "600000",
    "group.consumer.heartbeat.interval.ms": "500",
}
WITHIN_S = 20.0
ELECTION_S = 3.0
"""Time in which another node becomes leader."""
GAP_S_MAX = 10.0
"""From the kill until all is read and committed; 0.6 s alone, and the election for messages."""


class GroupOfTwo:
    """Two members that commit each message they read."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.values: list[int] = []
        self.owned = [0, 0]
        self.assigned = 0
        self.lost = 0
        self._bootstrap, self._group = bootstrap, group

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for member in range(2):
                tasks.create_task(self._member(member))

    async def _member(self, member: int) -> None:
        def note_assigned(_consumer: Consumer, partitions: list[object]) -> None:
            self.assigned += len(partitions)
            self.owned[member] += len(partitions)

        def note_revoked(_consumer: Consumer, partitions: list[object]) -> None:
            self.owned[member] -= len(partitions)

        def note_lost(_consumer: Consumer, partitions: list[object]) -> None:
            self.lost += len(partitions)

        async with Consumer(
            TOPIC,
            bootstrap_servers=self._bootstrap,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            on_assign=note_assigned,
            on_revoke=note_revoked,
            on_lost=note_lost,
        ) as consumer:
            async for record in consumer:
                self.values.append(int(record.value))
                await consumer.commit()

    async def wait_for(self, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < until_s, f"{len(self.values)} messages, {self.assigned} assigned"
            await asyncio.sleep(0.02)


async def produce(producer: Producer, begin: int, end: int) -> None:
    for number in range(begin, end):
        producer.produce(TOPIC, b"%d" % number, partition=number % 4)
    assert await asyncio.to_thread(producer.flush, WITHIN_S) == 0


@pytest.mark.parametrize("victim", ["the coordinator", "the messages' leader"])
async def test_a_group_reads_and_commits_on_after_a_kill(tmp_path: Path, victim: str) -> None:
    started: ClusterProcess = launch_cluster(tmp_path / "cluster", settings=SETTINGS)
    try:
        create_topic(started, 4)
        of_messages = metadata_leader(started.nodes)
        groups = [group_in(shard, "group") for shard in range(NUM_SHARDS)]
        group = next(each for each in groups if leader_of(started.nodes, each) is not of_messages)
        killed = of_messages if victim == "the messages' leader" else leader_of(started.nodes, group)
        members = GroupOfTwo(started.bootstrap, group)
        producer = Producer(
            {"bootstrap.servers": started.bootstrap, "enable.idempotence": True, "log_level": 0}
        )
        running = asyncio.create_task(members.run())
        await produce(producer, 0, 100)
        await members.wait_for(lambda: len(set(members.values)) == 100 and members.owned == [2, 2])
        assigned = members.assigned

        killed.kill()
        begun_s = time.monotonic()
        if victim == "the messages' leader":
            await asyncio.sleep(ELECTION_S)  # what it had acknowledged just before its end is gone
        await produce(producer, 100, 200)
        await members.wait_for(lambda: len(set(members.values)) == 200)
        assert time.monotonic() - begun_s < GAP_S_MAX
        assert (members.lost, members.assigned) == (0, assigned), "nobody left the group"
        assert len(members.values) <= 210, "all but what was in flight was committed"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        started.kill()
