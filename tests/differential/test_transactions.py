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
    """The answers of one transaction after the other, by name of the question."""
    producer, successor = Producer(shards), Producer(shards)
    return {
        **initialized(shards, producer),
        **without_a_transaction(producer),
        **in_a_transaction(shards, producer),
        **refused_offsets(producer),
        **as_another_producer(shards, producer),
        **committed(shards, producer),
        **aborted(shards, producer),
        **replaced(shards, producer, successor),
        **initialized_by_name(shards, successor),
        **group_deleted(shards, successor),
        **timed_out(shards),
        **replaced_and_back(shards),
    }


def initialized(shards: Shards, producer: Producer) -> Answers:
    said: Answers = {"init": (until_done(shards, producer.init), producer.epoch)}
    shards.see()
    said["timeouts"] = [Producer(shards, "u").init(timeout_ms=ms) for ms in (0, 900_000, 900_001)]
    said["empty id"] = Producer(shards, "").init()
    half = Producer(shards)
    half.producer_id = 5
    said["half a producer"] = half.init(named=True)
    return said


def without_a_transaction(producer: Producer) -> Answers:
    return {
        "end nothing": (producer.end(), producer.end(commits=False)),
        "offsets of no group": [producer.commit_offsets({0: 1}, version=version) for version in (3, 4)],
    }


def in_a_transaction(shards: Shards, producer: Producer) -> Answers:
    return {
        "unknown": (producer.add(0, topic="missing"), producer.add(99)),
        "partitions": (producer.add(0, 1), producer.add(0)),
        "not this group": producer.commit_offsets({0: 1}),
        "group": producer.add_group(),
        "offsets": producer.commit_offsets({0: 1}),
        "pending": [shards.fetch(GROUP, 0, 1, is_stable=is_stable) for is_stable in (False, True)],
        "all, stable": shards.fetch(GROUP, is_stable=True),
    }


def refused_offsets(producer: Producer) -> Answers:
    return {
        "the empty group": producer.commit_offsets({0: 1}, ""),
        "unknown partition": producer.commit_offsets({99: 1}),
        "generation": producer.commit_offsets({0: 3}, generation_id=5, member_id="m"),
        "member": producer.commit_offsets({0: 3}, member_id="m"),
        "instance": producer.commit_offsets({0: 3}, group_instance_id="i"),
    }


def as_another_producer(shards: Shards, producer: Producer) -> Answers:
    """Requests with another epoch, id or transactional id than the one whose transaction is open."""
    said: Answers = {}
    other = Producer(shards)
    other.producer_id, other.epoch = producer.producer_id, producer.epoch + 1
    for version in (1, 2):
        said[f"another epoch, {version}"] = (
            other.add(0, version=version),
            other.add_group(version=version),
            other.end(version=version),
        )
    said["offsets of another epoch"] = other.commit_offsets({0: 9})
    other.producer_id, other.epoch = producer.producer_id + 1, producer.epoch
    said["another id"] = other.add(0), other.add_group(), other.end(), other.commit_offsets({0: 9})
    renamed = Producer(shards, "other")
    renamed.producer_id, renamed.epoch = producer.producer_id, producer.epoch
    said["another transactional id"] = renamed.add(0), renamed.add_group(), renamed.end()
    said["commit offsets under another transactional id"] = renamed.commit_offsets({2: 9})
    return said


def committed(shards: Shards, producer: Producer) -> Answers:
    return {
        "plain commit": shards.commit(GROUP, {0: 7}),
        "end": (producer.end(), stable(shards, 0, 1)),
        "end again": (until_done(shards, producer.end), producer.end(commits=False)),
        "too late": producer.commit_offsets({0: 9}),
    }


def aborted(shards: Shards, producer: Producer) -> Answers:
    until_done(shards, producer.add_group)
    return {
        "offsets to abort": producer.commit_offsets({0: 20, 2: 21}),
        "deleted while pending": (shards.delete_offsets(GROUP, 2, 3), stable(shards, 2)),
        "abort": (producer.end(commits=False), stable(shards, 0)),
        "abort again": until_done(shards, lambda: producer.end(commits=False)),
        "commit after the abort": producer.end(),
    }


def replaced(shards: Shards, producer: Producer, successor: Producer) -> Answers:
    """The successor initializes itself while the producer has offsets pending."""
    until_done(shards, producer.add_group)
    producer.commit_offsets({0: 30})
    said: Answers = {
        "replace": successor.init(),
        "replaced": (producer.end(), until_done(shards, lambda: producer.add(0))),
        "successor": (until_done(shards, successor.init), successor.epoch - producer.epoch),
    }
    shards.see()
    said["initialize the replaced"] = [producer.init(named=True, version=version) for version in (3, 4)]
    said["nothing of it"] = stable(shards, 0)
    return said


def initialized_by_name(shards: Shards, producer: Producer) -> Answers:
    """A producer that names its id and epoch, and repeats that because the reply was lost."""
    before = producer.producer_id, producer.epoch
    said: Answers = {"named": (producer.init(named=True), producer.epoch - before[1])}
    producer.producer_id, producer.epoch = before
    said["repeated"] = producer.init(named=True), producer.epoch - before[1]
    shards.see()
    return said


def group_deleted(shards: Shards, producer: Producer) -> Answers:
    return {
        "another group": until_done(shards, lambda: producer.add_group(OTHER_GROUP)),
        "offsets of the other group": producer.commit_offsets({0: 1}, OTHER_GROUP),
        "delete it": (shards.delete_group(OTHER_GROUP), shards.delete_group(OTHER_GROUP)),
        "end without the group": producer.end(),
    }


def timed_out(shards: Shards) -> Answers:
    producer = Producer(shards, "short", timeout_ms=500)
    until_done(shards, producer.init)
    said: Answers = {"short": until_done(shards, lambda: producer.add(0))}
    shards.sleep(3_000)
    said["timed out"] = until_done(shards, producer.end), producer.add(0)
    said["recovers"] = until_done(shards, lambda: producer.init(named=True)), producer.end()
    return said


def replaced_and_back(shards: Shards) -> Answers:
    zombie, successor = Producer(shards, "z"), Producer(shards, "z")
    until_done(shards, zombie.init)
    until_done(shards, successor.init)
    successor.add(0)
    said: Answers = {"a replaced producer initializes itself again": zombie.init(named=True)}
    shards.sleep(500)
    said["the next producer ends its transaction"] = successor.end()
    return said


def test_every_answer_is_a_code_of_kafka() -> None:
    said = answers(Shards())
    assert said["end"] == (0, {0: 7, 1: -1})
    assert said["end again"] == (0, ErrorCode.INVALID_TXN_STATE)
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
