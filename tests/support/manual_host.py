"""A Host on virtual time for these tests: a queue of callbacks, a simulated disk, jobs run in place."""

from __future__ import annotations

import heapq
import importlib
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgpack

from raftlog.env.files import Files
from raftlog.env.host import Done, Timer
from raftlog.env.simulated_files import SimFiles


class Stopped(BaseException):
    """The node stopped itself; the message is what it said."""


class _Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualHost:
    """Runs what is queued when told to. `sync_ms` makes every write-and-sync appear to take that long."""

    def __init__(self, files: Files | None = None, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.files: Files = SimFiles(seed) if files is None else files
        self.now_ms = 0.0
        self.step_ms = 0.0
        self.wall_offset_ms = 1_700_000_000_000
        self.fatal_message: str | None = None
        self.jobs: list[tuple[str, Any]] = []
        self.hold_jobs = False
        self.hold_disk = False
        self.disk: deque[tuple[Callable[[], object], Done]] = deque()
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._later: list[tuple[float, int, _Timer, Callable[..., object], tuple[object, ...]]] = []
        self._count = 0
        self._held_jobs: list[Callable[[], None]] = []

    def monotonic_ms(self) -> float:
        self.now_ms += self.step_ms
        return self.now_ms

    def wall_ms(self) -> int:
        return self.wall_offset_ms + int(self.now_ms)

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        self._soon.append((fn, args))

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Timer:
        timer = _Timer()
        self._count += 1
        heapq.heappush(self._later, (self.now_ms + delay_ms, self._count, timer, fn, args))
        return timer

    def fresh_id(self) -> str:
        return f"{self.rng.getrandbits(128):032x}"

    def fresh_uuid(self) -> bytes:
        return self.rng.getrandbits(128).to_bytes(16, "big")

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        self.disk.append((fn, done))
        if not self.hold_disk:
            self.call_soon(self.do_disk)

    def do_disk(self) -> None:
        """Do the next piece of disk work and report it on the loop."""
        fn, done = self.disk.popleft()
        try:
            result = fn()
        except Stopped:
            raise
        except BaseException as error:
            self.call_soon(done, None, error)
        else:
            self.call_soon(done, result, None)

    def spawn_job(
        self, argv_module: str, request: object, done: Done, *, low_priority: bool, deadline_ms: int
    ) -> Timer:
        job = _Timer()
        wire = msgpack.packb(request)
        self.jobs.append((argv_module, request))

        def run() -> None:
            if job.cancelled:
                return
            module = importlib.import_module(argv_module)
            try:
                result = msgpack.unpackb(msgpack.packb(module.run(msgpack.unpackb(wire), self.files)))
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        if self.hold_jobs:
            self._held_jobs.append(run)
        else:
            self.call_soon(run)
        return job

    def release_jobs(self) -> None:
        """Let the held jobs run."""
        held, self._held_jobs = self._held_jobs, []
        for run in held:
            self.call_soon(run)

    def listen(self, *_: object, **__: object) -> None:
        raise NotImplementedError("the log opens no sockets")

    def connect(self, *_: object, **__: object) -> None:
        raise NotImplementedError("the log opens no sockets")

    def fatal(self, message: str) -> None:
        if self.fatal_message is None:
            self.fatal_message = message
        raise Stopped(message)

    def turn(self) -> None:
        """Run what is queued now, not what that queues."""
        for _ in range(len(self._soon)):
            fn, args = self._soon.popleft()
            fn(*args)

    def run(self, turns_max: int = 100_000) -> None:
        """Run until nothing is queued."""
        for _ in range(turns_max):
            if not self._soon:
                return
            self.turn()
        raise AssertionError("the loop does not come to rest")

    def advance(self, ms: float) -> None:
        """Let time pass, timers firing in order."""
        until = self.now_ms + ms
        self.run()
        while self._later and self._later[0][0] <= until:
            at, _, timer, fn, args = heapq.heappop(self._later)
            self.now_ms = max(self.now_ms, at)
            if not timer.cancelled:
                fn(*args)
            self.run()
        self.now_ms = until
