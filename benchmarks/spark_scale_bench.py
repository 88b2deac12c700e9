"""Scaling of the pipeline: seconds and memory of a run and of each analysis, by size of the log.

    python -m benchmarks spark_scale
    python -m benchmarks.spark_scale_bench --records 1000000 5000000 20000000 100000000 --keep DIR

For each size: a log is generated (`benchmarks.mixedlog`), `quorate pipeline run` makes its tables, and a
second run finds nothing to do; then every analysis is run on the tables in one session, with its result
discarded. Memory is the largest sum of the processes' proportional set sizes (driver, JVM, Python workers),
sampled five times a second. The goal is that records per second stay the same from size to size, and memory
stays bounded by the JVM's setting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_RECORDS = (1_000_000,)
LOOK_S = 0.2
DRIVER_MEMORY = "2g"
SHARDS = 4
MIB = 1 << 20
ANALYSES = (
    "compacted",
    "rebalance_timeline",
    "ownership_intervals",
    "double_ownership",
    "unowned_partition_seconds",
    "stalled_commits",
    "lagging_commits",
    "flapping_members",
    "rebalance_storms",
    "capacity",
    "whatif",
)
"""Analyses of one node's tables; each gets the tables it takes."""


def pss_of_tree(root: int) -> int:
    """Bytes held by a process and its descendants, with shared memory counted once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue  # it has ended
        children.setdefault(parent, []).append(int(stat.parent.name))
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


class Peak(threading.Thread):
    """The largest memory of a process and its descendants while it runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._done = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        while not self._done.wait(LOOK_S):
            self.bytes = max(self.bytes, pss_of_tree(self._pid))

    def end(self) -> int:
        self._done.set()
        self.join()
        return self.bytes


def measured(*command: str) -> tuple[float, int, str]:
    """Seconds, peak bytes and standard output of a Python process."""
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) as process:
        peak = Peak(process.pid)
        peak.start()
        said, _ = process.communicate()
        held = peak.end()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.perf_counter() - started, held, said


def size_of(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


def ask(tables: str, names: Sequence[str]) -> None:
    """Run in a process of its own: print the seconds of each analysis as JSON, a line each."""
    from pipeline.analyses import ANALYSES as KNOWN
    from pipeline.session.sessions import spark_session
    from pipeline.tables import read_table

    spark = spark_session(name="scale", conf={"spark.driver.memory": DRIVER_MEMORY})
    nowhere(read_table(spark, tables, "failovers"))  # the first job's setup counts for no analysis
    for name in names:
        frames = [read_table(spark, tables, table) for table in KNOWN[name].takes]
        print(
            json.dumps({"name": name, "s": timed(lambda n=name, f=frames: nowhere(KNOWN[n].run(*f)))}),
            flush=True,
        )  # type: ignore[misc]
    spark.stop()


def nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(
    home: Path, records: int, seed: int, names: Sequence[str]
) -> Iterator[tuple[str, float, int | None]]:
    """Yield (what, seconds, peak bytes) for each step."""
    log, tables = home / f"log-{records}", home / f"tables-{records}"
    if not log.exists():
        made = ("benchmarks.mixedlog", str(log), "--records", str(records), "--shards", str(SHARDS))
        took, held, _ = measured(*made, "--seed", str(seed))
        yield "generate", took, held
    shutil.rmtree(tables, ignore_errors=True)
    run = ("quorate", "pipeline", "run", "--input", str(log), "--output", str(tables), "--json")
    for what in ("run", "run again"):
        took, held, _ = measured(*run, "--driver-memory", DRIVER_MEMORY)
        yield what, took, held
    if not names:
        return
    took, held, said = measured("benchmarks.spark_scale_bench", "--ask", str(tables), "--only", *names)
    yield "all analyses", took, held
    for line in said.splitlines():
        one = json.loads(line)
        yield one["name"], one["s"], None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=list(DEFAULT_RECORDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--keep", metavar="DIR", help="keep logs and tables here; a log that is here is used, tables are new"
    )
    parser.add_argument(
        "--only", metavar="ANALYSIS", nargs="*", choices=ANALYSES, default=ANALYSES, help="ask no others"
    )
    parser.add_argument("--ask", metavar="TABLES", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.ask:
        ask(said.ask, said.only)
        return
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(said.keep or scratch)
        os.makedirs(home, exist_ok=True)
        print("| Records | Step | Seconds | Records per s | Peak memory |")
        print("|---|---|---|---|---|")
        for records in said.records:
            for what, took, held in measure(home, records, said.seed, said.only):
                memory = "" if held is None else f"{held / MIB:,.0f} MiB"
                print(
                    f"| {records:,} | {what} | {took:,.1f} | {records / took:,.0f} | {memory} |", flush=True
                )
            log, tables = (size_of(home / f"{kind}-{records}") / MIB for kind in ("log", "tables"))
            print(
                f"| {records:,} | on disk: log {log:,.0f} MiB, tables {tables:,.0f} MiB | | | |", flush=True
            )


if __name__ == "__main__":
    main()
