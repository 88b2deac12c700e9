"""Apache Kafka and the coordinator are asked the same about transactions, and answer the same.

What differs on purpose is in `ACCEPTED`, with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache import launch_kafka
from quorate.client import Client
from tests.differential.blocking import Asking
from tests.support.transactions import GROUP, OTHER_GROUP, TOPIC, LedShard, Producer, Shards
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.find_coordinator import FindCoordinatorRequest
from wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

RETRIABLE = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
KAFKA_SETTINGS = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}

ACCEPTED = {
    # Kafka checks a producer's first write in a transaction alone, and goes by the producer id from then on.
    "commit offsets under another transactional id",
    # In Kafka, a producer that was replaced ends the transaction of the one that replaced it.
    "a replaced producer initializes itself again",
    "the next producer ends its transaction",
}

Answers = dict[str, object]


class Broker(Shards):
    """A broker in place of the shards."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._asking = Asking(address)
        self.metadata = self._any = LedShard(0, None)
        for key_type, key in ((1, "t"), *((0, group_id) for group_id in (GROUP, OTHER_GROUP))):
            self._wait_for(key_type, key)

    def _wait_for(self, key_type: int, key: str) -> None:
        def is_ready() -> bool:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            found = self.ask(self._any, ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code
            fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=key, topics=None)])
            return not found and (
                key_type == 1 or not self.ask(self._any, ApiKey.OFFSET_FETCH, 8, fetch).groups[0].error_code
            )

        deadline = time.monotonic() + 60
        while not is_ready():
            assert time.monotonic() < deadline, f"{key} has no coordinator"
            time.sleep(0.1)

    def close(self) -> None:
        self._asking.close()

    def ask(self, log: LedShard, api_key: ApiKey, version: int, request: Any) -> Any:
        return self._asking.ask(api_key, version, request)

    def log_of(self, group_id: str) -> LedShard:
        return self._any

    def see(self, num_entries: int | None = None) -> None:
        """Do nothing: a broker has one view of its transactions."""

    def settle(self) -> None:
        time.sleep(0.05)

    def sleep(self, ms: float) -> None:
        time.sleep(ms / 1_000)


def until_done(shards: Shards, request: Callable[[], int]) -> int:
    error = request()
    for _ in range(100):
        if error not in RETRIABLE:
            break
        shards.settle()
        error = request()
    return error


def stable(shards: Shards, *partitions: int) -> dict[int, int]:
    """The offsets of the group, once none is pending."""
    found = shards.fetch(GROUP, *partitions, is_stable=True)
    for _ in range(100):
        if -ErrorCode.UNSTABLE_OFFSET_COMMIT not in found.values():
            break
        shards.settle()
        found = shards.fetch(GROUP, *partitions, is_stable=True)
    return found


def answers(shards: Shards) -> Answers:
    said: Answers = {}
    one = Producer(shards)
    said["init"] = until_done(shards, one.init), one.epoch
    shards.see()
    said["timeouts"] = [Producer(shards, "u").init(timeout_ms=ms) for ms in (0, 900_000, 900_001)]
    said["empty id"] = Producer(shards, "").init()
    half = Producer(shards)
    half.producer_id = 5
    said["half a producer"] = half.init(named=True)
    said["end nothing"] = one.end(), one.end(commits=False)
    said["offsets of no group"] = [one.commit_offsets({0: 1}, version=version) for version in (3, 4)]
    said["unknown"] = one.add(0, topic="missing"), one.add(99)
    said["partitions"] = one.add(0, 1), one.add(0)
    said["not this group"] = one.commit_offsets({0: 1})
    said["group"] = one.add_group()
    said["offsets"] = one.commit_offsets({0: 1})
    said["pending"] = [shards.fetch(GROUP, 0, 1, is_stable=is_stable) for is_stable in (False, True)]
    said["all, stable"] = shards.fetch(GROUP, is_stable=True)
    said["the empty group"] = one.commit_offsets({0: 1}, "")
    said["unknown partition"] = one.commit_offsets({99: 1})
    said["generation"] = one.commit_offsets({0: 3}, generation_id=5, member_id="m")
    said["member"] = one.commit_offsets({0: 3}, member_id="m")
    said["instance"] = one.commit_offsets({0: 3}, group_instance_id="i")
    later = Producer(shards)
    later.producer_id, later.epoch = one.producer_id, one.epoch + 1
    for version in (1, 2):
        said[f"another epoch, {version}"] = [
            later.add(0, version=version), later.add_group(version=version), later.end(version=version)
        ]  # fmt: skip
    said["offsets of another epoch"] = later.commit_offsets({0: 9})
    later.producer_id, later.epoch = one.producer_id + 1, one.epoch
    said["another id"] = later.add(0), later.add_group(), later.end(), later.commit_offsets({0: 9})
    other = Producer(shards, "other")
    other.producer_id, other.epoch = one.producer_id, one.epoch
    said["another transactional id"] = other.add(0), other.add_group(), other.end()
    said["commit offsets under another transactional id"] = other.commit_offsets({2: 9})
    said["plain commit"] = shards.commit(GROUP, {0: 7})
    said["end"] = one.end(), stable(shards, 0, 1), until_done(shards, one.end), one.end(commits=False)
    said["too late"] = one.commit_offsets({0: 9})
    until_done(shards, one.add_group)
    said["deleted while pending"] = (
        one.commit_offsets({0: 20, 2: 21}), shards.delete_offsets(GROUP, 2, 3), stable(shards, 2)
    )  # fmt: skip
    said["abort"] = (
        one.end(commits=False),
        stable(shards, 0),
        until_done(shards, lambda: one.end(commits=False)),
    )
    said["commit after the abort"] = one.end()
    until_done(shards, one.add_group)
    one.commit_offsets({0: 30})
    two = Producer(shards)
    fenced = two.init(), one.end(), until_done(shards, lambda: one.add(0))
    said["second"] = fenced, until_done(shards, two.init), two.epoch - one.epoch
    shards.see()
    said["first of two"] = [one.init(named=True, version=version) for version in (3, 4)]
    said["nothing of it"] = stable(shards, 0)
    before = two.producer_id, two.epoch
    said["named"] = two.init(named=True), two.epoch - before[1]
    two.producer_id, two.epoch = before
    said["repeated"] = two.init(named=True), two.epoch - before[1]
    shards.see()
    said["deleted group"] = (
        until_done(shards, lambda: two.add_group(OTHER_GROUP)), two.commit_offsets({0: 1}, OTHER_GROUP),
        shards.delete_group(OTHER_GROUP), shards.delete_group(OTHER_GROUP), two.end(),
    )  # fmt: skip
    short = Producer(shards, "short", timeout_ms=500)
    until_done(shards, short.init)
    said["short"] = until_done(shards, lambda: short.add(0))
    shards.sleep(3_000)
    said["timed out"] = until_done(shards, short.end), short.add(0)
    said["recovers"] = until_done(shards, lambda: short.init(named=True)), short.end()
    zombie, next_one = Producer(shards, "z"), Producer(shards, "z")
    until_done(shards, zombie.init)
    until_done(shards, next_one.init)
    next_one.add(0)
    said["a replaced producer initializes itself again"] = zombie.init(named=True)
    shards.sleep(500)
    said["the next producer ends its transaction"] = next_one.end()
    return said


def test_every_answer_is_a_code_of_kafka() -> None:
    said = answers(Shards())
    assert said["end"] == (0, {0: 7, 1: -1}, 0, ErrorCode.INVALID_TXN_STATE)
    assert said["recovers"] == (0, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.java
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("kafka_can_run")
def test_kafka_answers_the_same_about_transactions(tmp_path: Path) -> None:
    with launch_kafka(tmp_path, settings=KAFKA_SETTINGS) as kafka:
        (address,) = kafka.addresses
        with Client(":".join(map(str, address))) as client:
            client.create_topic(TOPIC, 8)
        with closing(Broker(address)) as broker:
            theirs = answers(broker)
    ours = answers(Shards())
    differences = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    assert set(differences) == ACCEPTED, {
        name: both for name, both in differences.items() if name not in ACCEPTED
    }
