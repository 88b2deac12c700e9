"""Shared by the Spark benchmarks over one log: their options, the log, and timing in turns."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.mixedlog import write_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEVER = 1 << 60
"""Records between two snapshots, so high that there are none: the log itself is to be read."""


@dataclass(frozen=True)
class Took:
    """Wall time of one turn, and CPU seconds of the JVM and of all Python workers."""

    wall_s: float
    cpu_s: float


def parser_of(document: str | None, *, times: int) -> argparse.ArgumentParser:
    """The options; ``times`` is the default number of turns that count."""
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--log", help="a log that was written before; made there if it is not there")
    return parser


@contextmanager
def log_and_scratch(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """The steady log, written if necessary, and a temporary folder."""
    with tempfile.TemporaryDirectory() as scratch:
        path = asked.log or str(Path(scratch, "node"))
        if not os.path.exists(path):
            write_log(path, asked.records, snapshot_records=NEVER)
        yield path, scratch


def conf_of(scratch: str) -> dict[str, str]:
    """Settings of the measured session."""
    return {"spark.local.dir": scratch, "spark.driver.memory": "1g"}


def in_turns(frames: Sequence[Callable[[], DataFrame]], times: int, warm_up: int = 1) -> list[list[Took]]:
    """Times of each of these frames by turn; every turn computes all of them, so that noise affects all.

    ``warm_up`` turns come first and do not count, since Java's compilers are busy then.
    """
    taken: list[list[Took]] = [[] for _ in frames]
    for _ in range(warm_up + times):
        for place, frame in enumerate(frames):
            began, cpu_before = time.perf_counter(), _cpu_s()
            frame().write.format("noop").mode("overwrite").save()
            taken[place].append(Took(time.perf_counter() - began, _cpu_s() - cpu_before))
    return [all_[warm_up:] for all_ in taken]


def best(taken: Sequence[Took]) -> Took:
    """The shortest times of several turns."""
    return Took(min(one.wall_s for one in taken), min(one.cpu_s for one in taken))


def _cpu_s() -> float:
    """CPU seconds so far of all descendants of this process, which do not depend on the machine's load."""
    ticks: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            said = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(folder.name)
        ticks[pid] = sum(map(int, said[11:15]))
        children.setdefault(int(said[1]), []).append(pid)
    below, total = list(children.get(os.getpid(), [])), 0.0
    while below:
        pid = below.pop()
        total += ticks[pid]
        below += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")
