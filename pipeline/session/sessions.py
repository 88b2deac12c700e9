"""Getting a SparkSession: the one that there is, or a quiet local one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"


def spark_session(master: str | None = None, *, name: str = "quorate") -> SparkSession:
    """The active session if there is one (``master`` is not looked at then), or a new one.

    Raises `ImportError` where PySpark is not installed.
    """
    from pyspark.sql import SparkSession

    present = SparkSession.getActiveSession()
    if present is not None:
        return present
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(master or DEFAULT_MASTER)
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
    )
    return builder.getOrCreate()
