"""One node process as seen by its launcher: started, killed, paused, stopped and started again.

A launched node has a directory with its configuration (`node.toml`) and its log (`node.log`) beside its data,
and a command with which anyone can start it again after a kill. It holds the reading end of a pipe, its
lifeline; the writing end belongs to the launcher and closes with it, so a node stops when its launcher is
gone, however that ended. A byte in it says that the launcher stops the whole cluster.

Invariants: `command` alone starts the node again; the node writes its log itself, so a launcher that
is slow, stopped or dead never blocks it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cluster.log_lines import without_json

LOOPBACK: Final = "127.0.0.1"
CONFIG_FILE: Final = "node.toml"
LOG_FILE: Final = "node.log"
LINEAGE_PORTS: Final = ("lineage.push.port", "lineage.rewrite.port")
"""The settings with the ports of older group protocols."""
EXIT_STOPPED: Final = 70

ANNOUNCEMENT_BYTES_MAX: Final = 4 * 1024
"""Bytes of one line, which a pipe carries in one piece."""

LOG_TAIL_BYTES: Final = 8 * 1024
"""Bytes at the end of a node's log that are searched for its last line."""


class LaunchError(Exception):
    """A node did not start: one line that ends its log; `exit_code` is None while it still runs."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NodeProcess:
    """One node process. Call `start`, or `spawn` and then `is_announced` until it is true."""

    def __init__(
        self, data: Path, *, node_id: int, port: int, http_port: int, settings: Mapping[str, object]
    ) -> None:
        self.data = data.resolve()
        self.node_id = node_id
        self.host = LOOPBACK
        self.port = port
        self.http_port = http_port
        self.is_paused = False
        config = self.data / CONFIG_FILE
        self.command = [sys.executable, "-P", "-m", "cluster", "--config", str(config), "--announce"]
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline_fd: int | None = None
        self._has_announced = False
        self._settings: dict[str, object] = {
            "node.id": node_id,
            "data.dir": str(self.data),
            "kafka.host": self.host,
            "kafka.port": port,
            "http.host": self.host,
            "http.port": http_port,
        }
        self.configure(settings)

    def configure(self, settings: Mapping[str, object]) -> None:
        """Add settings to the node's configuration for its next start. Raises LaunchError."""
        self._settings.update(settings)
        path = self.data / CONFIG_FILE
        try:
            _write_config(path, self._settings)
        except OSError as error:
            what = f"cannot write {path}: {error.strerror}: free space or make it writable"
            raise LaunchError(what, EXIT_STOPPED) from error

    @property
    def pid(self) -> int:
        """The process id of the newest start."""
        assert self._process is not None, "the node was never started"
        return self._process.pid

    @property
    def was_started(self) -> bool:
        return self._process is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def bootstrap(self) -> str:
        """The node's address for Kafka clients."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The node's address for HTTP clients."""
        return f"http://{self.host}:{self.http_port}"

    @property
    def lineage_ports(self) -> dict[str, int]:
        """The ports of the older group protocols that the node serves, by protocol: push, rewrite."""
        found = ((name.split(".")[1], self._settings.get(name, -1)) for name in LINEAGE_PORTS)
        return {name: port for name, port in found if isinstance(port, int) and port >= 0}

    def as_dict(self) -> dict[str, Any]:
        """Return what scripts need to find, kill and restart the node."""
        return {
            "id": self.node_id,
            "pid": self.pid,
            "host": self.host,
            "port": self.port,
            "http_port": self.http_port,
            "data": str(self.data),
            "command": self.command,
            **{f"{name}_port": port for name, port in self.lineage_ports.items()},
        }

    # Start and stop.

    def start(self, wait_ready_s: float = 30.0) -> None:
        """Start the process, wait until it serves, kill it if that takes too long. Raises LaunchError."""
        self.spawn()
        self.await_announced(time.monotonic() + wait_ready_s, wait_ready_s)

    def spawn(self) -> None:
        """Start the process without waiting. Raises LaunchError."""
        assert not self.is_running, "the node is already running"
        self._forget_process()
        self._has_announced = False
        lifeline, self._lifeline_fd = os.pipe()
        try:
            with (self.data / LOG_FILE).open("ab") as log:
                self._process = subprocess.Popen(
                    [*self.command, "--lifeline", str(lifeline)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(lifeline,),
                    process_group=0,  # Ctrl-C on the terminal is for the launcher to handle
                )
        except OSError as error:
            raise LaunchError(f"cannot start the node on {self.data}: {error}") from error
        finally:
            os.close(lifeline)

    def await_announced(self, deadline_s: float, wait_ready_s: float) -> None:
        """Wait until the node serves, up to `deadline_s` of `time.monotonic`, `wait_ready_s` after its start.

        Raises LaunchError.
        """
        while not self.is_announced(max(0.0, deadline_s - time.monotonic())):
            if time.monotonic() >= deadline_s:
                self.kill()
                raise LaunchError(
                    f"the node on {self.data} is not ready after {wait_ready_s:g} s: {self.last_words()}"
                )

    def is_announced(self, timeout_s: float = 0.0) -> bool:
        """Whether the started node has announced that it serves; waits for that for at most `timeout_s`.

        Raises LaunchError if it ended instead.
        """
        assert self._process is not None, "the node was never started"
        if self._has_announced:
            return True
        stream = self._process.stdout
        assert stream is not None
        piece = b""
        if not stream.closed:  # as that of a node that was killed meanwhile
            if not select.select([stream], [], [], timeout_s)[0]:
                return False
            piece = os.read(stream.fileno(), ANNOUNCEMENT_BYTES_MAX)
        if not piece:
            code = self._process.wait()
            self._forget_process()
            raise LaunchError(
                f"the node on {self.data} ended with exit code {code}: {self.last_words()}", code
            )
        self._has_announced = b"\n" in piece  # one short write to a pipe arrives whole
        if self._has_announced:
            stream.close()
        return self._has_announced

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        assert self._process is not None, "the node was never started"
        return self._process.wait(timeout_s)

    def pause(self) -> None:
        """Send SIGSTOP: the process stands still until `resume`, and does not notice."""
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Send SIGCONT."""
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def kill(self, *, wait: bool = True) -> None:
        """Send SIGKILL, and wait for the end unless told not to."""
        self._signal(signal.SIGKILL)
        if wait and self._process is not None:
            self._process.wait()
            self._forget_process()

    def stop(self, timeout_s: float = 10.0) -> int:
        """Send SIGTERM, wait for the end, return the exit code. A node that is too slow is killed."""
        self.ask_to_stop()
        return self.await_end(timeout_s)

    def ask_to_stop(self) -> None:
        """Send SIGTERM: in a cluster the node first hands over what it leads."""
        assert self._process is not None, "the node was never started"
        self._signal(signal.SIGTERM)
        if self.is_paused:
            self.resume()

    def let_go(self) -> None:
        """Stop with the whole cluster: the node hands nothing over, since no other node stays."""
        if self._lifeline_fd is not None:
            with contextlib.suppress(OSError):  # the node has ended
                os.write(self._lifeline_fd, b".")
        self._close_lifeline()
        if self.is_paused:
            self.resume()

    def await_end(self, timeout_s: float) -> int:
        """Wait for the end of a node that was asked to stop, kill it on timeout; return the exit code."""
        assert self._process is not None, "the node was never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
        finally:
            self._forget_process()

    def last_words(self) -> str:
        """Return the newest line of the node's log, of JSON only its message; empty if there is none."""
        with contextlib.suppress(OSError), (self.data / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            if lines:
                return without_json(lines[-1])
        return ""

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _forget_process(self) -> None:
        self.is_paused = False
        self._close_lifeline()
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def _close_lifeline(self) -> None:
        if self._lifeline_fd is not None:
            os.close(self._lifeline_fd)
            self._lifeline_fd = None


def ports_before(data: Path) -> dict[str, int]:
    """Return the ports in the configuration of an earlier launch; {} if there was none."""
    try:
        document = tomllib.loads((data / CONFIG_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    names = ("kafka.port", "http.port", "peer.port", *LINEAGE_PORTS)
    return {name: port for name in names if isinstance(port := document.get(name), int)}


def _write_config(path: Path, settings: Mapping[str, object]) -> None:
    """Write the configuration. Quoted keys and JSON's values are TOML too."""
    quoted = functools.partial(json.dumps, ensure_ascii=False)
    lines = [f"{quoted(name)} = {quoted(value)}" for name, value in settings.items()]
    aside = path.with_name(path.name + ".new")
    aside.write_text(
        "# Written by the launcher; the next launch on this directory overwrites it.\n"
        + "\n".join(lines)
        + "\n",
        encoding="utf-8",
    )
    aside.replace(path)
