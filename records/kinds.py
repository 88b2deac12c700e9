"""The types that a field of a record may have: one `Kind` per type, with its four translations.

A record's class body is its schema: each field is annotated with one of the names below, and `layouts` reads
the positions, defaults and kinds from the class.  A kind checks and translates one item between Python and
msgpack (`load`, `dump`) and between Python and JSON (`from_json`, `to_json`).

`load` and `from_json` accept any input and raise `MalformedRecord`; `dump` checks the same bounds on the way
out, so that nothing can be written that could not be read again.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Annotated, Any

from records.compiled import compiled
from records.errors import MalformedId, MalformedRecord
from records.ids import TOPIC_ID_BYTES, parse_topic_id, topic_id_text

_FOUND_CHARACTERS_MAX = 40  # characters of a wrong item that an error message shows


@dataclass(frozen=True, slots=True)
class Kind:
    """A field's type: its name in docs/records.md, and the four translations of one item.

    `flat` is true of items that hold no others: `unpack_flat` is for arrays of flat items only.
    `as_is`, if not empty, is an expression over `{x}`: where it is true, `load` and `dump` would both leave
    the item unchanged.  `layouts` writes it into functions that then call neither.
    """

    name: str
    load: Callable[[Any], Any]
    dump: Callable[[Any], Any]
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]
    flat: bool = True
    as_is: str = ""


@dataclass(frozen=True, slots=True)
class Since:
    """Annotation of a field appended later: the value version that introduced it."""

    version: int


def mismatch(expected: str, item: object) -> MalformedRecord:
    """The error for an item that its field cannot hold; shows a short piece of it."""
    found = repr(item) if isinstance(item, int | float | bool | None) else type(item).__name__
    return MalformedRecord(f"expected {expected}, found {found[:_FOUND_CHARACTERS_MAX]}")


def _integer(bits: int) -> Kind:
    low, high, name = -(1 << (bits - 1)), (1 << (bits - 1)) - 1, f"i{bits}"

    def load(item: Any) -> int:
        if type(item) is not int or not low <= item <= high:
            raise mismatch(name, item)
        return item

    def dump(value: Any) -> int:
        if type(value) is int and low <= value <= high:
            return value
        # An IntEnum is written as the plain number that it is; a bool would be written as something else.
        is_named = isinstance(value, int) and type(value) is not bool
        return load(int(value) if is_named else value)

    return Kind(name, load, dump, dump, load, as_is=f"type({{x}}) is int and {low} <= {{x}} <= {high}")


def _named(bits: int, names: type[IntEnum]) -> Kind:
    """A number whose known values have names: JSON shows the name, or the number where there is none."""
    plain = _integer(bits)
    name_of = {int(number): number.name for number in names}
    number_of = {name: number for number, name in name_of.items()}

    def dump(value: Any) -> int:
        return int(value) if type(value) is names else plain.dump(value)

    def to_json(value: Any) -> str | int:
        number: int = plain.dump(value)
        return name_of.get(number, number)

    def from_json(item: Any) -> int:
        if isinstance(item, str):
            if item not in number_of:
                raise mismatch(f"a number or one of {', '.join(number_of)}", item)
            return number_of[item]
        number: int = plain.load(item)
        return number

    name = f"{plain.name} ({names.__name__})"
    return Kind(name, plain.load, dump, to_json, from_json, as_is=plain.as_is)


def _text(item: Any) -> str:
    if type(item) is not str:
        raise mismatch("string", item)
    return item


def _bytes(item: Any) -> bytes:
    if type(item) is not bytes:
        raise mismatch("bytes", item)
    return item


def _topic_id(item: Any) -> bytes:
    if type(item) is not bytes or len(item) != TOPIC_ID_BYTES:
        raise mismatch(f"uuid ({TOPIC_ID_BYTES} bytes)", item)
    return item


def _topic_id_from_json(item: Any) -> bytes:
    try:
        return parse_topic_id(_text(item))
    except MalformedId as error:
        raise MalformedRecord(str(error)) from None


def bytes_to_json(value: bytes) -> str:
    """Bytes in JSON: standard base64."""
    return b64encode(value).decode("ascii")


def bytes_from_json(item: object) -> bytes:
    """The bytes of a base64 text from JSON; raises `MalformedRecord`."""
    try:
        return b64decode(_text(item).encode("ascii"), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise mismatch("base64", item) from None


TEXT = Kind("string", _text, _text, _text, _text, as_is="type({x}) is str")
BYTES = Kind("bytes", _bytes, _bytes, bytes_to_json, bytes_from_json, as_is="type({x}) is bytes")
TOPIC_ID = Kind(
    "uuid",
    _topic_id,
    _topic_id,
    topic_id_text,
    _topic_id_from_json,
    as_is=f"type({{x}}) is bytes and len({{x}}) == {TOPIC_ID_BYTES}",
)


def nullable(kind: Kind) -> Kind:
    """The same kind, or None."""

    def maybe(translate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda item: None if item is None else translate(item)

    load, dump, to_json, from_json = map(maybe, (kind.load, kind.dump, kind.to_json, kind.from_json))
    as_is = f"{{x}} is None or {kind.as_is}" if kind.as_is else "{x} is None"
    return Kind(f"{kind.name}?", load, dump, to_json, from_json, kind.flat, as_is)


def array(kind: Kind) -> Kind:
    """Any number of items of one kind: a tuple in Python, an array in msgpack and in JSON."""
    name = f"{kind.name}[]"
    load, dump = _every(kind, "load"), _every(kind, "dump")

    def load_list(items: Any) -> tuple[Any, ...]:
        if type(items) is not list:
            raise mismatch(name, items)
        return tuple(load(items)) if items else ()

    def dump_tuple(items: Any) -> list[Any]:
        if type(items) is not tuple:
            raise mismatch(f"a tuple of {name}", items)
        return list(dump(items)) if items else []

    def to_json(items: Any) -> list[Any]:
        if type(items) is not tuple:
            raise mismatch(f"a tuple of {name}", items)
        return list(map(kind.to_json, items))

    def from_json(items: Any) -> tuple[Any, ...]:
        if type(items) is not list:
            raise mismatch(name, items)
        return tuple(map(kind.from_json, items))

    # An empty tuple is packed as an empty array; an array that is read is a list, and goes to `load_list`.
    return Kind(name, load_list, dump_tuple, to_json, from_json, flat=False, as_is="{x} == ()")


def _every(kind: Kind, translation: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """`kind.load` or `kind.dump` for many items, called only if some item is not fine as it is."""
    one: Callable[[Any], Any] = getattr(kind, translation)
    if not kind.as_is:
        return partial(map, one)
    source = f"""
def made(items):
    for x in items:
        if not ({kind.as_is.format(x="x")}):
            return map(one, items)
    return items
"""
    return compiled(f"{translation} {kind.name}[]", source, one=one)


def named_i8(names: type[IntEnum]) -> Kind:
    """An i8 with known names; other numbers are kept as they are."""
    return _named(8, names)


def named_i16(names: type[IntEnum]) -> Kind:
    """An i16 with known names; other numbers are kept as they are."""
    return _named(16, names)


I8 = Annotated[int, _integer(8)]
I16 = Annotated[int, _integer(16)]
I32 = Annotated[int, _integer(32)]
I64 = Annotated[int, _integer(64)]
TopicId = Annotated[bytes, TOPIC_ID]
