"""The process of one node: settings in, a serving node, a clean stop on SIGTERM or Ctrl-C.

    python -P -m cluster [--config FILE] [--announce] [--lifeline FD] [--SETTING VALUE ...]

`--announce` prints one JSON line on standard output once every shard is served, here or by a leader that this
node follows. `--lifeline` names an inherited pipe: if its other end closes, the process that started the node
is gone, and the node stops too. Everything else is a setting. Logs go to standard error.

Invariants: the Kafka port is open and a short log is loaded before anything slow is imported; the
exit code says how the process ended.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster.collector import Collector, look_at_the_young
from cluster.descriptors import descriptors_kept, provide_descriptors
from cluster.host.host_asyncio import FATAL_EXIT_CODE, AsyncioHost, new_event_loop
from cluster.http import HttpListener
from cluster.log_lines import log_to_stderr
from cluster.node import Node
from cluster.settings import Settings, SettingsError, load_settings, table
from raftlog.env.errors import RaftlogError, in_one_line

LOG = logging.getLogger("quorate.main")

EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_UNREADABLE: Final = 5

DISK_WAITS_S: Final = 0.0005
"""Python's thread switch interval: how long the disk thread waits for a busy loop to release the GIL. The
default of 5 ms would be paid three times for each sync."""

STOP_TIMEOUT_S: Final = 10.0
"""A stop waits for one sync. A disk that takes longer than this is assumed not to answer at all."""

HTTP_PATIENCE_S: Final = 2.0
"""The HTTP listener waits this long for the shards, because its imports would take a fifth of a second from
their load or election. It starts without them after that, so that a slow node can report its state."""

SWITCHES: Final = frozenset(
    "--" + setting.name.replace(".", "-") for setting in table() if isinstance(setting.default, bool)
)


@dataclass(slots=True)
class Arguments:
    """The parsed command line."""

    config: Path | None = None
    announce: bool = False
    lifeline_fd: int | None = None
    flags: dict[str, str] = field(default_factory=dict)


def parse_arguments(words: Sequence[str]) -> Arguments:
    """Parse `--name value`, `--name=value` and, for boolean settings, `--name` alone.

    Raises SettingsError for anything else.
    """
    arguments = Arguments()
    rest = iter(words)
    for word in rest:
        if word == "--announce":
            arguments.announce = True
            continue
        name, equals, value = word.partition("=")
        if not name.startswith("--") or name == "--":
            raise SettingsError(f"{word!r} is not an option: options are --config FILE and --SETTING VALUE")
        if not equals and name in SWITCHES:
            value = "true"
        elif not equals:
            given = next(rest, None)
            if given is None:
                raise SettingsError(f"{name} needs a value")
            value = given
        if name == "--config":
            arguments.config = Path(value)
        elif name == "--lifeline":
            arguments.lifeline_fd = int(value)
        else:
            arguments.flags[name.removeprefix("--")] = value
    return arguments


def main(words: Sequence[str]) -> int:
    """Run one node until it is stopped and return the exit code."""
    try:
        arguments = parse_arguments(words)
        settings = load_settings(arguments.config, os.environ, arguments.flags)
    except (SettingsError, ValueError) as error:
        print(f"quorate: error: {error}", file=sys.stderr)
        return EXIT_USAGE
    log_to_stderr(settings.log_format, settings.log_level, settings.node_id)
    settings = provide_descriptors(settings)
    look_at_the_young()
    sys.setswitchinterval(DISK_WAITS_S)
    gc.disable()  # until everything is loaded, or loading takes long
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(ServingNode(loop, settings, arguments).run())
    except Exception as error:  # told when the loop has ended, so that it is the log's last line
        words, code = _failure(error)
        LOG.critical("%s", words)
        return code
    finally:
        loop.close()


def _failure(error: Exception) -> tuple[str, int]:
    """Return what to say of an error that ended the node, and the exit code."""
    if isinstance(error, SettingsError):
        return str(error), EXIT_USAGE
    if isinstance(error, RaftlogError):
        return str(error), EXIT_UNREADABLE
    if isinstance(error, OSError):
        is_taken = error.errno == errno.EADDRINUSE
        way_out = "; choose another port (kafka.port, http.port, peer.port)" if is_taken else ""
        return f"cannot listen or read: {error}{way_out}", FATAL_EXIT_CODE
    return f"internal error: {in_one_line(error)}", FATAL_EXIT_CODE


class ServingNode:
    """One node on one event loop, with the signal handlers of its process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Settings, arguments: Arguments) -> None:
        self._loop = loop
        self._settings = settings
        self._arguments = arguments
        kept = descriptors_kept(settings)
        self._host = AsyncioHost(loop, descriptors_kept=kept)
        self._node = Node(self._host, settings)
        self._http = HttpListener(self._node, settings, self._node.kafka, descriptors_kept=kept)
        self._collector = Collector(self._host)
        self._stop_asked = asyncio.Event()
        self._is_left_alone = False

    async def run(self) -> int:
        """Start, wait for a signal, stop; return the exit code.

        Raises `SettingsError`, `RaftlogError` or OSError if the node cannot start."""
        for number in (signal.SIGTERM, signal.SIGINT):
            name = signal.Signals(number).name
            self._loop.add_signal_handler(number, self._host.run, self._ask_to_stop, name)
        if (fd := self._arguments.lifeline_fd) is not None:
            self._loop.add_reader(fd, self._host.run, self._on_lifeline, fd)
        await self._start()
        await self._stop_asked.wait()
        return await self._stop()

    async def _start(self) -> None:
        started: asyncio.Future[None] = self._loop.create_future()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._node.when_ready(lambda: ready.set_result(None))

        def on_started(error: BaseException | None) -> None:
            if error is None:
                started.set_result(None)
            else:
                started.set_exception(error)

        self._node.start(on_started)
        await started
        stopping: asyncio.Future[bool] = self._loop.create_task(self._stop_asked.wait())
        both: set[asyncio.Future[Any]] = {ready, stopping}
        await asyncio.wait(both, timeout=HTTP_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        await self._http.start()
        self._node.http_bound(self._http.address)
        gc.enable()
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if ready.done():
            self._announce()

    def _announce(self) -> None:
        """Report that the node is ready, and let the collector exclude what was loaded.

        Loading leaves no cycles, and one full collection over a million offsets would stall the loop.
        """
        self._collector.start()
        info = self._node.info
        LOG.info(
            "every shard is served or follows its leader; HTTP at http://%s:%d",
            info.http_host,
            info.http_port,
        )
        if self._arguments.announce:
            line = {
                "node_id": info.node_id,
                "cluster_id": info.cluster_id,
                "kafka": list(self._node.kafka.address),
                "http": list(self._http.address),
            }
            print(json.dumps(line), flush=True)

    async def _stop(self) -> int:
        self._collector.stop()
        await self._http.end_leases()
        stopped = asyncio.Event()
        self._node.stop(stopped.set, hand_over=not self._is_left_alone)
        try:
            await asyncio.wait_for(stopped.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            LOG.critical(
                "the disk did not respond for %.0f s: stopping without a clean stop marker", STOP_TIMEOUT_S
            )
            return FATAL_EXIT_CODE
        await self._http.stop()
        self._host.close()
        return EXIT_OK

    def _ask_to_stop(self, why: str) -> None:
        LOG.info("stopping: %s", why)
        self._stop_asked.set()

    def _on_lifeline(self, fd: int) -> None:
        """The launcher stops the whole cluster, or has ended: either way no peer can take over."""
        is_asked = bool(os.read(fd, 1))
        self._loop.remove_reader(fd)
        self._is_left_alone = True
        self._ask_to_stop(
            "the launcher stops the cluster" if is_asked else "the process that started this node has ended"
        )
