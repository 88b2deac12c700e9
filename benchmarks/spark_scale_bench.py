"""Scaling of the pipeline: seconds and memory of a run and of each analysis, by size of the log.

    python -m benchmarks spark_scale
    python -m benchmarks.spark_scale_bench --records 1000000 5000000 20000000 100000000 --keep DIR
    python -m benchmarks.spark_scale_bench --days 365 --batches 20 --only

For each size: a log is generated (`benchmarks.mixedlog`), `quorate pipeline run` makes its tables, and a
second run finds nothing to do; then every analysis is run on the tables in one session, with its result
discarded. With `--batches` the newest entries of the log are held back, and given again in batches after the
first run: each is a run of its own, in a process of its own, and the median is told. Memory is the largest
sum of the processes' proportional set sizes (driver, JVM, Python workers), sampled once a second. The
goal is that records per second stay the same from size to size, and memory
stays bounded by the JVM's setting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.mixedlog import hold_back

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_RECORDS = (1_000_000,)
LOOK_S = 1.0
"""Time between two looks at the memory; a look takes 14 ms of a core."""
DRIVER_MEMORY = "2g"
SHARDS = 4
MIB = 1 << 20
ANALYSES = (
    "compacted",
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
    from quorate.spark.analyses import ANALYSES as KNOWN
    from quorate.spark.session.sessions import spark_session
    from quorate.spark.tables import read_table

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


def measure(home: Path, records: int, said: argparse.Namespace) -> Iterator[tuple[str, float, int | None]]:
    """Yield (what, seconds, peak bytes) for each step."""
    log, tables = home / f"log-{records}", home / f"tables-{records}"
    if not log.exists():
        made = ("benchmarks.mixedlog", str(log), "--records", str(records), "--shards", str(SHARDS))
        took, held, _ = measured(*made, "--seed", str(said.seed), "--days", str(said.days))
        yield "generate", took, held
    shutil.rmtree(tables, ignore_errors=True)
    batches: Iterator[int] = iter(())
    if said.batches:
        log = Path(shutil.copytree(log, home / f"batches-{records}", dirs_exist_ok=True))
        batches = hold_back(str(log), said.entries, said.batches)
    run = ("quorate", "pipeline", "run", "--input", str(log), "--output", str(tables), "--json")
    took, held, _ = measured(*run, "--driver-memory", DRIVER_MEMORY)
    yield f"run: {len(list(tables.rglob('*.parquet'))):,} files", took, held
    yield from given_again(run, batches)
    took, held, _ = measured(*run)
    yield "run again", took, held
    if not said.only:
        return
    took, held, answers = measured("benchmarks.spark_scale_bench", "--ask", str(tables), "--only", *said.only)
    yield "all analyses", took, held
    for line in answers.splitlines():
        one = json.loads(line)
        yield one["name"], one["s"], None


def given_again(run: Sequence[str], batches: Iterator[int]) -> Iterator[tuple[str, float, int | None]]:
    """Yield the median of the runs for these batches, with the process and without."""
    took_s: list[float] = []
    held_bytes: list[int] = []
    answers: list[dict[str, Any]] = []
    for _ in batches:
        took, held, answer = measured(*run)
        took_s.append(took)
        held_bytes.append(held)
        answers.append(json.loads(answer))
    if answers:
        new, again = (
            statistics.median(sum(one[name].values()) for one in answers) for name in ("rows", "rewritten")
        )
        yield (
            f"a batch: {new:,.0f} rows new, {again:,.0f} rewritten",
            statistics.median(one["seconds"] for one in answers),
            max(held_bytes),
        )
        yield "the same with its process", statistics.median(took_s), None
        yield "the slowest", max(one["seconds"] for one in answers), None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, nargs="+", default=list(DEFAULT_RECORDS))
    parser.add_argument("--days", type=float, default=3)
    parser.add_argument("--batches", type=int, default=0, help="batches after the first run")
    parser.add_argument("--entries", type=int, default=300, help="log entries of a batch")
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
            for what, took, held in measure(home, records, said):
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
