"""Spans of OpenTelemetry around polls, the work on messages, and commits, by its messaging conventions.

A program that traces has loaded `opentelemetry.trace` and set a provider before it consumes. Only then is
anything done here; nothing of OpenTelemetry is imported for a program that does not use it.

    poll     receive, CLIENT: a poll() that returned records, linked to the contexts that produced them
    process  process, CONSUMER: the user's work within `processing()`, whose context is current meanwhile
    commit   settle, CLIENT: a commit that is waited for

The contexts are read from the messages' headers by the configured propagator. A span of one message is the
child of what is current, or else of the message's context, and is linked to the latter in both cases. A span
of several messages is only linked. The work on messages has a door of its own, since an iterator cannot know
where the work on its last message ended: a loop may be left, and other tasks may do the work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from client.core.settings import ConsumerSettings
from client.core.types import ConsumerRecord

SCOPE: Final = "quorate.client"
"""The name of the instrumentation."""

LINKS_MAX: Final = 128
"""Limit on the links of one span, as of OpenTelemetry's SDK; later messages of a batch have none."""


class HeadersGetter:
    """OpenTelemetry's way into a message's headers."""

    def get(self, carrier: ConsumerRecord, key: str) -> list[str] | None:
        found = [value.decode("utf-8", "replace") for name, value in carrier.headers if name == key and value]
        return found or None

    def keys(self, carrier: ConsumerRecord) -> list[str]:
        return [name for name, _ in carrier.headers]


HEADERS: Final = HeadersGetter()


class Tracing:
    """Makes the spans of one consumer."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self._attributes: dict[str, Any] = {
            "messaging.system": "kafka",
            "messaging.client.id": settings.client_id,
        }
        if settings.group_id is not None:
            self._attributes["messaging.consumer.group.name"] = settings.group_id
        self._provider: Any = None
        self._tracer: Any = None

    @contextmanager
    def processing(self, records: Sequence[ConsumerRecord]) -> Iterator[Any]:
        """Make the span of the work on records current. Yields it, or None if nothing is traced."""
        tracer = self._configured()
        if tracer is None or not records:
            yield None
            return
        trace, context = sys.modules["opentelemetry.trace"], import_module("opentelemetry.context")
        token = context.attach(self._context_of(records[0]) if len(records) == 1 else context.get_current())
        try:
            with tracer.start_as_current_span(
                _name("process", records),
                kind=trace.SpanKind.CONSUMER,
                attributes=self._describe("process", records),
                links=_links(records),
            ) as span:
                try:
                    yield span
                except Exception as error:
                    span.set_attribute("error.type", type(error).__qualname__)
                    raise
        finally:
            context.detach(token)

    def began_ns(self) -> int:
        """The time for `polled`, 0 if nothing is traced."""
        return 0 if self._configured() is None else time.time_ns()

    def polled(self, began_ns: int, records: Sequence[ConsumerRecord]) -> None:
        """Make the span of a poll that has ended; one without records has none."""
        tracer = self._configured()
        if tracer is not None and records and began_ns:
            tracer.start_span(
                _name("poll", records),
                kind=sys.modules["opentelemetry.trace"].SpanKind.CLIENT,
                attributes=self._describe("poll", records),
                links=_links(records),
                start_time=began_ns,
            ).end()

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Make a span of a commit, which is current meanwhile."""
        tracer = self._configured()
        if tracer is None:
            yield
            return
        attributes = {**self._attributes, **_operation("commit")}
        kind = sys.modules["opentelemetry.trace"].SpanKind.CLIENT
        with tracer.start_as_current_span("commit", kind=kind, attributes=attributes) as span:
            try:
                yield
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def _configured(self) -> Any:
        """Return the tracer, None if the program has set no provider."""
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return None
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            return None
        if provider is not self._provider:
            self._provider, self._tracer = provider, provider.get_tracer(SCOPE)
        return self._tracer

    def _context_of(self, record: ConsumerRecord) -> Any:
        """Return the message's context with its baggage, below the current span if there is one."""
        trace = sys.modules["opentelemetry.trace"]
        current = trace.get_current_span()
        extracted = import_module("opentelemetry.propagate").extract(record, getter=HEADERS)
        if current.get_span_context().is_valid:
            return trace.set_span_in_context(current, extracted)
        return extracted

    def _describe(self, name: str, records: Sequence[ConsumerRecord]) -> dict[str, Any]:
        attributes = {**self._attributes, **_operation(name)}
        if len({record.topic for record in records}) == 1:
            attributes["messaging.destination.name"] = records[0].topic
            if len({record.partition for record in records}) == 1:
                attributes["messaging.destination.partition.id"] = str(records[0].partition)
        if len(records) > 1:
            attributes["messaging.batch.message_count"] = len(records)
            return attributes
        (record,) = records
        attributes["messaging.kafka.offset"] = record.offset
        if isinstance(record.key, str):
            attributes["messaging.kafka.message.key"] = record.key
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        elif isinstance(record.value, bytes):
            attributes["messaging.message.body.size"] = len(record.value)
        return attributes


def _operation(name: str) -> dict[str, str]:
    kind = {"poll": "receive", "commit": "settle"}.get(name, name)
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def _name(operation: str, records: Sequence[ConsumerRecord]) -> str:
    """A span's name; with the topic if there is only one."""
    topics = {record.topic for record in records}
    return f"{operation} {topics.pop()}" if len(topics) == 1 else operation


def _links(records: Sequence[ConsumerRecord]) -> list[Any]:
    """Links to the contexts that produced the messages, of those that carry one."""
    trace = sys.modules["opentelemetry.trace"]
    extract, empty = (
        import_module("opentelemetry.propagate").extract,
        import_module("opentelemetry.context").Context(),
    )
    links = []
    for record in records[:LINKS_MAX]:
        if not record.headers:
            continue
        context = trace.get_current_span(extract(record, empty, HEADERS)).get_span_context()
        if context.is_valid:
            links.append(trace.Link(context))
    return links
