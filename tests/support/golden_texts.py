"""Golden texts in files; REWRITE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TESTS = Path(__file__).parents[1]


def golden(name: str, lines: Iterable[str]) -> None:
    """Compare lines with a file of which `name` is the path below `tests`."""
    path, said = TESTS / name, "\n".join(lines) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(said)
    assert said == path.read_text()
