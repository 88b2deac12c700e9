"""A job ends with the process that wants its result, however that one ends.

The parents here are processes of their own, killed with kill -9. Each job opens a FIFO, writes its process id
into it, and then works for longer than any test; the system closes the FIFO when the job is gone, so its end
is read as an end of file, at once, whoever has to bury it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.report import count_fault
from tests.support.waiting import state_of, wait_for

ENDS_WITHIN_S = 10.0
"""A job ends within milliseconds; a busy machine may need more."""

JOB = """
import os, sys, msgpack
path, work = msgpack.unpackb(sys.stdin.buffer.read())
fifo = open(path, "w")
exec(work)
"""

WORK = """
print(os.getpid(), file=fifo, flush=True)
while True:
    pass
"""

WORK_AS_IN_ONE_CALL = "sys.setswitchinterval(600)" + WORK
"""Work that lets no other thread of its interpreter run, as a backtracking regular expression does."""

PARENT = """
import asyncio, sys
from cluster.host.host_asyncio import AsyncioHost

async def main():
    host = AsyncioHost(asyncio.get_running_loop())
    work, *fifos = sys.argv[1:]
    for fifo in fifos:
        host.spawn_job("job_endless", (fifo, work), print, low_priority=True, deadline_ms=600_000)
    await asyncio.Event().wait()

asyncio.run(main())
"""


PR_SET_CHILD_SUBREAPER = 36
"""The `prctl` option of Linux that makes orphaned descendants of a process its own children."""


class Family:
    """A parent and its jobs, all at work; the jobs become our own children when the parent ends.

    Each job leads a process group of its own. The system wakes the stopped processes of a group and hangs up
    on them once nobody there has a parent elsewhere in its session, and process 1 is in no session of ours.
    """

    def __init__(self, home: Path, num_jobs: int, work: str) -> None:
        _adopt_orphans(True)
        (home / "job_endless.py").write_text(JOB)
        fifos = [home / f"fifo-{number}" for number in range(num_jobs)]
        for fifo in fifos:
            os.mkfifo(fifo)
        command = [sys.executable, "-P", "-c", PARENT, work, *map(str, fifos)]
        path = os.pathsep.join([str(home), os.environ.get("PYTHONPATH", "")])
        self.parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
        self._streams = [fifo.open() for fifo in fifos]  # each waits for its job
        self._pids = [int(stream.readline()) for stream in self._streams]

    def kill_parent(self) -> None:
        count_fault("cluster", "killed while its jobs run")
        self._end_parent()

    def signal_jobs(self, number: signal.Signals) -> None:
        for pid in self._pids:
            os.kill(pid, number)
            if number == signal.SIGSTOP:  # a process stops when it is next scheduled
                wait_for(lambda pid=pid: state_of(pid) == "T", f"stop of process {pid}", ENDS_WITHIN_S)

    def still_running(self, within_s: float = 0.0) -> list[int]:
        """Return the process ids of the jobs that do not end in time."""
        running, deadline_s = dict(zip(self._streams, self._pids, strict=True)), time.monotonic() + within_s
        while running:
            ended = select.select(list(running), [], [], max(0.0, deadline_s - time.monotonic()))[0]
            if not ended:
                break
            for stream in ended:
                assert stream.read() == ""
                del running[stream]
        return list(running.values())

    def close(self) -> None:
        self._end_parent()
        for pid in self.still_running():
            os.kill(pid, signal.SIGKILL)
        for stream in self._streams:
            stream.close()
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):  # where process 1 has adopted them
                os.waitpid(pid, 0)
        _adopt_orphans(False)

    def _end_parent(self) -> None:
        self.parent.kill()
        self.parent.wait()


def _adopt_orphans(adopts: bool) -> None:
    if sys.platform == "linux":
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0) == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Family]]:
    with contextlib.ExitStack() as families:

        def start(num_jobs: int, work: str = WORK) -> Family:
            family = Family(tmp_path, num_jobs, work)
            families.callback(family.close)
            return family

        yield start


def test_jobs_end_with_their_parent(start: Callable[..., Family]) -> None:
    """No job keeps the lifeline of another one open, even if several are started at once."""
    family = start(8)
    assert len(family.still_running()) == 8
    family.kill_parent()
    assert family.still_running(ENDS_WITHIN_S) == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends when that call returns")
def test_a_job_that_keeps_its_interpreter_to_itself_ends_with_its_parent(
    start: Callable[..., Family],
) -> None:
    family = start(1, WORK_AS_IN_ONE_CALL)
    family.kill_parent()
    assert family.still_running(ENDS_WITHIN_S) == []


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_job_that_slept_through_the_end_of_its_parent_ends_when_it_wakes(
    start: Callable[..., Family],
) -> None:
    family = start(2)
    family.signal_jobs(signal.SIGSTOP)
    family.kill_parent()
    assert len(family.still_running()) == 2
    family.signal_jobs(signal.SIGCONT)
    assert family.still_running(ENDS_WITHIN_S) == []
