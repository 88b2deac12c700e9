"""Random schedules of transactions: requests in any order, late catalogs, deletions, time-outs, dead leaders;
and a metadata shard restored from an older copy. When the shards come to rest, nothing is pending."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from coordinator.api import RequestRefused
from coordinator.limits import Limits
from coordinator.topics import CatalogView
from records import TransactionState
from tests.support.transactions import GROUP, OTHER_GROUP, TOPIC, Died, Producer, Shards
from wire.apis import ApiKey
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

BEING_DONE = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def add_unseen(shards: Shards, producer: Producer, group_id: str) -> None:
    """Add a group, and let the group shards learn of it later."""
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
    )
    shards.ask(shards.metadata, ApiKey.ADD_OFFSETS_TO_TXN, 3, request)


def renew_topic(shards: Shards) -> None:
    """Delete the topic and create it again; no leader dies meanwhile."""
    dies, shards.dies = shards.dies, lambda log: None
    shards.delete_topic()
    topics = [CreatableTopic(name=TOPIC, num_partitions=8, replication_factor=1)]
    shards.ask(shards.metadata, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
    shards.dies = dies


def transact(random: Random, producer: Producer, group_id: str) -> None:
    """The requests of one transaction; the last one may be missing."""
    if producer.producer_id == -1 or random.random() < 0.2:
        producer.init()
    for _ in range(random.randint(0, 2)):
        if not producer.add_group(group_id):
            producer.commit_offsets(offsets(random), group_id)
    if random.random() < 0.6:
        producer.end(commits=random.random() < 0.7)


def offsets(random: Random) -> dict[int, int]:
    return {number: random.randrange(1_000) for number in random.sample(range(8), random.randint(1, 5))}


def check_owners(shards: Shards) -> None:
    """Each pending offset is of a transaction that is being done, and that names the group."""
    transactions = shards.metadata.machine.view.transactions
    for log in shards.groups:
        pending = log.machine.projection.pending
        for group_id in pending.group_ids():
            for key, offset in pending.of_group(group_id):
                value = transactions.of(transactions.id_of(key.producer_id) or "")
                assert value is not None
                assert value.began == offset.transaction
                assert value.state in BEING_DONE
                assert any(group.group_id == group_id for group in value.groups)


def check_at_rest(shards: Shards) -> None:
    shards.settle()
    shards.sleep(61_000)
    assert not shards.pending()
    transactions = shards.metadata.machine.view.transactions
    for transactional_id in transactions.ids():
        assert shards.state(transactional_id) not in BEING_DONE


@pytest.mark.parametrize("seed", range(40))
def test_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.offsets.resolving.RECORDS_AT_ONCE", 3)
    monkeypatch.setattr("coordinator.offsets.transactional.PARTITIONS_AT_ONCE", 2)
    random = Random(seed)
    limits = Limits(transactional_id_expiration_ms=20_000)
    if seed % 2:  # what plain commits supersede and what is deleted takes several entries too
        monkeypatch.setattr("coordinator.offsets.commits.PARTITIONS_AT_ONCE", 3)
        limits = replace(limits, removal_bytes_max=700)
    shards = Shards(limits)
    timeouts_ms = random.choices((500, 5_000, 60_000), k=5)
    producers = [Producer(shards, f"t{number % 3}", timeout) for number, timeout in enumerate(timeouts_ms)]
    shards.dies = lambda log: random.choice([None] * 12 + [True, False])
    for _ in range(random.randint(20, 120)):
        producer, group_id = random.choice(producers), random.choice((GROUP, OTHER_GROUP))
        steps: list[Callable[[], object]] = [
            lambda p=producer: p.init(named=p.producer_id != -1 and random.random() < 0.5),  # type: ignore[misc]
            lambda p=producer: p.add(random.randrange(8)),  # type: ignore[misc]
            lambda p=producer, g=group_id: add_unseen(shards, p, g),  # type: ignore[misc]
            lambda p=producer, g=group_id: p.commit_offsets(offsets(random), g),  # type: ignore[misc]
            lambda p=producer: p.end(commits=random.random() < 0.7),  # type: ignore[misc]
            lambda p=producer, g=group_id: transact(random, p, g),  # type: ignore[misc]
            lambda p=producer, g=group_id: transact(random, p, g),  # type: ignore[misc]
            lambda g=group_id: shards.commit(g, offsets(random)),  # type: ignore[misc]
            lambda g=group_id: g in shards.listed() and shards.delete_offsets(g, 1, 2),  # type: ignore[misc]
            lambda g=group_id: shards.delete_group(g),  # type: ignore[misc]
            lambda: random.random() < 0.3 and renew_topic(shards),
            lambda: shards.see(min(len(shards.metadata.entries), shards.num_seen + 1)),
            lambda: shards.work(random.choice(shards.all)),
            shards.settle,
            lambda: shards.sleep(random.choice((10, 600, 6_000, 25_000))),
            lambda: shards.fail_over(random.choice(shards.all)),
        ]
        with contextlib.suppress(Died, RequestRefused):
            random.choice(steps)()
        check_owners(shards)
    shards.dies = lambda log: None
    check_at_rest(shards)
    shards.check()


@pytest.mark.parametrize("seed", range(200))
def test_after_a_restore_of_the_metadata_shard_from_an_older_copy(seed: int) -> None:
    """Transactions may be open again, or without a group, or be decided once more before the group shards
    serve: only once the metadata shard's log is as long as it was."""
    random = Random(seed)
    shards = Shards()
    producers = [Producer(shards, f"t{number}") for number in range(3)]

    def go_on(number: int) -> None:
        for _ in range(number):
            try:
                transact(random, random.choice(producers), random.choice((GROUP, OTHER_GROUP)))
                if random.random() < 0.5:
                    shards.settle()
            except RequestRefused:
                pass

    go_on(random.randint(3, 15))
    metadata = shards.metadata
    del metadata.entries[random.randint(2, len(metadata.entries)) :]
    shards.fail_over(metadata)
    for producer in producers:
        try:
            if producer.producer_id != -1 and random.random() < 0.6:
                producer.end(commits=random.random() < 0.7)
        except RequestRefused:
            pass
        while random.random() < 0.5 and shards.work(metadata):
            pass
    needed = max(log.machine.projection.newest_transaction_version for log in shards.groups)
    number = 0
    while metadata.next_index <= needed:
        number += 1
        Producer(shards, f"other-{number}").init()
    shards.view, shards.num_seen = CatalogView(), 0
    shards.see()
    for log in shards.groups:
        shards.fail_over(log)
    shards.settle()
    go_on(random.randint(0, 8))
    check_at_rest(shards)
