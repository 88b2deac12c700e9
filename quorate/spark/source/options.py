"""The options of ``format("quorate")``: which part of a log is read, and how damage is handled.

Reads are narrowed by options rather than pushed filters: Spark shares pushed filters between two scans of one
DataFrame, and would return the rows of one filter for the other. The invariant: an unknown option or an
invalid value is refused with a list of the valid ones; nothing is guessed. Options narrow a read together,
and one that could have no effect beside another is refused too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from history.words import shard_name, type_name
from quorate.spark.errors import OptionError
from quorate.spark.schema import (
    DAMAGE,
    ENTRY_COLUMNS,
    RECORD_COLUMNS,
    SPAN_COLUMNS,
    ColumnKind,
    Presence,
    TableColumn,
    columns_named,
    presence_of,
    spark_type,
)
from raftlog.env.object_stores import UnknownStore, is_store, local_path
from records import RecordType
from records.ids import METADATA_SHARD

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTIONS = {
    "path": "a node's directory, the folder of a cluster (node-1, node-2, ...), or a copy of either, also as "
    "a URL: s3://BUCKET/PATH (or s3a, gs, abfs, abfss, hdfs)",
    "shards": "shard numbers, separated by commas; -1 or metadata is the metadata shard",
    "types": "record types by number or name, separated by commas",
    "groups": "group ids, separated by commas or as a JSON array",
    "from_index": "the first index, included",
    "to_index": "the last index, included",
    "from_time": "the first moment, included: ISO 8601 (UTC without an offset) or ms since 1970",
    "to_time": "the last moment, included",
    "columns": "names of columns in the wanted order, separated by commas",
    "raw": "true: also the bytes of key, value and cause",
    "mode": "fail: entries that no node can read are an error; permissive: they become a row of damage; "
    "entries that one node's files lack are read from another node in both",
    "rows": "records, entries (of every node, from its own files), snapshot (its records) or, for a stream, "
    "spans",
    "ranges": 'JSON: {"shard": [first index, last index or null]}; other shards are not read',
}
"""Every option with a description of its value."""

STREAM_OPTIONS = {
    "starting": "where a stream without a checkpoint begins: earliest or latest",
    "starting_index": 'the first index of a stream, for all shards or as JSON by shard: {"0": 120, "-1": 5}',
    "max_entries_per_trigger": "number of log entries in one batch; by default all",
}
"""Options that only `readStream` accepts."""

REMEMBERED = "quorate.options"
"""The key of a column's metadata that holds the options of a table in Spark's catalog."""

FOREIGN = {
    "entries": (("types", "groups", "raw"), "an entry has no type, no group and no raw columns"),
    "snapshot": (("from_index", "from_time"), "a snapshot has no beginning: to_index and to_time select it"),
    "spans": (
        ("types", "groups", "from_index", "to_index", "from_time", "to_time", "raw", "mode"),
        "a span describes new entries, whatever they contain",
    ),
}
"""Options that have no effect, unless left at their default, by kind of rows, with the reason."""
_DEFAULTS = {"raw": "false", "mode": "fail"}

TYPE_MIN, TYPE_MAX = -(1 << 15), (1 << 15) - 1
"""The range of a record type, which is an i16 in the log."""


_Choice = TypeVar("_Choice", bound=StrEnum)


class Mode(StrEnum):
    FAIL = "fail"
    PERMISSIVE = "permissive"


class Rows(StrEnum):
    RECORDS = "records"
    ENTRIES = "entries"
    SNAPSHOT = "snapshot"
    SPANS = "spans"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRange:
    """Indexes and times that are wanted, both ends included; ``None``: unbounded."""

    from_index: int | None = None
    to_index: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The records of a shard that are wanted; ``None``: all."""

    span: WantedRange = WantedRange()
    types: frozenset[int] | None = None
    groups: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The validated options."""

    path: str
    columns: tuple[TableColumn, ...]
    """The output columns in order, with `DAMAGE` in permissive mode."""
    selection: Selection = Selection()
    shards: frozenset[int] | None = None
    ranges: Mapping[int, tuple[int | None, int | None]] | None = None
    mode: Mode = Mode.FAIL
    rows: Rows = Rows.RECORDS
    of_stream: Mapping[str, str] = field(default_factory=dict)
    """Values of `STREAM_OPTIONS`, which a stream parses."""

    def span_of(self, shard: int) -> WantedRange | None:
        """The part of a shard that is wanted; ``None``: none of it."""
        span = self.selection.span
        if self.shards is not None and shard not in self.shards:
            return None
        if self.ranges is None:
            return span
        if shard not in self.ranges:
            return None
        first, last = self.ranges[shard]
        return WantedRange(
            from_index=_latest(span.from_index, first),
            to_index=_earliest(span.to_index, last),
            from_ms=span.from_ms,
            to_ms=span.to_ms,
        )


def _latest(one: int | None, other: int | None) -> int | None:
    given = [index for index in (one, other) if index is not None]
    return max(given, default=None)


def _earliest(one: int | None, other: int | None) -> int | None:
    given = [index for index in (one, other) if index is not None]
    return min(given, default=None)


def parse_options(given: Mapping[str, str], schema: StructType | None = None) -> SourceOptions:
    """Validate ``.option(...)`` and ``.schema(...)``; raises `OptionError`."""
    said = _of_catalog({name.lower(): value for name, value in given.items()}, schema)
    unknown = sorted(set(said) - set(OPTIONS) - set(STREAM_OPTIONS))
    if unknown:
        there_are = ", ".join((*OPTIONS, *STREAM_OPTIONS))
        raise OptionError(f"there is no option {unknown[0]!r}", f"there are {there_are}")
    if not said.get("path"):
        hint = f'load("DIRECTORY") reads {OPTIONS["path"]}; CREATE TABLE must name no columns'
        raise OptionError("no path was given", hint)
    mode = _one_of(Mode, "mode", said.get("mode", "fail"))
    rows = _one_of(Rows, "rows", said.get("rows", "records"))
    _check_of(said, rows)
    selection = Selection(span=_span(said), types=_listed(said, "types", _type_number), groups=_groups(said))
    return SourceOptions(
        path=_absolute(said["path"]),
        columns=_columns(said, rows, mode) if schema is None else _columns_of(schema, said, rows, mode),
        selection=selection,
        shards=_listed(said, "shards", _shard_number),
        ranges=_ranges(said, rows),
        mode=mode,
        rows=rows,
        of_stream={name: value for name, value in said.items() if name in STREAM_OPTIONS},
    )


def _of_catalog(said: dict[str, str], schema: StructType | None) -> dict[str, str]:
    """The options, also of a table in Spark's catalog (``CREATE TABLE … USING quorate``).

    Spark gives the table's properties when it asks for the schema, and nothing when it reads. The schema
    therefore remembers the options (`remembered`).
    """
    if "provider" in said:
        given = {name.removeprefix("option."): said[name] for name in said if name.startswith("option.")}
        # its properties are Spark's (owner, location, provider, ...); path among them is the location
        return {**given, "path": said.get("path", "")}
    kept = {} if schema is None or not schema.fields else schema.fields[0].metadata.get(REMEMBERED, {})
    return {**kept, **said}


def remembered(schema: StructType, given: Mapping[str, str]) -> StructType:
    """The schema; that of a table in Spark's catalog has the options in its first column's metadata."""
    from pyspark.sql.types import StructField, StructType

    if "provider" not in {name.lower() for name in given}:
        return schema
    said = _of_catalog({name.lower(): value for name, value in given.items()}, None)
    first = schema.fields[0]
    metadata = {**(first.metadata or {}), REMEMBERED: said}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *schema.fields[1:]])


def _absolute(path: str) -> str:
    """A path or URL as executors understand it, which have other working directories."""
    try:
        return path.rstrip("/") if is_store(path) else os.path.abspath(local_path(path))
    except UnknownStore as unknown:
        raise OptionError(str(unknown), OPTIONS["path"]) from None


def _one_of(names: type[_Choice], option: str, value: str) -> _Choice:
    try:
        return names(value.lower())
    except ValueError:
        raise OptionError(f"{option}={value!r} is unknown", f"there are {', '.join(names)}") from None


def _check_of(said: Mapping[str, str], rows: Rows) -> None:
    """Raise `OptionError` for options without effect on such rows."""
    names, why = FOREIGN.get(rows, ((), ""))
    for name in names:
        if name in said and said[name].lower() != _DEFAULTS.get(name):
            raise OptionError(f"{name} does not apply to rows={rows}", f"{why}; leave one of the two out")


def _span(said: Mapping[str, str]) -> WantedRange:
    span = WantedRange(
        from_index=_index(said, "from_index"),
        to_index=_index(said, "to_index"),
        from_ms=_moment(said, "from_time"),
        to_ms=_moment(said, "to_time"),
    )
    for first, last, of in ((span.from_index, span.to_index, "index"), (span.from_ms, span.to_ms, "time")):
        if first is not None and last is not None and first > last:
            words = f"from_{of}={said[f'from_{of}']} is after to_{of}={said[f'to_{of}']}"
            raise OptionError(words, "swap the two")
    return span


def _index(said: Mapping[str, str], name: str) -> int | None:
    if name not in said:
        return None
    try:
        return int(said[name])
    except ValueError:
        raise OptionError(f"{name}={said[name]!r} is not a number", "give the index of an entry") from None


def _moment(said: Mapping[str, str], name: str) -> int | None:
    if name not in said:
        return None
    value = said[name].strip()
    try:
        return int(value)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        hint = "give 2026-03-01T12:00:00Z, or ms since 1970"
        raise OptionError(f"{name}={value!r} is not a moment", hint) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def _listed(said: Mapping[str, str], name: str, read: Callable[[str], int]) -> frozenset[int] | None:
    if name not in said:
        return None
    return frozenset(read(word) for word in _words(said, name))


def _words(said: Mapping[str, str], name: str) -> list[str]:
    """The words between the commas; raises `OptionError` if there are none, which could mean none or all."""
    return _not_empty(name, [word.strip() for word in said[name].split(",") if word.strip()])


def _not_empty(name: str, words: list[str]) -> list[str]:
    if not words:
        raise OptionError(f"{name} is empty", f"give what to read, or leave {name} out to read everything")
    return words


def _type_number(word: str) -> int:
    try:
        number = int(word)
    except ValueError:
        number = _TYPE_NUMBERS.get(word.replace("_", "").lower(), TYPE_MAX + 1)
    if not TYPE_MIN <= number <= TYPE_MAX:
        names = ", ".join(type_name(one) for one in RecordType)
        raise OptionError(
            f"there is no record type {word!r}", f"names are {names}; give other types by number"
        )
    return number


_TYPE_NUMBERS = {one.name.replace("_", "").lower(): int(one) for one in RecordType}
"""Type numbers by name in either spelling: OffsetCommit, OFFSET_COMMIT."""


def _shard_number(word: str) -> int:
    number = word.removeprefix("shard-")
    if word == shard_name(METADATA_SHARD):
        return METADATA_SHARD
    try:
        return int(number)
    except ValueError:
        raise OptionError(f"{word!r} is not a shard", OPTIONS["shards"]) from None


def _groups(said: Mapping[str, str]) -> frozenset[str] | None:
    if "groups" not in said:
        return None
    value = said["groups"]
    if not value.lstrip().startswith("["):
        return frozenset(_words(said, "groups"))
    names = _json(said, "groups")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"groups={value!r} is not a list of strings", OPTIONS["groups"])
    return frozenset(_not_empty("groups", names))


def _ranges(said: Mapping[str, str], rows: Rows) -> Mapping[int, tuple[int | None, int | None]] | None:
    """Ranges by shard. They may be empty or inverted, which a program uses to read nothing."""
    if "ranges" not in said:
        return None
    ranges = _json(said, "ranges")
    if not isinstance(ranges, _Members):
        raise OptionError(f"ranges={said['ranges']!r} is not a JSON object", OPTIONS["ranges"])
    found: dict[int, tuple[int | None, int | None]] = {}
    for shard, ends in ranges:
        is_pair = type(ends) is list and len(ends) == 2
        if not is_pair or not all(end is None or type(end) is int for end in ends):
            raise OptionError(f"ranges: {ends!r} of shard {shard} are not two indexes", OPTIONS["ranges"])
        if rows is Rows.SNAPSHOT and ends[0] is not None:
            hint = "for rows=snapshot give null as the first index"
            raise OptionError(f"ranges: {ends!r} of shard {shard}, but a snapshot has no beginning", hint)
        number = _shard_number(shard)
        if number in found:
            raise OptionError(f"ranges: shard {number} occurs twice", "give each once")
        found[number] = (ends[0], ends[1])
    return found


class _Members(list[tuple[str, Any]]):
    """A JSON object as a list of members, which keeps duplicate names."""


def _json(said: Mapping[str, str], name: str) -> Any:
    try:
        return json.loads(said[name], object_pairs_hook=_Members)
    except ValueError as error:
        raise OptionError(f"{name}={said[name]!r} is not valid JSON: {error}", OPTIONS[name]) from None


def _columns(said: Mapping[str, str], rows: Rows, mode: Mode) -> tuple[TableColumn, ...]:
    """The output columns in order; damage is always the last, so that no loss goes unnoticed."""
    known = known_columns(rows)
    with_raw = _is_true(said, "raw")
    if "columns" not in said:
        chosen = tuple(column for column in known if with_raw or column.kind is not ColumnKind.BYTES)
    else:
        chosen = _named((*known, DAMAGE), _words(said, "columns"))
        _check_damage(chosen, mode)
        chosen = tuple(column for column in chosen if column != DAMAGE)
        if with_raw:
            chosen += tuple(
                column for column in known if column.kind is ColumnKind.BYTES and column not in chosen
            )
    promise = _promise(rows, mode)
    chosen = tuple(replace(column, is_required=presence_of(column) >= promise) for column in chosen)
    return (*chosen, DAMAGE) if mode is Mode.PERMISSIVE else chosen


def _promise(rows: Rows, mode: Mode) -> Presence:
    """The presence that lets Spark treat a column of such rows as not nullable."""
    if mode is Mode.PERMISSIVE:
        return Presence.ALWAYS
    return Presence.READABLE if rows is Rows.SNAPSHOT else Presence.OF_ENTRIES


def _columns_of(
    schema: StructType, said: Mapping[str, str], rows: Rows, mode: Mode
) -> tuple[TableColumn, ...]:
    """The output columns for a schema given by the user, or returned by Spark."""
    if not schema.fields:
        raise OptionError("the schema has no columns", "give the wanted columns, or leave the schema out")
    chosen = _named((*known_columns(rows), DAMAGE), schema.fieldNames())
    _check_damage(chosen, mode)
    promise = _promise(rows, mode)
    for column, given, ours in zip(chosen, schema.fields, spark_type(chosen).fields, strict=True):
        if not given.nullable and presence_of(column) < promise:
            raise OptionError(f"column {given.name} may be null", "leave NOT NULL out of the schema")
        if given.dataType != ours.dataType:
            kind = ours.dataType.simpleString()
            raise OptionError(
                f"column {given.name} is {kind}, not {given.dataType.simpleString()}",
                "leave the schema out, or cast the column after reading",
            )
    if mode is Mode.PERMISSIVE and DAMAGE not in chosen:
        raise OptionError("mode=permissive needs the column damage", "add `damage string` to the schema")
    for name in ("columns", "raw"):
        if said.get(name, "false").lower() != "false":
            asked = [column.name for column in _columns(said, rows, mode)]
            if asked != schema.fieldNames():
                raise OptionError(f"{name} conflicts with the columns of the schema", f"leave {name} out")
    return tuple(
        replace(column, is_required=not given.nullable)
        for column, given in zip(chosen, schema.fields, strict=True)
    )


def _check_damage(chosen: tuple[TableColumn, ...], mode: Mode) -> None:
    if mode is Mode.FAIL and DAMAGE in chosen:
        raise OptionError("the column damage needs mode=permissive", "set mode=permissive, or leave it out")


def known_columns(rows: Rows) -> tuple[TableColumn, ...]:
    return {Rows.ENTRIES: ENTRY_COLUMNS, Rows.SPANS: SPAN_COLUMNS}.get(rows, RECORD_COLUMNS)


def _named(known: tuple[TableColumn, ...], names: list[str]) -> tuple[TableColumn, ...]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"column {twice} occurs twice", "give each once")
    try:
        return columns_named(known, names)
    except KeyError as error:
        there_are = ", ".join(column.name for column in known)
        raise OptionError(f"there is no column {error.args[0]!r}", f"there are {there_are}") from None


def _is_true(said: Mapping[str, str], name: str) -> bool:
    value = said.get(name, "false").lower()
    if value not in ("true", "false"):
        raise OptionError(f"{name}={value!r} is neither true nor false", OPTIONS[name])
    return value == "true"
