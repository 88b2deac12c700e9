"""Consumers of seed 000 that fetch: messages from the scratch log of three nodes, in both variants."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from cluster.lineage.rewrite_client import RewriteClient
from lineage.rewrite.fetching import FetchRules
from lineage.rewrite.machines import FetchResult, Subroutine
from records import METADATA_SHARD
from tests.cluster.old_protocols import SESSION_MS, OldNodes
from tests.report import count_fault
from tests.support.record_batches import batch
from wire.apis import ApiKey
from wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 12
OUT_OF_RANGE = Subroutine.FETCH, FetchResult.OUT_OF_RANGE
FIND_OFFSET = Subroutine.FIND_OFFSET, FetchResult.DONE


class Messages:
    """Three nodes that keep messages, and what the consumers of a group were given of them."""

    def __init__(self, variant: str, seed: int = 1) -> None:
        settings = {"lineage_rewrite_variant": variant, "scratch_log_enable": True}
        self.nodes = OldNodes(seed, settings=settings)
        self._variant = variant
        self.seen: Counter[bytes] = Counter()
        self.by: dict[str, set[bytes]] = {}
        self.produced: list[bytes] = []

    @property
    def keeper(self) -> int:
        """The node that keeps the messages."""
        return self.nodes.cluster.wait_for_leader(METADATA_SHARD)

    def produce(self, count: int = 24) -> None:
        """Spread new messages over the partitions."""
        client = self.nodes.client(self.keeper)
        for number in range(count):
            value = f"message {len(self.produced)}".encode()
            partition = PartitionProduceData(index=number % PARTITIONS, records=batch(value))
            topic = TopicProduceData(name="orders", partition_data=[partition])
            answer = client.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, topic_data=[topic]))
            assert answer.responses[0].partition_responses[0].error_code == 0
            self.produced.append(value)

    def join(self, *names: str, **rules: Any) -> None:
        for name in names:
            mine = self.by[name] = set()

            def deliver(messages: list[Any], mine: set[bytes] = mine) -> None:
                values = [one.value for one in messages]
                self.seen.update(values)
                mine.update(values)

            self.nodes.rewrite(
                name,
                variant=self._variant,
                kafka=tuple((one.address, 9092) for one in self.nodes.cluster.machines.values()),
                rules=FetchRules(**rules),
                deliver=deliver,
                settings={"commit_interval_ms": SESSION_MS},
            )

    def wait_for_all(self, within_ms: float = 30_000) -> None:
        self.nodes.wait(lambda: self.seen.keys() >= set(self.produced), within_ms)

    def taken(self) -> Counter[Any]:
        total: Counter[Any] = Counter()
        for one in self.nodes.rewriting.values():
            total.update(fetching(one).taken)
        return total

    def committed(self) -> dict[int, int]:
        error_code, offsets = self.nodes.fetch(self.nodes.leader)
        assert error_code == 0
        return offsets

    def positions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for one in self.nodes.rewriting.values():
            found |= {number: offset for (_, number), offset in fetching(one).positions.items()}
        return found

    def delete_records(self, partition: int, offset: int) -> None:
        one = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name="orders", partitions=[one])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
        answer = self.nodes.ask(self.keeper, ApiKey.DELETE_RECORDS, 2, request)
        assert answer.topics[0].partitions[0].error_code == 0


class Lives(Messages):
    """Random lives of a group: consumers come, are killed or do not poll; nodes are killed or hand over."""

    STEPS = 12

    def __init__(self, variant: str, seed: int) -> None:
        super().__init__(variant, seed)
        self._chance = random.Random(seed)

    def live(self) -> None:
        events = (self.produce, self.produce, self._join, self._kill, self._pause, self._move, self._reboot)
        self.join("c0", "c1")
        for _ in range(self.STEPS):
            self._chance.choice(events)()
            self.nodes.world.run_for(self._chance.choice([50, 500, SESSION_MS]))

    def _any(self) -> str:
        return self._chance.choice(sorted(self.nodes.rewriting))

    def _join(self) -> None:
        self.join(f"c{len(self.by)}")

    def _kill(self) -> None:
        if len(self.nodes.rewriting) > 1:
            self.nodes.kill_client(self._any())
            count_fault("cluster", "fetching consumer killed")

    def _pause(self) -> None:
        self.nodes.rewriting[self._any()].pause(self._chance.uniform(100, 2 * SESSION_MS))
        count_fault("cluster", "fetching consumer paused")

    def _move(self) -> None:
        done: list[str | None] = []
        nodes = self.nodes
        nodes.cluster[nodes.leader].node.transfer(nodes.shard, None, done.append)
        nodes.wait(lambda: bool(done))

    def _reboot(self) -> None:
        """Kill a node that keeps no messages, which may coordinate."""
        machine = self.nodes.cluster[self._chance.choice(sorted({1, 2, 3} - {self.keeper}))]
        machine.kill()
        count_fault("cluster", "node killed under fetching consumers")
        self.nodes.world.run_for(self._chance.choice([500, SESSION_MS]))
        machine.boot()


def fetching(client: RewriteClient) -> Any:
    assert client.fetcher is not None
    return client.fetcher.fetching


@pytest.fixture(params=["design", "thread"])
def messages(request: pytest.FixtureRequest) -> Messages:
    return Messages(str(request.param))


def once(messages: Messages) -> bool:
    return messages.seen == Counter(messages.produced)


def test_two_consumers_read_every_message_once_and_commit_their_offsets(messages: Messages) -> None:
    """Also while the second joins, and after the first has died in between."""
    nodes = messages.nodes
    messages.produce()
    messages.join("a")
    messages.wait_for_all()
    messages.produce()
    messages.join("b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    messages.produce()
    messages.wait_for_all()
    assert once(messages)
    assert messages.by["a"] & messages.by["b"] == set()
    assert messages.by["b"]
    nodes.wait(lambda: messages.committed() == dict.fromkeys(range(PARTITIONS), 6), 3 * SESSION_MS)
    nodes.kill_client("a")
    messages.produce()
    messages.wait_for_all()
    assert once(messages)


def test_a_killed_node_that_keeps_the_messages_is_replaced(messages: Messages) -> None:
    nodes = messages.nodes
    messages.join("a", "b")
    nodes.wait(lambda: nodes.is_shared({"a", "b"}))
    messages.produce()
    messages.wait_for_all()
    nodes.wait(lambda: messages.committed() == dict.fromkeys(range(PARTITIONS), 2), 3 * SESSION_MS)
    old = messages.keeper
    nodes.cluster[old].kill()
    count_fault("cluster", "keeper of fetched messages killed")
    assert messages.keeper != old
    messages.produce()
    messages.wait_for_all()
    assert once(messages)
    taken = messages.taken()
    assert taken[Subroutine.FETCH, FetchResult.FAILED] > 0
    nodes.wait(lambda: messages.committed() == messages.positions(), 3 * SESSION_MS)
    assert min(messages.positions().values()) > 1 << 40


def test_messages_that_were_deleted_before_they_were_read_are_left_out(messages: Messages) -> None:
    """The offset is out of range: subroutine 30 finds the smallest that there is."""
    nodes = messages.nodes
    messages.produce()
    messages.join("a", "b")
    messages.wait_for_all()
    nodes.wait(lambda: messages.committed() == dict.fromkeys(range(PARTITIONS), 2), 3 * SESSION_MS)
    for name in ("a", "b"):
        nodes.kill_client(name)
    messages.produce(36)
    messages.delete_records(3, 4)
    messages.join("c", "d")
    gone = {b"message 27", b"message 39"}
    nodes.wait(lambda: messages.seen.keys() == set(messages.produced) - gone)
    assert set(messages.seen.values()) == {1}
    assert messages.taken()[OUT_OF_RANGE] == messages.taken()[FIND_OFFSET] == 1


@pytest.mark.parametrize("reset", ["smallest", "largest"])
def test_a_group_without_offsets_begins_at_either_end(messages: Messages, reset: str) -> None:
    nodes = messages.nodes
    messages.produce()
    messages.join("a", offset_reset=reset)
    nodes.wait(lambda: len(messages.positions()) == PARTITIONS)
    messages.produce()
    before = set() if reset == "smallest" else set(messages.produced[:24])
    nodes.wait(lambda: messages.seen.keys() == set(messages.produced) - before)
    assert set(messages.seen.values()) == {1}


def test_a_topic_that_is_deleted_and_created_again_is_read_from_its_beginning(messages: Messages) -> None:
    nodes = messages.nodes
    messages.produce()
    messages.join("a", "b")
    messages.wait_for_all()
    nodes.wait(lambda: messages.committed() == dict.fromkeys(range(PARTITIONS), 2), 3 * SESSION_MS)
    assert nodes.delete("orders") == 0
    nodes.world.run_for(SESSION_MS)
    assert nodes.create("orders", PARTITIONS) == 0
    messages.produce()
    messages.wait_for_all()
    assert once(messages)
    assert nodes.is_shared({"a", "b"})
    nodes.wait(lambda: messages.committed() == dict.fromkeys(range(PARTITIONS), 2), 3 * SESSION_MS)


def check_lives(variant: str, seed: int) -> None:
    """No message is left out, and in the end what was read is committed."""
    lives = Lives(variant, seed)
    lives.live()
    lives.nodes.world.run_for(6 * SESSION_MS)
    lives.produce()
    lives.wait_for_all()
    assert lives.seen.keys() == set(lives.produced)
    lives.nodes.wait(lambda: len(lives.positions()) == PARTITIONS and lives.committed() == lives.positions())


@pytest.mark.parametrize("seed", [2, 5])
@pytest.mark.parametrize("variant", ["design", "thread"])
def test_no_message_is_left_out_while_nodes_and_consumers_are_killed(variant: str, seed: int) -> None:
    check_lives(variant, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", ["design", "thread"])
def test_no_message_is_left_out_in_many_lives(variant: str) -> None:
    for seed in range(100, 140):
        check_lives(variant, seed)
