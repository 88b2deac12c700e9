"""Cancelling the work that a session is doing, when the process is asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Whether this is a Spark Connect session: the JVM and a stream's Python functions run in a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def interrupt(spark: SparkSession) -> None:
    """Cancel all running jobs, including those of a stream, which has a session of its own."""
    if is_remote(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()
