"""The child process that computes a target: `python -P -m cluster.children.assign` (see `cluster.host.jobs`).

It may run a user's assignor, so nothing in it is shared with the node but the question and the answer. What
the assignor prints goes where errors go, and cannot mix with the answer; what it reads is empty; its memory
and the files that it writes are bounded, and whoever started the process bounds its time.
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
"""Of each file that an assignor writes, what it prints included: enough for the compiled form of any
module."""


def find(name: str) -> PartitionAssignor:
    """Ours by name, else what a package installed under that name."""
    for assignor in BUILT_IN:
        if assignor.name == name:
            return assignor
    from cluster.assignors import load  # which few need, and which takes a while

    assignor = load(name)
    if assignor.name != name:
        raise PartitionAssignorError(f"The assignor installed as {name} calls itself {assignor.name}.")
    return assignor


def run(request: Any, files: object) -> object:
    """Asks the assignor; whatever it does, short of ending the process, is part of the answer."""
    return answer(request, find)


def _confine(memory_bytes_max: int) -> IO[bytes]:
    """Bounds this process; returns where the answer goes."""
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
    """Standard input to standard output; threads and exit handlers that an assignor left behind are not
    waited for."""
    asked = msgpack.unpackb(sys.stdin.buffer.read())
    with _confine(asked["memory_bytes_max"]) as out:
        out.write(pack(run(asked, None)))
    os._exit(0)


if __name__ == "__main__":
    main()
