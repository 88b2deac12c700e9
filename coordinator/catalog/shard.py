"""The metadata shard: topics, group configs and the format level.

Like a group shard, it is a projection over records that only `apply` changes. Topics hold no data here; a
topic is a name, an id and a number of partitions. So replica placement and topic configs in a request are
accepted and have no effect. Each creation assigns a fresh topic id, which distinguishes a topic from a
deleted one of the same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from coordinator.api import Context, Decision, DecisionBuilder, RequestRefused, Steps
from coordinator.catalog.configadmin import alter_configs
from coordinator.catalog.topicadmin import create_partitions, create_topics, delete_topics
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
    RawRecord,
    TermStartKey,
    TermStartValue,
    TopicKey,
    TopicRacksKey,
    TopicRacksValue,
    TopicValue,
    UnknownRecord,
    Value,
    decode_record,
)
from wire.messages.create_partitions import CreatePartitionsRequest
from wire.messages.create_topics import CreateTopicsRequest
from wire.messages.delete_topics import DeleteTopicsRequest
from wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from wire.refusals import refuse
from wire.schema import Message

__all__ = ["CatalogShard", "CatalogTopic", "CatalogView"]


class CatalogShard:
    """The catalog of a cluster. `view` is live: it reflects the last applied record."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.view = CatalogView()
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
        self._hashes.touch(raw, key)

    def free_incrementally(self) -> Iterator[None]:
        """Free the state in small steps, because another shard object will replay the log."""
        return self._hashes.free_incrementally()

    def apply_all(self, raws: Iterable[RawRecord], index: int) -> None:
        """Apply many records of the entry at `index`."""
        for raw in raws:
            self.apply(raw, index)

    def handle(self, api_key: int, api_version: int, request: Any, ctx: Context) -> Decision:
        """Decide a request that changes topics or configs. Raises KeyError for any other API."""
        builder = DecisionBuilder(by_operator=True)
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
            case _:
                raise KeyError(api_key)

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
        return self.term
