"""The runtime of the metadata shard: keeps the committed catalog, which is the one that everybody else reads.

The metadata shard decides on its latest projection, like every shard. Groups must not: each shard has a log
of its own, so after a crash a group's entry could name a catalog change that was lost. They see a change once
it is committed, in the order: catalog, then group shards, then the reply to whoever asked for the change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from cluster.shard_runtime import ShardRuntime, Surroundings
from cluster.shard_state import ShardEvent, ShardState
from coordinator.catalog import CatalogShard
from coordinator.topics import CatalogTopic, CatalogView
from raftlog.directory import NodeDirectory
from records import METADATA_SHARD, RawRecord, RecordType, TopicKey, TopicValue, decode_key, decode_value


class CatalogRuntime(ShardRuntime):
    """The metadata shard's runtime."""

    machine: CatalogShard

    def __init__(self, node: Surroundings, directory: NodeDirectory, machine: CatalogShard) -> None:
        super().__init__(node, directory, METADATA_SHARD, machine)
        self.committed_catalog = CatalogView()
        self._topic_changes: deque[tuple[int, RawRecord]] = deque()

    def ready(self, term: int) -> None:
        if self.standing.state is ShardState.CATCH_UP:
            self._move(ShardEvent.CAUGHT_UP)

    def catalog_version(self) -> int:
        return self.machine.view.version

    def _restored(self, raws: Iterable[RawRecord], index: int) -> None:
        for raw in raws:
            if raw.type == RecordType.TOPIC:
                self._learn(index, raw)

    def _decided(self, index: int, raws: Iterable[RawRecord]) -> None:
        self._topic_changes.extend((index, raw) for raw in raws if raw.type == RecordType.TOPIC)

    def _learned(self, index: int) -> None:
        changes = self._topic_changes
        names: list[str] = []
        while changes and changes[0][0] <= index:
            names.append(self._learn(*changes.popleft()))
        self.committed_catalog.version = index
        if names:
            self.node.catalog_changed(names)

    def _handled(self, api_key: int, request: Any, reply: Any, now_ms: float) -> None:
        """Nothing in the metadata shard is due by time."""

    def _learn(self, index: int, raw: RawRecord) -> str:
        """Applies one topic record to the committed catalog; returns the topic's name."""
        key = decode_key(raw)
        assert isinstance(key, TopicKey)
        if raw.value is None:
            self.committed_catalog.remove(key.name, index)
            return key.name
        value = decode_value(raw)
        assert isinstance(value, TopicValue)
        topic = CatalogTopic(key.name, value.topic_id, value.num_partitions)
        self.committed_catalog.put(topic, index)
        return key.name
