"""Freshness of what Spark reads: `python -m benchmarks.spark_stream_bench [--seconds N] [--every S]`.

One node, one connection that commits as fast as it is answered; first a bare `readStream`, then tables that
are kept up to date. The latency of a record is from its entry's timestamp, which the node assigns when it
appends the entry, to the end of the batch that holds it: read, or in the tables.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from bisect import bisect_left
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.committing import committing
from benchmarks.figures import percentile
from cluster.launching.launcher import launch_cluster
from history.reading.opening import open_node
from quorate.client import Client
from quorate.spark.runs.stream import Batch, TableStream
from quorate.spark.session.sessions import session_for
from quorate.spark.source import register

TOPIC = "orders"
WARM_BATCHES = 3
"""The first batches start workers and compile."""
CAUGHT_UP = 2
"""The first batch of tables holds everything older, the second what was written meanwhile."""


def now_ms() -> float:
    return time.time() * 1000


def tail(spark: SparkSession, path: str, scratch: str, seconds: float) -> None:
    """Batch after batch of a stream, each as soon as the previous one is over."""
    register(spark)
    found: list[tuple[float, float, list[int]]] = []

    def take(rows: DataFrame, _: int) -> None:
        began = now_ms()
        written = [row[0] for row in rows.selectExpr("unix_millis(timestamp)").collect()]
        found.append((began, now_ms(), written))

    rows = spark.readStream.format("quorate").option("starting", "latest").load(path)
    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", f"file://{scratch}/tail")
    query = writer.trigger(processingTime="0 seconds").start()
    query.awaitTermination(round(seconds))
    query.stop()
    warm = found[WARM_BATCHES:]
    if not warm:
        print(f"no batch after the first {WARM_BATCHES} within {seconds:g} s")
        return
    span_s = (warm[-1][1] - warm[0][0]) / 1000
    lags = sorted(end - ms for _, end, written in warm for ms in written)
    count = len(lags)
    _print("read by a stream", count, span_s, lags, len(warm))


def tables(spark: SparkSession, path: str, scratch: str, seconds: float, every_s: float) -> None:
    """The tables of `quorate pipeline stream`, starting with an empty folder."""
    ends: list[tuple[float, Batch]] = []
    stream = TableStream(path, f"{scratch}/tables", on_batch=lambda batch: ends.append((now_ms(), batch)))
    timer = threading.Timer(seconds, stream.stop)
    timer.start()
    stream.run(spark, every_s=every_s)
    stream.close()
    warm = ends[CAUGHT_UP:]
    if not warm:
        print(f"no batch after the first {CAUGHT_UP} within {seconds:g} s")
        return
    first = ends[0][1]
    print(f"tables, the first batch {first.entries:>7,} entries in {first.seconds:.1f} s")
    lags: list[float] = []
    count = 0
    log = open_node(path)
    for shard in log.shards:
        reached = [(end, batch.to[shard]) for end, batch in warm if shard in batch.to]
        if not reached:
            continue
        indexes = [index for _, index in reached]
        before = max((batch.to[shard] for _, batch in ends[:CAUGHT_UP] if shard in batch.to), default=0)
        for frame in log.reader(shard).frames(before + 1, indexes[-1]):
            end, _ = reached[bisect_left(indexes, frame.index)]
            lags += [end - frame.timestamp_ms] * frame.record_count
            count += frame.record_count
    span_s = (warm[-1][0] - ends[CAUGHT_UP - 1][0]) / 1000
    _print(f"tables, every {every_s:g} s", count, span_s, sorted(lags), len(warm))


def _print(what: str, count: int, span_s: float, lags: list[float], batches: int) -> None:
    half, most = (percentile(lags, part) for part in (0.5, 0.99))
    print(
        f"{what:<22} {count:>8,} records {count / span_s:>8,.0f}/s  {batches:>3} batches"
        f"  p50 {half:>6,.0f} ms  p99 {most:>6,.0f} ms",
        flush=True,
    )


def main() -> None:
    """Print one line for each way of reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=1.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        cluster = launch_cluster(Path(home) / "cluster", num_nodes=1)
        try:
            with Client(cluster.bootstrap) as client:
                client.create_topic(TOPIC, 10)
            path = str(cluster.nodes[0].data)
            conf = {"spark.sql.shuffle.partitions": "4"}
            with session_for("local[2]", conf=conf) as spark, committing(cluster.bootstrap, TOPIC):
                tail(spark, path, home, chosen.seconds)
                tables(spark, path, home, chosen.seconds, chosen.every)
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
