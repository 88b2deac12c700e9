"""Waiting for a condition, with a deadline and no fixed pause."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a process that is no child of ours ends: it has no zombie that stays."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


async def until(condition: object, within_s: float = 5.0) -> None:
    async def look() -> None:
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), within_s)
