"""Records and entries as JSON, losslessly: converting back gives the same bytes.

People and tools read typed fields wherever possible.  Where typed fields could not give the same bytes back
(an unknown type, a version that this release does not write, an array with fields left out, plain damage) the
bytes themselves are shown as base64 under `key_base64`, `value_base64` or `cause_base64`.  So a dump of any
log, also of a newer release's, can be turned back into that log.

    {"type": "FORMAT_LEVEL", "version": 0, "key": {}, "value": {"level": 1}}
    {"type": "TOPIC", "version": 0, "key": {"name": "orders"}, "value": null}           a tombstone
    {"type": 77, "version": 3, "key_base64": "AQ==", "value_base64": "Ag=="}            an unknown type
"""

from collections.abc import Callable
from typing import Any

from records.cause import Cause
from records.codec import load_key, load_value
from records.entry import (
    Entry,
    cause_bytes,
    cause_from_json,
    cause_to_json,
    decode_entry,
    dump_cause,
    encode_entry,
    iter_records,
    join_body,
    load_cause,
)
from records.errors import MalformedEntry, MalformedRecord, RecordsError
from records.kinds import bytes_from_json, bytes_to_json, mismatch, named_i16
from records.layouts import Layout
from records.packing import pack
from records.schemas import SCHEMAS, Schema
from records.types import RawRecord, RecordType

Json = dict[str, Any]

_TYPE = named_i16(RecordType)
_RECORD_FIELDS = {"type", "version", "key", "key_base64", "value", "value_base64"}


def record_to_json(raw: RawRecord) -> Json:
    """One record as a JSON object, whatever bytes it holds."""
    shown: Json = {"type": _TYPE.to_json(raw.type), "version": raw.version}
    schema = SCHEMAS.get(raw.type)
    shown |= _show("key", raw.key, (lambda: _typed_key(schema, raw)) if schema else None)
    if raw.value is None:
        return shown | {"value": None}
    return shown | _show("value", raw.value, (lambda: _typed_value(schema, raw)) if schema else None)


def record_from_json(item: object) -> RawRecord:
    """The record in a JSON object, byte for byte; raises `MalformedRecord`."""
    if type(item) is not dict or not {"type", "version"} <= set(item) <= _RECORD_FIELDS:
        raise mismatch(f"an object with type, version and some of {sorted(_RECORD_FIELDS)}", item)
    type_, version = _TYPE.from_json(item["type"]), _TYPE.load(item["version"])
    schema = SCHEMAS.get(type_)
    key = _read("key", item, schema.key if schema else None)
    if "value" in item and item["value"] is None and "value_base64" not in item:
        return RawRecord(type_, version, key, None)
    writable = schema is not None and version == schema.value.version
    value = _read("value", item, schema.value.layout if schema and writable else None)
    return RawRecord(type_, version, key, value)


def entry_to_json(entry: Entry) -> Json:
    """An entry as a JSON object; raises `MalformedRecord` for a cause that does not fit."""
    return body_to_json(encode_entry(entry.cause, entry.records))


def entry_from_json(item: object) -> Entry:
    """The entry in a JSON object; raises `MalformedRecord`, `MalformedEntry` and `UnsupportedVersion`."""
    return decode_entry(body_from_json(item))


def body_to_json(body: bytes | memoryview) -> Json:
    """The body of an entry as a JSON object; raises `MalformedEntry` only if its lengths are inconsistent."""
    data = cause_bytes(body)
    shown = _show("cause", data, lambda: _typed_cause(data))
    return shown | {"records": [record_to_json(raw) for raw in iter_records(body)]}


def body_from_json(item: object) -> bytes:
    """The body in a JSON object, byte for byte; raises `MalformedRecord` and `MalformedEntry`."""
    if type(item) is not dict or type(item.get("records")) is not list:
        raise MalformedEntry("expected an object with a cause and an array of records")
    if set(item) == {"cause", "records"}:
        cause = dump_cause(cause_from_json(item["cause"]))
    elif set(item) == {"cause_base64", "records"}:
        cause = bytes_from_json(item["cause_base64"])
    else:
        raise MalformedEntry(f"expected cause or cause_base64, and records; found {sorted(map(str, item))}")
    return join_body(cause, [record_from_json(record) for record in item["records"]])


def _show(name: str, data: bytes, typed: Callable[[], tuple[Json, bytes]] | None) -> Json:
    """Bytes under their name, typed if the typed form converts back to the very same bytes."""
    if typed is not None:
        try:
            shown, written = typed()
        except RecordsError:
            written = None
        if written == data:
            return {name: shown}
    return {f"{name}_base64": bytes_to_json(data)}


def _typed_key(schema: Schema, raw: RawRecord) -> tuple[Json, bytes]:
    key = load_key(schema, raw)
    return schema.key.to_json(key), pack(schema.key.dump(key))


def _typed_value(schema: Schema, raw: RawRecord) -> tuple[Json, bytes]:
    layout = schema.value.layout
    if raw.version != schema.value.version:
        raise MalformedRecord("this release does not write that version")
    value = load_value(schema, raw)
    return layout.to_json(value), pack(layout.dump(value))


def _typed_cause(data: bytes) -> tuple[Json, bytes]:
    cause: Cause = load_cause(data)
    return cause_to_json(cause), dump_cause(cause)


def _read(name: str, item: Json, layout: Layout | None) -> bytes:
    """The bytes under a name, or under its base64 form; exactly one of the two must be there."""
    if (name in item) == (f"{name}_base64" in item):
        raise MalformedRecord(f"a record needs either {name} or {name}_base64")
    if f"{name}_base64" in item:
        return bytes_from_json(item[f"{name}_base64"])
    if layout is None:
        raise MalformedRecord(f"{name}: give this type and version as {name}_base64")
    return pack(layout.dump(layout.from_json(item[name])))
