"""Produce, which is served so that it can be refused, and so that librdkafka's consumers can rest.

Topics hold no messages, so nothing can be produced, and every batch is told so: for good, not to be tried
again. It is advertised all the same because librdkafka takes a node without Produce 3 for one that predates
the message format which Fetch 4 carries, and then fetches in a busy loop (docs/architecture.md).

What must stay true: a producer that waits for an answer gets one at once, and one that does not (`acks` 0)
learns it in the only way that Kafka has for it, by losing its connection. Nothing that it sent is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.produce import ProduceRequest
from wire.refusals import refuse

if TYPE_CHECKING:
    from cluster.kafka.exchange import Exchange
    from cluster.kafka.listener import KafkaListener

NO_MESSAGES = "topics here have partitions to share out and hold no messages; produce to a Kafka cluster"


def produce(listener: KafkaListener, exchange: Exchange, request: ProduceRequest) -> None:
    """Produce 3–13: POLICY_VIOLATION for every partition, also of topics that do not exist."""
    if request.acks == 0:
        if exchange.connection is not None:
            exchange.connection.refuse("unacknowledged", f"it produces with acks=0; {NO_MESSAGES}")
        return
    code = ErrorCode.POLICY_VIOLATION
    exchange.reply(refuse(ApiKey.PRODUCE, exchange.api_version, request, code, NO_MESSAGES))
