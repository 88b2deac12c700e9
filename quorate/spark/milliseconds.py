"""Tables and the source's rows as they were up to release 0.1: moments as bigints in ms since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .schema import ms_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_milliseconds(frame: DataFrame) -> DataFrame:
    """The frame, with ``X_ms``, a bigint of ms since 1970, in place of each TIMESTAMP ``X_time``.

    ``timestamp`` becomes ``timestamp_ms``; columns with other names and types stay as they are. It is for
    queries written for release 0.1, and goes with release 0.3.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    columns = []
    for field in frame.schema:
        column = f.col(f"`{field.name}`")
        is_moment = isinstance(field.dataType, TimestampType)
        if is_moment and (field.name == "timestamp" or field.name.endswith("_time")):
            column = f.unix_millis(column).alias(ms_name(field.name))
        columns.append(column)
    return frame.select(*columns)
