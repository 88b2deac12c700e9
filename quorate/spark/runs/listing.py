"""Descriptions of the tables, for `quorate pipeline tables` and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from quorate.spark.schema import SCHEMA_VERSION, TABLES, columns_text
from quorate.spark.tables.delta import TableFile
from quorate.spark.tables.reading import read_progress, table_files


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """Contents of one table in an output; times are null if it is empty."""

    table: str
    version: int | None
    """The version of the Delta table that counts; null: it does not exist yet."""
    rows: int
    size: int
    """Size in bytes."""
    files: int
    from_ms: int | None
    """The first time of its first time column, in ms since 1970."""
    to_ms: int | None
    """The last time of that column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContents:
    """Contents of an output."""

    output: str
    cluster_id: str
    schema_version: int
    runs: int
    tables: tuple[HeldTable, ...]
    shards: tuple[Mapping[str, int], ...]
    """``shard`` and its `ShardProgress`."""


def held_in(output: str) -> OutputContents:
    """Contents of an output, from its `progress` and the logs of its tables; needs no Spark.

    Raises `OutputError`.
    """
    progress = read_progress(output)
    return OutputContents(
        output=output,
        cluster_id=progress.cluster_id,
        schema_version=progress.schema_version,
        runs=progress.run,
        tables=tuple(_held(name, progress.versions.get(name), table_files(output, name)) for name in TABLES),
        shards=tuple({"shard": shard, **asdict(one)} for shard, one in sorted(progress.shards.items())),
    )


def size_of(output: str) -> int:
    """Bytes of all documented tables. Raises `OutputError`."""
    return sum(file.size for name in TABLES for file in table_files(output, name))


def _held(table: str, version: int | None, files: Sequence[TableFile]) -> HeldTable:
    return HeldTable(
        table=table,
        version=version,
        rows=sum(file.rows for file in files),
        size=sum(file.size for file in files),
        files=len(files),
        from_ms=_ms(min((file.begin_min for file in files if file.begin_min is not None), default=None)),
        to_ms=_ms(max((file.begin_max for file in files if file.begin_max is not None), default=None)),
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1_000)


def tables_text() -> Iterator[str]:
    """The tables in Markdown."""
    for table in TABLES.values():
        yield f"### Table {table.name}"
        yield ""
        yield table.means
        yield ""
        yield from columns_text(table.columns)
        yield ""


def tables_json(held: OutputContents | None = None) -> dict[str, Any]:
    """The tables as JSON, with the contents of an output if given."""
    listed = [
        {
            "table": table.name,
            "means": table.means,
            "columns": [
                {"name": one.name, "type": one.kind.spark, "unit": one.unit, "means": one.means}
                for one in table.columns
            ],
        }
        for table in TABLES.values()
    ]
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "tables": listed}
    if held is not None:
        document["held"] = asdict(held)
    return document
