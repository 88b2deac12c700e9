"""Decoding: generates, once per message and version, the function that decodes bytes to a typed message.

The bytes are untrusted. Every length is compared with the remaining bytes before anything of that size is
allocated. Any fault raises MalformedFrame with the field's name, never another exception. A frame of 1 MiB
may hold half a million strings or tagged fields of two bytes, and each takes as long to decode as one of
twenty bytes, so the number of elements in a request is bounded too. Consecutive fixed-width fields, including
the length that follows them, are unpacked by one call, directly into the object's slots.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wire.errors import MalformedFrame
from wire.schema import Message, Wire
from wire.source import FORMATS, FunctionSource, Place, bytes_min, fields_in

Decoder = Callable[[bytes, int], Any]
"""(bytes, offset of the body) -> message; raises MalformedFrame."""

ELEMENTS_MAX = 40_000
"""Maximum structs, strings and unknown tagged fields of one request, unless it has ELEMENT_BYTES for each.
They are decoded in some 25 ms. The largest requests of real clients, commits and fetches of 30,000
partitions, have enough bytes."""

ELEMENT_BYTES = 20

BATCH_ELEMENT_BYTES = 160
"""The same of requests with record batches, which may be longer than others. A batch of one record takes 70
bytes, and producers fill them."""

TAGS_MAX = 1_000
"""Maximum unknown tagged fields of one struct; a Kafka release adds one or two."""

VARINT_MAX = 0xFFFFFFFF
VARINT_SHIFT_MAX = 28  # five bytes of seven bits


def uvarint(data: bytes, offset: int, first: int) -> tuple[int, int]:
    """Decode the rest of an unsigned varint whose first byte is `first`.

    Returns its value and the offset after it."""
    value = first & 0x7F
    shift = 0
    while first > 127:
        shift += 7
        if shift > VARINT_SHIFT_MAX:
            raise ValueError("a varint has more than five bytes")
        first = data[offset]
        offset += 1
        value |= (first & 0x7F) << shift
    if value > VARINT_MAX:
        raise ValueError("a varint has more than 32 bits")
    return value, offset


def skip_tags(data: bytes, offset: int, count: int) -> int:
    """Skip `count` unknown tagged fields; return the offset after them."""
    if count > TAGS_MAX:
        raise ValueError(f"{count} unknown tagged fields")
    for _ in range(count):
        _, offset = uvarint(data, offset + 1, data[offset])
        size, offset = uvarint(data, offset + 1, data[offset])
        if size > len(data) - offset:
            raise too_long(size, len(data) - offset)
        offset += size
    return offset


def too_long(length: int, remaining: int) -> ValueError:
    return ValueError(f"length {length} exceeds the {remaining} bytes that remain")


def too_many(count: int, remaining: int) -> ValueError:
    return ValueError(f"{count} elements cannot fit into the {remaining} bytes that remain")


def absurd(count: int) -> ValueError:
    return ValueError(f"{count} elements exceed {ELEMENTS_MAX} and have too few bytes each")


def malformed(error: Exception, source: FunctionSource, left_bytes: int) -> MalformedFrame:
    """Convert `error`, raised by a line of the generated decoder, into MalformedFrame."""
    if isinstance(error, UnicodeDecodeError):
        why = f"not UTF-8: {error.reason}"
    elif isinstance(error, IndexError | struct.error):
        why = "the frame ends before the field does"
    else:
        why = str(error)
    return MalformedFrame(source.field_at(error, left_bytes), why)


def _has_batches(cls: type[Message]) -> bool:
    wires = [wire for _, wire in cls.SCHEMA.fields]
    return any(wire.kind == "records" or (wire.of is not None and _has_batches(wire.of)) for wire in wires)


_written: dict[tuple[type[Message], int, bool, bool], Decoder] = {}


def decoder(cls: type[Message], version: int, *, exact: bool = True, bounded: bool = False) -> Decoder:
    """The function that decodes the body of `cls` in `version`, generated on first use.

    If `exact` is false, bytes after the body are ignored. If `bounded`, the number of elements is limited by
    ELEMENTS_MAX.
    """
    known = _written.get((cls, version, exact, bounded))
    if known is not None:
        return known
    if version not in cls.SCHEMA.versions:
        raise ValueError(f"{cls.__name__} has no version {version}")
    _written[cls, version, exact, bounded] = written = _Writer(cls, version, bounded).write(exact)
    return written


@dataclass(slots=True)
class _Run:
    """Consecutive fixed-width reads that are unpacked by one call."""

    layout: str = ""
    targets: list[str] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


class _Writer:
    """Generates one decoder.

    In its source, `b` is the bytes, `n` their number and `p` the offset of the next byte; `c` counts the
    elements if they are bounded."""

    def __init__(self, cls: type[Message], version: int, bounded: bool) -> None:
        self.cls = cls
        self.bounded = bounded
        self.version = version
        self.element_bytes = BATCH_ELEMENT_BYTES if _has_batches(cls) else ELEMENT_BYTES
        self.flexible = version in cls.SCHEMA.flexible
        self.source = FunctionSource(title=f"{cls.__name__} v{version}")
        self.source.names |= {
            "new": object.__new__,
            "uvarint": uvarint,
            "skip_tags": skip_tags,
            "too_long": too_long,
            "too_many": too_many,
            "absurd": absurd,
            "malformed": malformed,
            "source": self.source,
            "unpack_from": struct.unpack_from,
            "FAULTS": (IndexError, ValueError, struct.error),
        }
        self.run = _Run()

    def write(self, exact: bool) -> Decoder:
        source = self.source
        with source.block("def decode(b, p):"):
            source.line("n = len(b)")
            if self.bounded:
                source.line("c = 0")
            with source.block("try:"):
                self.struct(self.cls, "o", "")
                self.flush()
                if exact:
                    with source.block("if p != n:"):
                        source.line('raise ValueError(f"{n - p} bytes after the end")')
                source.line("return o")
            with source.block("except FAULTS as error:"):
                source.line("raise malformed(error, source, n - p) from None")
        return source.compile("decode")

    def fixed(self, layout: str, target: str, path: str) -> None:
        """Read one fixed-width value into `target`; it is unpacked together with its neighbours."""
        run = self.run
        run.layout += layout
        run.targets.append(target)
        run.places.append(Place(path, struct.calcsize(">" + run.layout)))

    def flush(self) -> None:
        """Write the pending reads; required before any line that uses them or changes `p`."""
        run, self.run = self.run, _Run()
        if not run.layout:
            return
        if run.layout == "B":
            self.source.line(f"{run.targets[0]} = b[p]", *run.places)
        else:
            unpack = self.source.packing(run.layout, "unpack_from")
            self.source.line(f"{', '.join(run.targets)}, = {unpack}(b, p)", *run.places)
        self.source.line(f"p += {run.places[-1].end}")

    def struct(self, cls: type[Message], target: str, path: str) -> None:
        """Read a struct into the local name `target`."""
        source = self.source
        source.line(f"{target} = new({source.name(cls, cls.__name__)})")
        plain, tagged = fields_in(cls, self.version)
        read = {name for name, _ in plain}
        for name, wire in cls.SCHEMA.fields:
            if name not in read:
                source.line(f"{target}.{name} = {self.default(wire)}")
        for name, wire in plain:
            self.value(wire, f"{target}.{name}", path + name)
        if self.flexible:
            self.tags(tagged, target, path)

    def default(self, wire: Wire) -> str:
        if wire.is_array and wire.default is not None:
            return "[]"
        if wire.of is not None and wire.default is not None:
            return f"{self.source.name(wire.of, wire.of.__name__)}()"
        return repr(wire.default)

    def tags(self, tagged: list[tuple[str, Wire]], target: str, path: str) -> None:
        source, place = self.source, Place(f"{path}tagged fields", 0)
        count = self.varint("t", place.field)
        if not tagged:
            with source.block(f"if {count}:"):
                self.count(count, place)
                source.line(f"p = skip_tags(b, p, {count})", place)
            return
        self.count(count, place)
        end = source.fresh("end")
        with source.block(f"for _ in range({count}):"):
            source.line("tag, p = uvarint(b, p + 1, b[p])", place)
            source.line("size, p = uvarint(b, p + 1, b[p])", place)
            with source.block("if size > n - p:"):
                source.line("raise too_long(size, n - p)", place)
            source.line(f"{end} = p + size")
            word = "if"
            for name, wire in tagged:
                with source.block(f"{word} tag == {wire.tag}:"):
                    self.value(wire, f"{target}.{name}", path + name)
                    self.flush()
                    with source.block(f"if p != {end}:"):
                        source.line(
                            'raise ValueError("its size differs from its announced length")',
                            Place(path + name, 0),
                        )
                word = "elif"
            with source.block("else:"):
                source.line(f"p = {end}")

    def count(self, count: str, place: Place) -> None:
        """Count the elements that are about to be read."""
        if self.bounded:
            self.source.line(f"c += {count}")
            with self.source.block(f"if c > {ELEMENTS_MAX} and c * {self.element_bytes} > n:"):
                self.source.line("raise absurd(c)", place)

    def varint(self, prefix: str, path: str) -> str:
        """Read an unsigned varint into a new local name; its first byte joins the pending reads."""
        name = self.source.fresh(prefix)
        self.fixed("B", name, path)
        self.flush()
        with self.source.block(f"if {name} > 127:"):
            self.source.line(f"{name}, p = uvarint(b, p, {name})", Place(path, 0))
        return name

    def length(self, layout: str, path: str) -> tuple[str, str, str]:
        """Read a length. Returns its name, the test that it is not null, and the length as an expression."""
        if self.flexible:
            name = self.varint("l", path)
            return name, name, f"{name} - 1"
        name = self.source.fresh("l")
        self.fixed(layout, name, path)
        self.flush()
        return name, f"{name} >= 0", name

    def value(self, wire: Wire, target: str, path: str) -> None:
        """Read one field into `target`."""
        if wire.is_array:
            self.nullable(wire, "i", target, path, self.array)
        elif wire.of is not None:
            self.one_struct(wire, wire.of, target, path)
        elif wire.kind in FORMATS:
            self.fixed(FORMATS[wire.kind], target, path)
        else:
            self.nullable(wire, "h" if wire.kind == "string" else "i", target, path, self.text)

    def nullable(
        self, wire: Wire, layout: str, target: str, path: str, read: Callable[[Wire, str, str, str], None]
    ) -> None:
        """Read a length, then null or the value by `read`."""
        source = self.source
        _, present, length = self.length(layout, path)
        if self.version in wire.nullable:
            with source.block(f"if {present}:"):
                read(wire, length, target, path)
            with source.block("else:"):
                source.line(f"{target} = None")
        else:
            with source.block(f"if not {present}:" if self.flexible else f"if {length} < 0:"):
                source.line('raise ValueError("null, which this version does not allow")', Place(path, 0))
            read(wire, length, target, path)

    def text(self, wire: Wire, length: str, target: str, path: str) -> None:
        source, place = self.source, Place(path, 0)
        source.line(f"q = p + {length}")
        with source.block("if q > n:"):
            source.line(f"raise too_long({length}, n - p)", place)
        source.line(f"{target} = b[p:q]" + (".decode()" if wire.kind == "string" else ""), place)
        source.line("p = q")

    def array(self, wire: Wire, length: str, target: str, path: str) -> None:
        source, place = self.source, Place(path, 0)
        size = bytes_min(wire, self.version, self.flexible, element=True)
        count, items, item = source.fresh("k"), source.fresh("a"), source.fresh("e")
        source.line(f"{count} = {length}")
        with source.block(f"if {count} * {size} > n - p:" if size > 1 else f"if {count} > n - p:"):
            source.line(f"raise too_many({count}, n - p)", place)
        if wire.kind in FORMATS:
            layout = FORMATS[wire.kind]
            repeat = f"'>' + '{layout}' * {count}" if len(layout) > 1 else f"f'>{{{count}}}{layout}'"
            source.line(f"{target} = list(unpack_from({repeat}, b, p)) if {count} else []", place)
            source.line(f"p += {count} * {size}")
            return
        source.line(f"{items} = []")
        self.count(count, place)
        with source.block(f"for _ in range({count}):"):
            if wire.of is not None:
                self.struct(wire.of, item, f"{path}[].")
            else:
                _, present, inner = self.length("h" if wire.kind == "string" else "i", f"{path}[]")
                with source.block(f"if not {present}:" if self.flexible else f"if {inner} < 0:"):
                    source.line('raise ValueError("null within an array")', Place(f"{path}[]", 0))
                self.text(wire, inner, item, f"{path}[]")
            self.flush()
            source.line(f"{items}.append({item})")
        source.line(f"{target} = {items}")

    def one_struct(self, wire: Wire, cls: type[Message], target: str, path: str) -> None:
        source, inner = self.source, self.source.fresh("s")
        if self.version not in wire.nullable:
            self.struct(cls, inner, f"{path}.")
            source.line(f"{target} = {inner}")
            return
        marker = source.fresh("m")
        self.fixed("b", marker, path)
        self.flush()
        with source.block(f"if {marker} < 0:"):
            source.line(f"{target} = None")
        with source.block("else:"):
            self.struct(cls, inner, f"{path}.")
            self.flush()
            source.line(f"{target} = {inner}")
