"""Ending what a session is doing at the moment, for whoever is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["interrupt", "is_remote"]


def is_remote(spark: SparkSession) -> bool:
    """The session is one of Spark Connect: the JVM, and Python functions of a stream, are in a server."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def interrupt(spark: SparkSession) -> None:
    """The jobs that run now fail; a stream's too, which runs in a session of its own."""
    if is_remote(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()
