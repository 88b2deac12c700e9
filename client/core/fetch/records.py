"""The records of one batch, decoded in steps of as many as a poll asks for.

    record  = length, attributes, timestamp delta, offset delta, key, value, headers
    key, value, value of a header = length (−1 is null), bytes
    headers = count, then key and value of each

Lengths, deltas and counts are zigzag varints: an even n stands for n / 2, an odd one for −(n + 1) / 2.

Every message passes the loop in `read`, so it is written for speed. Varints of one and two bytes, which are
nearly all, are decoded in place. The offset that follows the one before is recognised without computing it.
A record becomes a tuple without a call of a Python function.
"""

from __future__ import annotations

from typing import Final, NoReturn

from client.core.types import ConsumerRecord, TopicPartition
from wire.record_batch import LOG_APPEND_TIME, BatchHeader

VARINT_BYTES_MAX: Final = 10
"""The longest varint is that of a timestamp, of 64 bits."""


class BadRecord(Exception):
    """A record that violates the format; says what is wrong."""


class BatchRecords:
    """The records of a batch, which are the bytes from `at` to `end` of `data`, decompressed.

    Invariant: the state is that before the first record that has not been read, also after an error, so that
    the next `read` raises it again. Offsets ascend, and none is outside the batch.
    """

    __slots__ = ("_at", "_data", "_end", "_header", "_partition", "left", "next_offset")

    def __init__(
        self, partition: TopicPartition, header: BatchHeader, data: bytes, at: int, end: int
    ) -> None:
        self._partition = partition
        self._header = header
        self._data = data
        self._at = at
        self._end = end
        self.left = header.num_records
        """The number of records that have not been read."""
        self.next_offset = header.base_offset
        """The smallest offset that the next record can have."""

    def read(self, records: list[ConsumerRecord], most: int) -> None:
        """Append the next records, at most `most`. Raises BadRecord; those before it are appended."""
        data, p, end, (topic, partition) = self._data, self._at, self._end, self._partition
        header, next_offset = self._header, self.next_offset
        base_ms, epoch = header.base_timestamp, header.partition_leader_epoch
        append_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        time_type = 0 if append_ms is None else 1
        expected = next_offset - header.base_offset << 1
        append, new, record_class = records.append, tuple.__new__, ConsumerRecord
        start, left, left_after = p, self.left, max(self.left - most, 0)
        try:
            for left in range(self.left, left_after, -1):
                start = p
                if (length := data[p]) > 127 and (length := length & 127 | data[(p := p + 1)] << 7) > 16383:
                    length, p = _varint(data, p - 1)
                begin = p + 1
                p += 2  # no attribute of a record is used
                if (x := data[p]) > 127 and (x := x & 127 | data[(p := p + 1)] << 7) > 16383:
                    x, p = _varint(data, p - 1)
                timestamp_ms = base_ms + (x >> 1 ^ -(x & 1)) if append_ms is None else append_ms
                p += 1
                if (x := data[p]) > 127 and (x := x & 127 | data[(p := p + 1)] << 7) > 16383:
                    x, p = _varint(data, p - 1)
                if x != expected:
                    next_offset = self._after_gap(x, next_offset, left)
                    expected = x
                p += 1
                if (x := data[p]) > 127 and (x := x & 127 | data[(p := p + 1)] << 7) > 16383:
                    x, p = _varint(data, p - 1)
                p += 1
                key = None if x == 1 else _refuse(x, "key") if x & 1 else data[p : (p := p + (x >> 1))]
                if (x := data[p]) > 127 and (x := x & 127 | data[(p := p + 1)] << 7) > 16383:
                    x, p = _varint(data, p - 1)
                p += 1
                value = None if x == 1 else _refuse(x, "value") if x & 1 else data[p : (p := p + (x >> 1))]
                headers: tuple[tuple[str, bytes | None], ...] = ()
                if data[p]:
                    headers, p = _headers(data, p, end)
                else:
                    p += 1
                if p - begin << 1 != length or p > end:
                    raise BadRecord(
                        f"its length is {_signed(length)}, its fields take {p - begin} bytes, "
                        f"and {end - begin} are left"
                    )
                fields = (topic, partition, next_offset, timestamp_ms, time_type, key, value, headers, epoch)
                append(new(record_class, fields))
                next_offset += 1
                expected += 2
            start, left = p, left_after
        except IndexError:
            raise BadRecord("the data ends within it") from None
        finally:
            self._at, self.left, self.next_offset = start, left, next_offset

    def skip_to(self, position: int) -> None:
        """Leave out the records before `position`, as a fetch may begin within a batch.

        Raises BadRecord."""
        data, p = self._data, self._at
        try:
            while self.left and self.next_offset < position:
                length, p = _varint(data, p)
                begin = p + 1
                _, p = _varint(data, begin + 1)
                delta, p = _varint(data, p + 1)
                offset = self._after_gap(delta, self.next_offset, self.left)
                if offset >= position:
                    return
                p = begin + (length >> 1)
                if length & 1 or p > self._end:
                    raise BadRecord(f"its length is {_signed(length)}, and {self._end - begin} are left")
                self._at, self.left, self.next_offset = p, self.left - 1, offset + 1
        except IndexError:
            raise BadRecord("the data ends within it") from None

    def check_end(self) -> None:
        """Check that nothing follows the last record. Raises BadRecord."""
        if self._at != self._end:
            raise BadRecord(f"{self._end - self._at} bytes follow the last record")

    def _after_gap(self, delta: int, least: int, left: int) -> int:
        """Return the offset of a record, which compaction may have left with a gap before it.

        It is `least` or more, and the batch has room for it and the others that are left.
        """
        offset = self._header.base_offset + _signed(delta)
        if not least <= offset <= self._header.last_offset + 1 - left:
            raise BadRecord(
                f"its offset is {offset}, and {left} records are left for the offsets {least} to "
                f"{self._header.last_offset}"
            )
        return offset


def _signed(x: int) -> int:
    return x >> 1 ^ -(x & 1)


def _varint(data: bytes, p: int) -> tuple[int, int]:
    """Decode a varint of any length at `p`. Returns it, unsigned, and the place of its last byte."""
    value = 0
    for number in range(VARINT_BYTES_MAX):
        byte = data[p + number]
        value |= (byte & 127) << 7 * number
        if byte < 128:
            return value, p + number
    raise BadRecord(f"a varint has more than {VARINT_BYTES_MAX} bytes")


def _refuse(x: int, field: str) -> NoReturn:
    raise BadRecord(f"its {field} has the length {_signed(x)}")


def _headers(data: bytes, p: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Decode the headers at `p` of a record of a batch that ends at `end`.

    Returns them and the place behind them. Keys that are not UTF-8 keep their bytes as surrogates, as file
    names do in Python.
    """
    count, p = _varint(data, p)
    p += 1
    if count & 1 or count >> 1 > end - p:
        raise BadRecord(f"it has {_signed(count)} headers in {end - p} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        x, p = _varint(data, p)
        if x & 1:
            _refuse(x, "header's key")
        key = data[p + 1 : (p := p + 1 + (x >> 1))].decode("utf-8", "surrogateescape")
        x, p = _varint(data, p)
        p += 1
        value: bytes | None = None
        if x != 1:
            value = _refuse(x, "header's value") if x & 1 else data[p : (p := p + (x >> 1))]
        headers.append((key, value))
    return tuple(headers), p
