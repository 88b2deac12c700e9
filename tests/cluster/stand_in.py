"""A process that behaves as a node does towards its launcher, and starts in 20 ms.

    python stand_in.py NODE_ID WISH --lifeline FD

`WISH` is how it behaves: `well`; `late` (not ready before a file `go` is beside the directory it runs in);
`dies` (ends with exit code 5 before it is ready); `deaf` (heeds no SIGTERM).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

TURN_S = 0.005


def say(node_id: str, words: str) -> None:
    print(f"2026-03-01 03:12:00,000 node {node_id} INFO stand.in: {words}", file=sys.stderr, flush=True)


def main(node_id: str, wish: str, lifeline_fd: int) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN if wish == "deaf" else lambda *_: sys.exit(0))
    say(node_id, "begins")
    if wish == "dies":
        say(node_id, "cannot go on")
        return 5
    while wish == "late" and not Path("go").exists():
        time.sleep(TURN_S)
    print("{}", flush=True)
    say(node_id, "serves")
    os.read(lifeline_fd, 1)
    say(node_id, "its launcher is gone")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[4])))
