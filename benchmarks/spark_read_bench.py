"""How fast Spark reads a log through the source, against its own Parquet reader on the same rows, in one run.

The mixed log of the replay benchmark. Both are read to `noop`, alternately, and the best of each is compared:
the machine's noise meets both. CPU seconds are those of the JVM and of all Python workers. The Parquet files
are what Spark itself writes of the source's rows.

    python -m benchmarks.spark_read_bench --records 5000000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.mixedlog import write_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER = "shard,raft_index,timestamp_ms,sequence,type"
KINDS: dict[str, dict[str, str]] = {
    "all columns": {},
    "all columns and raw bytes": {"raw": "true"},
    "five columns of the header": {"columns": HEADER},
    "records of group epochs": {"types": "3"},
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--log", help="a log that was written before; made there if it is not there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = asked.log or str(Path(directory, "node"))
        if not os.path.exists(path):
            write_log(path, asked.records, snapshot_records=1 << 60)
        spark = _session(asked.master, directory)
        try:
            _compare(spark, path, directory, asked.times)
        finally:
            spark.stop()


def _session(master: str, scratch: str) -> SparkSession:
    from pipeline.session.sessions import spark_session
    from pipeline.source import register

    conf = {"spark.local.dir": scratch, "spark.driver.memory": "1g"}
    spark = spark_session(master, name="spark_read_bench", conf=conf)
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    return spark


def _compare(spark: SparkSession, path: str, directory: str, times: int) -> None:
    for kind, options in KINDS.items():
        parquet = str(Path(directory, kind.replace(" ", "_")))

        def ours(options: dict[str, str] = options) -> DataFrame:
            return spark.read.format("quorate").options(**options).load(path)

        def theirs(parquet: str = parquet) -> DataFrame:
            return spark.read.parquet(parquet)

        ours().write.mode("overwrite").parquet(parquet)
        rows = theirs().count()
        best = _best([ours, theirs], times)
        source, columnar = best
        print(
            f"{kind:28} {rows:>10,} rows  source {source.wall_s:6.2f} s, CPU {source.cpu_s:6.2f} s"
            f"  Parquet {columnar.wall_s:6.2f} s, CPU {columnar.cpu_s:6.2f} s"
            f"  ratio {columnar.wall_s / source.wall_s:.2f}, of CPU {columnar.cpu_s / source.cpu_s:.2f}",
            flush=True,
        )


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float


def _best(reads: list[Callable[[], DataFrame]], times: int) -> list[Took]:
    """The shortest times of each, read in turns; the first turn warms up and does not count."""
    taken: list[list[Took]] = [[] for _ in reads]
    for _ in range(times + 1):
        for place, read in enumerate(reads):
            began, cpu_before = time.perf_counter(), _cpu_s()
            read().write.format("noop").mode("overwrite").save()
            taken[place].append(Took(time.perf_counter() - began, _cpu_s() - cpu_before))
    return [Took(min(one.wall_s for one in all_[1:]), min(one.cpu_s for one in all_[1:])) for all_ in taken]


def _cpu_s() -> float:
    """CPU seconds so far of everything below this process."""
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


if __name__ == "__main__":
    main()
