"""Time that Spark takes to answer queries on a log that it has read, by query, on two cores.

The mixed log of the replay benchmark as table `records`: Parquet, zstd. Each query alternates with reading
just its inputs, so that the difference is the cost of the answer; every result goes to `noop`, and the best
of each counts. On a busy machine use CPU seconds: half of them is the time of two idle cores. The audit for
double ownership is to take no more than 10 s for 5 M records.

    python -m benchmarks.spark_audit_bench --records 5000000
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sparklog import best, conf_of, in_turns, log_and_scratch, parser_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = {
    "double_ownership": (
        "member_id raft_index sequence timestamp type is_tombstone assigned pending members protocol_type"
    ),
    "state_as_of": (
        "member_id raft_index sequence timestamp type is_tombstone topic partition epoch previous_epoch"
        " member_state assigned pending offset leader_epoch metadata client_id client_host instance_id"
    ),
    "compacted": "",
}
"""Columns that each query reads besides the group's; empty: all of them."""


def main() -> None:
    parser = parser_of(__doc__, times=2)
    parser.add_argument("--only", choices=NEEDED, action="append", help="by default every question")
    asked = parser.parse_args()
    with log_and_scratch(asked) as (path, directory):
        _measure(path, directory, asked.master, asked.times, asked.only or list(NEEDED))


def _measure(path: str, directory: str, master: str, times: int, names: list[str]) -> None:
    from quorate.spark.analyses import ANALYSES
    from quorate.spark.session.sessions import session_for
    from quorate.spark.source import register

    with session_for(master, name="spark_audit_bench", conf=conf_of(directory)) as spark:
        register(spark)
        parquet = str(Path(directory, "records"))
        log = spark.read.format("quorate").option("raw", "true").load(path)
        began = time.perf_counter()
        log.write.option("compression", "zstd").parquet(parquet)
        print(f"log to Parquet, all columns   {time.perf_counter() - began:6.2f} s", flush=True)
        records = spark.read.parquet(parquet)
        count = records.count()
        for name in names:
            needed = NEEDED[name].split()
            columns = ["cluster_id", "shard", "group_id", *needed] if needed else ["*"]

            def reading(columns: list[str] = columns) -> DataFrame:
                return records.select(*columns)

            def answering(name: str = name) -> DataFrame:
                return ANALYSES[name].run(records)

            read, whole = map(best, in_turns([reading, answering], times))
            print(
                f"{name:22} {count:>10,} records   answer {whole.wall_s - read.wall_s:6.2f} s"
                f" ({whole.cpu_s - read.cpu_s:6.2f} CPU s)   reading {read.wall_s:6.2f} s"
                f" ({read.cpu_s:6.2f} CPU s)   together / reading {whole.cpu_s / read.cpu_s:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
