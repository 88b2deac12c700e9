"""Consumers of a topic with `PARTITIONS` partitions, and what a test waits for them to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.stock_clients import CLIENTS, StockClient
from tests.support.verifiable import VerifiableConsumer, VerifiableProducer
from tests.support.waiting import wait_for

PARTITIONS = 6
ALL = set(range(PARTITIONS))
MESSAGES = 300
KEYS = ("--repeating-keys", "50")
"""So many keys that every partition has some."""
WITHIN_S = 30.0
KCAT_SLOW = [
    *(name for name in CLIENTS if name != "kcat"),
    pytest.param("kcat", marks=pytest.mark.slow),
]
"""Every client, for tests with many commits; kcat commits every five seconds."""


def wait_until_shared(*consumers: VerifiableConsumer) -> None:
    """Wait until every partition has one owner, and every consumer has the same number."""

    def are_shared() -> bool:
        owned = [consumer.assigned for consumer in consumers]
        share = PARTITIONS // len(consumers)
        return all(len(some) == share for some in owned) and set().union(*owned) == ALL

    wait_while_running(are_shared, *consumers)


def wait_until_each_commits(*consumers: VerifiableConsumer) -> None:
    before = [dict(consumer.committed) for consumer in consumers]
    wait_while_running(
        lambda: all(one.committed != old for one, old in zip(consumers, before, strict=True)), *consumers
    )


def wait_while_running(condition: Callable[[], bool], *consumers: VerifiableConsumer) -> None:
    def report() -> str:
        return "\n".join(consumer.report() for consumer in consumers)

    def holds() -> bool:
        assert all(consumer.is_running for consumer in consumers), report()
        return condition()

    wait_for(holds, report, WITHIN_S)


def produce(producer: VerifiableProducer) -> None:
    """Let a producer with a number of messages end."""
    with producer:
        producer.wait()
        assert len(producer.acknowledged) == MESSAGES, (producer.errors[-3:], producer.other_lines)


def newest(*consumers: VerifiableConsumer) -> dict[int, int]:
    """Return the newest offset of each partition whose commit any of them was told to have succeeded."""
    found: dict[int, int] = {}
    for consumer in consumers:
        for (_, number), offset in consumer.committed.items():
            found[number] = max(offset, found.get(number, 0))
    return found


def client(name: str) -> StockClient:
    """Return a client, or skip the test if it cannot run here."""
    found = CLIENTS[name]
    if reason := found.missing():
        pytest.skip(reason)
    return found
