"""The logs of partitions, in memory, and the answers of their leaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from client.core.types import TopicPartition
from tests.support.record_batches import batch
from wire.errors import ErrorCode
from wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LEADER_EPOCH = 3

ErrorOf = Callable[[TopicPartition], int]
"""The error code that a node answers for a partition."""


def _no_error(partition: TopicPartition) -> int:
    return 0


@dataclass
class FakeLog:
    """A partition's log: batches with the offset behind each."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1][0] if self.batches else self.start

    def append(self, *values: bytes, **fields: Any) -> None:
        records = batch(*values, base_offset=self.end, **fields)
        self.batches.append((self.end + len(values), records))

    def read(self, offset: int, bytes_max: int, *, at_least_one: bool) -> bytes:
        """Return batches from `offset` on. The last one may be cut, but not the first one."""
        batches = [records for end, records in self.batches if end > offset]
        if not batches or (len(batches[0]) > bytes_max and not at_least_one):
            return b""
        return b"".join(batches)[: max(bytes_max, len(batches[0]))]


class FakeLogs(defaultdict[TopicPartition, FakeLog]):
    """Logs by partition; one that is asked for begins empty."""

    def __init__(self) -> None:
        super().__init__(FakeLog)

    def fetch(
        self,
        request: FetchRequest,
        names: Mapping[bytes, str],
        error_of: ErrorOf = _no_error,
        *,
        waits: bool,
    ) -> FetchResponse | None:
        """Answer a Fetch; None if there is nothing to read yet, and the request waits for it."""
        left, has_news = request.max_bytes, False
        topics = []
        for topic in request.topics:
            name = topic.topic or names[topic.topic_id]
            parts = []
            for one in topic.partitions:
                at = TopicPartition(name, one.partition)
                log = self[at]
                data = PartitionData(
                    partition_index=one.partition, high_watermark=log.end, last_stable_offset=log.end,
                    log_start_offset=log.start, error_code=error_of(at),
                )  # fmt: skip
                if data.error_code or not log.start <= one.fetch_offset <= log.end:
                    data.error_code, has_news = data.error_code or ErrorCode.OFFSET_OUT_OF_RANGE, True
                    data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
                else:
                    bytes_max = max(min(one.partition_max_bytes, left), 0)
                    data.records = log.read(one.fetch_offset, bytes_max, at_least_one=not has_news)
                    left -= len(data.records)
                    has_news |= bool(data.records)
                parts.append(data)
            topics.append(FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=parts))
        return None if waits and not has_news and request.max_wait_ms else FetchResponse(responses=topics)

    def list_offsets(self, request: ListOffsetsRequest, error_of: ErrorOf = _no_error) -> ListOffsetsResponse:
        """Answer ListOffsets for the first and the last offset."""

        def answer(at: TopicPartition, timestamp: int) -> ListOffsetsPartitionResponse:
            offset = {-1: self[at].end, -2: self[at].start}.get(timestamp, -1)
            return ListOffsetsPartitionResponse(
                partition_index=at.partition,
                error_code=error_of(at),
                offset=offset,
                leader_epoch=LEADER_EPOCH,
            )

        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        answer(TopicPartition(topic.name, one.partition_index), one.timestamp)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
