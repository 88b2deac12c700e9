"""docs/pipeline.md says what the schema says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.runs.listing import tables_json, tables_text
from pipeline.schema import TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "pipeline.md"


def test_the_tables_stand_in_the_document() -> None:
    assert "\n".join(tables_text()).strip() in DOCUMENT.read_text()


def test_programs_are_told_the_same() -> None:
    told = {one["table"]: one for one in tables_json()["tables"]}
    assert {name: [c["name"] for c in one["columns"]] for name, one in told.items()} == {
        name: table.names for name, table in TABLES.items()
    }
    assert all(one["date_of"] in TABLES[name].names for name, one in told.items())


def test_the_analyses_stand_in_the_document() -> None:
    pytest.importorskip("pyspark", reason="needs the extra spark")
    from pipeline.analyses import analyses_text

    assert "\n".join(analyses_text()).strip() in DOCUMENT.read_text()
