"""Sample messages made from the tables, and what kio, an independent implementation, makes of them.

kio generates its classes from Kafka's own message definitions, one per version. It is an oracle for tests
only: it must never see bytes that a stranger could have sent.
"""

import dataclasses
import datetime as dt
import importlib
import io
import random
import typing
import uuid
from types import UnionType
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from wire.apis import API_VERSIONS, ApiKey, is_private, message_classes
from wire.schema import ZERO_UUID, Message, Wire

STRING_LENGTHS = (0, 1, 2, 17, 126, 127, 128, 300)
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
CODES = sorted(int(code) for code in KioErrorCode)

Case = tuple[ApiKey, int, str]


def all_cases() -> list[Case]:
    """Every API, version and direction."""
    return [
        (api_key, version, side)
        for api_key, (first, last) in API_VERSIONS.items()
        for version in range(first, last + 1)
        for side in ("request", "response")
    ]


def kafka_cases() -> list[Case]:
    """Those that kio, or anybody else, knows."""
    return [case for case in all_cases() if not is_private(case[0])]


def case_id(case: Case) -> str:
    return f"{case[0].name.lower()}-v{case[1]}-{case[2]}"


def message_class(case: Case) -> type[Message]:
    request, response = message_classes(case[0])
    return request if case[2] == "request" else response


def kio_class(case: Case) -> type[Any]:
    api_key, version, side = case
    module = importlib.import_module(f"kio.schema.{api_key.name.lower()}.v{version}.{side}")
    cls: type[Any] = getattr(module, message_class(case).__name__)
    return cls


class Sampler:
    """Makes messages of a version: `full`, `empty`, `null` or, by seed, anything between."""

    def __init__(self, version: int, style: str, seed: int = 0) -> None:
        self.version = version
        self.style = style
        self.random = random.Random(f"{seed}-{version}-{style}")

    def message(self, cls: type[Message]) -> Any:
        return cls(
            **{
                name: self.field(name, wire)
                for name, wire in cls.SCHEMA.fields
                if self.version in wire.versions
            }
        )

    def field(self, name: str, wire: Wire) -> Any:
        if self.version in wire.nullable and (
            self.style == "null" or (self.style == "random" and self.random.random() < 0.3)
        ):
            return None
        if self.style == "random" and wire.tag >= 0 and self.random.random() < 0.3:
            return [] if wire.is_array else wire.of() if wire.of else wire.default
        if wire.is_array:
            count = {"full": 2, "random": self.random.randrange(4)}.get(self.style, 0)
            return [self.one(name, wire) for _ in range(count)]
        return self.one(name, wire)

    def one(self, name: str, wire: Wire) -> Any:
        if wire.of is not None:
            return self.message(wire.of)
        if wire.kind in ("string", "binary", "records"):
            length = {"full": 5, "random": self.random.choice(STRING_LENGTHS)}.get(self.style, 0)
            text = "".join(self.random.choice("aZ9-_.ö€") for _ in range(length))
            return text if wire.kind == "string" else text.encode()
        if self.style in ("empty", "null"):
            return {"bool": False, "uuid": ZERO_UUID}.get(wire.kind, 0)
        if wire.kind == "bool":
            return self.random.random() < 0.5
        if wire.kind == "uuid":
            return self.random.randbytes(16)
        if name.endswith("error_code"):
            return self.random.choice(CODES)
        if name == "log_append_time_ms":  # a datetime in kio, or -1
            return self.random.choice((-1, 0, 1, self.random.getrandbits(47)))
        # kio holds times as timedelta, which does not reach as far as 64 bits.
        bits = 48 if wire.kind == "int64" and name.endswith("_ms") else INT_BITS[wire.kind]
        return self.random.choice(
            (-1, 0, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, self.random.getrandbits(bits - 1))
        )


def to_kio(message: Message, cls: Any) -> Any:
    """The same message as an instance of kio's class for its version."""
    hints = typing.get_type_hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        name = field.name if hasattr(message, field.name) else f"{field.name}_ms"
        values[field.name] = _value(
            getattr(message, name), hints[field.name], field.metadata.get("kafka_type")
        )
    return cls(**values)


def _value(value: Any, hint: Any, kafka_type: str | None) -> Any:
    if isinstance(value, list):
        inner = next(part for part in _parts(hint) if typing.get_origin(part) is tuple)
        return tuple(_value(item, typing.get_args(inner)[0], kafka_type) for item in value)
    if value is None:
        return None
    if isinstance(value, Message):
        return to_kio(value, next(part for part in _parts(hint) if dataclasses.is_dataclass(part)))
    if kafka_type == "uuid":
        return uuid.UUID(bytes=value) if value != ZERO_UUID else None
    if kafka_type == "error_code":
        return KioErrorCode(value)
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return dt.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return EPOCH + dt.timedelta(milliseconds=value) if value != -1 else None
    return value


def _parts(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return typing.get_args(hint)
    return (hint,)


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()
