"""Slotted dataclasses as plain arrays and back, derived from their annotations; `checkpoint` is built on it.

A list of objects is one array for each field; a field with one value in all of them holds it once.

An array holds neither names nor classes. The class of each item follows from the class that is requested, so
the bytes cannot request another one. Objects that are referenced more than once are written once, in a table
per type, and referred to by number: an object that two others modify is one object again, and a string that
ten thousand rows repeat is one string.

Invariant: a table refers only to earlier tables, so that reading terminates whatever the bytes say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from records import RecordsError
from records.layouts import layout_of

Tables = list[list[Any]]
_NAMES = tuple[str, ...]
Dump = Callable[[Any, "Writing"], Any]
Load = Callable[[Any, Tables], Any]
DumpColumn = Callable[[list[Any], "Writing"], list[Any]]
LoadColumn = Callable[[list[Any], Tables], list[Any]]


class StateError(Exception):
    """The bytes are not a state, or not one written by this release."""


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """The functions that write and read one type; ``dump`` is ``None`` if values are written as they are."""

    name: str
    dump: Dump | None
    load: Load
    dump_column: DumpColumn | None = None
    """Writes many values at once, faster than one by one."""
    load_column: LoadColumn | None = None
    dump_rows: DumpColumn | None = None
    """Writes many objects as one array for each field."""
    load_rows: LoadColumn | None = None

    def dumped(self, value: Any, writing: Writing) -> Any:
        return value if self.dump is None else self.dump(value, writing)


class Writing:
    """The tables of one state while it is being written."""

    __slots__ = ("known", "tables")

    def __init__(self, count: int) -> None:
        self.tables: Tables = [[] for _ in range(count)]
        self.known: list[dict[Any, int]] = [{} for _ in range(count)]


class PositionalCodec:
    """The codecs of an allow-list of classes.

    ``shared`` lists the types with a table, in an order in which none refers to a later one. True: equal
    values are shared; False: only the same object is. ``left_out`` names the fields that are not written,
    with the values that they get when read. Objects of a class in ``stand_ins`` are written as another class:
    it is given with the function that makes the other object, and the one that makes the first one again.
    """

    def __init__(
        self,
        classes: Sequence[type[Any]],
        shared: Mapping[Any, bool],
        left_out: Mapping[type[Any], Mapping[str, Any]],
        stand_ins: Mapping[type[Any], tuple[type[Any], Callable[[Any], Any], Callable[[Any], Any]]],
    ) -> None:
        self._classes = frozenset(classes)
        self._tables = {hint: number for number, hint in enumerate(shared)}
        self._by_value = shared
        self._left_out = left_out
        self._stand_ins = stand_ins
        self._made: dict[Any, TypeCodec] = {}
        self._inner: list[TypeCodec] = []
        self._inner += (self._codec_of(hint) for hint in shared)
        self._roots = {cls: self.of(cls) for cls in classes}

    def dump(self, value: Any) -> list[Any]:
        """Return the tables and the array of an object."""
        writing = Writing(len(self._tables))
        root = self._roots[type(value)].dumped(value, writing)
        return [writing.tables, root]

    def load(self, cls: type[Any], items: Any) -> Any:
        """Return the object of class ``cls`` that `dump` wrote; raises `StateError`."""
        try:
            written, root = _array(items, 2)
            tables: Tables = [[] for _ in self._inner]
            for codec, table, found in zip(self._inner, tables, _array(written, len(tables)), strict=True):
                load = codec.load
                table += [load(item, tables) for item in _array(found)]
            return self._roots[cls].load(root, tables)
        except (RecordsError, ValueError) as error:
            raise StateError(f"not a {cls.__name__}: {error}") from None

    def described(self) -> list[str]:
        """Describe the layout, one line per table and class; if it differs, the bytes mean something else."""
        tables = [f"table {number}: {codec.name}" for number, codec in enumerate(self._inner)]
        of = self._members
        return tables + [
            f"{cls.__name__}: " + ", ".join(f"{name} {codec.name}" for name, codec in of(cls))
            for cls in sorted(self._classes, key=lambda cls: cls.__name__)
        ]

    def of(self, hint: Any) -> TypeCodec:
        """The codec of a type; raises `TypeError` for a type that is not allowed."""
        if hint not in self._made:
            self._made[hint] = self._in_table(hint) if hint in self._tables else self._codec_of(hint)
        return self._made[hint]

    def _in_table(self, hint: Any) -> TypeCodec:
        number, is_by_value = self._tables[hint], self._by_value[hint]
        codecs = self._inner

        def dump(value: Any, writing: Writing) -> int:
            known = writing.known[number]
            key = value if is_by_value else id(value)
            at = known.get(key)
            if at is None:
                item = codecs[number].dumped(value, writing)
                table = writing.tables[number]
                at = known[key] = len(table)
                table.append(item)
            return at

        def load(item: Any, tables: Tables) -> Any:
            table = tables[number]
            if type(item) is not int or not 0 <= item < len(table):
                raise StateError(f"{item!r} is not a position in a table of {len(table)}")
            return table[item]

        def dump_column(values: list[Any], writing: Writing) -> list[Any]:
            known = writing.known[number]
            found = [known.get(key) for key in (values if is_by_value else map(id, values))]
            if None in found:
                return [dump(value, writing) for value in values]
            return found

        def load_column(items: list[Any], tables: Tables) -> list[Any]:
            table = tables[number]
            if items and (set(map(type, items)) != {int} or min(items) < 0 or max(items) >= len(table)):
                raise StateError(f"a position is not in its table of {len(table)}")
            return [table[item] for item in items]

        return TypeCodec(f"#{number}", dump, load, dump_column, load_column)

    def _codec_of(self, hint: Any) -> TypeCodec:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType) and NoneType in arguments:
            (inner,) = (one for one in arguments if one is not NoneType)
            return _maybe(self.of(inner))
        if origin is tuple and arguments[-1] is not Ellipsis:
            return _product(hint, tuple, [self.of(one) for one in arguments])
        if origin in (tuple, list, set, frozenset):
            return _many(origin, self.of(arguments[0]))
        if origin in (dict, Counter):
            return _mapping(origin, self.of(arguments[0]), self.of(arguments[-1] if origin is dict else int))
        if hint in (int, str, bytes, bool):
            return _plain(hint)
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return _enum(hint)
        if hint in self._stand_ins:
            return self._stand_in(*self._stand_ins[hint])
        if hint in self._classes:
            return self._fields(hint)
        raise TypeError(f"{hint!r} is not a type of which a state may be made")

    def _fields(self, cls: type[Any]) -> TypeCodec:
        if cls.__module__.partition(".")[0] == "records":
            return self._of_record(cls)
        members = self._members(cls)
        read = _reading([name for name, _ in members])
        dumps = [codec.dump for _, codec in members]
        loads = [(cls.__dict__[name].__set__, codec.load) for name, codec in members]
        left_out = [(cls.__dict__[n].__set__, value) for n, value in self._left_out.get(cls, {}).items()]
        width, new = len(members), object.__new__

        def dump(value: Any, writing: Writing) -> list[Any]:
            pairs = zip(dumps, read(value), strict=True)
            return [item if dump is None else dump(item, writing) for dump, item in pairs]

        def load(items: Any, tables: Tables) -> Any:
            made = new(cls)
            for (set_field, load), item in zip(loads, _array(items, width), strict=True):
                set_field(made, load(item, tables))
            for set_field, value in left_out:
                set_field(made, value)
            return made

        def dump_rows(values: list[Any], writing: Writing) -> list[Any]:
            if not values:
                return []
            columns = [_dumped(codec, list(map(get, values)), writing) for get, codec in columns_of]
            return [columns[0], *(one[:1] if one.count(one[0]) == len(one) else one for one in columns[1:])]

        def load_rows(items: list[Any], tables: Tables) -> list[Any]:
            if not items:
                return []
            first, *others = map(_array, _array(items, width))
            count = len(first)
            objects = [new(cls) for _ in range(count)]
            for (set_field, codec), column in zip(setters, (first, *others), strict=True):
                full = column * count if len(column) == 1 else column
                if len(full) != count:
                    raise StateError(f"{len(full)} values in a column of {count} rows")
                for made, value in zip(objects, _loaded(codec, full, tables), strict=True):
                    set_field(made, value)
            for set_field, value in left_out:
                for made in objects:
                    set_field(made, value)
            return objects

        columns_of = [(attrgetter(name), codec) for name, codec in members]
        setters = [(cls.__dict__[name].__set__, codec) for name, codec in members]
        return TypeCodec(cls.__name__, dump, load, dump_rows=dump_rows, load_rows=load_rows)

    def _stand_in(
        self, cls: type[Any], written: Callable[[Any], Any], made: Callable[[Any], Any]
    ) -> TypeCodec:
        codec = self.of(cls)
        return TypeCodec(
            codec.name,
            lambda v, w: codec.dumped(written(v), w),
            lambda i, tables: made(codec.load(i, tables)),
        )

    def _of_record(self, cls: type[Any]) -> TypeCodec:
        """A class of `records` in its own layout, but for lists of names if these are shared."""
        layout, hints = layout_of(cls), get_type_hints(cls)
        shared = [
            (place, one.name, self.of(_NAMES))
            for place, one in enumerate(layout.columns)
            if hints[one.name] == _NAMES and _NAMES in self._tables
        ]
        width = len(layout.columns)
        columns = [f"{one.name} {one.kind.name}" for one in layout.columns]
        for place, name, codec in shared:
            columns[place] = f"{name} {codec.name}"

        def dump(value: Any, writing: Writing) -> list[Any]:
            items = layout.dump(value)
            for place, name, codec in shared:
                items[place] = codec.dumped(getattr(value, name), writing)
            return items

        def load(items: Any, tables: Tables) -> Any:
            if shared:
                items = list(_array(items, width))
                for place, _, codec in shared:
                    items[place] = list(codec.load(items[place], tables))
            return layout.load(items)

        return TypeCodec(f"{cls.__name__}({' '.join(columns)})", dump, load)

    def _members(self, cls: type[Any]) -> list[tuple[str, TypeCodec]]:
        if cls.__module__.partition(".")[0] == "records":
            return [("", self._fields(cls))]
        hints, absent = get_type_hints(cls), self._left_out.get(cls, {})
        return [(one.name, self.of(hints[one.name])) for one in fields(cls) if one.name not in absent]


def _reading(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda value: (read(value),)


def _array(items: Any, width: int | None = None) -> list[Any]:
    if type(items) is not list or (width is not None and len(items) != width):
        found = f"{len(items)} items" if type(items) is list else type(items).__name__
        raise StateError(f"expected an array of {'any number' if width is None else width}, found {found}")
    return items


def _plain(cls: type[Any]) -> TypeCodec:
    def load(item: Any, _: Tables) -> Any:
        if type(item) is not cls:
            raise StateError(f"expected {cls.__name__}, found {type(item).__name__}")
        return item

    def load_column(items: list[Any], _: Tables) -> list[Any]:
        if items and set(map(type, items)) != {cls}:
            raise StateError(f"expected {cls.__name__} in all places of a column")
        return items

    return TypeCodec(cls.__name__, None, load, load_column=load_column)


def _enum(cls: type[StrEnum]) -> TypeCodec:
    def load_column(items: list[Any], _: Tables) -> list[Any]:
        if items and set(map(type, items)) != {str}:
            raise StateError(f"expected {cls.__name__} in all places of a column")
        made = {item: cls(item) for item in set(items)}
        return [made[item] for item in items]

    return TypeCodec(
        cls.__name__,
        lambda value, _: value.value,
        lambda item, _: cls(item),
        lambda values, _: [value.value for value in values],
        load_column,
    )


def _dumped(codec: TypeCodec, values: list[Any], writing: Writing) -> list[Any]:
    dump = codec.dump
    if dump is None:
        return values
    if codec.dump_column is not None:
        return codec.dump_column(values, writing)
    return [dump(value, writing) for value in values]


def _loaded(codec: TypeCodec, items: list[Any], tables: Tables) -> list[Any]:
    if codec.load_column is not None:
        return codec.load_column(items, tables)
    return [codec.load(item, tables) for item in items]


def _maybe(inner: TypeCodec) -> TypeCodec:
    dump, load = inner.dump, inner.load

    def dump_column(values: list[Any], writing: Writing) -> list[Any]:
        there = iter(_dumped(inner, [value for value in values if value is not None], writing))
        return [None if value is None else next(there) for value in values]

    def load_column(items: list[Any], tables: Tables) -> list[Any]:
        there = iter(_loaded(inner, [item for item in items if item is not None], tables))
        return [None if item is None else next(there) for item in items]

    return TypeCodec(
        f"{inner.name}?",
        None if dump is None else lambda value, w: None if value is None else dump(value, w),
        lambda item, tables: None if item is None else load(item, tables),
        dump_column,
        load_column,
    )


def _many(cls: Any, inner: TypeCodec) -> TypeCodec:
    dump, load = inner.dump, inner.load
    dump_rows, load_rows = inner.dump_rows, inner.load_rows
    if dump_rows is not None and load_rows is not None:
        return TypeCodec(
            f"{cls.__name__}[columns {inner.name}]",
            lambda values, writing: dump_rows(list(values), writing),
            lambda items, tables: cls(load_rows(_array(items), tables)),
        )

    def dump_all(values: Any, writing: Writing) -> list[Any]:
        return list(values) if dump is None else [dump(value, writing) for value in values]

    def load_all(items: Any, tables: Tables) -> Any:
        return cls([load(item, tables) for item in _array(items)])

    return TypeCodec(f"{cls.__name__}[{inner.name}]", dump_all, load_all)


def _product(hint: Any, cls: Any, inner: list[TypeCodec]) -> TypeCodec:
    width = len(inner)

    def dump(values: Any, writing: Writing) -> list[Any]:
        return [codec.dumped(value, writing) for codec, value in zip(inner, values, strict=True)]

    def load(items: Any, tables: Tables) -> Any:
        pairs = zip(inner, _array(items, width), strict=True)
        return cls([codec.load(item, tables) for codec, item in pairs])

    return TypeCodec(f"({', '.join(codec.name for codec in inner)})", dump, load)


def _mapping(cls: Any, key: TypeCodec, value: TypeCodec) -> TypeCodec:
    def dump(values: Any, writing: Writing) -> list[Any]:
        found: list[Any] = []
        for one, other in values.items():
            found += (key.dumped(one, writing), value.dumped(other, writing))
        return found

    def load(items: Any, tables: Tables) -> Any:
        found = _array(items)
        if len(found) % 2:
            raise StateError("a key has no value")
        pairs = zip(found[::2], found[1::2], strict=True)
        return cls({key.load(one, tables): value.load(other, tables) for one, other in pairs})

    return TypeCodec(f"{cls.__name__}[{key.name}: {value.name}]", dump, load)
