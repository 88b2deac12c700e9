"""Progress: what the tables contain, and the version of each; a run's commit counts once this table has it.

The table `progress` has one row for each shard, so that it is joined by ``shard``; columns about the whole
output are the same in every row, and ``versions['ownership']`` is that table's version. Each commit replaces
all rows; earlier ones are its earlier versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from quorate.spark.errors import OutputError
from quorate.spark.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """The part of one shard's log that is in the tables.

    A field is a column of `progress`; one that ends in ``_ms`` is a moment there, -1 is null.
    """

    records_to: int = 0
    """The last index whose records are in `records`, `commits` and `failovers`."""
    facts_to: int = 0
    """The last index included in the facts of every group."""
    last_ms: int = -1
    """Timestamp of that entry, in ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The contents of an output after a run."""

    run: int = 0
    """Number of the run, from 1; 0: nothing yet."""
    cluster_id: str
    num_shards: int | None = None
    schema_version: int = SCHEMA_VERSION
    shards: Mapping[int, ShardProgress] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    """The Delta version of each table."""
    notes: str = ""
    """Notes that a run leaves for the next one, in JSON."""
    committed_ms: int = -1
    vacuumed_ms: int = -1
    """The time at which unused files were last removed; -1: never."""


_COMMENTS = {
    "run": "The number of the run.",
    "committed_time": "When it was committed (UTC).",
    "cluster_id": "The cluster.",
    "num_shards": "The cluster's number of shards; null: not known.",
    "schema_version": "The version of the tables' schema.",
    "versions": "The Delta version of each table that belongs to this run.",
    "notes": "What runs leave for each other (JSON), in one of the rows.",
    "vacuumed_time": "When unused files were last removed (UTC).",
    "shard": "The shard; -1 is the metadata shard. Null: no shard was read yet.",
    "records_to": "The last index whose records are in `records`, `commits` and `failovers`.",
    "facts_to": "The last index included in the facts of every group.",
    "last_time": "The time of that entry (UTC).",
}


@cache
def progress_schema() -> pa.Schema:
    """The columns of `progress`, with comments."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    columns = {
        "run": pa.int64(),
        "committed_time": moment,
        "cluster_id": pa.string(),
        "num_shards": pa.int32(),
        "schema_version": pa.int32(),
        "versions": pa.map_(pa.string(), pa.int64()),
        "notes": pa.string(),
        "vacuumed_time": moment,
        "shard": pa.int32(),
    }
    for one in fields(ShardProgress):
        columns[_column(one.name)] = moment if one.name.endswith("_ms") else pa.int64()
    return pa.schema(
        [
            pa.field(name, kind, metadata={"comment": _COMMENTS.get(name, "")})
            for name, kind in columns.items()
        ]
    )


def as_rows(progress: Progress) -> pa.Table:
    """The rows of `progress`."""
    import pyarrow as pa

    whole = {
        "run": progress.run,
        "committed_time": _time(progress.committed_ms),
        "cluster_id": progress.cluster_id,
        "num_shards": progress.num_shards,
        "schema_version": progress.schema_version,
        "versions": sorted(progress.versions.items()),
        "vacuumed_time": _time(progress.vacuumed_ms),
    }
    rows = [
        {
            **whole,
            "shard": shard,
            **{_column(one.name): _stored(one.name, getattr(at, one.name)) for one in fields(at)},
        }
        for shard, at in sorted(progress.shards.items())
    ] or [{**whole, "shard": None}]
    rows[0]["notes"] = progress.notes
    return pa.Table.from_pylist(rows, schema=progress_schema())


def from_rows(rows: Iterable[Mapping[str, Any]], place: str) -> Progress:
    """The progress in these rows; raises `OutputError` if they are not those of one run."""
    rows = list(rows)
    try:
        first = rows[0]
        if any(row["run"] != first["run"] for row in rows):
            raise ValueError("rows of several runs")
        return Progress(
            run=first["run"],
            cluster_id=first["cluster_id"],
            num_shards=first["num_shards"],
            schema_version=first["schema_version"],
            shards={row["shard"]: _shard(row) for row in rows if row["shard"] is not None},
            versions=dict(first["versions"]),
            notes=next((row["notes"] for row in rows if row["notes"]), ""),
            committed_ms=_ms(first["committed_time"]),
            vacuumed_ms=_ms(first["vacuumed_time"]),
        )
    except (LookupError, TypeError, ValueError) as error:
        raise OutputError(
            f"the table progress of {place} was changed by another tool ({error})",
            "restore its version before, or run into a new output: quorate pipeline run -i … -o NEW",
        ) from error


def _shard(row: Mapping[str, Any]) -> ShardProgress:
    values = {}
    for one in fields(ShardProgress):
        value = row.get(_column(one.name))
        if one.name.endswith("_ms"):
            values[one.name] = _ms(value)
        elif value is not None:  # an older release does not have the column
            values[one.name] = value
    return ShardProgress(**values)


def _column(name: str) -> str:
    return f"{name.removesuffix('_ms')}_time" if name.endswith("_ms") else name


def _stored(name: str, value: Any) -> Any:
    return _time(value) if name.endswith("_ms") else value


def _time(ms: int) -> datetime | None:
    return None if ms < 0 else _EPOCH + timedelta(milliseconds=ms)


def _ms(time: datetime | None) -> int:
    return -1 if time is None else (time - _EPOCH) // timedelta(milliseconds=1)
