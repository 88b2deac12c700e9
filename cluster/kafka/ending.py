"""Transactions that end, in the scratch log: a marker in each partition that the transaction wrote to.

The decision is committed in the metadata shard's log, whose leader also has the messages. So markers go from
one part of this node to another, and none is ever owed to another node: with the leader, the messages are
lost too.

Invariant: until a transaction's markers are appended, no batch of its producer is: it would end with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from cluster.kafka.appending import log_led_here
from cluster.kafka.context import ListenerContext
from cluster.runtime.slices import MORE
from cluster.scratchlog import RefusedBatch
from cluster.scratchlog.producers import Partition
from coordinator.transactions import COMMITS
from records import TransactionValue

LOG = logging.getLogger("quorate.kafka")

MARKERS_AT_ONCE: Final = 100
"""Markers appended in one step: about a millisecond."""


def transactions_decided(context: ListenerContext, values: Iterable[TransactionValue]) -> None:
    """Append the markers of transactions whose end was just committed; within this turn if that is short."""
    values = list(values)
    if values and context.scratch_log is not None:
        context.ending_producers.update(value.producer_id for value in values)
        context.slices.run(_append_markers(context, values), lambda: True, MORE)


def _append_markers(context: ListenerContext, values: list[TransactionValue]) -> Iterator[None]:
    num_made = 0
    for value in values:
        for topic in value.topics:
            for partition in topic.partitions:
                _append_marker(context, value, (topic.topic_id, partition))
                num_made += 1
                if not num_made % MARKERS_AT_ONCE:
                    yield
        ending = context.ending_producers
        ending[value.producer_id] -= 1
        if not ending[value.producer_id]:
            del ending[value.producer_id]


def _append_marker(context: ListenerContext, value: TransactionValue, partition: Partition) -> None:
    log = log_led_here(context)
    topic = context.node.catalog.topic_by_id(partition[0])
    if log is None or topic is None:  # it was deleted meanwhile
        return
    try:
        log.end_transaction(
            partition,
            value.producer_id,
            value.producer_epoch,
            log.term,
            committed=value.state in COMMITS,
            now_ms=context.node.clock.wall_at(context.host.monotonic_ms()),
        )
    except RefusedBatch as refused:
        LOG.warning("no marker in %s-%d: %s", topic.name, partition[1], refused.message)
