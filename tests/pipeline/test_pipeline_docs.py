"""docs/pipeline.md lists what the schema and the registry of analyses list; commands print columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from quorate.spark.runs.listing import tables_json, tables_text
from quorate.spark.schema import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_tables_stand_in_the_document() -> None:
    rows = [f"| `{table.name}` | {table.means} |" for table in TABLES.values()]
    assert "\n".join(rows) in DOCUMENT.read_text()


def test_every_column_is_listed() -> None:
    listed = "\n".join(tables_text())
    for table in TABLES.values():
        assert f"### Table {table.name}\n\n{table.means}\n" in listed
        for column in table.columns:
            assert f"| `{column.name}` | {column.kind.spark} | {column.unit} | {column.means} |" in listed


def test_programs_are_told_the_same() -> None:
    told = {one["table"]: one for one in tables_json()["tables"]}
    assert {name: [c["name"] for c in one["columns"]] for name, one in told.items()} == {
        name: table.names for name, table in TABLES.items()
    }


def test_the_analyses_stand_in_the_document() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from quorate.spark.analyses import ANALYSES
    from quorate.spark.analyses.registry import call_of

    rows = [
        f"| `{call_of(one)}`{', raw' if one.needs_raw else ''} | {one.answers} |" for one in ANALYSES.values()
    ]
    assert "\n".join(rows) in DOCUMENT.read_text()
