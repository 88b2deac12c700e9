"""The application side of fetching: takes fetched data, and decodes it as polls ask for records.

Nothing is decoded before it is asked for, so a paused or busy application costs memory only, which the fetch
buffer bounds. Partitions take turns, a response each.

Invariants: a partition's position is after the last record that `take` has returned of it, and not after the
first one that it has not. Bytes are reported as consumed once, when nothing of them is left to decode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from client.core.errors import CorruptRecord
from client.core.events import ApplicationEvent, FetchConsumedEvent, FetchResponseEvent
from client.core.fetch.codecs import Decompressor
from client.core.fetch.completed import CompletedFetch
from client.core.settings import ConsumerSettings
from client.core.types import ConsumerRecord, FetchedData, Position, TopicPartition


class FetchHandler:
    """The fetched data of one consumer."""

    def __init__(self, settings: ConsumerSettings, send: Callable[[ApplicationEvent], None]) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        """The position at which decoding goes on, by partition; without those that are not known yet."""
        self.paused: set[TopicPartition] = set()
        self._send = send
        self._checks_crcs = settings.check_crcs
        self._decompressor = Decompressor()
        self._is_committed_only = settings.reads_committed
        self._fetched: dict[TopicPartition, deque[CompletedFetch]] = {}
        """The responses that are not decoded to the end, the oldest first. No entry is empty."""
        self._turns: deque[TopicPartition] = deque()
        """The partitions of `_fetched` that are not paused; the first is next."""
        self._ends: dict[TopicPartition, int] = {}
        """The end of each log that may be read, as the last response says."""

    def add(self, event: FetchResponseEvent) -> None:
        """Take data, except what belongs to no current position."""
        for data in event.data:
            position = self.positions.get(data.partition)
            if position is None or position.version != data.position.version:
                self._consumed(data)
                continue
            end = data.last_stable_offset if self._is_committed_only else data.high_watermark
            self._ends[data.partition] = end
            if data.records:
                self._append(data)

    def _append(self, data: FetchedData) -> None:
        fetches = self._fetched.get(data.partition)
        if fetches is None:
            fetches = self._fetched[data.partition] = deque()
            if data.partition not in self.paused:
                self._turns.append(data.partition)
        fetches.append(CompletedFetch(data, self._decompressor, checks_crcs=self._checks_crcs))

    def begin(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Go on from other positions, and drop what was fetched for earlier ones."""
        self.end(positions.keys())
        self.positions.update(positions)

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions with their data; they may begin again, paused ones as paused."""
        for partition in partitions:
            self.positions.pop(partition, None)
            self._ends.pop(partition, None)
            for fetch in self._fetched.pop(partition, ()):
                self._consumed(fetch.data)
        self._turns = deque(partition for partition in self._turns if partition in self._fetched)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Keep what is fetched of these."""
        self.paused.update(partitions)
        self._turns = deque(partition for partition in self._turns if partition not in self.paused)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out records of these again."""
        self._turns.extend(self.paused.intersection(partitions) & self._fetched.keys())
        self.paused.difference_update(partitions)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Decode records of partitions that are not paused, up to `most`.

        Raises CorruptRecord if the next batch cannot be decoded, again and again until the partition begins
        elsewhere; the other partitions have their turns in between.
        """
        records: list[ConsumerRecord] = []
        while self._turns and len(records) < most:
            partition = self._turns[0]
            fetch = self._fetched[partition][0]
            try:
                fetch.read(records, most - len(records))
            except CorruptRecord:
                self._turns.rotate(-1)
                if not records:
                    raise
                return records
            finally:
                version = fetch.data.position.version
                self.positions[partition] = Position(fetch.next_offset, fetch.leader_epoch, version)
            if fetch.is_drained:
                self._end_turn(partition)
        return records

    def _end_turn(self, partition: TopicPartition) -> None:
        """Go on with another partition, after all of a response was decoded."""
        fetches = self._fetched[partition]
        self._consumed(fetches.popleft().data)
        self._turns.popleft()
        if fetches:
            self._turns.append(partition)
        else:
            del self._fetched[partition]

    def lag(self, partition: TopicPartition) -> int | None:
        """Records behind where decoding goes on, None before the first fetch."""
        position, end = self.positions.get(partition), self._ends.get(partition)
        return None if position is None or end is None else max(end - position.offset, 0)

    def _consumed(self, data: FetchedData) -> None:
        if data.records:
            self._send(FetchConsumedEvent(partition=data.partition, bytes=len(data.records)))
