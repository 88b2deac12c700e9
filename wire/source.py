"""Python source under construction, shared by the generators of decoders and encoders.

A generated function handles one message in one version. So every question about versions, nulls and
compactness is answered while generating it, and none at run time. This module keeps track of three things:
the indentation, the objects that the source refers to by name, and the field that each line reads or writes.
The fields let an error name its field at no cost to valid input: the field is looked up by the line number in
the traceback.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from wire.schema import Message, Wire

FORMATS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "bool": "?", "uuid": "16s"}
"""Types of fixed width and their `struct` formats; all of Kafka's are big-endian."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field within a line of generated source.

    `end` is the offset after its last byte, from the start of the line's data."""

    field: str
    end: int


@dataclass(slots=True)
class FunctionSource:
    """The source of one function: its lines, the objects they use, and the fields they handle."""

    title: str
    names: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    places: list[tuple[Place, ...]] = field(default_factory=lambda: [()])
    indent: int = 0
    serial: int = 0

    def line(self, text: str, *places: Place) -> None:
        self.lines.append("    " * self.indent + text)
        self.places.append(places)

    @contextmanager
    def block(self, head: str, *places: Place) -> Iterator[None]:
        self.line(head, *places)
        self.indent += 1
        yield
        self.indent -= 1

    def fresh(self, prefix: str) -> str:
        """A local name that is not used elsewhere."""
        self.serial += 1
        return f"{prefix}{self.serial}"

    def name(self, value: object, name: str) -> str:
        """The global name by which the source can use `value`."""
        if self.names.setdefault(name, value) is not value:
            name = self.fresh(f"{name}_")
            self.names[name] = value
        return name

    def packing(self, layout: str, method: str) -> str:
        """The global name of `struct.Struct(">" + layout).<method>`."""
        name = f"{method}_{layout.replace('?', 'T')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + layout), method)
        return name

    def compile(self, function: str) -> Callable[..., Any]:
        code = compile("\n".join(self.lines) + "\n", f"<wire {self.title}>", "exec")
        exec(code, self.names)
        result: Callable[..., Any] = self.names[function]
        return result

    def field_at(self, error: BaseException, left_bytes: int = -1) -> str:
        """The field whose line raised `error`.

        If the line reads several fields, this is the first that does not fit into `left_bytes`."""
        traceback: TracebackType | None = error.__traceback__
        if traceback is None:
            return self.title
        places = self.places[traceback.tb_lineno]
        if not places:
            return self.title
        if len(places) > 1 and left_bytes >= 0:
            places = tuple(place for place in places if place.end > left_bytes)[:1]
        return f"{self.title} {', '.join(place.field for place in places)}"


def fields_in(cls: type[Message], version: int) -> tuple[list[tuple[str, Wire]], list[tuple[str, Wire]]]:
    """The fields that `version` has: the regular ones in order, and the tagged ones by ascending tag."""
    present = [(name, wire) for name, wire in cls.SCHEMA.fields if version in wire.versions]
    plain = [(name, wire) for name, wire in present if version not in wire.tagged]
    tagged = [(name, wire) for name, wire in present if version in wire.tagged]
    return plain, sorted(tagged, key=lambda item: item[1].tag)


def bytes_min(wire: Wire, version: int, flexible: bool, *, element: bool = False) -> int:
    """The minimum number of bytes of a field, or of one element of an array, on the wire."""
    length = 1 if flexible else 2 if wire.kind == "string" and (element or not wire.is_array) else 4
    if wire.is_array and not element:
        return length
    if wire.kind in FORMATS:
        return struct.calcsize(">" + FORMATS[wire.kind])
    if wire.of is None:
        return length
    if version in wire.nullable and not wire.is_array:
        return 1
    plain, _ = fields_in(wire.of, version)
    return sum(bytes_min(inner, version, flexible) for _, inner in plain) + flexible
