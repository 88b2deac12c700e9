"""How fast Spark reads a log through the source, against its own Parquet reader on the same rows, in one run.

The mixed log of the replay benchmark. Both are read to `noop`, alternately, and the best of each is compared:
the machine's noise meets both. CPU seconds are those of the JVM and of all Python workers. The Parquet files
are what Spark itself writes of the source's rows.

    python -m benchmarks.spark_read_bench --records 5000000
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.sparklog import best, conf_of, log_and_scratch, parser_of

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
    asked = parser_of(__doc__, times=3).parse_args()
    with log_and_scratch(asked) as (path, directory):
        spark = _session(asked.master, directory)
        try:
            _compare(spark, path, directory, asked.times)
        finally:
            spark.stop()


def _session(master: str, scratch: str) -> SparkSession:
    from pipeline.session.sessions import spark_session
    from pipeline.source import register

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
        source, columnar = best([ours, theirs], times)
        print(
            f"{kind:28} {rows:>10,} rows  source {source.wall_s:6.2f} s, CPU {source.cpu_s:6.2f} s"
            f"  Parquet {columnar.wall_s:6.2f} s, CPU {columnar.cpu_s:6.2f} s"
            f"  ratio {columnar.wall_s / source.wall_s:.2f}, of CPU {columnar.cpu_s / source.cpu_s:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
