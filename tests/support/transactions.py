"""A metadata shard and two group shards without a cluster, with failures between any two entries, and a
transactional producer that does what Kafka's clients do: it repeats what was not answered.

`Shards` is to each shard what the runtime is: one log, a leader that is built from it, and for the group
shards the committed catalog, which may be behind. A leader may die with its newest entry committed or lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.api import Context, Decision
from coordinator.catalog.shard import CatalogShard
from coordinator.limits import Limits, SameForAll
from coordinator.shard import GroupShard
from coordinator.topics import CatalogView
from records import (
    LATEST_FORMAT_LEVEL,
    METADATA_SHARD,
    FormatLevelKey,
    FormatLevelValue,
    PendingOffsetKey,
    RawRecord,
    Record,
    Stamped,
    TransactionKey,
    TransactionState,
    TransactionValue,
    compact,
    decode_key,
    decode_record,
    decode_value,
    encode_record,
    shard_of,
)
from records.entry import decode_entry, encode_entry
from tests.support.world import WALL_START_MS
from tests.support.write_order import check_write_order
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from wire.messages.delete_groups import DeleteGroupsRequest
from wire.messages.delete_topics import DeleteTopicsRequest
from wire.messages.end_txn import EndTxnRequest
from wire.messages.init_producer_id import InitProducerIdRequest
from wire.messages.list_groups import ListGroupsRequest
from wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NUM_SHARDS = 2
TOPIC = "orders"
GROUP, OTHER_GROUP = "g", "h"
assert shard_of(GROUP, NUM_SHARDS) != shard_of(OTHER_GROUP, NUM_SHARDS)


class Died(Exception):
    """The leader died before it answered."""


@dataclass
class LedShard:
    """One shard: its log, and the machine of its present leader."""

    number: int
    machine: Any
    entries: list[tuple[int, tuple[RawRecord, ...]]] = field(default_factory=list)
    hashes: dict[int, int] = field(default_factory=dict)
    """The state hash of the leader after each entry."""

    @property
    def next_index(self) -> int:
        return self.entries[-1][0] + 1 if self.entries else 1


class Shards:
    """The metadata shard and the group shards. `dies` is asked after each entry whether its leader dies:
    None (no), True (the entry is kept) or False (it is lost)."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.settings = SameForAll()
        self.now_ms = 1_000.0
        self.num_entries = 0
        self.dies: Callable[[LedShard], bool | None] = lambda log: None
        self._ids = 0
        self.metadata = LedShard(METADATA_SHARD, CatalogShard(self.limits, NUM_SHARDS))
        self.groups = [LedShard(number, GroupShard(number, self.limits)) for number in range(NUM_SHARDS)]
        self.view = CatalogView()
        """The committed catalog on the nodes that lead group shards."""
        self.num_seen = 0
        level = encode_record(Record(FormatLevelKey(), FormatLevelValue(level=LATEST_FORMAT_LEVEL)))
        self.metadata.machine.apply(level, 1)
        self.metadata.entries.append((1, (level,)))
        for log in self.all:
            self._lead(log)
        topics = [CreatableTopic(name=TOPIC, num_partitions=8, replication_factor=1)]
        self.ask(self.metadata, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics))
        self.see()

    @property
    def all(self) -> list[LedShard]:
        return [self.metadata, *self.groups]

    def ctx(self, log: LedShard) -> Context:
        is_metadata = log is self.metadata
        return Context(
            monotonic_ms=self.now_ms,
            wall_ms=WALL_START_MS + int(self.now_ms),
            next_index=log.next_index,
            catalog=self.metadata.machine.view if is_metadata else self.view,
            settings=self.settings,
            fresh_id=lambda: f"id-{self._next_id()}",
            fresh_uuid=lambda: self._next_id().to_bytes(16, "big"),
        )

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids

    # Decisions.

    def ask(self, log: LedShard, api_key: ApiKey, version: int, request: Any) -> Any:
        decision = log.machine.handle(api_key, version, request, self.ctx(log))
        self.append(log, decision)
        while decision.continuation is not None:
            decision = decision.continuation(self.ctx(log))
            self.append(log, decision)
        if decision.error is not None:
            raise decision.error
        return decision.reply

    def append(self, log: LedShard, decision: Decision) -> None:
        if not decision.records:
            return
        assert decision.cause is not None
        entry = decode_entry(encode_entry(decision.cause, decision.records))
        if log is not self.metadata:
            check_write_order(entry.cause.trigger, entry.records)
        log.entries.append((log.next_index, entry.records))
        log.hashes[log.entries[-1][0]] = log.machine.state_hash
        self.num_entries += 1
        kept = self.dies(log)
        if kept is not None:
            if not kept:
                log.entries.pop()
            self.fail_over(log)
            raise Died

    def fail_over(self, log: LedShard) -> None:
        """Another node leads: it has the log and nothing else."""
        log.machine = self.replayed(log)
        self._lead(log)

    def replayed(self, log: LedShard, num_entries: int | None = None) -> Any:
        machine: Any = (
            CatalogShard(self.limits, NUM_SHARDS)
            if log is self.metadata
            else GroupShard(log.number, self.limits)
        )
        for index, raws in log.entries[:num_entries]:
            machine.apply_all(raws, index)
        return machine

    def _lead(self, log: LedShard) -> None:
        if log is not self.metadata:
            while self.view.version < log.machine.projection.newest_transaction_version:
                self.see(self.num_seen + 1)  # it is not Ready before
        for _ in log.machine.becoming_ready(lambda: self.ctx(log)):
            pass
        if log is self.metadata:
            self._tell_metadata()

    def _tell_metadata(self) -> None:
        for log in self.groups:
            decided = log.machine.projection.resolved_by(log.entries[-1][0] if log.entries else 0)
            self.metadata.machine.timers.shard_followed(
                log.number, decided, self.metadata.machine.view.transactions
            )

    def see(self, num_entries: int | None = None) -> None:
        """Let the group shards learn the committed entries of the metadata shard, or the first ones only."""
        end = len(self.metadata.entries) if num_entries is None else num_entries
        changes: list[tuple[str, TransactionValue]] = []
        for index, raws in self.metadata.entries[self.num_seen : end]:
            for raw in raws:
                record = decode_record(raw)
                self.view.learn(record.key, record.value, index)  # type: ignore[arg-type]
                if isinstance(record.key, TransactionKey) and isinstance(record.value, TransactionValue):
                    changes.append((record.key.transactional_id, record.value))
            self.view.version = index
        self.num_seen = max(self.num_seen, end)
        for log in self.groups:
            log.machine.on_transactions_changed(changes)

    def work(self, log: LedShard) -> bool:
        """Take one decision of due work; False if none is due."""
        deadline = log.machine.next_deadline_ms()
        if deadline is None or deadline > self.now_ms:
            return False
        decision = log.machine.next_work(self.ctx(log))
        if decision is None:
            return False
        if decision.error is not None:
            raise decision.error
        self.append(log, decision)
        return True

    def settle(self) -> None:
        """Let everything happen that needs no request and no time."""
        for _ in range(1_000):
            try:
                self.see()
                self._tell_metadata()
                num_decided = sum(map(self.work, self.all))
                if not num_decided:
                    return
            except Died:
                pass
        raise AssertionError("the shards do not come to rest")

    def sleep(self, ms: float) -> None:
        self.now_ms += ms
        self.settle()

    # What must always be true.

    def check(self) -> None:
        """Live equals replay, at every index and for every shard; so does what compaction leaves; no index
        has leftovers."""
        for log in self.all:
            replayed = self.replayed(log, 0)
            stamped: list[Stamped] = []
            for index, raws in log.entries:
                replayed.apply_all(raws, index)
                stamped += [Stamped(index, index, raw) for raw in raws]
                assert log.hashes.get(index, replayed.state_hash) == replayed.state_hash, index
                for retention_ms in (0, 1_000_000):
                    compacted = self.replayed(log, 0)
                    left = compact(stamped, now_ms=index, delete_retention_ms=retention_ms)
                    compacted.apply_all([one.record for one in left], index)
                    assert compacted.state_hash == replayed.state_hash, index
            assert replayed.state_hash == log.machine.state_hash
        for log in self.groups:
            pending = log.machine.projection.pending
            keys = {key for group_id in pending.group_ids() for key, _ in pending.of_group(group_id)}
            newest: dict[bytes, RawRecord] = {}
            for _, raws in log.entries:
                newest.update({raw.key: raw for raw in raws if isinstance(_key(raw), PendingOffsetKey)})
            assert keys == {decode_key(raw) for raw in newest.values() if raw.value is not None}
            assert len(pending) == len(keys)
            for key in keys:
                assert pending.has(key.group_id, key.topic, key.partition)

    def log_of(self, group_id: str) -> LedShard:
        return self.groups[shard_of(group_id, NUM_SHARDS)]

    def transaction(self, transactional_id: str = "t") -> TransactionValue:
        value = self.metadata.machine.view.transactions.of(transactional_id)
        assert value is not None
        return value

    def state(self, transactional_id: str = "t") -> TransactionState:
        return TransactionState(self.transaction(transactional_id).state)

    def pending(self) -> int:
        return sum(len(log.machine.projection.pending) for log in self.groups)

    # Groups.

    def fetch(self, group_id: str = GROUP, *partitions: int, is_stable: bool = False) -> dict[int, int]:
        """Committed offsets by partition; one that is not stable has its error as a negative number."""
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))]
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics if partitions else None)
        request = OffsetFetchRequest(groups=[asked], require_stable=is_stable)
        answer = self.ask(self.log_of(group_id), ApiKey.OFFSET_FETCH, 8, request)
        return {
            part.partition_index: -part.error_code or part.committed_offset
            for topic in answer.groups[0].topics
            for part in topic.partitions
        }

    def delete_offsets(self, group_id: str, *partitions: int) -> dict[int, int]:
        """Delete offsets; return the error of each partition."""
        parts = [OffsetDeleteRequestPartition(partition_index=number) for number in partitions]
        request = OffsetDeleteRequest(
            group_id=group_id, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=parts)]
        )
        answer = self.ask(self.log_of(group_id), ApiKey.OFFSET_DELETE, 0, request)
        return {part.partition_index: part.error_code for part in answer.topics[0].partitions}

    def delete_group(self, group_id: str) -> int:
        request = DeleteGroupsRequest(groups_names=[group_id])
        answer = self.ask(self.log_of(group_id), ApiKey.DELETE_GROUPS, 2, request)
        return int(answer.results[0].error_code)

    def delete_topic(self) -> None:
        """Delete the topic, and let the group shards follow."""
        request = DeleteTopicsRequest(topic_names=[TOPIC])
        assert self.ask(self.metadata, ApiKey.DELETE_TOPICS, 5, request).responses[0].error_code == 0
        self.see()
        for log in self.groups:
            log.machine.on_catalog_changed(self.ctx(log), [TOPIC])
        self.settle()

    def listed(self) -> set[str]:
        """The groups that exist."""
        answers = [self.ask(log, ApiKey.LIST_GROUPS, 5, ListGroupsRequest()) for log in self.groups]
        return {group.group_id for answer in answers for group in answer.groups}

    def commit(self, group_id: str, offsets: dict[int, int]) -> int:
        """Commit offsets without a transaction and without membership; return the first error."""
        parts = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=group_id, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
        )
        answer = self.ask(self.log_of(group_id), ApiKey.OFFSET_COMMIT, 8, request)
        return int(answer.topics[0].partitions[0].error_code)


def _key(raw: RawRecord) -> Any:
    return decode_key(raw)


def value_of(raw: RawRecord) -> Any:
    return decode_value(raw)


class Producer:
    """A transactional producer. Its methods send one request and return the error code."""

    def __init__(self, shards: Shards, transactional_id: str = "t", timeout_ms: int = 60_000) -> None:
        self.shards = shards
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1

    def _ask(self, api_key: ApiKey, version: int, request: Any) -> Any:
        return self.shards.ask(self.shards.metadata, api_key, version, request)

    def init(self, *, version: int = 5, named: bool = False, timeout_ms: int | None = None) -> int:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            producer_id=self.producer_id if named else -1,
            producer_epoch=self.epoch if named else -1,
        )
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, version, request)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def add(self, *partitions: int, topic: str = TOPIC, version: int = 3) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add_group(self, group_id: str = GROUP, version: int = 3) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        error = int(self._ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request).error_code)
        self.shards.see()  # the reply waits until every node has it
        return error

    def commit_offsets(
        self, offsets: dict[int, int], group_id: str = GROUP, version: int = 3, **fields: Any
    ) -> int:
        parts = [
            TxnOffsetCommitRequestPartition(
                partition_index=number, committed_offset=offset, committed_metadata=""
            )
            for number, offset in offsets.items()
        ]
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
            **fields,
        )
        log = self.shards.log_of(group_id)
        answer = self.shards.ask(log, ApiKey.TXN_OFFSET_COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, *, commits: bool = True, version: int = 3) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        return int(self._ask(ApiKey.END_TXN, version, request).error_code)

    def until_done(self, request: Callable[[], int]) -> None:
        """Repeat a request until it succeeds, as clients do after lost replies and retriable errors."""
        for _ in range(50):
            try:
                error = request()
            except Died:
                continue
            if error == ErrorCode.NONE:
                return
            assert error == ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode(error)
            self.shards.settle()
        raise AssertionError("the request never succeeds")
