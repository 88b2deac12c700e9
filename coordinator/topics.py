"""The coordinator's view of topics (a name, an id and a number of partitions each), of group configs, of
transactions, and of what operators asked for about leadership.

The view belongs to the metadata shard, which alone changes it; group shards read it through their context.
`version` is the log index of the newest change. `changed_at` is the index of the newest change of one name,
including deletions, so that a decision can reference the change that it reacts to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from coordinator.groupconfigs import ConfigsOfGroups
from coordinator.leadership import NOTHING_ASKED
from coordinator.transactions import TransactionsView
from records import (
    GroupConfigKey,
    GroupConfigValue,
    Key,
    LeadershipKey,
    LeadershipValue,
    PartitionRacks,
    TopicKey,
    TopicRacksKey,
    TopicRacksValue,
    TopicValue,
    TransactionKey,
    TransactionValue,
    Value,
)

INDEX_BYTES = 6
_RANDOM_BYTES = 10

INDEX_END = 1 << 36
"""Upper bound for an index of the metadata shard's log: it has one entry per topic change and a few for each
transaction, and will not grow this long."""


FIRST_FORMAT_LEVEL = 1
"""Format level of a cluster that has never raised it."""


def new_topic_id(fresh_uuid: bytes, index: int) -> bytes:
    """Create the id of a topic that the entry at `index` of the metadata shard creates.

    The id has 10 random bytes, then the index in 6 bytes. It thus tells how new a catalog must be to know the
    topic."""
    return fresh_uuid[-_RANDOM_BYTES:] + index.to_bytes(INDEX_BYTES, "big")


def created_at(topic_id: bytes) -> int:
    """Index of the entry that created the topic.

    If a catalog of that version or newer lacks the topic, the topic was deleted; an older catalog proves
    nothing. Returns 0 for entirely random ids. These were assigned before nodes had peers, and the catalog of
    a single node is never behind. (One random id in 4,096 happens to contain a valid index; its offsets are
    kept.)"""
    index = int.from_bytes(topic_id[-INDEX_BYTES:], "big")
    return index if index < INDEX_END else 0


def _unified(name: str) -> str:
    """The name as Kafka's metrics have it; two topics may not share it."""
    return name.replace(".", "_")


@dataclass(frozen=True, slots=True)
class CatalogTopic:
    """One topic. `topic_id` has 16 bytes and is never reused, even for a topic of the same name."""

    name: str
    topic_id: bytes
    num_partitions: int


class CatalogView:
    """Topics by name and by id, configs of individual groups, transactions, and requests for leaders."""

    DELETED_NAMES_KEPT = 10_000
    """Number of deleted names whose deletion index is remembered; references to older ones use `version`."""

    def __init__(self, topics: Iterable[CatalogTopic] = (), version: int = 0) -> None:
        self.version = version
        self.num_partitions = 0
        self.format_level = FIRST_FORMAT_LEVEL
        self.configs = ConfigsOfGroups()
        self.transactions = TransactionsView()
        self.leadership = NOTHING_ASKED
        """Requests of operators about leadership."""
        self._by_name: dict[str, CatalogTopic] = {}
        self._by_id: dict[bytes, CatalogTopic] = {}
        self._alike: dict[str, tuple[str, ...]] = {}
        self._changed_at: dict[str, int] = {}
        self._deleted_at: dict[str, int] = {}
        self._racks: dict[str, tuple[PartitionRacks, ...]] = {}
        self._names: tuple[str, ...] | None = None
        self._in_order: list[CatalogTopic] | None = None
        for topic in topics:
            self.put(topic, version)

    def __len__(self) -> int:
        return len(self._by_name)

    def topic(self, name: str) -> CatalogTopic | None:
        return self._by_name.get(name)

    def colliding(self, name: str) -> str | None:
        """Return a topic whose name equals this one but for '.' and '_'; None if there is none."""
        return next(iter(self._alike.get(_unified(name), ())), None)

    def racks(self, name: str) -> tuple[PartitionRacks, ...]:
        """Racks of the replicas of the topic's partitions, as far as they are known."""
        return self._racks.get(name, ())

    def topic_by_id(self, topic_id: bytes) -> CatalogTopic | None:
        return self._by_id.get(topic_id)

    def is_behind(self, topic_id: bytes) -> bool:
        """Whether a newer catalog may have this topic, so that its absence here proves nothing."""
        return created_at(topic_id) > self.version

    def __iter__(self) -> Iterator[CatalogTopic]:
        """All topics, in no particular order."""
        return iter(self._by_name.values())

    def names(self) -> tuple[str, ...]:
        """The names of all topics, in no particular order.

        The tuple is shared by all callers between two changes."""
        if self._names is None:
            self._names = tuple(self._by_name)
        return self._names

    def topics(self) -> Iterator[CatalogTopic]:
        """The current topics by name, in order. Later changes do not affect the iteration."""
        if self._in_order is None:
            self._in_order = [self._by_name[name] for name in sorted(self._by_name)]
        return iter(self._in_order)

    def changed_at(self, name: str) -> int:
        """Log index of the newest change of this name; the catalog's version if that is not known."""
        return self._changed_at.get(name) or self._deleted_at.get(name) or self.version

    def deleted_at(self, name: str) -> int:
        """Log index at which the topic of this name was deleted; 0 if it exists or never existed."""
        return self._deleted_at.get(name, 0)

    def changed_since(self, version: int) -> list[str]:
        """Names of topics that were created or changed after that version of the catalog.

        May include older ones, but misses none."""
        return [
            name for name, _ in takewhile(lambda item: item[1] > version, reversed(self._changed_at.items()))
        ]

    def learn(self, key: Key, value: Value | None, index: int) -> bool:
        """Apply a record of the metadata shard's entry at `index`; a tombstone has the value None.

        Returns False if the record concerns none of topics, group configs, transactions and leadership."""
        if isinstance(key, TopicKey):
            if isinstance(value, TopicValue):
                self.put(CatalogTopic(key.name, value.topic_id, value.num_partitions), index)
            else:
                self.remove(key.name, index)
        elif isinstance(key, TopicRacksKey):
            self.put_racks(
                key.name, value.partition_racks if isinstance(value, TopicRacksValue) else (), index
            )
        elif isinstance(key, GroupConfigKey):
            if isinstance(value, GroupConfigValue):
                self.configs.put(key.group_id, key.name, value.value)
            else:
                self.configs.remove(key.group_id, key.name)
        elif isinstance(key, LeadershipKey):
            self.leadership = value if isinstance(value, LeadershipValue) else NOTHING_ASKED
        elif isinstance(key, TransactionKey):
            self.transactions.put(
                key.transactional_id, value if isinstance(value, TransactionValue) else None
            )
        else:
            return False
        return True

    def put(self, topic: CatalogTopic, index: int) -> None:
        self._in_order = None
        old = self._by_name.get(topic.name)
        if old is not None and self._by_id.get(old.topic_id) is old:
            del self._by_id[old.topic_id]
        self.num_partitions += topic.num_partitions - (old.num_partitions if old is not None else 0)
        self._by_name[topic.name] = topic
        if old is None:
            self._names = None
            if "_" in (unified := _unified(topic.name)):
                self._alike[unified] = (*self._alike.get(unified, ()), topic.name)
        self._by_id[topic.topic_id] = topic
        self._changed_at.pop(topic.name, None)  # keeps the order of changes
        self._changed_at[topic.name] = self.version = index
        self._deleted_at.pop(topic.name, None)

    def put_racks(self, name: str, racks: tuple[PartitionRacks, ...], index: int) -> None:
        """Set the racks of a topic's partitions. In a compacted log, they may come before their topic."""
        self._racks.pop(name, None)
        if racks:
            self._racks[name] = racks
        self.version = index
        if self._changed_at.pop(name, None) is not None:
            self._changed_at[name] = index

    def remove(self, name: str, index: int) -> None:
        self._in_order = None
        topic = self._by_name.pop(name, None)
        self.version = index
        if topic is None:
            return
        self._names = None
        del self._by_id[topic.topic_id]
        unified = _unified(name)
        if alike := tuple(other for other in self._alike.pop(unified, ()) if other != name):
            self._alike[unified] = alike
        self.num_partitions -= topic.num_partitions
        del self._changed_at[name]
        self._deleted_at[name] = index
        if len(self._deleted_at) > self.DELETED_NAMES_KEPT:
            del self._deleted_at[next(iter(self._deleted_at))]
