"""Measures the gain from a second executor: seconds of a run with one and with two, one core each.

    python -m benchmarks spark_executors
    python -m benchmarks.spark_executors_bench --records 20000000 --turns 2 --keep DIR

A log is generated (`benchmarks.mixedlog`), and `quorate pipeline run` makes its tables, in turns with one
executor and with two, each a process of its own with one core (Spark's master `local-cluster`).  The driver
shares the machine, so on two cores two executors cannot be twice as fast; the goal is 1.6 times.
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
from pathlib import Path

from benchmarks.spark_scale_bench import DRIVER_MEMORY, SHARDS

EXECUTORS = (1, 2)
DEFAULT_RECORDS = 5_000_000
EXECUTOR_MIB = 1024


def run_s(log: Path, tables: Path, executors: int) -> float:
    """Seconds of the run's work, Spark's start included."""
    shutil.rmtree(tables, ignore_errors=True)
    master = f"local-cluster[{executors},1,{EXECUTOR_MIB}]"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "quorate", "pipeline", "run", "--json", "--master", master),
            *("--input", str(log), "--output", str(tables), "--driver-memory", DRIVER_MEMORY),
            *("--conf", f"spark.executor.memory={EXECUTOR_MIB}m"),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=DEFAULT_RECORDS)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", help="keep the log here; one that is here is used")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(said.keep or scratch)
        log = home / f"log-{said.records}"
        if not log.exists():
            made = ("-m", "benchmarks.mixedlog", str(log), "--records", str(said.records))
            subprocess.run([sys.executable, *made, "--shards", str(SHARDS)], check=True)
        print("| Turn | One executor | Two | Ratio |\n|---|---|---|---|")
        ratios = []
        for turn in range(1, said.turns + 1):
            one_s, two_s = (run_s(log, home / "tables", executors) for executors in EXECUTORS)
            ratios.append(one_s / two_s)
            print(f"| {turn} | {one_s:.1f} s | {two_s:.1f} s | {ratios[-1]:.2f} |", flush=True)
        print(f"median of the ratios: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
