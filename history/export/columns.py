"""Columns of a table, and the usual ways to read them from a row of facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from operator import attrgetter
from typing import Any

from history.facts.rows import EpochRow
from records import Cause, Certainty, ReasonKind, Trigger


class ExportKind(StrEnum):
    """The type of a column."""

    TEXT = "text"
    JSON = "json"
    """JSON as text; in JSON lines the value itself."""
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    TEXTS = "list of text"
    INTS = "list of int64"


@dataclass(frozen=True, kw_only=True)
class ExportColumn:
    name: str
    kind: ExportKind
    means: str
    nullable: bool
    get: Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, whose ``columns`` read the row objects made by `sources`."""

    name: str
    means: str
    columns: tuple[ExportColumn, ...] = field(repr=False)

    @cached_property
    def getters(self) -> tuple[Callable[[Any], Any], ...]:
        return tuple(column.get for column in self.columns)

    def values(self, row: object) -> tuple[Any, ...]:
        return tuple([get(row) for get in self.getters])


def column(
    name: str,
    kind: ExportKind,
    means: str,
    get: Callable[[Any], Any] | None = None,
    *,
    nullable: bool = False,
) -> ExportColumn:
    return ExportColumn(name=name, kind=kind, means=means, nullable=nullable, get=get or attrgetter(name))


def maybe(name: str, kind: ExportKind, means: str, get: Callable[[Any], Any] | None = None) -> ExportColumn:
    return column(name, kind, means, get, nullable=True)


def trigger_name(number: int) -> str:
    """`Trigger`'s name; the number if this release does not know it."""
    try:
        return Trigger(number).name
    except ValueError:
        return str(int(number))


def reason_name(number: int) -> str:
    """`ReasonKind`'s name; the number if this release does not know it."""
    try:
        return ReasonKind(number).name
    except ValueError:
        return str(int(number))


def reason_names(cause: Cause) -> list[str]:
    return [reason_name(reason.kind) for reason in cause.reasons]


def certainty(cause: Cause) -> str:
    try:
        return Certainty(cause.certainty).name
    except ValueError:
        return str(int(cause.certainty))


def known(path: str) -> Callable[[Any], Any]:
    """Read an attribute for which -1 and the empty text mean ``None``."""
    read = attrgetter(path)

    def read_known(row: Any) -> Any:
        value = read(row)
        return None if value in (-1, "") else value

    return read_known


def lasted(start: str, end: str) -> Callable[[Any], Any]:
    begins, ends = attrgetter(start), attrgetter(end)

    def read_lasted(row: Any) -> Any:
        end_ms = ends(row)
        return None if end_ms is None else end_ms - begins(row)

    return read_lasted


def begun(say: Callable[[Cause], str]) -> Callable[[EpochRow], str | None]:
    """Read something from an epoch's cause; ``None`` if its beginning is unknown."""
    return lambda row: say(row.cause) if row.is_begin_known else None
