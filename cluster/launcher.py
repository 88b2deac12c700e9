"""Starts node processes for people and tests, and sees to it that none is left behind.

A launched node has a directory with its configuration (`node.toml`) and its log (`node.log`) beside its data,
ports that stay the same over restarts, and a command that anybody can run again after a kill. It holds the
reading end of a pipe whose writing end dies with the launcher, so it stops when its launcher does, however
that ends.

What must stay true: a directory is formatted once, and only here or by an explicit format; `command` alone
brings the node back.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cluster.settings import SettingsError, load_settings
from raftlog.directory import LOCK_FILE, NODE_FILE, NodeIdentity, format_node, read_identity
from raftlog.errors import RaftlogError
from raftlog.files import OsFiles

LOOPBACK: Final = "127.0.0.1"
CONFIG_FILE: Final = "node.toml"
LOG_FILE: Final = "node.log"
EXIT_USAGE: Final = 2
EXIT_STOPPED: Final = 70
ANNOUNCEMENT_BYTES_MAX: Final = 64 * 1024

LOG_TAIL_BYTES: Final = 8 * 1024
"""Where a node's last words are looked for."""


class LaunchError(Exception):
    """A node did not come up: one line with its own last words; `exit_code` is None while it still runs."""

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch_node(
    data: Path,
    *,
    node_id: int = 1,
    kafka_port: int = 0,
    http_port: int = 0,
    settings: Mapping[str, str] | None = None,
    wait_ready_s: float = 30.0,
) -> NodeProcess:
    """Formats `data` if it is new, starts a node on it and returns when it serves.

    A port of 0 is the one that this directory had before, or a free one. Raises LaunchError.
    """
    wanted: dict[str, object] = dict(settings or {})
    try:
        _format_if_new(data, node_id, load_settings(None, {}, wanted).cluster_shards)
        wanted.setdefault("cluster.shards", read_identity(OsFiles(), str(data)).num_shards)
        # The node takes the lock itself; asked for here, so that a running node's configuration stays.
        OsFiles().lock(str(data / LOCK_FILE)).release()
    except SettingsError as error:
        raise LaunchError(str(error), EXIT_USAGE) from error
    except BlockingIOError as error:
        raise LaunchError(f"another process runs on {data}: stop it first") from error
    except (RaftlogError, OSError, ValueError) as error:
        raise LaunchError(f"cannot use {data} as a node's directory: {error}") from error
    before = _ports_before(data)
    try:
        process = NodeProcess(
            data,
            node_id=node_id,
            port=_stable_port(kafka_port, before.get("kafka.port", 0)),
            http_port=_stable_port(http_port, before.get("http.port", 0)),
            settings=wanted,
        )
    except OSError as error:
        what = f"cannot write {data / CONFIG_FILE}: {error.strerror}: free space or make it writable"
        raise LaunchError(what, EXIT_STOPPED) from error
    process.start(wait_ready_s)
    return process


class NodeProcess:
    """One node process: started, killed, stopped and started again with the same command."""

    def __init__(
        self, data: Path, *, node_id: int, port: int, http_port: int, settings: Mapping[str, object]
    ) -> None:
        self.data = data.resolve()
        self.node_id = node_id
        self.host = LOOPBACK
        self.port = port
        self.http_port = http_port
        config = self.data / CONFIG_FILE
        self.command = [sys.executable, "-P", "-m", "cluster", "--config", str(config), "--announce"]
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline_fd: int | None = None
        own = {
            "node.id": node_id,
            "data.dir": str(self.data),
            "kafka.host": self.host,
            "kafka.port": port,
            "http.host": self.host,
            "http.port": http_port,
        }
        _write_config(config, {**own, **settings})

    @property
    def pid(self) -> int:
        """Of the newest start."""
        assert self._process is not None, "the node was never started"
        return self._process.pid

    def as_dict(self) -> dict[str, Any]:
        """What scripts need to find, kill and restart the node."""
        return {
            "id": self.node_id,
            "pid": self.pid,
            "host": self.host,
            "port": self.port,
            "http_port": self.http_port,
            "data": str(self.data),
            "command": self.command,
        }

    def start(self, wait_ready_s: float = 30.0) -> None:
        """Starts the process and waits until every shard serves. Raises LaunchError."""
        assert self._process is None or self._process.poll() is not None, "the node runs already"
        self._close_lifeline()
        lifeline, self._lifeline_fd = os.pipe()
        try:
            with (self.data / LOG_FILE).open("ab") as log:
                self._process = subprocess.Popen(
                    [*self.command, "--lifeline", str(lifeline)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    pass_fds=(lifeline,),
                    process_group=0,  # Ctrl-C on the terminal is the launcher's to handle
                )
        except OSError as error:
            raise LaunchError(f"cannot start {self.command[0]}: {error}") from error
        finally:
            os.close(lifeline)
        self._await_announcement(wait_ready_s)

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for its end; raises subprocess.TimeoutExpired."""
        assert self._process is not None, "the node was never started"
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """kill -9, and waits for the end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
        self._close_lifeline()

    def stop(self, timeout_s: float = 10.0) -> int:
        """SIGTERM, and waits for the end; returns the exit code. What does not end in time is killed."""
        assert self._process is not None, "the node was never started"
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
        finally:
            self._close_lifeline()

    def _await_announcement(self, wait_ready_s: float) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline_s = time.monotonic() + wait_ready_s
        heard = b""
        with self._process.stdout as stream:
            while b"\n" not in heard and len(heard) < ANNOUNCEMENT_BYTES_MAX:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not select.select([stream], [], [], left_s)[0]:
                    self.kill()
                    raise LaunchError(
                        f"the node on {self.data} is not ready after {wait_ready_s:.0f} s: "
                        + self.last_words()
                    )
                piece = os.read(stream.fileno(), 4096)
                if not piece:
                    code = self._process.wait()
                    self._close_lifeline()
                    raise LaunchError(
                        f"the node on {self.data} ended with exit code {code}: {self.last_words()}", code
                    )
                heard += piece

    def last_words(self) -> str:
        """The newest line of the node's log; empty if there is none."""
        with contextlib.suppress(OSError), (self.data / LOG_FILE).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
            if lines:
                return lines[-1]
        return ""

    def _close_lifeline(self) -> None:
        if self._lifeline_fd is not None:
            os.close(self._lifeline_fd)
            self._lifeline_fd = None


def _format_if_new(data: Path, node_id: int, num_shards: int) -> None:
    if (data / NODE_FILE).exists():
        return
    # Imported here: the host brings an event loop along, which a caller that only restarts does not need.
    from cluster.host_asyncio import fresh_id

    identity = NodeIdentity(
        cluster_id=fresh_id(), node_id=node_id, incarnation=fresh_id(), num_shards=num_shards
    )
    format_node(OsFiles(), str(data.resolve()), identity)


def _ports_before(data: Path) -> dict[str, int]:
    """The ports in the configuration of an earlier launch; {} when there was none."""
    try:
        document = tomllib.loads((data / CONFIG_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: port for name in ("kafka.port", "http.port") if isinstance(port := document.get(name), int)}


def _stable_port(asked: int, before: int) -> int:
    if asked:
        return asked
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, before))
        except OSError:
            probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _write_config(path: Path, settings: Mapping[str, object]) -> None:
    """Quoted keys and JSON's values are TOML too."""
    quoted = functools.partial(json.dumps, ensure_ascii=False)
    lines = [f"{quoted(name)} = {quoted(value)}" for name, value in settings.items()]
    aside = path.with_suffix(".toml.new")
    aside.write_text(
        "# Written by the launcher; a later launch on this directory writes it anew.\n"
        + "\n".join(lines)
        + "\n",
        encoding="utf-8",
    )
    aside.replace(path)
