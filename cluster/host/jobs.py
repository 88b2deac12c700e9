"""Child processes that work for the loop: one msgpack value in, one out, and a deadline.

A job is a module that runs as `python -P -m module` would: it reads one msgpack value from standard input
until end of file, writes one to standard output, a long one in pieces (`cluster.host.pieces`), and exits 0.
Nothing else passes between the two processes, so a job can be killed at any moment, and a simulator can call
the same module's `run(request, files)` in place.

A job lives no longer than the node that wants its result, even if that node is killed: an orphan would keep
working in a directory that the node's next start uses, or an operator removes, and would have no deadline. So
the child holds the reading end of a pipe, its lifeline; the writing end is only in the parent, and closes
with it. The child begins in this module (`main`), which ties it to its lifeline and then becomes the job. A
write that is under way at that moment may still happen, so jobs write only files that are named for them
alone.

Each child is served by a thread of its own, which only starts it, feeds it and waits: starting a process
blocks for milliseconds, and asyncio's own subprocesses behave differently on each event loop.

Invariants: `done` is called exactly once, on the loop; a job outlives neither its deadline nor its
parent; no other child gets the writing end of its lifeline; the end of its standard error is part of its
error.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgpack

from cluster.host.pieces import parts, unpack

if TYPE_CHECKING:  # the child, which begins here too, need not load them
    import asyncio

    from raftlog.env.host import Done

JOB_REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""A job's answer is held in memory: an assignment of the largest group is below 8 MiB, any other answer fits
one piece (`cluster.host.pieces`)."""

READ_BYTES: Final = 256 * 1024
"""Bytes of an answer that are read at a time."""

GIVEN_UP_LOOK_MS: Final = 1_000
"""Milliseconds between two checks whether the answer that a thread waits for is still wanted."""

JOB_STDERR_BYTES_MAX: Final = 2 * 1024
"""The end of a traceback shows what went wrong; more would only fill the log."""

JOB_NICENESS: Final = 10
"""Niceness of low-priority jobs, which give way to the loop without starving on a busy machine."""

ORPHAN_EXIT_CODE: Final = 70
"""Exit code of a child without a parent, which nothing reads."""


class JobFailed(RuntimeError):
    """A job ended without a result: it crashed, its answer was too long, or its deadline passed."""


class RunningChild:
    """One child from start to result, deadline or `cancel`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        module: str,
        request: object,
        done: Done,
        *,
        low_priority: bool,
        deadline_ms: int,
    ) -> None:
        self._loop = loop
        self._module = module
        self._request: object = request
        self._done: Done | None = done
        self._is_given_up = False
        self._low_priority = low_priority
        self._child: subprocess.Popen[bytes] | None = None
        self._deadline = loop.call_later(deadline_ms / 1000, self._end, f"took over {deadline_ms} ms")
        try:
            threading.Thread(target=self._run, name=f"quorate-job-{module}", daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            loop.call_soon(self._finish, None, self._failure(f"could not be started: {error!r}"))

    def cancel(self) -> None:
        """Kill the child; `done` reports it in a later turn. Harmless after the end."""
        self._give_up()
        self._loop.call_soon(self._end, "was cancelled")

    def _end(self, what: str) -> None:
        """On the loop: end a job whose deadline has passed or whose result is not wanted."""
        self._give_up()
        self._finish(None, self._failure(what))

    def _give_up(self) -> None:
        """Kill the child; one that is just being started is killed by its thread."""
        self._is_given_up = True
        if self._child is not None:
            _kill(self._child)

    def _finish(self, result: object | None, error: BaseException | None) -> None:
        done, self._done = self._done, None
        self._deadline.cancel()
        if done is not None:
            done(result, error)

    def _failure(self, what: str) -> JobFailed:
        return JobFailed(f"{what} (job {self._module})")

    def _run(self) -> None:
        """On its thread: run the whole life of the child."""
        result: object | None = None
        error: BaseException | None = None
        try:
            result = self._work()
        except (OSError, JobFailed) as failure:
            error = failure
        except Exception as failure:  # otherwise it would go unreported
            error = self._failure(f"could not be run: {failure!r}")
        with contextlib.suppress(RuntimeError):  # the loop was closed: the result is not wanted any more
            self._loop.call_soon_threadsafe(self._finish, result, error)

    def _work(self) -> object:
        with (
            tempfile.TemporaryFile() as stderr,
            _lifeline() as lifeline,
            subprocess.Popen(
                (sys.executable, "-P", "-m", __name__, str(lifeline), self._module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=(lifeline,),
                process_group=0,
            ) as child,
        ):
            self._child = child
            if self._is_given_up:
                _kill(child)
            if self._low_priority:
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, child.pid, JOB_NICENESS)
            reply = self._talk(child)
            code = _bury(child)
            if code != 0:
                stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - JOB_STDERR_BYTES_MAX))
                said = stderr.read().decode(errors="replace").strip()
                how = f"exited with {code}" if code > 0 else f"was killed by signal {-code}"
                raise self._failure(f"{how}: {said}")
            if not reply:
                raise self._failure("ended without a result")
        try:
            return unpack(reply)
        except (ValueError, TypeError, msgpack.UnpackException) as error:  # TypeError: a list as key of a map
            raise self._failure(f"returned a result that is not msgpack: {error}") from error

    def _talk(self, child: subprocess.Popen[bytes]) -> bytes:
        """Send the request and read the reply. Neither side blocks, as the child reads everything first."""
        assert child.stdin is not None
        assert child.stdout is not None
        request, self._request = self._request, None
        with contextlib.suppress(BrokenPipeError), child.stdin as stdin:
            stdin.writelines(parts(request))
        del request
        reply = bytearray()
        for data in self._said(child.stdout.fileno()):
            reply += data
            if len(reply) > JOB_REPLY_BYTES_MAX:
                _kill(child)
                raise self._failure(f"returned more than {JOB_REPLY_BYTES_MAX} bytes")
        return bytes(reply)

    def _said(self, out: int) -> Iterator[bytes]:
        """Yield the child's output until the end of file, or until the job is given up.

        A process that the child left behind in another process group may hold the pipe open for ever.
        """
        poll = select.poll()
        poll.register(out, select.POLLIN)
        while not self._is_given_up or poll.poll(0):
            if poll.poll(GIVEN_UP_LOOK_MS):
                data = os.read(out, READ_BYTES)
                if not data:
                    return
                yield data


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and the processes that it started, which would hold its standard output open.

    Does nothing once the child was waited for, because its id may belong to another process by then.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()


def _bury(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child's end, kill what it left while its id is still its own, return its exit code."""
    if hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        _kill(child)
    return child.wait()


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """Make a pipe for one child and yield the reading end.

    The writing end stays here: no program started by this process inherits pipes, and `pass_fds` passes only
    the reading end, to that one child.
    """
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


# In the child.


def main() -> None:
    """Become the job MODULE and end with the parent, which holds the other end of LIFELINE."""
    lifeline, module = int(sys.argv[1]), sys.argv[2]
    _be_ended_by_system(lifeline)
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _be_ended_by_system(lifeline: int) -> None:
    """Let Linux end the process by SIGIO at the end of file; elsewhere, do nothing.

    That works at once, even in a call that lets no other thread run, such as matching a regular expression,
    and before the process does anything else after a SIGSTOP.
    """
    with contextlib.suppress(OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)


def _end_with_parent(lifeline: int) -> None:
    """Wait for the end of file, for systems without SIGIO here, or if it came before the signal was set up.

    Nothing of the job may run after it, not even a `finally`. A lifeline that cannot be read ends the job
    too.
    """
    try:
        os.read(lifeline, 1)
    finally:
        os._exit(ORPHAN_EXIT_CODE)


if __name__ == "__main__":
    main()
