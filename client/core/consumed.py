"""The records between the fetch buffer and the user, and the positions after those that were handed out.

A record counts as consumed when it was handed out, not when it was decoded. So the position of a partition is
the offset of its first decoded record that is still here, or else where decoding goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from client.core.errors import DeserializationError
from client.core.events import FetchResponseEvent
from client.core.fetch.handler import FetchHandler
from client.core.settings import ConsumerSettings
from client.core.types import ConsumerRecord, OffsetAndMetadata, Position, TopicPartition


class ConsumedRecords:
    """Hands out records in the order of each partition."""

    def __init__(self, settings: ConsumerSettings, fetched: FetchHandler) -> None:
        self._fetched = fetched
        self._decoded: deque[ConsumerRecord] = deque()
        """The records that are decoded and not handed out yet; at most max.poll.records."""
        self._held: dict[TopicPartition, list[ConsumerRecord]] = {}
        """Decoded records of partitions that were paused afterwards."""
        self._version = 0
        self._versions: dict[TopicPartition, int] = {}
        """The version of each partition's newest position; what comes with another one is late."""
        self._decoded_max = settings.max_poll_records
        self._deserializers = (settings.key_deserializer, settings.value_deserializer)
        self._deserializes = any(self._deserializers)

    @property
    def paused(self) -> set[TopicPartition]:
        return self._fetched.paused

    def add(self, event: FetchResponseEvent) -> None:
        """Take fetched data."""
        self._fetched.add(event)

    def take(self, most: int) -> list[ConsumerRecord]:
        """Hand out up to `most` records. Raises `RecordError` if the first one cannot be handed out."""
        if not self._decoded:
            self._decoded.extend(self._fetched.take(self._decoded_max))
        if self._deserializes:
            return self._deserialized(most)
        if len(self._decoded) <= most:
            records = list(self._decoded)
            self._decoded.clear()
            return records
        return [self._decoded.popleft() for _ in range(most)]

    def take_one(self) -> ConsumerRecord | None:
        """Hand out a record that is decoded already, None if there is none. Raises `DeserializationError`."""
        if not self._decoded:
            return None
        if self._deserializes:
            return self._deserialized(1)[0]
        return self._decoded.popleft()

    def _deserialized(self, most: int) -> list[ConsumerRecord]:
        """Hand out records up to the first that cannot be deserialised. If it is the first of all, raise."""
        records: list[ConsumerRecord] = []
        while self._decoded and len(records) < most:
            try:
                record = self._deserialize(self._decoded[0])
            except DeserializationError:
                if records:
                    break
                raise
            records.append(record)
            self._decoded.popleft()
        return records

    def _deserialize(self, record: ConsumerRecord) -> ConsumerRecord:
        made: list[Any] = []
        for part, deserializer, data in zip(
            ("key", "value"), self._deserializers, (record.key, record.value), strict=True
        ):
            try:
                made.append(data if deserializer is None or data is None else deserializer(data))
            except Exception as error:
                raise DeserializationError(
                    f"the {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be"
                    f" deserialised: {error!r}; seek() to {record.offset + 1} leaves the record out",
                    record.topic,
                    record.partition,
                    record.offset,
                ) from error
        return record._replace(key=made[0], value=made[1])

    def new_version(self, partitions: Collection[TopicPartition]) -> int:
        """Drop the records of partitions whose positions change. Returns the version of the new positions."""
        self._drop(partitions)
        self._version += 1
        self._versions.update(dict.fromkeys(partitions, self._version))
        return self._version

    def begin(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Take the positions that partitions begin at, unless they have newer ones."""
        self._fetched.begin(
            {at: position for at, position in positions.items() if self._versions.get(at) == position.version}
        )

    def end(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions, which are not handed out any more."""
        self._drop(partitions)
        self.resume(self.paused.intersection(partitions))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._held.pop(partition, None)
            self._versions.pop(partition, None)
        self._take_out(partitions)
        self._fetched.end(partitions)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._fetched.pause(partitions)
        for record in self._take_out(partitions):
            self._held.setdefault(TopicPartition(record.topic, record.partition), []).append(record)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._fetched.resume(partitions)
        for partition in partitions:
            self._decoded.extendleft(reversed(self._held.pop(partition, [])))

    def _take_out(self, partitions: Collection[TopicPartition]) -> list[ConsumerRecord]:
        if not self._decoded:
            return []
        is_out = [(record.topic, record.partition) in partitions for record in self._decoded]
        out = [record for record, is_one in zip(self._decoded, is_out, strict=True) if is_one]
        self._decoded = deque(
            record for record, is_one in zip(self._decoded, is_out, strict=True) if not is_one
        )
        return out

    def position(self, partition: TopicPartition) -> Position | None:
        """The position after what was handed out, None while it is unknown."""
        return self.positions((partition,)).get(partition)

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        """Return the positions that are known."""
        first: dict[TopicPartition, ConsumerRecord] = {at: held[0] for at, held in self._held.items()}
        for record in self._decoded:
            first.setdefault(TopicPartition(record.topic, record.partition), record)
        found = {}
        for partition in partitions:
            position = self._fetched.positions.get(partition)
            if position is not None:
                waits = first.get(partition)
                found[partition] = position if waits is None else position._replace(offset=waits.offset)
        return found

    def lag(self, partition: TopicPartition) -> int | None:
        """Records that a partition has after its position, None before the first fetch."""
        behind = self._fetched.lag(partition)
        position = self.position(partition)
        if behind is None or position is None:
            return None
        return behind + self._fetched.positions[partition].offset - position.offset


def to_commit(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return positions in the form in which they are committed."""
    return {
        partition: OffsetAndMetadata(position.offset, "", position.leader_epoch)
        for partition, position in positions.items()
    }
