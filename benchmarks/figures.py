"""How a figure of a benchmark is taken and printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


def report(what: str, figure: str, target: str = "", kafka: str = "") -> None:
    """Print one figure, beside its target and what Apache Kafka had, where there are such."""
    aims = [f"{name} {value:<24}" for name, value in (("target", target), ("Kafka", kafka)) if value]
    print("   ".join([f"{what:<64} {figure:>34}", *aims]).rstrip(), flush=True)


def percentile(values: Iterable[float], share: float) -> float:
    """A percentile of some values; `share` 0.5 is the median."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_seconds_of(work: Callable[[], object]) -> float:
    """CPU seconds of one call in this process."""
    started_s = time.process_time()
    work()
    return time.process_time() - started_s
