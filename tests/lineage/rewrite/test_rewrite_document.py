"""docs/generations.md has the tables of seed 000 as the code has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lineage.rewrite.errors import RewriteError

from .rewrite_tables import sections

PAGE = (Path(__file__).parents[3] / "docs" / "generations.md").read_text()


@pytest.mark.parametrize("heading", sections())
def test_each_table_and_diagram_is_the_rendering(heading: str) -> None:
    assert f"{heading}\n\n{sections()[heading]}" in PAGE, (
        "run: python -m tests.lineage.rewrite.rewrite_tables"
    )


def test_every_error_is_listed_with_its_number() -> None:
    assert [one.name for one in RewriteError if one and f"| {one.value} | {one.name} |" not in PAGE] == []
