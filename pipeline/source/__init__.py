"""Reading logs with Spark: ``spark.read.format("quorate")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register ``format("quorate")`` with a session; may be repeated."""
    from .datasource import QuorateSource

    spark.dataSource.register(QuorateSource)
