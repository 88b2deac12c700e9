"""Writes an invoice for every order: consumes the topic `orders`, produces to `invoices`, then commits.

It has a bug, which the tests beside it find: if one answer is lost, an order has two invoices.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer


def write_invoices(bootstrap: str, count: int) -> None:
    """Handle `count` orders, then stop."""
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "invoicing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        for _ in range(count):
            order = next_order(consumer)
            producer.produce("invoices", b"invoice of " + order.value())
            producer.flush()
            consumer.commit(order, asynchronous=False)
    finally:
        consumer.close()


def next_order(consumer: Consumer):
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            return message
