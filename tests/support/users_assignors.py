"""Packages with users' assignors, installed for a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def install(
    directory: Path, module: str, text: str, points: dict[str, str], asking: Iterable[str] = ()
) -> None:
    """Install a package as pip does: its module, and its metadata beside it."""
    (directory / f"{module}.py").write_text(text)
    info = directory / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {target}\n" for name, target in points.items())
    racks = "".join(f"{name} = {points[name]}\n" for name in asking)
    (info / "entry_points.txt").write_text(
        f"[quorate.assignors]\n{lines}\n[quorate.assignors.racks]\n{racks}"
    )
