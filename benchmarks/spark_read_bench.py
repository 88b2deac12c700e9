"""Speed of Spark's reads through the source, compared with its own Parquet reader on the same rows.

The mixed log of the replay benchmark. In every turn both are read to `noop`, one after the other, so that the
machine's noise affects both; printed are the medians of the turns, and the ratio turn by turn. CPU seconds
are those of the JVM and of all Python workers. The Parquet files are written by Spark from the rows of the
source.

    python -m benchmarks.spark_read_bench --records 5000000
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.sparklog import Took, conf_of, in_turns, log_and_scratch, parser_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM_UP = 8
"""Turns before the first that counts: until Java has compiled them, both take up to twice as long."""

HEADER = "shard,raft_index,timestamp,sequence,type"
KINDS: dict[str, dict[str, str]] = {
    "all columns but raw bytes": {},
    "all columns": {"raw": "true"},
    "five columns of the header": {"columns": HEADER},
    "records of group epochs": {"types": "3"},
}


def main() -> None:
    asked = parser_of(__doc__, times=9).parse_args()
    with log_and_scratch(asked) as (path, directory):
        spark = _session(asked.master, directory)
        try:
            _compare(spark, path, directory, asked.times)
        finally:
            spark.stop()


def _session(master: str, scratch: str) -> SparkSession:
    from quorate.spark.session.sessions import spark_session
    from quorate.spark.source import register

    spark = spark_session(master, name="spark_read_bench", conf=conf_of(scratch))
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
        source, columnar = in_turns([ours, theirs], times, WARM_UP)
        ratios = sorted(one.wall_s / other.wall_s for one, other in zip(columnar, source, strict=True))
        print(
            f"{kind:28} {rows:>10,} rows  source {_said(source)}  Parquet {_said(columnar)}"
            f"  ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


def _said(taken: Sequence[Took]) -> str:
    wall_s, cpu_s = median(one.wall_s for one in taken), median(one.cpu_s for one in taken)
    return f"{wall_s:6.2f} s, CPU {cpu_s:6.2f} s"


if __name__ == "__main__":
    main()
