"""A Host on virtual time: clock, timers, disk, jobs and streams of one simulated machine.

Invariants: everything that a node can observe is a function of the world's seed. A crash drops every
event and connection of the machine and leaves it to the file layer to decide what survived on its disk; the
node of the next boot gets a new host over the same disk.
"""

from __future__ import annotations

import base64
import importlib
import math
import random
from collections.abc import Callable
from typing import Final, cast

from cluster.host.jobs import JobFailed
from cluster.simulator.network import Network, SimListener
from cluster.simulator.streams import SimTransport
from cluster.simulator.world import START_WALL_MS, Event, Stopped, World
from raftlog.env.errors import in_one_line
from raftlog.env.files import Files
from raftlog.env.host import Done, StreamHandler

LOOPBACK: Final = "127.0.0.1"

JOB_DURATION_MS: Final = 20.0
"""The duration of a job in virtual time: about as long as a Python process needs to start."""


class _SimJob:
    """The work of a child process, done in place and later."""

    def __init__(self, host: VirtualHost, fn: Callable[[], object], done: Done) -> None:
        self._host = host
        self._done = done
        self._event = host.call_later(JOB_DURATION_MS, host.work, fn, done)

    def cancel(self) -> None:
        if self._event.fn is not None:
            self._event.cancel()
            self._host.call_soon(self._done, None, JobFailed("job was cancelled"))


class VirtualHost:
    """`raftlog.env.host.Host` in a `World`.

    `sync_ms` is the duration of a sync: on the loop it blocks the loop, on the disk thread it does not.
    `clock_step_ms` passes at every reading of the monotonic clock, so that code that watches its own slices
    sees time pass. The wall clock may be set (`wall_skew_ms`) and the disk may be stalled (`stall_disk`) at
    any moment.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        files: Files,
        *,
        name: str = "node",
        boot: int = 1,
        sync_ms: float = 0.2,
        clock_step_ms: float = 0.0,
        wall_skew_ms: int = 0,
    ) -> None:
        self.world = world
        self.network = network
        self.files = files
        self.name = f"{name}#{boot}"
        self.rng = random.Random(f"{world.seed}/{self.name}")
        self.sync_ms = sync_ms
        self.clock_step_ms = clock_step_ms
        self.wall_skew_ms = wall_skew_ms
        self.fatal_message: str | None = None
        self._clock_ms = 0.0
        self._disk_free_at_ms = 0.0
        self._disk_stalled_until_ms = 0.0
        self._disk_clock_ms: float | None = None
        self.is_dead = False
        self.expects_failure = False
        """Whether the test expects a callback to raise; any other exception fails the test."""
        world.on_failure(self.name, self._failed)

    def busy_ms(self) -> float:
        return 0.0  # the computations of callbacks take no virtual time

    def monotonic_ms(self) -> float:
        if self._disk_clock_ms is not None:
            return self._disk_clock_ms
        if self.clock_step_ms:
            self.world.spend(self.clock_step_ms)
        self._clock_ms = max(self._clock_ms, self.world.now_ms)
        return self._clock_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.world.now_ms) + self.wall_skew_ms

    def call_soon(self, fn: Callable[..., object], *args: object) -> None:
        self._at(0.0, fn, *args)

    def call_later(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Event:
        return self.world.at(
            self.world.now_ms + max(0.0, delay_ms), fn, *args, owner=self.name, is_timer=True
        )

    def fresh_id(self) -> str:
        while True:
            text = base64.urlsafe_b64encode(self.fresh_uuid()).rstrip(b"=").decode()
            if not text.startswith("-"):
                return text

    def fresh_uuid(self) -> bytes:
        return self.rng.randbytes(16)

    def run_on_disk(self, fn: Callable[[], object], done: Done) -> None:
        """Do the work in order, each piece taking `sync_ms`; its effect comes at its end."""
        start_ms = max(self.world.now_ms, self._disk_free_at_ms)
        self._disk_free_at_ms = start_ms + self.sync_ms
        self._at(self._disk_free_at_ms - self.world.now_ms, self._work_on_disk, start_ms, fn, done)

    def stall_disk(self, duration_ms: float) -> None:
        """Let no sync end before `duration_ms` are over, on the loop or on the disk thread."""
        self._disk_stalled_until_ms = self.world.now_ms + duration_ms
        self._disk_free_at_ms = max(self._disk_free_at_ms, self._disk_stalled_until_ms)

    def took(self, operation: str) -> None:
        """Let time pass for an operation of the disk: a sync delays whichever thread asked for it."""
        if operation != "fdatasync":
            return
        if self._disk_clock_ms is not None:
            self._disk_clock_ms = max(self._disk_clock_ms + self.sync_ms, self.world.now_ms)
        else:
            self.world.spend(max(self.sync_ms, self._disk_stalled_until_ms - self.world.now_ms))

    def wait_for_descriptor(self, ms: float) -> None:
        """Let a file call check again a little later; on the loop, nothing else happens meanwhile."""
        if self._disk_clock_ms is not None:
            self._disk_clock_ms += ms
        else:
            self.world.spend(ms)

    def spawn_job(
        self, argv_module: str, request: object, done: Done, *, low_priority: bool, deadline_ms: int
    ) -> _SimJob:
        """Call `run(request, files)` of the module later, in place of a process."""
        module = importlib.import_module(argv_module)
        return _SimJob(self, lambda: module.run(request, self.files), done)

    def listen(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[SimListener | None, BaseException | None], None],
        tls: object | None = None,
    ) -> None:
        """Listen, without encryption: this network has no eavesdroppers.

        With `tls`, a client that connects without it stays in its handshake.
        """
        try:
            listener = self.network.listen(
                self.name, host or LOOPBACK, port, protocol_factory, has_tls=tls is not None
            )
        except OSError as error:
            self.call_soon(done, None, error)
            return
        self.call_soon(done, listener, None)

    def connect(
        self,
        host: str,
        port: int,
        protocol_factory: Callable[[], StreamHandler],
        done: Callable[[StreamHandler | None, BaseException | None], None],
        tls: object | None = None,
    ) -> None:
        def opened(transport: SimTransport | None, error: BaseException | None) -> None:
            done(None if transport is None else cast("StreamHandler", transport.protocol), error)

        self.network.connect(
            self.name, host or LOOPBACK, port, protocol_factory, opened, has_tls=tls is not None
        )

    def fatal(self, message: str) -> None:
        """End the machine's process; `fatal_message` keeps the reason."""
        self.fatal_message = message
        self.kill()
        raise Stopped(message)

    def _failed(self, error: Exception) -> None:
        """End the process because a callback raised, as in a real one."""
        message = f"a callback failed because of an internal error: {in_one_line(error)}"
        if self.expects_failure:
            self.fatal(message)
        self.fatal_message = message
        self.kill()
        raise error

    def kill(self, *, has_power: bool = True) -> None:
        """End the process as kill -9 does; the disk is untouched.

        No callback of this host runs any more. Its peers see resets, or nothing at all if the machine lost
        power.
        """
        self.is_dead = True
        self.network.drop_host(self.name, has_power=has_power)
        self.world.forget(self.name)

    def pause(self, duration_ms: float = math.inf) -> None:
        """Send SIGSTOP, and SIGCONT `duration_ms` later or at `resume`."""
        self.world.pause(self.name, self.world.now_ms + duration_ms)

    def resume(self) -> None:
        """Send SIGCONT."""
        self.world.resume(self.name)

    @property
    def is_paused(self) -> bool:
        return self.world.is_paused(self.name)

    def work(self, fn: Callable[[], object], done: Done) -> None:
        """Run `fn` in place of a thread or a process, and report its result."""
        result: object | None = None
        error: BaseException | None = None
        try:
            result = fn()
        except Exception as raised:
            error = raised
        done(result, error)

    def _work_on_disk(self, start_ms: float, fn: Callable[[], object], done: Done) -> None:
        """Do work as the disk thread, which reads the clock as it was while it worked."""
        stalled_ms = self._disk_stalled_until_ms - self.world.now_ms
        if stalled_ms > 0:
            self._at(stalled_ms, self._work_on_disk, start_ms, fn, done)
            return
        self._disk_clock_ms = start_ms

        def on_loop(result: object | None, error: BaseException | None) -> None:
            self._disk_clock_ms = None
            done(result, error)

        self.work(fn, on_loop)

    def _at(self, delay_ms: float, fn: Callable[..., object], *args: object) -> Event:
        return self.world.at(self.world.now_ms + delay_ms, fn, *args, owner=self.name)
