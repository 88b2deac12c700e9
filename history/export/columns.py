"""Columns of tables: their kinds for exports, Arrow and Spark, and how each is read from a row of facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any, Self

from history.facts.rows import EpochRow
from records import Cause


class ColumnKind(StrEnum):
    """The type of a column by its name in an export; ``spark`` is Spark's name for it."""

    spark: str

    def __new__(cls, name: str, spark: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.spark = spark
        return kind

    @property
    def exported(self) -> str:
        """The type that an export's description gives."""
        return ColumnKind.INT64.value if self is ColumnKind.MOMENT else self.value

    TEXT = "text", "string"
    JSON = "json", "string"
    """JSON as text; in JSON lines the value itself."""
    INT32 = "int32", "int"
    INT64 = "int64", "bigint"
    MOMENT = "moment", "timestamp"
    """A point in time: in exports an int64, ms since 1970; in Spark a TIMESTAMP."""
    FLOAT64 = "float64", "double"
    BOOL = "bool", "boolean"
    BYTES = "bytes", "binary"
    TEXTS = "list of text", "array<string>"
    INTS = "list of int64", "array<bigint>"
    PARTITIONS = "list of partitions", "array<struct<topic_id:string,partitions:array<int>>>"


Getter = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column; ``unit`` is empty if it has none."""

    name: str
    kind: ColumnKind
    means: str
    unit: str = ""
    nullable: bool = False
    get: str | Getter = field(default="", repr=False, compare=False)
    """Reads the value from a row: a function, or a path of attributes, by default the column's name."""
    is_required: bool = False
    """Declared NOT NULL to Spark in one read; other columns are nullable to it: older files lack some."""


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """A table, whose ``columns`` read the row objects made by `sources`."""

    name: str
    means: str
    columns: tuple[TableColumn, ...] = field(repr=False)

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def getters(self) -> tuple[Getter, ...]:
        return tuple(
            attrgetter(one.get or one.name) if isinstance(one.get, str) else one.get for one in self.columns
        )

    def values(self, row: object) -> tuple[Any, ...]:
        return tuple([get(row) for get in self.getters])


def column(kind: ColumnKind, name: str, means: str, get: str | Getter = "", *, unit: str = "") -> TableColumn:
    return TableColumn(name=name, kind=kind, means=means, unit=unit, get=get)


text = partial(column, ColumnKind.TEXT)
texts = partial(column, ColumnKind.TEXTS)
json_text = partial(column, ColumnKind.JSON)
int32 = partial(column, ColumnKind.INT32)
int64 = partial(column, ColumnKind.INT64)
ints = partial(column, ColumnKind.INTS)
float64 = partial(column, ColumnKind.FLOAT64)
boolean = partial(column, ColumnKind.BOOL)
binary = partial(column, ColumnKind.BYTES)
partitions = partial(column, ColumnKind.PARTITIONS)
moment = partial(column, ColumnKind.MOMENT, unit="ms since 1970, UTC")
span = partial(column, ColumnKind.INT64, unit="ms")


def maybe(column: TableColumn) -> TableColumn:
    """The column, whose value may be null."""
    return replace(column, nullable=True)


@cache
def arrow_types(element: str = "item") -> dict[ColumnKind, Any]:
    """The Arrow type of each kind; ``element`` is the name of a list's items. Needs pyarrow."""
    import pyarrow as pa

    def listed(of: Any) -> Any:
        return pa.list_(pa.field(element, of))

    return {
        ColumnKind.TEXT: pa.string(),
        ColumnKind.JSON: pa.string(),
        ColumnKind.INT32: pa.int32(),
        ColumnKind.INT64: pa.int64(),
        ColumnKind.MOMENT: pa.int64(),
        ColumnKind.FLOAT64: pa.float64(),
        ColumnKind.BOOL: pa.bool_(),
        ColumnKind.BYTES: pa.binary(),
        ColumnKind.TEXTS: listed(pa.string()),
        ColumnKind.INTS: listed(pa.int64()),
        ColumnKind.PARTITIONS: listed(
            pa.struct([pa.field("topic_id", pa.string()), pa.field("partitions", listed(pa.int32()))])
        ),
    }


# Ways to read a value.


def known(path: str) -> Getter:
    """Read an attribute for which -1 and the empty text mean ``None``."""
    read = attrgetter(path)

    def read_known(row: Any) -> Any:
        value = read(row)
        return None if value in (-1, "") else value

    return read_known


def listed(path: str) -> Getter:
    """Read a sequence as a list."""
    read = attrgetter(path)
    return lambda row: list(read(row))


def count_of(path: str) -> Getter:
    """Read the length of a sequence."""
    read = attrgetter(path)
    return lambda row: len(read(row))


def lasted(start: str, end: str) -> Getter:
    """Read the time between two times; ``None`` if there is no end."""
    begins, ends = attrgetter(start), attrgetter(end)

    def read_lasted(row: Any) -> Any:
        end_ms = ends(row)
        return None if end_ms is None else end_ms - begins(row)

    return read_lasted


def begun(say: Callable[[Cause], str]) -> Callable[[EpochRow], str | None]:
    """Read something from an epoch's cause; ``None`` if its beginning is unknown."""
    return lambda row: say(row.cause) if row.is_begin_known else None
