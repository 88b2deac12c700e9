"""Scripts that once differed: every one of them found a defect, which its first line names."""

from __future__ import annotations

from pathlib import Path

from tests.differential.script import Script, parse

HERE = Path(__file__).parent


def regressions() -> list[Script]:
    """All of them, by file name."""
    return [parse(path.read_text("utf-8"), path.stem) for path in sorted(HERE.glob("*.txt"))]
