"""docs/records.md says what the class bodies say: every type, every field, every number with a name."""

import re
from dataclasses import is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest

import records.cause
import records.values
from records import MemberState, ReasonKind, RecordType, TermWhy, Trigger
from records.layouts import Column, layout_of
from records.packing import FLAT_ARRAY_ITEMS_MAX
from records.schemas import SCHEMAS

PAGE = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
CLASSES = [
    one
    for module in (records.values, records.cause)
    for one in vars(module).values()
    if isinstance(one, type) and is_dataclass(one) and one.__module__ == module.__name__
]


def rows_after(heading: str) -> list[list[str]]:
    """The cells of the table that follows a heading, its head left out; empty if there is no table."""
    _, found, rest = PAGE.partition(f"{heading}\n")
    assert found, f"docs/records.md has no {heading}"
    lines = re.split(r"\n\*\*`|\n#", rest)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][
        2:
    ]


def shown_default(column: Column) -> str:
    """A default as the page writes it."""
    if column.is_required:
        return "required"
    if column.default is None:
        return "null"
    if isinstance(column.default, int):
        return str(column.default).replace("-", "−")
    return "zeros" if any(True for _ in column.default) else "empty"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_stands_at_its_place_with_a_source_and_a_meaning(cls: type[Any]) -> None:
    rows = rows_after(f"**`{cls.__name__}`**") if layout_of(cls).columns else []
    columns = layout_of(cls).columns
    assert [row[1] for row in rows] == [f"`{column.name}`" for column in columns]
    for place, (row, column) in enumerate(zip(rows, columns, strict=True)):
        number, _, kind, unit, default, since, source, meaning = row
        assert (number, kind, default, since) == (
            str(place),
            column.kind.name,
            shown_default(column),
            str(column.since),
        ), column.name
        assert unit.startswith("ms") == column.name.endswith("_ms"), column.name
        assert source
        assert meaning


def test_every_type_stands_in_the_table_of_types() -> None:
    rows = {int(row[0]): row for row in rows_after("## Types")}
    assert set(rows) == set(RecordType)
    for type_, schema in SCHEMAS.items():
        _, name, _, key, version = rows[type_]
        fields = ", ".join(f"`{column.name}`" for column in schema.key.columns) or "–"
        assert (name, key, version) == (schema.name, fields, str(schema.value.version))
        assert f"### {type_} {schema.name}\n" in PAGE


@pytest.mark.parametrize(("heading", "names"), [("### Triggers", Trigger), ("### Reasons", ReasonKind)])
def test_every_trigger_and_reason_is_explained(heading: str, names: type[IntEnum]) -> None:
    rows = rows_after(heading)
    assert [(int(row[0]), row[1]) for row in rows] == [(one.value, one.name) for one in names]
    assert all(row[2] for row in rows)


@pytest.mark.parametrize("names", [MemberState, TermWhy])
def test_every_named_number_is_listed(names: type[IntEnum]) -> None:
    for one in names:
        assert f"{one.value} `{one.name}`" in PAGE or f"`{one.name}` ({one.value})" in PAGE


def test_the_limit_in_the_text_is_the_one_in_force() -> None:
    assert f"at most {FLAT_ARRAY_ITEMS_MAX} items" in " ".join(PAGE.split())
