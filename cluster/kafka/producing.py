"""Produce without a scratch log: served to refuse it, and to keep librdkafka's consumers from spinning.

Topics hold no messages then, so nothing can be produced, and every batch is refused with an error that is not
retried. The API is advertised all the same, because librdkafka takes a node without Produce 3 for one that
predates the message format of Fetch 4, and then fetches in a busy loop (docs/architecture.md).

Invariants: a producer that waits for an answer gets one at once, and one that does not (`acks` 0) is
notified in the only way that Kafka has for it, by losing its connection. Nothing that it sent is kept.
"""

from __future__ import annotations

from cluster.kafka.context import ListenerContext
from cluster.kafka.exchange import Exchange
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.produce import ProduceRequest
from wire.refusals import refuse

NO_MESSAGES = "topics here hold no messages, only partitions to assign; produce to a Kafka cluster"

PARTITIONS_MAX = 20_000
"""At most this many partitions in one request: what fits into a producer's max.request.size (1 MiB) at 61
bytes, the smallest possible batch. A frame of empty batches holds a hundred times as many, and the answer,
with a sentence for each, would be twenty times as long as the frame."""


def produce(context: ListenerContext, exchange: Exchange, request: ProduceRequest) -> None:
    """Answer Produce 3–13: POLICY_VIOLATION for every partition, also of topics that do not exist."""
    connection = exchange.connection
    assert connection is not None
    num_partitions = sum(len(topic.partition_data) for topic in request.topic_data)
    if num_partitions > PARTITIONS_MAX:
        connection.refuse(
            "flooding", f"it produces to {num_partitions} partitions in one request; {NO_MESSAGES}"
        )
        return
    if request.acks == 0:
        connection.refuse("unacknowledged", f"it produces with acks=0; {NO_MESSAGES}")
        return
    code = ErrorCode.POLICY_VIOLATION
    exchange.reply(refuse(ApiKey.PRODUCE, exchange.api_version, request, code, NO_MESSAGES))
