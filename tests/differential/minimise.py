"""Shortens a script that differs: drops many steps at a time, then single ones, as long as it still differs.

Every attempt plays to both sides in a new group, so the result is a script that was seen to differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tests.differential.script import Script

ATTEMPTS_MAX: Final = 300


async def minimise(script: Script, differs: Callable[[Script], Awaitable[bool]]) -> Script:
    """Return the shortest script found in `ATTEMPTS_MAX` plays; the script itself if none differs."""
    attempts = 0
    steps = script.steps
    chunk = max(1, len(steps) // 2)
    while True:
        at, shortened = 0, False
        while at < len(steps) and attempts < ATTEMPTS_MAX:
            attempts += 1
            shorter = steps[:at] + steps[at + chunk :]
            if shorter and await differs(Script(script.name, shorter)):
                steps, shortened = shorter, True
            else:
                at += chunk
        if attempts >= ATTEMPTS_MAX or (chunk == 1 and not shortened):
            return Script(script.name, steps)
        chunk = max(1, chunk // 2)
