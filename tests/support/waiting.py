"""Waiting for a condition: it is looked at again and again, until a deadline."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.figures import children_of

WITHIN_S = 90.0
LOOK_AGAIN_S = 0.02


def wait_for(
    condition: Callable[[], object], what: str | Callable[[], object], within_s: float = WITHIN_S
) -> float:
    """Block until `condition` holds, and return the seconds that it took.

    Raises AssertionError when time is up: `what` did not happen, or what `what` returns then.
    """
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > within_s:
            raise AssertionError(f"not within {within_s:.0f} s: {what() if callable(what) else what}")
        time.sleep(LOOK_AGAIN_S)
    return time.monotonic() - began_s


async def until(condition: Callable[[], object], within_s: float = 5.0) -> None:
    """The same while an event loop runs; the condition may be a coroutine function."""
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.005)


def state_of(pid: int) -> str:
    """The state letter of a process in /proc; `Z`, as of one that ended, if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def descendants(pid: int) -> list[int]:
    """The ids of the processes that a process started, and of those that these started."""
    children = children_of(pid)
    return [*children, *(one for child in children for one in descendants(child))]


def has_ended(pid: int) -> bool:
    """Whether a process ended, reaped or not."""
    return state_of(pid) == "Z"


def wait_for_end(*pids: int, within_s: float = 20.0) -> None:
    """Wait for the end of processes that are no children of this one."""
    wait_for(lambda: all(map(has_ended, pids)), f"the end of the processes {pids}", within_s)
