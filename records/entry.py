"""The body of a log entry: one decision, as its cause and the records that it wrote, all or nothing.

    u32 length of the cause, the cause (msgpack array, its version first)
    per record: i16 type, i16 value version, u32 key length, i32 value length (-1 = tombstone), key, value

Numbers are big-endian.  Records run to the end of the body; their count is in the frame around it.  The
header of a record has a fixed width, so that readers that want a few types, or only keys, need not decode
anything else: `iter_records` returns slices and skips the cause.  Every length is checked against the bytes
that remain.
"""

import struct
from dataclasses import dataclass
from functools import partial
from typing import Any

from records.cause import CAUSE_VERSION, Cause
from records.errors import MalformedEntry, MalformedRecord
from records.layouts import Versioned, layout_of
from records.packing import pack, unpack_nested
from records.types import RawRecord

_CAUSE_LENGTH = struct.Struct(">I")
_RECORD_HEADER = struct.Struct(">hhIi")
_TOMBSTONE_LENGTH = -1

_CAUSE: Versioned = Versioned("cause", layout_of(Cause), CAUSE_VERSION)
_WIDTH_0 = _CAUSE.layout.width(0)
_raw_record = partial(tuple.__new__, RawRecord)


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision: its cause and the records written because of it."""

    cause: Cause
    records: tuple[RawRecord, ...]


def encode_entry(cause: Cause, records: tuple[RawRecord, ...] | list[RawRecord]) -> bytes:
    """The body of an entry.

    Raises `MalformedRecord` if a field of the cause or of a record's header does not fit.
    """
    return join_body(dump_cause(cause), records)


def decode_entry(body: bytes | memoryview) -> Entry:
    """The entry that a body holds; raises `MalformedEntry`, and `UnsupportedVersion` for a newer cause."""
    return Entry(decode_cause(body), tuple(iter_records(body)))


def decode_cause(body: bytes | memoryview) -> Cause:
    """The cause alone; raises as `decode_entry`."""
    try:
        return load_cause(cause_bytes(body))
    except MalformedRecord as error:
        raise MalformedEntry(f"cause: {error}") from None


def iter_records(body: bytes | memoryview) -> list[RawRecord]:
    """The records of a body, undecoded, in order; raises `MalformedEntry`."""
    data = body if type(body) is bytes else bytes(body)
    size = len(data)
    position = _cause_end(data)
    header, header_size, new, tombstone = _RECORD_HEADER.unpack_from, _RECORD_HEADER.size, _raw_record, None
    found: list[RawRecord] = []
    try:
        while position < size:
            type_, version, key_length, value_length = header(data, position)
            key_start = position + header_size
            key_end = key_start + key_length
            if value_length >= 0:
                position = key_end + value_length
                found.append(new((type_, version, data[key_start:key_end], data[key_end:position])))
            elif value_length == _TOMBSTONE_LENGTH:
                position = key_end
                found.append(new((type_, version, data[key_start:key_end], tombstone)))
            else:
                raise MalformedEntry(f"record {len(found)} at byte {position}: value length {value_length}")
    except struct.error:
        raise MalformedEntry(
            f"record {len(found)} at byte {position}: {size - position} bytes left, too few for a header"
        ) from None
    # Only the last slice can be too short, and then its end lies beyond the body.
    if position != size:
        raise MalformedEntry(
            f"record {len(found) - 1} ends {position - size} bytes past the end of the entry"
        )
    return found


def dump_cause(cause: Cause) -> bytes:
    """The bytes of a cause at the oldest version that has all of it; raises `MalformedRecord`."""
    items = _CAUSE.layout.dump(cause)
    return pack([CAUSE_VERSION, *items] if cause.phases is not None else [0, *items[:_WIDTH_0]])


def load_cause(data: bytes) -> Cause:
    """Decode the bytes of a cause; raises `MalformedRecord` and `UnsupportedVersion`."""
    items = unpack_nested(data)
    if type(items) is not list or not items or type(items[0]) is not int:
        raise MalformedRecord("expected an array whose first item is the cause's version")
    cause: Cause = _CAUSE.load(items[1:], items[0])
    return cause


def cause_to_json(cause: Cause) -> dict[str, Any]:
    """A cause as a JSON object: named numbers are shown by name, unknown ones by number."""
    return _CAUSE.layout.to_json(cause)


def cause_from_json(item: object) -> Cause:
    """The cause in a JSON object; raises `MalformedRecord`."""
    cause: Cause = _CAUSE.layout.from_json(item)
    return cause


def cause_bytes(body: bytes | memoryview) -> bytes:
    """The undecoded cause of a body; raises `MalformedEntry`."""
    return bytes(body[_CAUSE_LENGTH.size : _cause_end(body)])


def join_body(cause: bytes, records: tuple[RawRecord, ...] | list[RawRecord]) -> bytes:
    """A body from the bytes of its cause and its records.

    Raises `MalformedRecord` for a header that does not fit.
    """
    pieces = [_CAUSE_LENGTH.pack(len(cause)), cause]
    header = _RECORD_HEADER.pack
    try:
        for type_, version, key, value in records:
            if value is None:
                pieces += (header(type_, version, len(key), _TOMBSTONE_LENGTH), key)
            else:
                pieces += (header(type_, version, len(key), len(value)), key, value)
    except struct.error as error:
        raise MalformedRecord(f"record header of type {type_} version {version}: {error}") from None
    return b"".join(pieces)


def _cause_end(body: bytes | memoryview) -> int:
    """The offset at which the cause ends and the records begin."""
    if len(body) < _CAUSE_LENGTH.size:
        raise MalformedEntry(f"{len(body)} bytes are too few for an entry")
    (length,) = _CAUSE_LENGTH.unpack_from(body)
    end = _CAUSE_LENGTH.size + int(length)
    if end > len(body):
        raise MalformedEntry(f"the cause claims {length} bytes, {len(body) - _CAUSE_LENGTH.size} are left")
    return end
