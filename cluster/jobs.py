"""Child processes that work for the loop: one msgpack value in, one out, and a deadline.

A job is a module that runs as `python -P -m module`: it reads one msgpack value from standard input until
end of file, writes one to standard output and exits 0. Nothing else passes between the two processes, so a
job can be killed at any moment, and a simulator can call the same module's `run(request, files)` in place.

What must stay true: `done` is called exactly once, on the loop; a job never outlives its deadline; the end of
what it printed on standard error is part of its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any, Final, cast

import msgpack

from raftlog.host import Done

JOB_REPLY_BYTES_MAX: Final = 64 * 1024 * 1024
"""A job's answer is held in memory: an assignment of the largest group is below 8 MiB."""

JOB_STDERR_BYTES_MAX: Final = 2 * 1024
"""The end of a traceback says what went wrong; more would only fill the log."""

JOB_NICENESS: Final = 10
"""Low-priority jobs give way to the loop without starving on a busy machine."""


class JobFailed(RuntimeError):
    """A job ended without a result: it crashed, said too much, or took longer than its deadline."""


class Job(asyncio.SubprocessProtocol):
    """One running child, from `spawn_job` until its result, its deadline or `cancel`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, module: str, request: bytes, done: Done) -> None:
        self._loop = loop
        self._module = module
        self._request = request
        self._done: Done | None = done
        self._reply = bytearray()
        self._stderr = b""
        self._transport: asyncio.SubprocessTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    async def start(self, low_priority: bool, deadline_ms: int) -> None:
        """Starts the child; a machine that cannot start one is an error for `done`, not for the caller."""
        if self._done is None:
            return
        self._deadline = self._loop.call_later(deadline_ms / 1000, self._fail, f"took over {deadline_ms} ms")
        command = (sys.executable, "-P", "-m", self._module)
        try:
            transport, _ = await self._loop.subprocess_exec(lambda: self, *command)
        except OSError as error:
            self._fail(f"could not be started: {error}")
            return
        if low_priority:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, transport.get_pid(), JOB_NICENESS)

    def cancel(self) -> None:
        """Kills the child; `done` reports it in a later turn. Harmless after the end."""
        self._loop.call_soon(self._fail, "was cancelled")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        if self._done is None:
            self._close()
            return
        stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        stdin.write(self._request)
        stdin.write_eof()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-JOB_STDERR_BYTES_MAX:]
            return
        self._reply += data
        if len(self._reply) > JOB_REPLY_BYTES_MAX:
            self._fail(f"answered more than {JOB_REPLY_BYTES_MAX} bytes")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called once all pipes are closed and the child has been waited for."""
        if self._done is None or self._transport is None:
            return
        code = self._transport.get_returncode()
        if code != 0:
            self._fail(f"exited with {code}: {self._stderr.decode(errors='replace').strip()}")
            return
        try:
            result: Any = msgpack.unpackb(bytes(self._reply), strict_map_key=False)
        except (ValueError, msgpack.UnpackException) as error:
            self._fail(f"answered something that is not msgpack: {error}")
            return
        self._finish(result, None)

    def _fail(self, what: str) -> None:
        self._finish(None, JobFailed(f"job {self._module} {what}"))

    def _finish(self, result: object | None, error: BaseException | None) -> None:
        done, self._done = self._done, None
        self._close()
        if done is not None:
            done(result, error)

    def _close(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError):
                self._transport.kill()
            self._transport.close()
