"""The child process that resolves a group's regular expressions, one round at a time.

A round is a `coordinator.regex.regexrounds` request. The process has its own stopwatch, so that one costly
expression does not use up the time of all.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgpack

from cluster.host.pieces import pack
from coordinator.regex.regexrounds import answer_round
from raftlog.env.files import Files


def run(request: Any, files: Files) -> object:
    """Return the matches of each expression; without a clock, for the simulator."""
    return answer_round(request, lambda: 0.0)


def main() -> None:
    """Compute from standard input to standard output."""
    request = msgpack.unpackb(sys.stdin.buffer.read())
    answer = answer_round(request, lambda: time.monotonic() * 1000)
    sys.stdout.buffer.write(pack(answer))


if __name__ == "__main__":
    main()
