"""Encoding: generates, once per message and version, the function that encodes typed messages to bytes.

Outgoing messages are our own, so nothing is checked twice. A value that cannot be encoded (a null that is not
allowed, a number out of range, a string too long for its length field) raises Unencodable with the field's
name. A field that the version lacks is omitted; a tagged field is omitted if it has its default, as in Kafka.

A message may have a hundred thousand elements, and encoding one takes about a microsecond. So there are two
kinds of functions from one generator: one encodes in a single call, and one yields after each piece, so that
the caller can do other work in between.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from wire.errors import Unencodable
from wire.schema import Message, Wire
from wire.source import FORMATS, FunctionSource, Place, fields_in

Encoder = Callable[[Message, bytearray], None]
"""(message, buffer) -> None: appends the body to the buffer; raises Unencodable."""

PieceEncoder = Callable[[Message, bytearray], Iterator[None]]
"""The same as a generator that yields after each piece. The message must not change meanwhile."""

PIECE_BYTES = 16_384
"""Bytes between two yields: a fraction of a millisecond. Nearly all messages are smaller and never yield."""


def uvarint(value: int) -> bytes:
    """Encode `value` (0 to 2^32 - 1) as an unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT = tuple(bytes((value,)) for value in range(128))
"""The one-byte varints; nearly all varints are one of these."""

NULL_STRUCT = b"\xff"


def unencodable(error: Exception, source: FunctionSource) -> Unencodable:
    """Convert `error`, raised by a line of the generated encoder, into Unencodable."""
    return Unencodable(source.field_at(error), str(error))


_written: dict[tuple[type[Message], int], Encoder] = {}


def encoder(cls: type[Message], version: int) -> Encoder:
    """The function that encodes the body of `cls` in `version`, generated on first use."""
    known = _written.get((cls, version))
    if known is not None:
        return known
    if version not in cls.SCHEMA.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    written: Encoder = _Writer(cls, version).write()
    _written[cls, version] = written
    return written


_written_in_pieces: dict[tuple[type[Message], int], PieceEncoder] = {}


def piece_encoder(cls: type[Message], version: int) -> PieceEncoder:
    """The piecewise version of `encoder`, with the same bytes and errors."""
    known = _written_in_pieces.get((cls, version))
    if known is None:
        if version not in cls.SCHEMA.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        known = _Writer(cls, version, in_pieces=True).write()
        _written_in_pieces[cls, version] = known
    return known


@dataclass(slots=True)
class _Run:
    """Consecutive fixed-width values that are packed by one call."""

    layout: str = ""
    values: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


class _Writer:
    """Generates one encoder. In its source, `o` is the message and `w` (or another name) is the buffer."""

    def __init__(self, cls: type[Message], version: int, *, in_pieces: bool = False) -> None:
        self.cls = cls
        self.version = version
        self.in_pieces = in_pieces
        self.flexible = version in cls.SCHEMA.flexible
        self.source = FunctionSource(title=f"{cls.__name__} v{version}")
        self.source.names |= {
            "SHORT": SHORT,
            "uvarint": uvarint,
            "pack": struct.pack,
            "unencodable": unencodable,
            "source": self.source,
            "FAULTS": (AttributeError, TypeError, ValueError, struct.error),
        }
        self.buffer = "w"
        self.run = _Run()

    def write(self) -> Any:
        source = self.source
        with source.block("def encode(o, w):"):
            if self.in_pieces:
                source.line(f"stop = len(w) + {PIECE_BYTES}")
                with source.block("if not stop:"):
                    source.line("yield")  # makes it a generator in any case
            with source.block("try:"):
                source.line("pass")
                self.struct(self.cls, "o", "")
                self.flush()
            with source.block("except FAULTS as error:"):
                source.line("raise unencodable(error, source) from None")
        return source.compile("encode")

    def fixed(self, layout: str, value: str, path: str) -> None:
        """Append one fixed-width value; it is packed together with its neighbours."""
        self.run.layout += layout
        self.run.values.append(value)
        self.run.places.append(Place(path, 0))

    def zero(self) -> None:
        """Append a zero byte: null, an empty array, no tagged fields."""
        self.run.layout += "x"

    def flush(self) -> None:
        """Write the pending values; required before anything else is appended."""
        run, self.run = self.run, _Run()
        if not run.layout:
            return
        if run.values:
            packed = f"{self.source.packing(run.layout, 'pack')}({', '.join(run.values)})"
        else:
            packed = repr(bytes(len(run.layout)))
        self.source.line(f"{self.buffer} += {packed}", *run.places)

    def struct(self, cls: type[Message], value: str, path: str) -> None:
        """Append the struct in the local name `value`."""
        plain, tagged = fields_in(cls, self.version)
        for name, wire in plain:
            self.value(wire, f"{value}.{name}", path + name)
        if self.flexible and tagged:
            self.tags(tagged, value, path)
        elif self.flexible:
            self.zero()

    def tags(self, tagged: list[tuple[str, Wire]], value: str, path: str) -> None:
        source, found = self.source, self.source.fresh("t")
        self.flush()
        source.line(f"{found} = []")
        for name, wire in tagged:
            with source.block(f"if {self.differs(wire, f'{value}.{name}')}:"):
                outer, self.buffer = self.buffer, source.fresh("w")
                source.line(f"{self.buffer} = bytearray()")
                self.value(wire, f"{value}.{name}", path + name)
                self.flush()
                source.line(f"{found}.append(({wire.tag}, {self.buffer}))")
                self.buffer = outer
        source.line(f"{self.buffer} += uvarint(len({found}))")
        with source.block(f"for tag, data in {found}:"):
            source.line(f"{self.buffer} += uvarint(tag) + uvarint(len(data)) + data")

    def differs(self, wire: Wire, value: str) -> str:
        """The condition under which a tagged field differs from its default."""
        if wire.default is None:
            return f"{value} is not None"
        if wire.is_array:
            return value
        if wire.of is not None:
            return f"{value} != {self.source.name(wire.of, wire.of.__name__)}()"
        return f"{value} != {wire.default!r}"

    def value(self, wire: Wire, value: str, path: str) -> None:
        """Append one field."""
        if wire.kind in FORMATS and not wire.is_array:
            self.fixed(FORMATS[wire.kind], value, path)
            return
        source, local = self.source, self.source.fresh("v")
        source.line(f"{local} = {value}", Place(path, 0))
        if wire.of is not None and not wire.is_array:
            self.one_struct(wire, wire.of, local, path)
        elif self.version in wire.nullable:
            self.flush()
            with source.block(f"if {local} is None:"):
                source.line(f"{self.buffer} += {self.null(wire)!r}")
            with source.block("else:"):
                self.sized(wire, local, path)
                self.flush()
        else:
            self.sized(wire, local, path)

    def null(self, wire: Wire) -> bytes:
        if self.flexible:
            return b"\0"
        return b"\xff\xff" if wire.kind == "string" and not wire.is_array else b"\xff\xff\xff\xff"

    def one_struct(self, wire: Wire, cls: type[Message], value: str, path: str) -> None:
        if self.version not in wire.nullable:
            self.struct(cls, value, f"{path}.")
            return
        self.flush()
        with self.source.block(f"if {value} is None:"):
            self.source.line(f"{self.buffer} += {NULL_STRUCT!r}")
        with self.source.block("else:"):
            self.fixed("b", "1", path)
            self.struct(cls, value, f"{path}.")
            self.flush()

    def length(self, value: str, layout: str, path: str) -> None:
        """Append the length of the local name `value`."""
        if not self.flexible:
            self.fixed(layout, f"len({value})", path)
            self.flush()
            return
        self.flush()
        self.source.line(f"l = len({value}) + 1", Place(path, 0))
        self.source.line(f"{self.buffer} += SHORT[l] if l < 128 else uvarint(l)")

    def sized(self, wire: Wire, value: str, path: str) -> None:
        """Append a string, bytes or array that is not null."""
        place = Place(path, 0)
        if wire.is_array:
            self.length(value, "i", path)
            self.elements(wire, value, path)
        elif wire.kind == "string":
            self.source.line(f"{value} = {value}.encode()", place)
            self.length(value, "h", path)
            self.source.line(f"{self.buffer} += {value}", place)
        else:
            self.length(value, "i", path)
            self.source.line(f"{self.buffer} += {value}", place)

    def elements(self, wire: Wire, value: str, path: str) -> None:
        source, place, item = self.source, Place(f"{path}[]", 0), self.source.fresh("e")
        if wire.kind in FORMATS:
            layout = FORMATS[wire.kind]
            repeat = (
                f"'>' + '{layout}' * len({value})" if len(layout) > 1 else f"f'>{{len({value})}}{layout}'"
            )
            with source.block(f"if {value}:"):
                source.line(f"{self.buffer} += pack({repeat}, *{value})", place)
            return
        with source.block(f"for {item} in {value}:", place):
            if wire.of is not None:
                self.struct(wire.of, item, f"{path}[].")
            else:
                source.line(f"{item} = {item}.encode()", place)
                self.length(item, "h", f"{path}[]")
                source.line(f"{self.buffer} += {item}", place)
            self.flush()
            self.piece()

    def piece(self) -> None:
        """After an element, yield if a piece is complete. Tagged fields are small and never yield."""
        if not self.in_pieces or self.buffer != "w":
            return
        with self.source.block("if len(w) > stop:"):
            self.source.line("yield")
            self.source.line(f"stop = len(w) + {PIECE_BYTES}")
