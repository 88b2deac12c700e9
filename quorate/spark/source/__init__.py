"""Reading logs with Spark: ``spark.read.format("quorate")``.

datasource      the classes that Spark calls
options         which part of a log is read, and how damage is handled
inputs          the input, segment by segment
listing         the files of an input, listed at once
plan            tasks of one or several segments, planned on the driver
reading         the work of one task, on an executor
loading         the frames of one segment, from other nodes where its file is damaged
verifying       which entries can be read, before anything is written
segment         one segment as Arrow batches
sealed          a sealed segment: wanted records found by its index
snapshot        the records of one snapshot
frames          complete frames as arrays, and the ranges lost between them
bodies          the positions of keys and values in many frames
vector          records as Arrow columns, many at once
fields          the fields of keys, values and causes that columns show
columns         these fields as columns, many rows at once
msgarrays       many msgpack arrays of one layout at once
slices          many pieces of one buffer
scalar_decoder  one record at a time, for whatever `vector` cannot handle
stream          a log that is read while it grows
following       an input that grows while it is read
tail            the decided end of a growing log
offsets         the index of the next entry of each shard
buffer_pool     memory for the bytes of segments
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register ``format("quorate")`` with a session; may be repeated."""
    from .datasource import QuorateSource

    spark.dataSource.register(QuorateSource)
