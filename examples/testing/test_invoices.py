"""Tests of invoices.py with the fixture `quorate`, see ../../docs/testing-clients.md."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from invoices import write_invoices

ORDERS = [b"1001", b"1002", b"1003"]
ONE_INVOICE_EACH = {b"invoice of " + order: 1 for order in ORDERS}


@pytest.mark.quorate(topics={"orders": 1, "invoices": 1})
def test_every_order_has_one_invoice(quorate):
    place_orders(quorate.bootstrap)
    write_invoices(quorate.bootstrap, len(ORDERS))
    assert invoices(quorate.bootstrap) == ONE_INVOICE_EACH


@pytest.mark.quorate(topics={"orders": 1, "invoices": 1})
def test_also_when_the_answer_to_a_commit_is_lost(quorate):
    place_orders(quorate.bootstrap)
    quorate.add_fault("drop", api="OffsetCommit", times=1)
    write_invoices(quorate.bootstrap, len(ORDERS))
    assert invoices(quorate.bootstrap) == ONE_INVOICE_EACH


@pytest.mark.quorate(topics={"orders": 1, "invoices": 1})
def test_also_when_the_answer_to_an_invoice_is_lost(quorate):
    place_orders(quorate.bootstrap)
    quorate.add_fault("drop", api="Produce", times=1)
    write_invoices(quorate.bootstrap, len(ORDERS))
    assert invoices(quorate.bootstrap) == ONE_INVOICE_EACH


def place_orders(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap})
    for order in ORDERS:
        producer.produce("orders", order)
    assert producer.flush(10) == 0


def invoices(bootstrap):
    """Count what the topic `invoices` holds, from its beginning to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit"})
    partition = TopicPartition("invoices", 0)
    first, end = consumer.get_watermark_offsets(partition)
    consumer.assign([TopicPartition("invoices", 0, first)])
    found = Counter()
    while sum(found.values()) < end - first:
        message = consumer.poll(10)
        assert message is not None, "an invoice is missing"
        assert message.error() is None
        found[message.value()] += 1
    consumer.close()
    return found
