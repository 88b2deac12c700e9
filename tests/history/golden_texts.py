"""Golden texts in files; REWRITE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, lines: Iterable[str]) -> None:
    path, said = GOLDEN / name, "\n".join(lines) + "\n"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(said)
    assert said == path.read_text()
