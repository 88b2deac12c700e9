"""A driver program: prints what the data source reads and where the executors' code comes from.

    python job.py MASTER INPUT

Its answer, one line of JSON, depends on every value of every row and on no order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quorate.spark.errors import InputError
from quorate.spark.session.failures import unwrapped
from quorate.spark.session.sessions import session_for
from quorate.spark.session.settings import BRIEF_JAVA
from quorate.spark.source import register

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

TASKS = 8


def digest(frame: DataFrame) -> list[list[int]]:
    """Return the number of rows of each shard, and a checksum of them."""
    from pyspark.sql import functions as f

    parts = frame.groupBy("shard").agg(f.count("*"), f.bit_xor(f.xxhash64(*frame.columns)))
    return sorted([int(value) for value in row] for row in parts.collect())


def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the executor (its Python daemon's parent) and the file that `coordinator.regex` came from."""
    import os

    import pyarrow as pa

    import coordinator.regex

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pylist([{"executor": os.getppid(), "file": coordinator.regex.__file__}])


def refused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise InputError("this log is damaged", "copy it again")
    yield from batches


def main() -> None:
    master, path = sys.argv[1:]
    conf = {"spark.sql.shuffle.partitions": "4"}
    if master.startswith("spark://"):
        conf |= {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": BRIEF_JAVA}
    if not master.startswith("sc://"):
        conf["spark.driver.memory"] = "1g"
    with session_for(master, conf=conf) as spark:
        with session_for() as same:  # our session is in use by now, and stays open
            assert same is spark
        register(spark)
        records = spark.read.format("quorate").option("raw", True).load(path)
        places = spark.range(0, TASKS, 1, TASKS).mapInArrow(place, "executor bigint, file string").collect()
        try:
            spark.range(1).mapInArrow(refused, "id bigint").collect()
        except Exception as error:
            failure = repr(unwrapped(error))
        answer = {
            "digest": digest(records),
            "twice": records.filter("type = 8").union(records.filter("type = 3")).count(),
            "executors": len({row["executor"] for row in places}),
            "files": sorted({row["file"] for row in places}),
            "failure": failure,
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
