"""Descriptions of the tables, for `quorate pipeline tables` and programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.schema import SCHEMA_VERSION, TABLES, columns_text
from pipeline.tables.manifest import TableFile
from pipeline.tables.reading import read_manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTable:
    """Contents of one table in an output; dates are null if it is empty."""

    table: str
    rows: int
    size: int
    """Size in bytes."""
    files: int
    from_date: str | None
    to_date: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContents:
    """Contents of an output."""

    output: str
    cluster_id: str
    schema_version: int
    commits: int
    tables: tuple[HeldTable, ...]
    shards: tuple[Mapping[str, int], ...]
    """``shard`` and its `ShardProgress`."""


def held_in(output: str) -> OutputContents:
    """Contents of an output, from its manifest; needs no Spark. Raises `OutputError`."""
    manifest = read_manifest(output)
    return OutputContents(
        output=output,
        cluster_id=manifest.cluster_id,
        schema_version=manifest.schema_version,
        commits=manifest.version,
        tables=tuple(_held(name, manifest.of(name)) for name in TABLES),
        shards=tuple({"shard": shard, **asdict(one)} for shard, one in sorted(manifest.progress.items())),
    )


def _held(table: str, files: tuple[TableFile, ...]) -> HeldTable:
    dates = sorted(file.date for file in files if file.date is not None)
    return HeldTable(
        table=table,
        rows=sum(file.rows for file in files),
        size=sum(file.size for file in files),
        files=len(files),
        from_date=dates[0] if dates else None,
        to_date=dates[-1] if dates else None,
    )


def tables_text() -> Iterator[str]:
    """The tables in Markdown."""
    for table in TABLES.values():
        yield f"### Table {table.name}"
        yield ""
        yield f"{table.means} Its `date` is the day of `{table.date_of}` (UTC)."
        yield ""
        yield from columns_text(table.columns)
        yield ""


def tables_json(held: OutputContents | None = None) -> dict[str, Any]:
    """The tables as JSON, with the contents of an output if given."""
    listed = [
        {
            "table": table.name,
            "means": table.means,
            "partitioned_by": ["date", "shard"],
            "date_of": table.date_of,
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
