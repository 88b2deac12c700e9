"""A log of any length that is generated while it is read."""

from __future__ import annotations

from collections.abc import Iterator

from history.reading.node import NodeLog
from raftlog.storage.frames import Frame
from records import Cause, Trigger, encode_entry, encode_record
from records.ids import METADATA_SHARD
from tests.support.memory_log import (
    NOON_MS,
    MemoryReader,
    commit,
    current,
    group_epoch,
    group_topics,
    member,
    target_epoch,
)
from tests.support.payments_log import joined


def opened(*logs: MemoryReader, metadata: MemoryReader | None = None) -> NodeLog:
    readers = {METADATA_SHARD: metadata or MemoryReader(), **dict(enumerate(logs))}
    return NodeLog(path="log", readers=readers, num_shards=len(logs))


def _frame(index: int, timestamp_ms: int, record_count: int, body: bytes) -> Frame:
    return Frame(
        index=index,
        term=1,
        commit_index=index - 1,
        timestamp_ms=timestamp_ms,
        record_count=record_count,
        body=body,
        file="00000000000000000001.log",
        offset=index,
        decided=True,
    )


class Repeating(MemoryReader):
    """The same few groups repeatedly, generated when they are read."""

    rounds = 0
    step_ms = 100

    def frames(self, from_index: int | None = None, to_index: int | None = None) -> Iterator[Frame]:
        bodies = [encode_entry(cause, raws) for cause, raws in _round()]
        for index in range(from_index or 1, min(self.rounds * len(bodies), to_index or 1 << 60) + 1):
            body = bodies[(index - 1) % len(bodies)]
            yield _frame(index, NOON_MS + index * self.step_ms, 3, body)


def _round() -> Iterator[tuple[Cause, list]]:  # type: ignore[type-arg]
    for epoch in range(1, 31):
        records = [
            group_epoch(epoch),
            target_epoch(epoch),
            current("ann", epoch, (0, 1) if epoch % 2 else (0,)),
        ]
        founding = [member("ann", "app"), group_topics(2, 1)] if epoch == 1 else []
        yield joined("ann"), [encode_record(one) for one in (*founding, *records)]
        yield Cause(trigger=Trigger.OFFSETS_COMMITTED), [encode_record(commit(0, epoch))]
