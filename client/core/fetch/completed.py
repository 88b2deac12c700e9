"""The records of a partition from one Fetch response, decoded no further than polls have asked.

A batch is checked as a whole (header, CRC, decompression) when the records before it have been read. Batches
without records for the application are passed over: those of aborted transactions under
isolation.level = read_committed, and control batches, which end transactions.

Invariant: `next_offset` never passes a batch that could not be decoded. Each further `read` raises its error
again.
"""

from __future__ import annotations

from typing import Final, NoReturn

from client.core.errors import CorruptRecord
from client.core.fetch.codecs import Decompressor, NotDecompressed
from client.core.fetch.extent import OFFSET_MAX
from client.core.fetch.records import BadRecord, BatchRecords
from client.core.types import ConsumerRecord, FetchedData
from wire.record_batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER,
    UNCOMPRESSED,
    BatchHeader,
    header_of,
)

_ABORT: Final = b"\0\0"
"""The type of a control record that ends an aborted transaction; it follows the version in the key."""
_TYPE: Final = slice(2, 4)


class CompletedFetch:
    """The state of decoding one partition's part of a Fetch response."""

    __slots__ = (
        "_aborted",
        "_aborted_producers",
        "_at",
        "_batch",
        "_batch_end",
        "_checks_crcs",
        "_decompressor",
        "_header",
        "_view",
        "data",
        "is_drained",
        "leader_epoch",
        "next_offset",
    )

    def __init__(self, data: FetchedData, decompressor: Decompressor, *, checks_crcs: bool) -> None:
        self.data = data
        self.next_offset = data.position.offset
        """The offset of the next record to hand out."""
        self.leader_epoch = data.position.leader_epoch
        """The leader epoch of the last batch that was read."""
        self.is_drained = False
        self._decompressor = decompressor
        self._checks_crcs = checks_crcs
        self._view = memoryview(data.records)
        self._at = 0
        self._header: BatchHeader | None = None
        self._batch: BatchRecords | None = None
        self._batch_end = 0
        self._aborted = sorted(data.aborted, key=lambda transaction: transaction[1], reverse=True)
        self._aborted_producers: set[int] = set()

    def read(self, records: list[ConsumerRecord], most: int) -> None:
        """Append the next records, at most `most`; fewer if no more are complete.

        Raises CorruptRecord. Records before the damage are appended first.
        """
        enough = len(records) + most
        while not self.is_drained and (missing := enough - len(records)) > 0:
            if self._batch is None and not self._open_next():
                continue
            self._read_batch(records, missing)

    def _read_batch(self, records: list[ConsumerRecord], most: int) -> None:
        batch, header = self._batch, self._header
        assert batch is not None
        assert header is not None
        had, damage = len(records), None
        try:
            batch.read(records, most)
            if batch.left == 0:
                batch.check_end()
        except BadRecord as error:
            damage = error
        if len(records) > had:
            self.next_offset = records[-1].offset + 1
        if damage is not None:
            self._corrupt(f"record {header.num_records - batch.left} of the batch: {damage}")
        if batch.left == 0:
            self._close_batch(header)

    def _close_batch(self, header: BatchHeader) -> None:
        """Go on after a batch; compaction may have removed its last records."""
        self.next_offset = header.last_offset + 1
        self.leader_epoch = header.partition_leader_epoch
        self._at = self._batch_end
        self._batch = self._header = None
        self.is_drained = self._at == len(self.data.records)

    def _open_next(self) -> bool:
        """Check the batch at the present place. Returns whether it has records for the application."""
        header = self._next_header()
        if header is None:
            self.is_drained = True
            return False
        self._check(header)
        has_aborted = bool(self._aborted or self._aborted_producers)
        if (has_aborted and self._is_aborted(header)) or header.attributes & CONTROL:
            self._close_batch(header)
            return False
        batch = self._records_of(header)
        if header.base_offset < self.next_offset:
            try:
                batch.skip_to(self.next_offset)
            except BadRecord as error:
                self._corrupt(f"a record before it in its batch: {error}")
        self._batch = batch
        return True

    def _next_header(self) -> BatchHeader | None:
        """Return the header of the batch at the present place, or None if no whole batch is left.

        A broker cuts its answer at the size that it was asked for, so the last batch may be incomplete; the
        first one is not.
        """
        data, at = self.data.records, self._at
        rest = len(data) - at
        if rest > MAGIC_AT and data[at + MAGIC_AT] != MAGIC:
            self._corrupt(
                f"message format {data[at + MAGIC_AT]} cannot be read: Kafka 4 requires format 2, which is "
                "as old as Kafka 0.11"
            )
        if rest >= HEADER_BYTES:
            header = header_of(data, at)
            size = LENGTH_END + header.length
            if size < HEADER_BYTES:
                self._corrupt(f"a batch of {header.length} bytes is shorter than a header")
            if size <= rest:
                self._batch_end = at + size
                self._header = header
                return header
        if at == 0 and rest:
            self._corrupt(f"the first batch is not complete: {rest} bytes arrived")
        return None

    def _check(self, header: BatchHeader) -> None:
        """Check what a header says against the bytes, the position, and itself."""
        from crc32c import (
            crc32c,
        )  # with the first batch: it is a sixth of all that importing a consumer takes

        first, reach = header.base_offset, header.last_offset_delta
        if self._checks_crcs and crc32c(self._view[self._at + CRC_START : self._batch_end]) != header.crc:
            self._corrupt("its CRC-32C is not that of its header: it was damaged on its way or on disk")
        if reach < 0 or not 0 <= header.num_records <= reach + 1:
            self._corrupt(
                f"it has {header.num_records} records, and its last offset is its first plus {reach}"
            )
        if first + reach >= OFFSET_MAX:
            self._corrupt(f"its offsets {first} to {first + reach} reach beyond the largest offset")
        if first < 0 or first + reach < self.next_offset:
            self._corrupt(f"its offsets {first} to {first + reach} were read before")

    def _is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction. Takes the transactions' ends into account."""
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborted_producers.add(self._aborted.pop()[0])
        if header.producer_id == NO_PRODUCER or header.producer_id not in self._aborted_producers:
            return False
        if header.is_control:
            if self._is_abort_marker(header):
                self._aborted_producers.discard(header.producer_id)
            return False
        return header.is_transactional

    def _is_abort_marker(self, header: BatchHeader) -> bool:
        markers: list[ConsumerRecord] = []
        try:
            self._records_of(header).read(markers, 1)
        except BadRecord as error:
            self._corrupt(f"the end of a transaction: {error}")
        if not markers or len(markers[0].key or b"") < _TYPE.stop:
            self._corrupt("a control batch does not say whether it commits or aborts its transaction")
        return bool(markers[0].key[_TYPE] == _ABORT)

    def _records_of(self, header: BatchHeader) -> BatchRecords:
        partition, data = self.data.partition, self.data.records
        start, end = self._at + HEADER_BYTES, self._batch_end
        if header.attributes & CODEC_MASK != UNCOMPRESSED:
            try:
                data = self._decompressor.decompress(header.codec, self._view[start:end])
            except NotDecompressed as error:
                self._corrupt(str(error))
            start, end = 0, len(data)
        return BatchRecords(partition, header, data, start, end)

    def _corrupt(self, why: str) -> NoReturn:
        """Raise the error of the batch at the present place."""
        (topic, number), offset = self.data.partition, self.next_offset
        header = self._header
        extent = (
            f" in the batch of the offsets {header.base_offset} to {header.last_offset}" if header else ""
        )
        behind = max(offset, header.last_offset) + 1 if header else offset + 1
        raise CorruptRecord(
            f"partition {number} of topic {topic!r} cannot be read at offset {offset}{extent}: {why}. The "
            f"position stays; seek to {behind} or behind to leave the damage out",
            topic,
            number,
            offset,
        )
