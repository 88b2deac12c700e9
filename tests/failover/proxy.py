"""A TCP proxy between two nodes, with faults that a test controls.

By default bytes pass in both directions. `hold` keeps the bytes of one way, so that the connection stays open
and one side receives nothing (a half-open connection, a one-way cut); `pass_on` releases them. `delay` makes
all bytes arrive later, in order. `cut` resets every connection and refuses new ones; `heal` accepts new ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

READ_BYTES = 1 << 16
ON_ITS_WAY_MAX = 1024
"""At most this many reads of one connection wait for their delay, each way."""
LOOPBACK = "127.0.0.1"


class Way(enum.Enum):
    """A direction, seen from the node that dials."""

    THERE = "there"
    BACK = "back"


class Proxy:
    """Listens on `port` and connects to `target`, on a thread with its own loop, until `close`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open: dict[Way, asyncio.Event] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._delay_s = 0.0
        self.port = 0
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        started.wait(10)

    def hold(self, way: Way) -> None:
        self._call(self._open[way].clear)

    def pass_on(self, way: Way) -> None:
        self._call(self._open[way].set)

    def delay(self, seconds: float) -> None:
        """Delay all bytes that are read from now on."""
        self._call(setattr, self, "_delay_s", seconds)

    def cut(self) -> None:
        self._call(self._cut)

    def heal(self) -> None:
        self._call(setattr, self, "_is_cut", False)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _call(self, fn: Callable[..., object], *args: Any) -> None:
        done = threading.Event()

        def run() -> None:
            fn(*args)
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(10)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        for way in Way:
            self._open[way] = asyncio.Event()
            self._open[way].set()
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, LOOPBACK, 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            _reset(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            _reset(writer)
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            _reset(writer)
            return
        pair = {writer, back}
        self._writers |= pair
        try:
            ways = (self._pump(reader, back, Way.THERE), self._pump(there, writer, Way.BACK))
            await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when="FIRST_COMPLETED")
        finally:
            self._writers -= pair
            for one in pair:
                _reset(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(ON_ITS_WAY_MAX)
        arriving = asyncio.ensure_future(self._arrive(queue, writer, way))
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(READ_BYTES):
                    await queue.put((self._loop.time() + self._delay_s, data))
        finally:
            arriving.cancel()

    async def _arrive(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, way: Way
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                due_s, data = await queue.get()
                await asyncio.sleep(max(0.0, due_s - self._loop.time()))
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, as when the other side crashes."""
    sock = writer.get_extra_info("socket")
    if sock is not None and not writer.is_closing():
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
