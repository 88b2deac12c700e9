"""A job that its node did not live to see the end of, while the next start has the directory.

The job's process ends with its node's, but not in the same instant, and one that stood still when its node
was killed does a little more when it wakes. What it then does must not matter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import msgpack

from raftlog.env.simulated_files import Crash, SimFiles
from tests.report import count_fault


def sleeping_jobs(
    module: ModuleType, request: Any, disk: SimFiles, meanwhile: Callable[[SimFiles], None]
) -> Iterator[SimFiles]:
    """Runs the job once for each moment before and after each of its calls that change the disk: there it
    sleeps, `meanwhile` happens to the disk, and it goes on. Yields the copy of `disk` that it ran on."""
    wire = msgpack.packb(request)
    moment, was_reached = 0, True
    while was_reached:
        left = disk.crash(Crash.KEPT)
        sleep = _Sleep(moment, left, meanwhile)
        left.on_call = sleep.at_call
        with contextlib.suppress(OSError):  # what it looks for has gone
            module.run(msgpack.unpackb(wire), left)
        was_reached = sleep.was_reached
        if was_reached:
            count_fault("raftlog", "job that outlives its node")
            yield left
        moment += 1
    assert moment > 1, "the job changed nothing"


class _Sleep:
    def __init__(self, moment: int, disk: SimFiles, meanwhile: Callable[[SimFiles], None]) -> None:
        self._moments_left = moment
        self._disk = disk
        self._meanwhile = meanwhile
        self.was_reached = False

    def at_call(self, number: int, operation: str, path: str, done: bool) -> None:
        if self._moments_left:
            self._moments_left -= 1
            return
        self._disk.on_call = None
        self.was_reached = True
        self._meanwhile(self._disk)


def left_aside(disk: SimFiles, directory: str) -> list[str]:
    """What is there under temporary names."""
    return [name for name in disk.listdir(directory) if name.endswith(".tmp")]
