"""Scripts that once differed: every one of them found a defect, which its first line names. And scenarios:
what every run must have in it, whatever its seeds."""

from __future__ import annotations

from pathlib import Path

from tests.differential.script import Script, parse

HERE = Path(__file__).parent


def regressions() -> list[Script]:
    """All of them, by file name."""
    return _read(HERE / "regressions")


def scenarios() -> list[Script]:
    return _read(HERE / "scenarios")


def _read(folder: Path) -> list[Script]:
    return [parse(path.read_text("utf-8"), path.stem) for path in sorted(folder.glob("*.txt"))]
