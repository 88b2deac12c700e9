"""How long Spark takes to answer questions to a log that it has read, by question, on two cores.

The mixed log of the replay benchmark as table `records`: Parquet, zstd. Each question is asked in turns with
reading what it needs and nothing more, so that the difference is the answer; every result goes to `noop`, and
the best of each counts. On a busy machine look at CPU seconds: half of them is the time of two idle cores.
The audit for double ownership is to take no more than 10 s for 5 M records.

    python -m benchmarks.spark_audit_bench --records 5000000
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.mixedlog import write_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = {
    "double_ownership": "member_id raft_index sequence timestamp_ms type is_tombstone assigned pending",
    "ownership_intervals": (
        "member_id raft_index sequence timestamp_ms type is_tombstone assigned pending epoch"
    ),
    "rebalance_timeline": (
        "member_id raft_index sequence timestamp_ms type is_tombstone epoch member_state trigger reasons"
        " cause_member_id principal address"
    ),
    "state_as_of": (
        "member_id raft_index sequence timestamp_ms type is_tombstone topic partition epoch previous_epoch"
        " member_state assigned pending offset leader_epoch metadata client_id client_host instance_id"
    ),
    "compacted": "",
}
"""The columns beside the group's, of what each question reads; empty: all of them."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--only", choices=NEEDED, action="append", help="by default every question")
    parser.add_argument("--log", help="a log that was written before; made there if it is not there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = asked.log or str(Path(directory, "node"))
        if not os.path.exists(path):
            write_log(path, asked.records, snapshot_records=1 << 60)
        _measure(path, directory, asked.master, asked.times, asked.only or list(NEEDED))


def _measure(path: str, directory: str, master: str, times: int, names: list[str]) -> None:
    from pipeline.analyses import ANALYSES
    from pipeline.session.sessions import session_for
    from pipeline.source import register

    conf = {"spark.local.dir": directory, "spark.driver.memory": "1g"}
    with session_for(master, name="spark_audit_bench", conf=conf) as spark:
        register(spark)
        parquet = str(Path(directory, "records"))
        read = spark.read.format("quorate").option("raw", "true").load(path)
        began = time.perf_counter()
        read.write.option("compression", "zstd").parquet(parquet)
        print(f"log to Parquet, all columns   {time.perf_counter() - began:6.2f} s", flush=True)
        records = spark.read.parquet(parquet)
        count = records.count()
        java_pid = spark.sparkContext._gateway.proc.pid
        for name in names:
            needed = NEEDED[name].split()
            columns = ["cluster_id", "shard", "group_id", *needed] if needed else ["*"]

            def reading(columns: list[str] = columns) -> DataFrame:
                return records.select(*columns)

            def answering(name: str = name) -> DataFrame:
                return ANALYSES[name].run(records)

            (read_s, read_cpu), (whole_s, whole_cpu) = _best([reading, answering], times, java_pid)
            print(
                f"{name:22} {count:>10,} records   answer {whole_s - read_s:6.2f} s"
                f" ({whole_cpu - read_cpu:6.2f} CPU s)   reading {read_s:6.2f} s ({read_cpu:6.2f} CPU s)"
                f"   together / reading {whole_cpu / read_cpu:.1f}",
                flush=True,
            )


def _best(frames: list[Callable[[], DataFrame]], times: int, java_pid: int) -> list[tuple[float, float]]:
    """The least wall and CPU time of each, asked in turns; the first turn warms up and does not count."""
    best = [(float("inf"), float("inf"))] * len(frames)
    for turn in range(times + 1):
        for place, frame in enumerate(frames):
            began, cpu = time.perf_counter(), _cpu_seconds(java_pid)
            frame().write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - began, _cpu_seconds(java_pid) - cpu
            if turn:
                best[place] = min(best[place][0], took[0]), min(best[place][1], took[1])
    return best


def _cpu_seconds(pid: int) -> float:
    """What a process has used, compiling and collecting included: it says the same on a busy machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
