"""The declaration language for Kafka's messages: a class body is the schema table.

A message is a slotted dataclass. Each field's default value is a call that says how the field is encoded: its
wire type, the versions that have it, those in which it may be null, and its tag. Type checkers see ordinary
typed attributes with defaults; `wire.decoding` and `wire.encoding` generate functions from the same table in
`SCHEMA`. Invariants: the order of fields in a class body is the order on the wire; names are Kafka's JSON
names in snake case; and an attribute that a version lacks has Kafka's default after decoding.

Version ranges use the notation of Kafka's own message definitions: "0+", "3-7", "5".
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, dataclass_transform

VERSION_MAX = 32767  # versions are int16 on the wire

ZERO_UUID = bytes(16)
"""Kafka's "no id": the encoding of an absent topic id."""

NOT_REQUESTED = -(2**31)
"""Value of an authorized-operations field that the client did not request."""


def version_range(text: str | None) -> range:
    """Parse `"0+"`, `"3-7"` or `"5"` into a range of versions; None and "" are the empty range."""
    if not text:
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), VERSION_MAX + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


class Message:
    """Base class of all messages and their nested structs.

    A message has a class-level schema. Equality and repr are defined once here, not generated per class,
    because every process that imports a message waits for the creation of its class.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    SCHEMA: ClassVar["MessageSchema"]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name, _ in self.SCHEMA.fields)

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name, _ in self.SCHEMA.fields)
        return f"{type(self).__qualname__}({', '.join(values)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The encoding of one field. `of` is the class of a struct field, or of an array's elements."""

    kind: str
    versions: range
    nullable: range
    tagged: range
    tag: int
    default: object
    is_array: bool = False
    of: type[Message] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """The schema of a class. Nested structs take versions and flexibility from the enclosing message."""

    versions: range
    flexible: range
    fields: tuple[tuple[str, Wire], ...]


M = TypeVar("M", bound=Message)

# Marks a field whose default is a new object for each message.
_FACTORY = object()


def _kind(kind: str, implicit: object) -> Callable[..., Any]:
    def declare(
        versions: str,
        *,
        nullable: str | None = None,
        default: object = implicit,
        tag: int = -1,
        tagged: str | None = None,
    ) -> Any:
        return Wire(
            kind=kind,
            versions=version_range(versions),
            nullable=version_range(nullable),
            tagged=version_range(tagged),
            tag=tag,
            default=default,
        )

    declare.__name__ = declare.__qualname__ = kind
    declare.__doc__ = f"A field of Kafka's type {kind}: versions, nullable versions, default, tag."
    return declare


int8 = _kind("int8", 0)
int16 = _kind("int16", 0)
uint16 = _kind("uint16", 0)
int32 = _kind("int32", 0)
int64 = _kind("int64", 0)
boolean = _kind("bool", False)
uuid = _kind("uuid", ZERO_UUID)
string = _kind("string", "")
binary = _kind("binary", b"")
record_batches = _kind("records", None)


def array_of(
    element: type[Message] | Callable[..., Any],
    versions: str,
    *,
    nullable: str | None = None,
    default: object = _FACTORY,
    tag: int = -1,
    tagged: str | None = None,
) -> Any:
    """Declare an array of structs (a class) or of a primitive type (`int32`, `string`, `uuid` …)."""
    is_struct = isinstance(element, type)
    return Wire(
        kind="struct" if is_struct else element.__name__,
        versions=version_range(versions),
        nullable=version_range(nullable),
        tagged=version_range(tagged),
        tag=tag,
        default=default,
        is_array=True,
        of=element if isinstance(element, type) else None,
    )


def struct_of(
    struct: type[Message],
    versions: str,
    *,
    nullable: str | None = None,
    default: object = _FACTORY,
    tag: int = -1,
    tagged: str | None = None,
) -> Any:
    """Declare a field that is one struct; its implicit default is a struct of defaults."""
    return Wire(
        kind="struct",
        versions=version_range(versions),
        nullable=version_range(nullable),
        tagged=version_range(tagged),
        tag=tag,
        default=default,
        of=struct,
    )


@dataclass_transform(kw_only_default=True)
def message(*, versions: str, flexible: str | None = None) -> Callable[[type[M]], type[M]]:
    """Make a class body a top-level message with these `versions`; `flexible` ones are encoded compactly."""

    def build(cls: type[M]) -> type[M]:
        return _build(cls, version_range(versions), version_range(flexible))

    return build


@dataclass_transform(kw_only_default=True)
def nested(cls: type[M]) -> type[M]:
    """Make a class body a struct that is nested in messages."""
    return _build(cls, range(0), range(0))


def _build(cls: type[M], versions: range, flexible: range) -> type[M]:
    fields: list[tuple[str, Wire]] = []
    for name in cls.__annotations__:
        wire = cls.__dict__[name]
        if not isinstance(wire, Wire):
            raise TypeError(f"{cls.__name__}.{name} has no wire type: declare its field with a schema")
        fields.append((name, wire))
        if wire.default is not _FACTORY:
            setattr(cls, name, wire.default)
        elif wire.is_array or wire.of is None:
            setattr(cls, name, field(default_factory=list))
        else:
            setattr(cls, name, field(default_factory=wire.of))
    if cls.__doc__ is None:
        cls.__doc__ = f"{cls.__name__}, as Kafka has it."  # else dataclass() uses the whole signature
    built = dataclass(slots=True, kw_only=True, match_args=False, repr=False, eq=False)(cls)
    built.SCHEMA = MessageSchema(versions=versions, flexible=flexible, fields=tuple(fields))
    return built
