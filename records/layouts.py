"""A dataclass as a positional array: positions, defaults and kinds are read from its class body.

Reading is lenient in one direction only.  An array shorter than its layout was written before the last fields
existed, or by a writer that left out optional ones, and is filled with their defaults; an array longer than
its version allows is damage.  Writing always writes every field: one value has one encoding, so that equal
states have equal bytes.

Both translations are compiled for the dataclass on first use.

`Versioned` adds the version of a value.  A version n array is brought to n+1 by an upcast where its meaning
changed, otherwise only by filling in the fields that n+1 appended; readers see the newest form alone.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from records.compiled import compiled
from records.errors import MalformedRecord, UnsupportedVersion
from records.kinds import BYTES, TEXT, Kind, Since, array, mismatch, nullable

_NO_DEFAULT: Any = MISSING


@dataclass(frozen=True, slots=True)
class Column:
    """One field: its name, kind, the value version that introduced it, its default as in msgpack."""

    name: str
    kind: Kind
    since: int
    default: Any  # _NO_DEFAULT where the field is required

    @property
    def is_required(self) -> bool:
        """Whether an array must hold this field."""
        return self.default is _NO_DEFAULT


class Layout:
    """The array form of one dataclass; the module's docstring says what is accepted and what is written."""

    def __init__(self, cls: type[Any]) -> None:
        self.cls = cls
        hints = get_type_hints(cls, include_extras=True)
        self.columns = tuple(_column(one.name, hints[one.name], one.default) for one in fields(cls))
        self.is_flat = all(column.kind.flat for column in self.columns)
        self._since = [column.since for column in self.columns]
        self._size = len(self.columns)
        self._defaults = [column.default for column in self.columns]
        required = (place for place, column in enumerate(self.columns, 1) if column.is_required)
        self._size_min = max(required, default=0)

    def width(self, version: int) -> int:
        """The number of fields that an array of this version may hold."""
        return bisect_right(self._since, version)

    def filled(self, items: list[Any], width: int) -> list[Any]:
        """The array extended to `width` with defaults; raises `MalformedRecord` for a wrong length."""
        if not self._size_min <= len(items) <= width:
            raise mismatch(f"{self.cls.__name__} of {self._size_min} to {width} fields", len(items))
        return items + self._defaults[len(items) : width]

    @cached_property
    def load(self) -> Callable[[Any], Any]:
        """Translate an array to the dataclass; raises `MalformedRecord`.

        Fields are set through their slots: a frozen dataclass's own __init__ costs twice as much.
        """
        items = _locals(self._size)
        setters = {f"set_{item}": getattr(self.cls, c.name).__set__ for item, c in self._zipped(items)}
        source = f"""
def made(items):
    if type(items) is not list:
        raise mismatch("the array of {self.cls.__name__}", items)
    if len(items) != {self._size}:
        items = filled(items, {self._size})
    [{", ".join(items)}] = items
    try:
        {self._translations("load", items)}
    except MalformedRecord:
        raise first_error(items, "load") from None
    loaded = new(cls)
    {"; ".join(f"set_{item}(loaded, {item})" for item in items)}
    return loaded
"""
        return self._compiled("load", source, filled=self.filled, new=object.__new__, **setters)

    @cached_property
    def dump(self) -> Callable[[Any], list[Any]]:
        """Translate the dataclass to its array, every field written; raises `MalformedRecord`."""
        items = _locals(self._size)
        source = f"""
def made(value):
    if type(value) is not cls:
        raise mismatch("{self.cls.__name__}", value)
    {"; ".join(f"{item} = value.{c.name}" for item, c in self._zipped(items))}
    try:
        {self._translations("dump", items)}
    except MalformedRecord:
        raise first_error([getattr(value, column.name) for column in columns], "dump") from None
    return [{", ".join(items)}]
"""
        return self._compiled("dump", source, columns=self.columns)

    def to_json(self, value: Any) -> dict[str, Any]:
        """The dataclass as a JSON object, every field named."""
        return {column.name: column.kind.to_json(getattr(value, column.name)) for column in self.columns}

    def from_json(self, item: Any) -> Any:
        """The dataclass in a JSON object; fields with defaults may be absent; raises `MalformedRecord`."""
        if type(item) is not dict:
            raise mismatch(f"an object of {self.cls.__name__}", item)
        names = [column.name for column in self.columns]
        unknown = set(item) - set(names)
        required = {column.name for column in self.columns if column.is_required}
        if unknown or required - set(item):
            wrong = ", ".join(sorted(map(repr, unknown or required - set(item))))
            raise MalformedRecord(f"{self.cls.__name__} {'does not know' if unknown else 'lacks'} {wrong}")
        present = [column for column in self.columns if column.name in item]
        try:
            return self.cls(**{column.name: column.kind.from_json(item[column.name]) for column in present})
        except MalformedRecord as error:
            raise MalformedRecord(f"{self.cls.__name__}: {error}") from None

    def _zipped(self, items: list[str]) -> Iterable[tuple[str, Column]]:
        return zip(items, self.columns, strict=True)

    def _translations(self, translation: str, items: list[str]) -> str:
        """One statement per field, which leaves an item alone if it is fine as it is."""
        lines = ["pass"]
        for item, column in self._zipped(items):
            as_is = column.kind.as_is.format(x=item)
            lines.append(f"{f'if not ({as_is}): ' if as_is else ''}{item} = {translation}_{item}({item})")
        return "\n        ".join(lines)

    def _compiled(self, translation: str, source: str, **names: Any) -> Callable[[Any], Any]:
        kinds = [column.kind for column in self.columns]
        return compiled(
            f"{translation} {self.cls.__name__}",
            source,
            cls=self.cls,
            mismatch=mismatch,
            MalformedRecord=MalformedRecord,
            first_error=self._first_error,
            **{f"{translation}_x{place}": getattr(kind, translation) for place, kind in enumerate(kinds)},
            **names,
        )

    def _first_error(self, items: list[Any], translation: str) -> MalformedRecord:
        """The error of the first field that cannot be translated, naming the field."""
        for column, item in zip(self.columns, items, strict=True):
            try:
                getattr(column.kind, translation)(item)
            except MalformedRecord as error:
                return MalformedRecord(f"{self.cls.__name__}.{column.name}: {error}")
        raise AssertionError("no field is wrong")


def _locals(count: int) -> list[str]:
    """Variable names of a compiled function, one per field: a field's own name could hide another name."""
    return [f"x{place}" for place in range(count)]


Upcast = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A layout with a version; `upcasts[n]` turns a complete array of version n into one of version n+1.

    An upcast gets items that are not yet checked, and only has to keep their number right: its result is
    checked.
    """

    name: str
    layout: Layout
    version: int = 0
    upcasts: Mapping[int, Upcast] = field(default_factory=dict)

    def refuse_newer(self, version: int) -> None:
        """Raise `UnsupportedVersion` for a version that this release does not know."""
        if version > self.version:
            raise UnsupportedVersion(self.name, version, self.version)

    def load(self, items: Any, version: int) -> Any:
        """The value in an array written at `version`; raises `UnsupportedVersion` and `MalformedRecord`."""
        if version == self.version:
            return self.layout.load(items)
        self.refuse_newer(version)
        if version < 0 or type(items) is not list:
            raise MalformedRecord(f"{self.name} version {version} has a {type(items).__name__} as its value")
        for older in range(version, self.version):
            items = self.layout.filled(items, self.layout.width(older))
            items = self.upcasts[older](items) if older in self.upcasts else items
        return self.layout.load(items)


_layouts: dict[type[Any], Layout] = {}


def layout_of(cls: type[Any]) -> Layout:
    """The layout of a dataclass, created once."""
    if cls not in _layouts:
        _layouts[cls] = Layout(cls)
    return _layouts[cls]


def _column(name: str, hint: Any, default: Any) -> Column:
    kind = _kind(hint)
    versions = [note.version for note in get_args(hint)[1:] if isinstance(note, Since)]
    since = versions[0] if versions else 0
    if since and default is MISSING:
        raise TypeError(f"{name}: a field appended at version {since} needs a default")
    return Column(name, kind, since, _NO_DEFAULT if default is MISSING else kind.dump(default))


def _kind(hint: Any) -> Kind:
    """The kind for an annotation; a type without one is a mistake in the class body."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((note for note in arguments[1:] if isinstance(note, Kind)), None) or _kind(arguments[0])
    if origin in (Union, UnionType) and NoneType in arguments:
        (inner,) = (one for one in arguments if one is not NoneType)
        return nullable(_kind(inner))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return array(_kind(arguments[0]))
    if is_dataclass(hint) and isinstance(hint, type):
        layout = layout_of(hint)
        return Kind(hint.__name__, layout.load, layout.dump, layout.to_json, layout.from_json, flat=False)
    if hint in (str, bytes):
        return TEXT if hint is str else BYTES
    raise TypeError(f"records cannot hold the type {hint!r}")
