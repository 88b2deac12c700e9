"""Traces that begin with a stock producer and go on in our consumers, on a real server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quorate import Consumer, SyncConsumer

NUM_MESSAGES = 4


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def produce(server: str, topic: str) -> list[int]:
    """Send messages, each from a span of its own; return the ids of their traces."""
    producer = Producer({"bootstrap.servers": server})
    traces = []
    for number in range(NUM_MESSAGES):
        with trace.get_tracer("shop").start_as_current_span("send", kind=trace.SpanKind.PRODUCER) as span:
            headers: dict[str, Any] = {}
            propagate.inject(headers)
            producer.produce(topic, str(number), partition=0, headers=headers)
            traces.append(span.get_span_context().trace_id)
    assert producer.flush(10) == 0
    return traces


def named(exporter: InMemorySpanExporter, operation: str) -> list[Any]:
    return [one for one in exporter.get_finished_spans() if one.name.startswith(operation)]


async def test_a_trace_goes_on_from_the_producer_into_the_loop(
    server: str, topic: str, consumer: Callable[..., Consumer], exporter: InMemorySpanExporter
) -> None:
    traces = produce(server, topic)
    worked = []
    async with consumer(topic) as reader:
        async for record in reader:
            with reader.processing(record):
                worked.append(trace.get_current_span().get_span_context().trace_id)
            if len(worked) == NUM_MESSAGES:
                break
        await reader.commit()
    assert worked == traces
    spans = named(exporter, "process")
    assert [one.attributes["messaging.kafka.offset"] for one in spans] == list(range(NUM_MESSAGES))
    assert not named(exporter, "poll"), "a loop does not poll"
    (commit,) = named(exporter, "commit")
    assert commit.kind is trace.SpanKind.CLIENT


async def test_a_poll_is_linked_to_the_producers(
    server: str, topic: str, consumer: Callable[..., Consumer], exporter: InMemorySpanExporter
) -> None:
    traces = produce(server, topic)
    found: list[Any] = []
    async with consumer(topic) as reader:
        while len(found) < NUM_MESSAGES:
            found += await reader.poll(1.0)
    spans = named(exporter, f"poll {topic}")
    assert [link.context.trace_id for one in spans for link in one.links] == traces
    assert all(one.kind is trace.SpanKind.CLIENT for one in spans)
    assert all(one.start_time < one.end_time for one in spans)


def test_a_trace_goes_on_in_a_thread(
    server: str, topic: str, group: str, exporter: InMemorySpanExporter
) -> None:
    traces = produce(server, topic)
    worked: list[int] = []
    settings = {"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "earliest"}
    with SyncConsumer(settings) as reader:
        reader.subscribe([topic])
        while len(worked) < NUM_MESSAGES - 1:
            message = reader.poll(10.0)
            assert message is not None
            with reader.processing(message):
                worked.append(trace.get_current_span().get_span_context().trace_id)
        (last,) = reader.consume(1, 10.0)
        with reader.processing(last):
            worked.append(trace.get_current_span().get_span_context().trace_id)
    assert worked == traces
    assert len(named(exporter, "poll")) == NUM_MESSAGES
