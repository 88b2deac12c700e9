"""A session that must not start, and an error as Spark raises it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def no_session(size: int = 0) -> SparkSession:
    raise AssertionError("there is nothing to start Spark for")


def spark_error(text: str) -> Exception:
    kind = type("PythonException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    made: Exception = kind(text)
    return made
