"""Records to bytes and back.

There are two ways.  `encode_record` and `decode_record` treat every type alike and check everything in both
directions.  Most records are offset commits, so `offset_commit_key`, `encode_offset_commit` and `group_id_of`
work on the bytes directly; they write and read the very same layout (a test compares them).

A tombstone carries no value, so its version means nothing and is not checked; an empty value is not a
tombstone, and no known type has one.
"""

from functools import partial
from typing import Any

from records.errors import MalformedRecord, UnknownType
from records.ids import TOPIC_ID_BYTES
from records.kinds import mismatch
from records.packing import pack, unpack_flat, unpack_nested
from records.schemas import SCHEMA_OF_KEY, SCHEMAS, Schema
from records.types import DecodedRecord, RawRecord, Record, RecordType, UnknownRecord
from records.values import Value

_OFFSET_COMMIT = int(RecordType.OFFSET_COMMIT)
_OFFSET_COMMIT_VERSION = SCHEMAS[_OFFSET_COMMIT].value.version
_GROUP_TYPES = frozenset(
    type_ for type_, schema in SCHEMAS.items() if any(c.name == "group_id" for c in schema.key.columns)
)
_I32_MIN, _I32_MAX = -(1 << 31), (1 << 31) - 1
_I64_MIN, _I64_MAX = -(1 << 63), (1 << 63) - 1

# The first bytes of a typical key in msgpack: an array of 1-15 items, a text of 0-31 bytes.
_FIXARRAY_FIRST, _FIXARRAY_LAST = 0x91, 0x9F
_FIXSTR_FIRST, _FIXSTR_LAST = 0xA0, 0xBF

_raw_record = partial(tuple.__new__, RawRecord)  # a NamedTuple's own constructor costs twice as much


def encode_record(record: Record) -> RawRecord:
    """The bytes of a record at the newest version; raises `MalformedRecord` for a value that does not fit."""
    schema = SCHEMA_OF_KEY.get(type(record.key))
    if schema is None:
        raise mismatch("the key of a record", record.key)
    key = pack(schema.key.dump(record.key))
    value = None if record.value is None else pack(schema.value.layout.dump(record.value))
    return RawRecord(schema.type, 0 if value is None else schema.value.version, key, value)


def encode_value(type_: int, value: Value) -> bytes:
    """A value alone, as `encode_record` writes it; raises `UnknownType` and `MalformedRecord`."""
    return pack(_schema(type_).value.layout.dump(value))


def decode_record(raw: RawRecord) -> Record | UnknownRecord:
    """The record that the bytes hold, `UnknownRecord` if its type is not known here.

    Raises `UnsupportedVersion` for a value newer than this release, `MalformedRecord` for wrong bytes.
    """
    schema = SCHEMAS.get(raw.type)
    if schema is None:
        return UnknownRecord(raw.type, raw.version, raw.key, raw.value)
    return Record(load_key(schema, raw), load_value(schema, raw))


def decode_key(raw: RawRecord) -> Any:
    """The key alone: the `...Key` of the record's type; raises `UnknownType` and `MalformedRecord`."""
    return load_key(_schema(raw[0]), raw)


def decode_key_and_value(raw: RawRecord) -> tuple[Any, Any]:
    """The key and the value of a record of a known type; raises as `decode_record`, and `UnknownType`."""
    if type(raw) is DecodedRecord:
        return raw.decoded
    schema = _schema(raw[0])
    return load_key(schema, raw), load_value(schema, raw)


def decode_ahead(raw: RawRecord) -> RawRecord:
    """The same record, for which `decode_key_and_value` has nothing left to do."""
    record = DecodedRecord(*raw)
    record.decoded = decode_key_and_value(raw)
    return record


def decode_value(raw: RawRecord) -> Any:
    """The value alone: the `...Value` of the record's type, or None.

    Raises as `decode_record`, and `UnknownType`.
    """
    return load_value(_schema(raw[0]), raw)


def load_key(schema: Schema, raw: RawRecord) -> Any:
    """The typed key, decoded with the schema of the record's type; raises `MalformedRecord`."""
    try:
        return schema.key.load(unpack_flat(raw.key))
    except MalformedRecord as error:
        raise MalformedRecord(f"key of {schema.name}: {error}") from None


def load_value(schema: Schema, raw: RawRecord) -> Any:
    """The typed value, or None for a tombstone; raises `UnsupportedVersion` and `MalformedRecord`."""
    if raw.value is None:
        return None
    versioned = schema.value
    try:
        unpack = unpack_flat if versioned.layout.is_flat else unpack_nested
        versioned.refuse_newer(raw.version)  # before its bytes, which may make no sense here
        return versioned.load(unpack(raw.value), raw.version)
    except MalformedRecord as error:
        raise MalformedRecord(f"value of {schema.name}: {error}") from None


def member_key(group_id: str, member_id: str) -> bytes:
    """The key bytes of a member's records 5, 7 and 8, which are the same."""
    return pack((group_id, member_id))


def offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key bytes of one group's offset in one partition (i32)."""
    return pack((group_id, topic, partition))


def encode_offset_commit(
    key: bytes,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int,
    topic_id: bytes,
) -> RawRecord:
    """An offset commit from the bytes of its key and the fields of its value, equal to `encode_record`'s.

    Raises `MalformedRecord` if a number is out of its field's range: what is written must be readable.
    """
    if not (
        _I64_MIN <= offset <= _I64_MAX
        and _I32_MIN <= leader_epoch <= _I32_MAX
        and _I64_MIN <= commit_timestamp_ms <= _I64_MAX
        and _I64_MIN <= expire_timestamp_ms <= _I64_MAX
        and len(topic_id) == TOPIC_ID_BYTES
    ):
        raise MalformedRecord("offset commit: a number or the topic id does not fit into its field")
    value = pack((offset, leader_epoch, commit_timestamp_ms, expire_timestamp_ms, metadata, topic_id))
    return _raw_record((_OFFSET_COMMIT, _OFFSET_COMMIT_VERSION, key, value))


def group_id_of(raw: RawRecord) -> str | None:
    """The group that a record belongs to, None if its type has no group; raises `MalformedRecord`.

    None also for unknown types, whose keys this release cannot read.
    """
    if raw.type not in _GROUP_TYPES:
        return None
    key = raw.key
    if (
        len(key) > 2
        and _FIXARRAY_FIRST <= key[0] <= _FIXARRAY_LAST
        and _FIXSTR_FIRST <= key[1] <= _FIXSTR_LAST
    ):
        size = key[1] - _FIXSTR_FIRST
        if len(key) >= 2 + size:
            try:
                return key[2 : 2 + size].decode("utf-8")
            except UnicodeDecodeError as error:
                raise MalformedRecord(f"group id: {error}") from None
    group_id: str = decode_key(raw).group_id
    return group_id


def _schema(type_: int) -> Schema:
    schema = SCHEMAS.get(type_)
    if schema is None:
        raise UnknownType(f"record type {type_} is unknown to this release; keep its bytes unchanged")
    return schema
