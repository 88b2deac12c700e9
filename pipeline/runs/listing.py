"""The tables in words: for docs/pipeline.md, for `quorate pipeline tables`, and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.schema import SCHEMA_VERSION, TABLES


def tables_text() -> Iterator[str]:
    """The tables as they stand in docs/pipeline.md, in Markdown."""
    for table in TABLES.values():
        yield f"### Table {table.name}"
        yield ""
        yield f"{table.means} Its `date` is the day of `{table.date_of}` (UTC)."
        yield ""
        yield "| Column | Type | Unit | Meaning |"
        yield "|---|---|---|---|"
        for one in table.columns:
            yield f"| `{one.name}` | {one.kind} | {one.unit} | {one.means} |"
        yield ""


def tables_json() -> dict[str, Any]:
    """The same for programs."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tables": [
            {
                "table": table.name,
                "means": table.means,
                "partitioned_by": ["date", "shard"],
                "date_of": table.date_of,
                "columns": [
                    {"name": one.name, "type": one.kind.value, "unit": one.unit, "means": one.means}
                    for one in table.columns
                ],
            }
            for table in TABLES.values()
        ],
    }
