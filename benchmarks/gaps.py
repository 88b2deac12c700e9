"""Response times of one patient client: `python -m benchmarks.gaps HOST PORT`, until stdin closes.

One member of a group of its own sends a heartbeat, reads the reply, pauses briefly and sends the next. Its
heartbeats cost the node almost nothing, so a long wait means that the loop was blocked. It is a separate
process, as one that also makes load would measure itself. At the end it prints one JSON line: the number of
heartbeats, the longest wait, and the waits of more than `LONG_MS`, each with the second it happened at.
"""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import load

REST_S = 0.002
LONG_MS = 20.0
TOPIC = "gaps"


def measure(host: str, port: int) -> dict[str, Any]:
    """Send heartbeats until standard input is closed."""
    with load.peers((host, port), 1) as opened:
        load.create_topic(opened[0], TOPIC, 1)
        frame = load.settled_members(opened, TOPIC, [TOPIC])[0].steady_frame()
        print("ready", flush=True)
        beats, longest_ms = 0, 0.0
        long: list[tuple[float, float]] = []
        while not select.select([sys.stdin], [], [], REST_S)[0]:
            start = time.perf_counter()
            opened[0].exchange(frame)
            took_ms = (time.perf_counter() - start) * 1000
            beats += 1
            longest_ms = max(longest_ms, took_ms)
            if took_ms > LONG_MS:
                long.append((round(time.time(), 3), round(took_ms, 1)))
    return {"beats": beats, "longest_ms": round(longest_ms, 1), "long": long}


@contextlib.contextmanager
def watching(address: tuple[str, int]) -> Iterator[dict[str, Any]]:
    """Measure during the body; the result is filled in at its end."""
    found: dict[str, Any] = {}
    command = [sys.executable, "-m", "benchmarks.gaps", address[0], str(address[1])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RuntimeError("the probe could not join")
        try:
            yield found
        finally:
            child.stdin.close()
            found.update(json.loads(child.stdout.readline()))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))), flush=True)
