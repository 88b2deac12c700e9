"""Shards with transactions whose logs can be read back."""

from __future__ import annotations

from typing import Any

from coordinator.api import Decision
from history.reading.node import NodeLog
from raftlog.storage.frames import Frame
from records import METADATA_SHARD, Cause, Trigger, encode_entry
from tests.support.memory_log import MemoryReader
from tests.support.transactions import GROUP, NUM_SHARDS, LedShard, Producer, Shards
from tests.support.world import WALL_START_MS
from wire.apis import ApiKey
from wire.errors import ErrorCode
from wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class RecordedShards(Shards):
    """Shards whose logs can be read back, with times and causes."""

    def __init__(self) -> None:
        self.frames: dict[int, list[Frame]] = {}
        super().__init__()

    def append(self, log: LedShard, decision: Decision) -> None:
        before = len(log.entries)
        super().append(log, decision)
        for index, records in log.entries[before:]:
            assert decision.cause is not None
            self._write(log.number, index, decision.cause, records)

    def _write(self, number: int, index: int, cause: Cause, records: Any) -> None:
        frame = Frame(
            index=index,
            term=1,
            commit_index=index - 1,
            timestamp_ms=WALL_START_MS + int(self.now_ms),
            record_count=len(records),
            body=encode_entry(cause, records),
            file="log",
            offset=index * 100,
            decided=True,
        )
        self.frames.setdefault(number, []).append(frame)

    def node(self) -> NodeLog:
        index, records = self.metadata.entries[0]
        opened = Cause(trigger=Trigger.CLUSTER_FORMATTED)
        first = RecordedShards._frame_of(index, opened, records)
        frames = {**self.frames, METADATA_SHARD: [first, *self.frames[METADATA_SHARD]]}
        return NodeLog("node-1", {number: MemoryReader(one) for number, one in frames.items()}, NUM_SHARDS)

    @staticmethod
    def _frame_of(index: int, cause: Cause, records: Any) -> Frame:
        body = encode_entry(cause, records)
        return Frame(index, 1, 0, WALL_START_MS, len(records), body, "log", 100, decided=True)

    def join(self) -> None:
        """Let the group have a member, so that there is an epoch to tell."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="ann",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        self.ask(self.log_of(GROUP), ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def begun(shards: RecordedShards, name: str, offsets: dict[int, int], **how: Any) -> Producer:
    """A producer with pending offsets of the group in an open transaction."""
    producer = Producer(shards, name, **how)
    assert producer.init() == ErrorCode.NONE
    shards.see()
    assert producer.add_group() == ErrorCode.NONE
    assert producer.commit_offsets(offsets) == ErrorCode.NONE
    return producer
