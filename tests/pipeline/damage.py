"""Damaged segments."""

from __future__ import annotations

from pathlib import Path

from raftlog.storage.archive import ARCHIVE
from raftlog.storage.segments import log_name


def segments(log: Path) -> list[Path]:
    return sorted((log / "shard-0").glob("*.log"))


def flip(path: Path, at: int, mask: int = 0x41) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)


def spoiled(path: Path, first_index: int) -> Path:
    """Flip a byte in the middle of a segment and return its file."""
    home = path / "shard-0"
    name = log_name(first_index)
    file = next(one for one in (home / ARCHIVE / name, home / name) if one.exists())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    return file
