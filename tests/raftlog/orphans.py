"""A job that outlives its node, while the next start already uses the directory.

The job's process ends with its node's, but not in the same instant; one that was stopped when its node was
killed does a little more when it wakes. That must do no harm.
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
    """Run the job once for each moment before and after each of its calls that change the disk. There it
    sleeps, `meanwhile` is done to the disk, and it goes on. Yield the copy of `disk` that it ran on."""
    wire = msgpack.packb(request)
    moment, was_reached = 0, True
    while was_reached:
        left = disk.crash(Crash.KEPT)
        sleep = _Sleep(moment, left, meanwhile)
        left.on_call = sleep.at_call
        with contextlib.suppress(OSError):  # its files have gone
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
    """Return the files with temporary names."""
    return [name for name in disk.listdir(directory) if name.endswith(".tmp")]
