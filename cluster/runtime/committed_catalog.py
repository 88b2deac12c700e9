"""The committed catalog, which the rest of the node reads: learned from the metadata shard's log.

Like every shard, the metadata shard decides on its latest projection. Groups must not do so: each shard has
its own log, so after a failure an entry of a group could refer to a catalog change that was lost. Groups see
a change once it is committed, on every node, whoever leads. First the catalog is changed, then the group
shards are notified, then the client that asked for the change is answered. Group configs and transactions are
learned in the same way and at the same time.

A node that does not reach the leader does not know how old its catalog has become. So it keeps the time up to
which the catalog is known to have been complete (`ReplicaLeadership.horizon`), and once that is more than
`age_max_ms` ago it refuses every request that depends on the topic behind a *name*. In return the leader
gives the name of a deleted topic to a new one only after every node knows of the deletion or refuses requests
by name. So an offset is never taken for one of a different topic than its client meant.

Invariants: the committed catalog never goes back, not even while the projection is rebuilt; the
groups are notified of every change, and if changes may have been missed, they are notified of that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from cluster.runtime.shard_runtime import ShardRuntime
from coordinator.catalog.shard import CatalogShard
from coordinator.topics import CatalogView
from records import (
    FormatLevelValue,
    GroupConfigKey,
    Key,
    RawRecord,
    RecordType,
    TopicKey,
    TopicRacksKey,
    TransactionKey,
    TransactionValue,
    Value,
    decode_key,
    decode_value,
)

LEARNED: Final = frozenset(
    (
        RecordType.TOPIC,
        RecordType.TOPIC_RACKS,
        RecordType.GROUP_CONFIG,
        RecordType.FORMAT_LEVEL,
        RecordType.TRANSACTION,
        RecordType.LEADERSHIP,
    )
)
"""The record types of the metadata shard that the rest of the node depends on."""

AGE_MAX_MS: Final = 3_000
"""Greatest age of a catalog whose topic names are trusted; twice `raft.max.timeout.ms` if that is more."""

AGE_STEP_MS: Final = 100.0
"""Least distance between two entries whose ages are kept."""


def differs(group_id: str, old: CatalogView, new: CatalogView) -> bool:
    return old.configs.of(group_id) != new.configs.of(group_id)


class CommittedCatalog:
    """The committed catalog of one node (`LogListener`)."""

    def __init__(self, shard: ShardRuntime[CatalogShard, Any]) -> None:
        self._shard = shard
        self._node = shard.node
        self._host = shard.host
        self.view = CatalogView()
        self._told_leadership = self.view.leadership
        self._learning = self.view
        """The catalog that takes in committed records; a different one while the projection is rebuilt."""
        self._changes: deque[tuple[int, RawRecord]] = deque()
        self.age_max_ms = max(AGE_MAX_MS, 2 * self._node.runtime_settings.log.raft_max_timeout_ms)
        self._known_ms = -math.inf
        self._ahead = (-math.inf, 0)
        """A horizon that the catalog has not reached yet."""
        self._ages: deque[tuple[int, float]] = deque()
        """Entries of the last `age_max_ms` and a little more, with the times at which they were committed."""

    @property
    def format_level(self) -> int:
        """The highest level whose records may be written. It is committed, so it never goes back."""
        return self._learning.format_level

    # Learning from the log.

    def reset(self) -> None:
        self._changes.clear()
        level, self._learning = self.format_level, CatalogView()
        self._learning.format_level = level

    def restored(self, raws: Iterable[RawRecord], index: int) -> None:
        for raw in raws:
            if raw.type in LEARNED:
                self._learn(index, raw)
        self._tell_leadership()

    def applied(self, index: int, raws: Iterable[RawRecord]) -> None:
        """Keep the changes of an entry until it is committed."""
        self._changes.extend((index, raw) for raw in raws if raw.type in LEARNED)

    def committed(self, index: int) -> None:
        index = min(index, self._shard.machine.applied_index)  # less while the projection is built again
        changes, names, group_ids = self._changes, dict[str, None](), dict[str, None]()
        transactions: list[tuple[str, TransactionValue]] = []
        while changes and changes[0][0] <= index:
            key, value = self._learn(*changes.popleft())
            if isinstance(key, TransactionKey) and isinstance(value, TransactionValue):
                transactions.append((key.transactional_id, value))
            if isinstance(key, GroupConfigKey):
                group_ids[key.group_id] = None
            if not isinstance(key, TopicKey | TopicRacksKey):
                continue
            if (name := key.name) in names and isinstance(key, TopicKey):
                self._tell(names)  # deleted and created again, or the reverse: report each change
                names = {}
            names[name] = None
        self._learning.version = max(index, self._learning.version)
        self.observe_horizon()
        self._note_age(index)
        if self._learning is not self.view:
            self._catch_up_with_learning()
        else:
            self._tell(names)
            self._tell_configured(group_ids)
            if transactions:
                self._node.transactions_changed(transactions)
        self._tell_leadership()
        self._node.catalog_moved()

    def _tell_leadership(self) -> None:
        if self._told_leadership != self.view.leadership:
            self._told_leadership = self.view.leadership
            self._node.leadership_asked(self.view.leadership)

    def _tell(self, names: Iterable[str]) -> None:
        if names and self._learning is self.view:
            self._node.catalog_changed(list(names), is_complete=True)

    def _tell_configured(self, group_ids: Iterable[str]) -> None:
        if group_ids:
            self._node.configs_changed(list(group_ids))

    def _catch_up_with_learning(self) -> None:
        """Let the rebuilt catalog take over once it is as new as the committed one.

        Topics that were created and deleted between the two versions (there may have been a snapshot) are in
        neither.
        """
        old, new = self.view, self._learning
        if new.version < old.version:
            return
        self.view = new
        before, after = (
            {topic.name: (topic, view.racks(topic.name)) for topic in view} for view in (old, new)
        )
        names = [name for name in before | after if before.get(name) != after.get(name)]
        self._node.catalog_changed(names, is_complete=False)
        configured = [group_id for group_id in {*old.configs, *new.configs} if differs(group_id, old, new)]
        self._tell_configured(configured)
        known = [(one, new.transactions.of(one)) for one in new.transactions.decided]
        self._node.transactions_changed([(one, value) for one, value in known if value is not None])

    def _learn(self, index: int, raw: RawRecord) -> tuple[Key, Value | None]:
        """Apply a record to the learning catalog, or take over a format level; return its key and value."""
        key: Key = decode_key(raw)
        value = None if raw.value is None else decode_value(raw)
        if not self._learning.learn(key, value, index) and isinstance(value, FormatLevelValue):
            self._learning.format_level = max(self.format_level, value.level)
        return key, value

    # The age of the catalog, and the meaning of topic names.

    def is_fresh(self, now_ms: float) -> bool:
        """Whether the committed catalog is known to have been complete at most `age_max_ms` ago."""
        return now_ms - self._known_ms <= self.age_max_ms and self._learning is self.view

    @property
    def known_ms(self) -> float:
        """Monotonic time by which nothing was committed that the catalog does not have."""
        return self._known_ms

    def observe_horizon(self) -> None:
        """Take over horizons that the catalog has reached, and keep one that it has not.

        The kept one is not replaced before it is reached: if topics are created faster than this node's disk
        takes them, each newer horizon is as far away.
        """
        version = self.view.version
        for as_of_ms, index in (self._ahead, self._shard.replica.leadership.horizon):
            if index <= version:
                self._known_ms = max(self._known_ms, as_of_ms)
            elif self._ahead[1] <= version:
                self._ahead = as_of_ms, index

    def _note_age(self, index: int) -> None:
        ages, now_ms = self._ages, self._host.monotonic_ms()
        if len(ages) >= 2 and ages[-1][1] - ages[-2][1] < AGE_STEP_MS:
            ages.pop()
        ages.append((index, now_ms))
        while len(ages) >= 2 and ages[1][1] <= now_ms - self._outdated_ms:
            ages.popleft()

    @property
    def _outdated_ms(self) -> float:
        """Age beyond which no node trusts the names of a catalog, with a tenth added for differing clocks."""
        return 1.1 * self.age_max_ms

    def known_everywhere(self) -> int:
        """Return the last entry that every other node either knows, or is too old to trust names without."""
        known = self._shard.replica.applied_everywhere
        outdated_ms = self._host.monotonic_ms() - self._outdated_ms
        for index, since_ms in self._ages:
            if since_ms <= outdated_ms:
                known = max(known, index)
        return known
