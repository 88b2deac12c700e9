"""The child process that computes a target: `python -P -m cluster.children.assign` (see `cluster.host.jobs`).

It may run a user's assignor, so it shares nothing with the node but the request and the answer. The
assignor's output goes to standard error and cannot mix with the answer; its standard input is empty; its
memory and the files that it writes are bounded here, and its time by the process that started it.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import IO, Any, Final

import msgpack

from cluster.host.pieces import pack
from coordinator.assignors import BUILT_IN, PartitionAssignor, PartitionAssignorError
from coordinator.assignors.assigning import answer

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of each file that an assignor may write, its output included: enough for any compiled module."""


def find(name: str) -> PartitionAssignor:
    """Return a built-in assignor by name, or else the one installed under that name."""
    for assignor in BUILT_IN:
        if assignor.name == name:
            return assignor
    from cluster.assignors import load  # slow to import, and rarely needed

    assignor = load(name)
    if assignor.name != name:
        raise PartitionAssignorError(f"The assignor installed as {name} calls itself {assignor.name}.")
    return assignor


def run(request: Any, files: object) -> object:
    """Call the assignor; the answer reports whatever it does, short of ending the process."""
    return answer(request, find)


def _confine(memory_bytes_max: int) -> IO[bytes]:
    """Bound this process; return the stream for the answer."""
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes_max),
        (resource.RLIMIT_FSIZE, FILE_BYTES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return out


def main() -> None:
    """Compute from standard input to standard output.

    Threads and exit handlers that an assignor left behind are not waited for.
    """
    asked = msgpack.unpackb(sys.stdin.buffer.read())
    with _confine(asked["memory_bytes_max"]) as out:
        out.write(pack(run(asked, None)))
    os._exit(0)


if __name__ == "__main__":
    main()
