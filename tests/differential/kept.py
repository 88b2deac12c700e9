"""Kept scripts: regressions, which once differed and name the defect they found in their first line, and
scenarios that every run must include, whatever its seeds."""

from __future__ import annotations

from pathlib import Path

from tests.differential.script import Script, parse

HERE = Path(__file__).parent


def regressions() -> list[Script]:
    """Return all regressions by file name."""
    return _read(HERE / "regressions")


def scenarios() -> list[Script]:
    return _read(HERE / "scenarios")


def _read(folder: Path) -> list[Script]:
    return [parse(path.read_text("utf-8"), path.stem) for path in sorted(folder.glob("*.txt"))]
