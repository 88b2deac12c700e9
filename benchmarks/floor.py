"""The lower bound for a replicated write: bare TCP and fdatasync, a quorum of two of three.

    python -m benchmarks.floor FILE     one peer: prints its port, then appends, syncs and acknowledges

There is no framing, no Raft and no event loop: a blocking write to both peers, the leader's own append and
sync meanwhile, and the first acknowledgement received.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

RECORD = b"x" * 300
"""About the size of one commit's frame."""

LOOPBACK = "127.0.0.1"


def peer(path: str) -> None:
    """Serve one leader until it closes."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with socket.create_server((LOOPBACK, 0)) as server:
        print(server.getsockname()[1], flush=True)
        leader, _ = server.accept()
    leader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := leader.recv(len(RECORD), socket.MSG_WAITALL):
        os.write(file, data)
        os.fdatasync(file)
        leader.sendall(b".")


class Floor:
    """A leader with two peers in processes of their own."""

    def __init__(self, directory: Path, peers: list[socket.socket]) -> None:
        self._file = os.open(directory / "leader", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._peers = peers
        self._owed = dict.fromkeys(peers, 0)

    def write_ms(self) -> float:
        """Milliseconds until a quorum has one record."""
        start = time.perf_counter()
        for one in self._peers:
            one.sendall(RECORD)
            self._owed[one] += 1
        os.write(self._file, RECORD)
        os.fdatasync(self._file)
        while min(self._owed.values()):
            for one in select.select(self._peers, [], [])[0]:
                self._owed[one] -= len(one.recv(64))
        return (time.perf_counter() - start) * 1000


@contextlib.contextmanager
def floor(directory: Path) -> Iterator[Floor]:
    """Start the two peers, and end them with the body."""
    children: list[subprocess.Popen[str]] = []
    sockets: list[socket.socket] = []
    try:
        for number in (1, 2):
            command = [sys.executable, "-m", "benchmarks.floor", str(directory / f"peer-{number}")]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            children.append(child)
            assert child.stdout is not None
            one = socket.create_connection((LOOPBACK, int(child.stdout.readline())))
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sockets.append(one)
        yield Floor(directory, sockets)
    finally:
        for one in sockets:
            one.shutdown(socket.SHUT_WR)
        for child in children:
            child.wait(5)
        for one in sockets:
            one.close()


if __name__ == "__main__":
    peer(sys.argv[1])
