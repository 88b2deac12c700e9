"""docs/clients.md: each *yes* in its tables is a run of the row's test, and the tests run no other client."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "clients.md"


def rows() -> Iterator[tuple[str, list[str]]]:
    """Test and clients of each row."""
    clients: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "Situation":
            assert cells[-1] == "Test"
            clients = cells[1:-1]
        elif line.startswith("|") and clients and not line.startswith("|---"):
            yes = [name for name, cell in zip(clients, cells[1:-1], strict=True) if cell == "yes"]
            yield cells[-1].strip("`"), yes
        elif not line.startswith("|"):
            clients = []


def test_there_are_rows() -> None:
    assert len(list(rows())) >= 8


@pytest.mark.parametrize(("test", "clients"), list(rows()))
def test_a_row_is_what_its_test_runs(test: str, clients: list[str]) -> None:
    path, _, name = test.partition("::")
    module = importlib.import_module(re.sub(r"\.py$", "", path).replace("/", "."))
    (parameters,) = [one for one in getattr(module, name).pytestmark if one.name == "parametrize"]
    assert [getattr(one, "values", (one,))[0] for one in parameters.args[1]] == clients
