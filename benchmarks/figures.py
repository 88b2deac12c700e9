"""Take and print the figures of a benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path


def report(what: str, figure: str, target: str = "", kafka: str = "") -> None:
    """Print one figure with its target and Apache Kafka's figure, where there are any."""
    aims = [f"{name} {value:<24}" for name, value in (("target", target), ("Kafka", kafka)) if value]
    print("   ".join([f"{what:<64} {figure:>34}", *aims]).rstrip(), flush=True)


def percentile(values: Iterable[float], share: float) -> float:
    """Return a percentile of some values; `share` 0.5 is the median."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU seconds that one call takes in this process."""
    started_s = time.process_time()
    work()
    return time.process_time() - started_s


def peak_mib(pid: int | str = "self") -> float:
    """Return the largest resident memory of a process since it was started; 0 if it has ended.

    `ru_maxrss` would be that of the process that started it, if that one was larger.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    kib = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), "0")
    return int(kib) / 1024


def children_of(pid: int) -> list[int]:
    """Return the ids of the processes that a process has started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:  # the thread has ended
            continue
    return found
