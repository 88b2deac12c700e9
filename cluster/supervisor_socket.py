"""Commands to the launcher of a running cluster: a unix socket in the cluster's directory.

A request is one line of JSON, `{"command": "kill", "node": 2}`; the answer is one line, `{"said": …, "node":
{…}}` or `{"error": …, "hint": …}`; then the connection is closed.

Invariants: only the user who launched the cluster can connect (mode 0600). A socket that a killed
launcher left behind is distinguished from a live one, and replaced by the next launcher, which holds the
lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

SOCKET_FILE: Final = "supervisor"
LINE_BYTES_MAX: Final = 16 * 1024
BACKLOG: Final = 16


class NoSupervisor(Exception):
    """No launcher listens for this directory, or not to this user; the message says which."""


@contextlib.contextmanager
def listening(directory: Path) -> Iterator[socket.socket]:
    """Yield the launcher's non-blocking end, and remove it afterwards. Use it under the directory's lock."""
    path = directory / SOCKET_FILE
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)
        try:
            with _short(path) as name:
                listener.bind(name)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def is_there(directory: str | Path) -> bool:
    """Whether a launcher has its socket in this directory; a killed one may have left it behind."""
    return Path(directory, SOCKET_FILE).exists()


def ask(directory: str | Path, command: str, node_id: int, timeout_s: float) -> dict[str, Any]:
    """Return the launcher's answer; raises NoSupervisor, and TimeoutError if there is none in time."""
    request = json.dumps({"command": command, "node": node_id}).encode() + b"\n"
    heard = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            with _short(Path(directory, SOCKET_FILE)) as name:
                connection.connect(name)
            connection.sendall(request)
            while not heard.endswith(b"\n") and len(heard) < LINE_BYTES_MAX:
                piece = connection.recv(4096)
                if not piece:
                    raise ConnectionResetError("it ended before it responded")
                heard += piece
            return dict(json.loads(heard))
        except TimeoutError:
            raise
        except PermissionError as error:
            raise NoSupervisor(f"the cluster on {directory} was launched by another user") from error
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
            raise NoSupervisor(f"no launcher runs a cluster on {directory}") from error
        except (OSError, ValueError) as error:
            raise NoSupervisor(f"the launcher of {directory} did not respond: {error}") from error


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield the path by way of a descriptor of its directory: a socket's name has at most 107 bytes."""
    if not Path("/proc/self/fd").is_dir():
        yield str(path)
        return
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
