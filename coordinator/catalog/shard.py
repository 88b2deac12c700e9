"""The metadata shard: topics, group configs, the format level, transactions, and requests for leaders.

Like a group shard, it is a projection over records that only `apply` changes. Topics hold no data here; a
topic is a name, an id and a number of partitions. So replica placement and topic configs in a request are
accepted and have no effect. Each creation assigns a fresh topic id, which distinguishes a topic from a
deleted one of the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from coordinator.api import Context, Decision, DecisionBuilder, RequestRefused, Steps
from coordinator.catalog import transactions
from coordinator.catalog.configadmin import alter_configs
from coordinator.catalog.topicadmin import create_partitions, create_topics, delete_topics
from coordinator.catalog.transactions import TransactionContext
from coordinator.catalog.transactiontimers import RETRY_MS, TransactionTimers
from coordinator.leadership import NOTHING_ASKED
from coordinator.limits import Limits
from coordinator.state.statehash import EntryHashes
from coordinator.steps import run_steps
from coordinator.topics import FIRST_FORMAT_LEVEL, CatalogTopic, CatalogView
from records import (
    FormatLevelKey,
    FormatLevelValue,
    GroupConfigKey,
    GroupConfigValue,
    Key,
    LeadershipKey,
    RawRecord,
    TermStartKey,
    TermStartValue,
    TopicKey,
    TopicRacksKey,
    TopicRacksValue,
    TopicValue,
    TransactionKey,
    UnknownRecord,
    Value,
    decode_record,
)
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from wire.messages.create_partitions import CreatePartitionsRequest
from wire.messages.create_topics import CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.refusals import refuse
from wire.schema import Message

__all__ = ["CatalogShard", "CatalogTopic", "CatalogView"]

OF_TRANSACTIONS = (
    InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest
)  # fmt: skip
"""Requests of producers; the others come from operators."""


class CatalogShard:
    """The catalog of a cluster with `num_shards` group shards. `view` is live: it reflects the last applied
    record."""

    def __init__(self, limits: Limits | None = None, num_shards: int = 1) -> None:
        self.limits = limits or Limits()
        self.view = CatalogView()
        self.timers = TransactionTimers(self.limits)
        self._transactions = TransactionContext(self.view, self.limits, num_shards, self.timers)
        self.format_level: int | None = None
        self.term: TermStartValue | None = None
        self.unknown_types: Counter[int] = Counter()
        self.applied_index = 0
        self._hashes = EntryHashes(self._projected)

    @property
    def state_hash(self) -> int:
        """State hash (u64) over all projected entries; see `coordinator.state.statehash`."""
        return self._hashes.total

    def apply(self, raw: RawRecord, index: int) -> None:
        """Apply one record of the entry at `index`; only this changes the catalog."""
        self.applied_index = index
        record = decode_record(raw)
        if isinstance(record, UnknownRecord):
            self.unknown_types[raw.type] += 1
            return
        key, value = record.key, record.value
        if isinstance(key, FormatLevelKey):
            self.format_level = value.level if isinstance(value, FormatLevelValue) else None
            self.view.format_level = self.format_level or FIRST_FORMAT_LEVEL
        elif isinstance(key, TermStartKey):
            self.term = value if isinstance(value, TermStartValue) else None
        elif not self.view.learn(key, value, index):
            self.unknown_types[raw.type] += 1
            return
        self._hashes.touch(raw, key, index)

    def free_incrementally(self) -> Iterator[None]:
        """Free the state in small steps, because another shard object will replay the log."""
        return chain(self.timers.clear(), self._hashes.free_incrementally())

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None:
        """Apply many records of the entry at `index`."""
        for raw in raws:
            self.apply(raw, index)

    def handle(self, api_key: int, api_version: int, request: Any, ctx: Context) -> Decision:
        """Decide a request about topics, configs or transactions. Raises KeyError for any other API."""
        builder = DecisionBuilder(by_operator=not isinstance(request, OF_TRANSACTIONS))
        try:
            return self._run(self._steps(api_key, api_version, request, ctx, builder), ctx, builder)
        except RequestRefused as refused:
            return Decision(reply=refuse(api_key, api_version, request, refused.code, refused.message))

    def _steps(
        self, api_key: int, version: int, request: Message, ctx: Context, builder: DecisionBuilder
    ) -> Steps:
        match request:
            case CreateTopicsRequest():
                return create_topics(self.view, self.limits, request, version, ctx, builder)
            case CreatePartitionsRequest():
                return create_partitions(self.view, self.limits, request, version, ctx, builder)
            case DeleteTopicsRequest():
                return delete_topics(self.view, self.limits, request, version, ctx, builder)
            case IncrementalAlterConfigsRequest():
                return alter_configs(self.view, self.limits, request, version, ctx, builder)
            case InitProducerIdRequest():
                return transactions.init_producer_id(self._transactions, request, version, ctx, builder)
            case AddPartitionsToTxnRequest():
                return transactions.add_partitions(self._transactions, request, version, ctx, builder)
            case AddOffsetsToTxnRequest():
                return transactions.add_offsets(self._transactions, request, version, ctx, builder)
            case EndTxnRequest():
                return transactions.end_transaction(self._transactions, request, version, ctx, builder)
            case _:
                raise KeyError(api_key)

    def becoming_ready(self, now: Callable[[], Context]) -> Iterator[None]:
        """Begin to serve, in steps: the timers of all transactional ids start."""
        return self.timers.begin(self.view.transactions, now)

    def decisions_followed(self, shard: int, decided: int) -> None:
        """Note that a group shard has followed all decisions up to this index; transactions may be complete
        now."""
        self.timers.shard_followed(shard, decided, self.view.transactions)

    def next_deadline_ms(self) -> float | None:
        """Monotonic time at which `next_work` has something to do; a time in the past means at once."""
        return self.timers.next_ms()

    def next_work(self, ctx: Context) -> Decision | None:
        """Run one decision of due work, which is that of one transactional id; None if none is due."""
        transactional_id = self.timers.take_due(ctx)
        if transactional_id is None:
            return None
        builder = DecisionBuilder()
        try:
            return self._run(
                transactions.due_work(self._transactions, transactional_id, ctx, builder), ctx, builder
            )
        except Exception:
            self.timers.put_off(transactional_id, RETRY_MS, ctx)
            raise

    def _run(self, steps: Steps, ctx: Context, builder: DecisionBuilder) -> Decision:
        decision = run_steps(steps, self.apply_all, ctx, builder)
        if builder.continuation is not None and decision.error is None:
            decision.continuation = partial(self._go_on, builder.continuation)
        return decision

    def _go_on(self, continuation: Callable[[Context, DecisionBuilder], Steps], ctx: Context) -> Decision:
        builder = DecisionBuilder(by_operator=True)
        return self._run(continuation(ctx, builder), ctx, builder)

    def _projected(self, key: Key) -> Value | None:
        if isinstance(key, TopicKey):
            topic = self.view.topic(key.name)
            if topic is None:
                return None
            return TopicValue(topic_id=topic.topic_id, num_partitions=topic.num_partitions)
        if isinstance(key, TopicRacksKey):
            racks = self.view.racks(key.name)
            return TopicRacksValue(partition_racks=racks) if racks else None
        if isinstance(key, GroupConfigKey):
            config = self.view.configs.of(key.group_id).get(key.name)
            return None if config is None else GroupConfigValue(value=config)
        if isinstance(key, FormatLevelKey):
            return None if self.format_level is None else FormatLevelValue(level=self.format_level)
        if isinstance(key, LeadershipKey):
            return None if self.view.leadership == NOTHING_ASKED else self.view.leadership
        if isinstance(key, TransactionKey):
            return self.view.transactions.of(key.transactional_id)
        return self.term
