"""Spans of OpenTelemetry: their kinds, parents, links and attributes, and what is done without a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from client.tracing import LINKS_MAX, Tracing
from quorate import Consumer, ConsumerRecord, SyncConsumer, TopicPartition

NOWHERE: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "group_id": "billing", "client_id": "worker-1"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """The provider that the program has set."""
    provider = TracerProvider()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return provider


@pytest.fixture
def exporter(provider: TracerProvider) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    provider.shutdown()


def record(offset: int = 7, *, partition: int = 0, topic: str = "orders", **fields: Any) -> ConsumerRecord:
    values = {"key": None, "value": b"1001", "headers": ()} | fields
    return ConsumerRecord(topic, partition, offset, 1_700_000_000_000, 0, leader_epoch=0, **values)


def produced(
    tracer: trace.Tracer, offset: int = 7, **fields: Any
) -> tuple[ConsumerRecord, trace.SpanContext]:
    """Return a record as an instrumented producer sends it, and the context of its span."""
    with tracer.start_as_current_span("send orders", kind=trace.SpanKind.PRODUCER) as span:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
    headers = tuple((name, value.encode()) for name, value in carrier.items())
    return record(offset, headers=headers, **fields), span.get_span_context()


def only(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = (one for one in exporter.get_finished_spans() if one.name == name)
    return span


async def test_the_work_on_a_record_is_a_child_of_its_producers_span(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("test")
    token = context.attach(baggage.set_baggage("tenant", "7"))
    message, sent = produced(tracer)
    context.detach(token)
    consumer = Consumer(**NOWHERE)
    with consumer.processing(message):
        await asyncio.sleep(0)
        assert baggage.get_baggage("tenant") == "7"
        with tracer.start_as_current_span("book"):
            pass
    assert not trace.get_current_span().get_span_context().is_valid
    assert baggage.get_baggage("tenant") is None
    span = only(exporter, "process orders")
    assert span.kind is trace.SpanKind.CONSUMER
    assert (span.parent.span_id, span.context.trace_id) == (sent.span_id, sent.trace_id)
    assert [link.context.span_id for link in span.links] == [sent.span_id]
    assert only(exporter, "book").parent.span_id == span.context.span_id
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.client.id": "worker-1",
        "messaging.consumer.group.name": "billing",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 7,
        "messaging.message.body.size": 4,
    }


def test_a_current_span_is_the_parent_and_the_producers_is_linked(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("test")
    message, sent = produced(tracer, key="k", value=None)
    consumer = SyncConsumer(**NOWHERE)
    with tracer.start_as_current_span("job") as job, consumer._tracing.processing([message]):
        pass
    consumer.close(timeout=0.1)
    span = only(exporter, "process orders")
    assert span.parent.span_id == job.get_span_context().span_id
    assert [link.context.span_id for link in span.links] == [sent.span_id]
    assert span.attributes["messaging.kafka.message.tombstone"] is True
    assert span.attributes["messaging.kafka.message.key"] == "k"


def test_the_work_on_a_batch_is_linked_to_every_producer(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    tracer = provider.get_tracer("test")
    batch = [produced(tracer, offset) for offset in range(LINKS_MAX + 5)]
    consumer = Consumer(**NOWHERE)
    with consumer.processing(record(), *(message for message, _ in batch), record(topic="refunds")):
        pass
    span = only(exporter, "process")
    assert span.parent is None
    assert [one.context.span_id for one in span.links] == [sent.span_id for _, sent in batch[: LINKS_MAX - 1]]
    assert span.attributes["messaging.batch.message_count"] == LINKS_MAX + 7
    assert "messaging.destination.name" not in span.attributes


def test_what_the_work_raises_is_in_its_span(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(KeyError), Consumer(**NOWHERE).processing(record()):
        raise KeyError("customer")
    span = only(exporter, "process orders")
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.attributes["error.type"] == "KeyError"
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(
    "headers", [(("traceparent", b"\xff\xfe"),), (("traceparent", None),), (("x", b"1"),)]
)
def test_headers_without_a_context_are_no_parent(headers: Any, exporter: InMemorySpanExporter) -> None:
    with Consumer(**NOWHERE).processing(record(headers=headers)):
        pass
    span = only(exporter, "process orders")
    assert (span.parent, list(span.links)) == (None, [])


async def test_a_commit_that_fails_has_a_span(exporter: InMemorySpanExporter) -> None:
    consumer = Consumer(**NOWHERE)
    with pytest.raises(TimeoutError):
        await consumer.commit({TopicPartition("orders", 0): 7}, timeout=0.05)
    await consumer.close(timeout=0.1)
    span = only(exporter, "commit")
    assert (span.kind, span.attributes["error.type"]) == (trace.SpanKind.CLIENT, "TimedOut")
    assert span.attributes["messaging.operation.type"] == "settle"


async def test_a_poll_without_records_has_no_span(exporter: InMemorySpanExporter) -> None:
    async with Consumer("orders", **NOWHERE) as consumer:
        assert await consumer.poll(0) == []
        await consumer.close(timeout=0.1)
    assert exporter.get_finished_spans() == ()


def test_nothing_is_done_without_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    consumer = Consumer(**NOWHERE)
    message, _ = produced(TracerProvider().get_tracer("test"))
    with consumer.processing(message) as span:
        assert span is None
        assert not trace.get_current_span().get_span_context().is_valid
    tracing: Tracing = consumer._tracing
    assert tracing.began_ns() == 0
