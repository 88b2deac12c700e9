"""The runtime of the metadata shard, which keeps the committed catalog that the rest of the node reads.

Like every shard, the metadata shard decides on its latest projection. Groups must not do so: each shard has
its own log, so after a failure an entry of a group could refer to a catalog change that was lost. Groups see
a change once it is committed, on every node, whoever leads. First the catalog is changed, then the group
shards are notified, then the client that asked for the change is answered. The answer also waits, for a
second at most, until every node in contact has the change, so that a client finds a new topic on whichever
node it asks next.

Group configs are learned in the same way and at the same time.

A node that does not reach the leader does not know how old its catalog has become. So it keeps the time up to
which the catalog is known to have been complete (`Replica.horizon`), and once that is more than `age_max_ms`
ago it refuses every request that depends on the topic behind a *name*. In return the leader gives the name of
a deleted topic to a new one only after every node knows of the deletion or refuses requests by name. So an
offset is never taken for one of a different topic than its client meant.

Invariants: the committed catalog never goes back, not even while the projection is rebuilt; the
groups are notified of every change, and if changes may have been missed, they are notified of that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from cluster.node_info import ClientInfo
from cluster.runtime.answers import Unavailable
from cluster.runtime.pending_replies import PendingReply, ReadBarrier, Reply
from cluster.runtime.shard_context import ShardContext
from cluster.runtime.shard_runtime import ShardRuntime
from coordinator.api import Decision
from coordinator.catalog.shard import CatalogShard
from coordinator.topics import FIRST_FORMAT_LEVEL, CatalogView
from raftlog.env.obstacles import Obstacle
from raftlog.storage.directory import NodeDirectory
from records import (
    METADATA_SHARD,
    Cause,
    FormatLevelKey,
    FormatLevelValue,
    GroupConfigKey,
    Key,
    RawRecord,
    Record,
    RecordType,
    TopicKey,
    TopicRacksKey,
    Trigger,
    decode_key,
    decode_value,
    encode_record,
)
from wire.messages.create_topics import CreateTopicsRequest

SPREAD_MAX_MS: Final = 1_000
"""An admin reply waits at most this long for nodes that are in contact but slow."""

LEARNED: Final = frozenset(
    (RecordType.TOPIC, RecordType.TOPIC_RACKS, RecordType.GROUP_CONFIG, RecordType.FORMAT_LEVEL)
)
"""The record types of the metadata shard that the rest of the node depends on."""

AGE_MAX_MS: Final = 3_000
"""Greatest age of a catalog whose topic names are trusted; twice `raft.max.timeout.ms` if that is more."""

NAME_LOOK_MS: Final = 20.0
"""Delay between two checks whether a topic's name is free; other nodes mostly learn of a deletion sooner."""

AGE_STEP_MS: Final = 100.0
"""Least distance between two entries whose ages are kept."""

NAMES_WAITING_MAX: Final = 1_000
"""At most this many CreateTopics requests wait for a name."""


def differs(group_id: str, old: CatalogView, new: CatalogView) -> bool:
    return old.configs.of(group_id) != new.configs.of(group_id)


class CatalogRuntime(ShardRuntime):
    """The runtime of the metadata shard."""

    machine: CatalogShard

    def __init__(
        self, node: ShardContext, directory: NodeDirectory, make_machine: Callable[[], CatalogShard]
    ) -> None:
        super().__init__(node, directory, METADATA_SHARD, make_machine)
        self.committed_catalog = CatalogView()
        self._learning = self.committed_catalog
        """The catalog that takes in committed records; a different one while the projection is rebuilt."""
        self.format_level = FIRST_FORMAT_LEVEL
        """The highest level whose records may be written. It is committed, so it never goes back."""
        self._changes: deque[tuple[int, RawRecord]] = deque()
        self._spreading: dict[int, tuple[Reply, object]] = {}
        self._num_spread = 0
        self.age_max_ms = max(AGE_MAX_MS, 2 * node.runtime_settings.log.raft_max_timeout_ms)
        self._known_ms = -math.inf
        self._ahead = (-math.inf, 0)
        """A horizon that the catalog has not reached yet."""
        self._ages: deque[tuple[int, float]] = deque()
        """Entries of the last `age_max_ms` and a little more, with the times at which they were committed."""
        self._num_waiting_for_names = 0

    def catalog_version(self) -> int:
        return self.machine.view.version

    # Readiness depends on nothing but the log.

    def may_serve(self) -> bool:
        return True

    def obstacle(self) -> Obstacle:
        return Obstacle.NONE

    def _become_ready(self) -> Iterator[None]:
        return iter(())

    def _began_to_serve(self) -> None:
        """Do nothing: the metadata shard has no deadlines."""

    def _handled(self, api_key: int, request: Any, reply: Any, now_ms: float) -> None:
        """Do nothing: the metadata shard has no deadlines."""

    # The committed catalog.

    def reset(self) -> None:
        super().reset()
        self._changes.clear()
        self._learning = CatalogView()

    def _restored(self, raws: Iterable[RawRecord], index: int) -> None:
        for raw in raws:
            if raw.type in LEARNED:
                self._learn(index, raw)

    def _decided(self, index: int, raws: Iterable[RawRecord]) -> None:
        self._changes.extend((index, raw) for raw in raws if raw.type in LEARNED)

    def _learned(self, index: int) -> None:
        index = min(index, self.machine.applied_index)  # less while the projection is built again
        changes, names, group_ids = self._changes, dict[str, None](), dict[str, None]()
        while changes and changes[0][0] <= index:
            key = self._learn(*changes.popleft())
            if isinstance(key, GroupConfigKey):
                group_ids[key.group_id] = None
            if not isinstance(key, TopicKey | TopicRacksKey):
                continue
            if (name := key.name) in names and isinstance(key, TopicKey):
                self._tell(names)  # deleted and created again, or the reverse: report each change
                names = {}
            names[name] = None
        self._learning.version = max(index, self._learning.version)
        self._look_at_horizon()
        self._note_age(index)
        if self._learning is not self.committed_catalog:
            self._catch_up_with_learning()
        else:
            self._tell(names)
            self._tell_configured(group_ids)
        self.node.catalog_moved()

    def _tell(self, names: Iterable[str]) -> None:
        if names and self._learning is self.committed_catalog:
            self.node.catalog_changed(list(names), is_complete=True)

    def _tell_configured(self, group_ids: Iterable[str]) -> None:
        if group_ids:
            self.node.configs_changed(list(group_ids))

    def _catch_up_with_learning(self) -> None:
        """Let the rebuilt catalog take over once it is as new as the committed one.

        Topics that were created and deleted between the two versions (there may have been a snapshot) are in
        neither.
        """
        old, new = self.committed_catalog, self._learning
        if new.version < old.version:
            return
        self.committed_catalog = new
        before, after = (
            {topic.name: (topic, view.racks(topic.name)) for topic in view} for view in (old, new)
        )
        names = [name for name in before | after if before.get(name) != after.get(name)]
        self.node.catalog_changed(names, is_complete=False)
        configured = [group_id for group_id in {*old.configs, *new.configs} if differs(group_id, old, new)]
        self._tell_configured(configured)

    def _learn(self, index: int, raw: RawRecord) -> Key:
        """Apply a record to the learning catalog, or take over a format level; return the record's key."""
        key: Key = decode_key(raw)
        value = None if raw.value is None else decode_value(raw)
        if not self._learning.learn(key, value, index) and isinstance(value, FormatLevelValue):
            self.format_level = max(self.format_level, value.level)
        return key

    # The age of the catalog, and the meaning of topic names.

    def is_fresh(self, now_ms: float) -> bool:
        """Whether the committed catalog is known to have been complete at most `age_max_ms` ago."""
        if now_ms - self._known_ms > self.age_max_ms:
            self._look_at_horizon()
        return now_ms - self._known_ms <= self.age_max_ms and self._learning is self.committed_catalog

    def _look_at_horizon(self) -> None:
        """Take over horizons that the catalog has reached, and keep one that it has not.

        The kept one is not replaced before it is reached: if topics are created faster than this node's disk
        takes them, each newer horizon is as far away.
        """
        version = self.committed_catalog.version
        for as_of_ms, index in (self._ahead, self.replica.horizon):
            if index <= version:
                self._known_ms = max(self._known_ms, as_of_ms)
            elif self._ahead[1] <= version:
                self._ahead = as_of_ms, index

    def _note_age(self, index: int) -> None:
        ages, now_ms = self._ages, self.host.monotonic_ms()
        if len(ages) >= 2 and ages[-1][1] - ages[-2][1] < AGE_STEP_MS:
            ages.pop()
        ages.append((index, now_ms))
        while len(ages) >= 2 and ages[1][1] <= now_ms - self._outdated_ms:
            ages.popleft()

    @property
    def _outdated_ms(self) -> float:
        """Age beyond which no node trusts the names of a catalog, with a tenth added for differing clocks."""
        return 1.1 * self.age_max_ms

    def submit(
        self, api_key: int, api_version: int, request: object, client: ClientInfo, reply: Reply
    ) -> None:
        """Submit a request as on every shard, but let CreateTopics wait until its names are free."""
        if not isinstance(request, CreateTopicsRequest) or not self.is_ready or self._are_free(request):
            super().submit(api_key, api_version, request, client, reply)
        elif self._num_waiting_for_names >= NAMES_WAITING_MAX:
            PendingReply(api_key, api_version, request, reply).refuse(Unavailable.OVERLOADED)
        else:
            self._num_waiting_for_names += 1
            again = partial(self._submit_again, api_key, api_version, request, client, reply)
            self.host.call_later(NAME_LOOK_MS, again)

    def _submit_again(self, *asked: Any) -> None:
        self._num_waiting_for_names -= 1
        self.submit(*asked)

    def _are_free(self, request: CreateTopicsRequest) -> bool:
        """Whether no other node still takes one of the names for a deleted topic.

        Each node either knows of the deletion or has a catalog so old that it refuses requests by name.
        """
        known = self.replica.applied_everywhere
        outdated_ms = self.host.monotonic_ms() - self._outdated_ms
        for index, since_ms in self._ages:
            if since_ms <= outdated_ms:
                known = max(known, index)
        return all(self.machine.view.deleted_at(topic.name) <= known for topic in request.topics)

    # Replies that wait for the other nodes.

    def _hold(self, now_ms: float, pending: PendingReply, response: object, has_written: bool) -> None:
        if (has_written or pending.has_written) and not self._is_alone:
            pending.reply = partial(self._spread, self.replica.last_index, pending.reply)
        super()._hold(now_ms, pending, response, has_written)

    def _spread(self, index: int, reply: Reply, response: object) -> None:
        """Pass a reply on: at once, or if it reports a committed change, when the other nodes have it."""
        if index > self._committed_index or not self.is_ready:
            reply(response)
            return

        self._num_spread += 1
        self._spreading[self._num_spread] = reply, response
        self.replica.when_everywhere(index, SPREAD_MAX_MS, partial(self._has_spread, self._num_spread))

    def _has_spread(self, number: int) -> None:
        """Release a reply. The log and the end of leadership both call this; the first call counts."""
        if (waiting := self._spreading.pop(number, None)) is not None:
            reply, response = waiting
            reply(response)

    def _stand_down(self) -> None:
        """Release replies that only wait for other nodes: their changes are committed, whoever leads now."""
        super()._stand_down()
        for number in list(self._spreading):
            self._has_spread(number)

    # The format level.

    def raise_format_level(self, level: int, done: Callable[[str | None], None]) -> None:
        """Let all nodes write records of `level` from now on; `done` gets None, or the reason why not."""
        if (why := self._why_not()) is not None:
            done(why.value)
            return
        now_ms = self.host.monotonic_ms()
        ctx = self._context(now_ms, ClientInfo())
        records = [encode_record(Record(FormatLevelKey(), FormatLevelValue(level=level)))]
        self.machine.apply_all(records, ctx.next_index)
        self._append(Decision(cause=Cause(trigger=Trigger.FORMAT_RAISED), records=records), ctx)

        def told(why: object) -> None:
            done(why.value if isinstance(why, Unavailable) else None)

        self._hold(now_ms, ReadBarrier(told), None, has_written=True)
