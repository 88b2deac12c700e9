"""Helpers shared by several analyses: group keys, topic names and time bounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from quorate.spark.errors import OptionError
from records import RecordType
from records.ids import METADATA_SHARD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql._typing import ColumnOrName
    from pyspark.sql.window import WindowSpec

GROUP = ("cluster_id", "shard", "group_id")
"""The key of one group in one cluster; a group never moves to another shard."""

_INTEGER = "(?:[0-7].|CC..|CD.{4}|CE.{8})"
"""Matches the hexadecimal form of a non-negative msgpack integer."""
_TOPIC_VALUE = f"^(?:9.|DC.{{4}}){_INTEGER}C410(.{{32}})"
"""Captures the topic id in a topic record's value, which starts with the number of partitions and the id."""


def by_group(records: DataFrame, types: Collection[int], *columns: str | Column) -> DataFrame:
    """Records of the given types with the given columns, repartitioned by group.

    A later partitioning by the group and further columns then needs no other exchange.
    """
    wanted = f.col("type").isin([int(type_) for type_ in types]) & f.col("group_id").isNotNull()
    return records.where(wanted).select(*GROUP, *columns).repartition(*GROUP)


def by(*columns: str) -> WindowSpec:
    """A window partitioned by these columns; a hash comes first because it sorts faster than the columns."""
    return Window.partitionBy(f.xxhash64(*columns), *columns)


Moment = datetime | str | int
"""A moment: a datetime or ISO 8601 (UTC without an offset), or ms since 1970."""


def at_moment(at: Moment) -> Column:
    """A moment as a column; the session's time zone does not matter. Raises `OptionError` for other text."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            hint = "give a datetime, 2026-03-01T12:00:00Z, or ms since 1970"
            raise OptionError(f"at={at!r} is not a moment", hint) from None
    if isinstance(at, datetime):
        since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return f.timestamp_micros(f.lit(since // timedelta(microseconds=1)))
    return f.timestamp_millis(f.lit(at))


def ms_between(begin: ColumnOrName, end: ColumnOrName) -> Column:
    """The ms from one moment to another; null if one of them is."""
    return f.unix_millis(end) - f.unix_millis(begin)


def until(
    records: DataFrame, at_index: int | Mapping[int, int] | None = None, at: Moment | None = None
) -> DataFrame:
    """The records up to and including an index or a time.

    A mapping gives one index per shard; shards without one are left out.
    """
    if isinstance(at_index, Mapping):
        if not at_index:
            raise OptionError("at_index names no shard", "give one index, or one for each shard")
        is_within = f.lit(False)
        for shard, index in at_index.items():
            is_within |= (f.col("shard") == shard) & (f.col("raft_index") <= index)
        records = records.where(is_within)
    elif at_index is not None:
        records = records.where(f.col("raft_index") <= at_index)
    return records if at is None else records.where(f.col("timestamp") <= at_moment(at))


def topic_names(records: DataFrame) -> DataFrame:
    """``cluster_id, topic_id, topic`` for every topic that ever appeared in the metadata shard."""
    return _topics(records).groupBy("cluster_id", "topic_id").agg(f.max("topic").alias("topic"))


def _topics(records: DataFrame) -> DataFrame:
    """``cluster_id, topic, topic_id, raft_index, timestamp`` of every record of a topic."""
    hexadecimal = f.regexp_extract(f.hex("value_bytes"), _TOPIC_VALUE, 1)
    text = f.rtrim(f.translate(f.base64(f.unhex(hexadecimal)), "+/", "-_"), f.lit("="))
    catalog = records.where(f.col("shard") == METADATA_SHARD)  # prunes to a single partition of the table
    topics = catalog.where((f.col("type") == int(RecordType.TOPIC)) & ~f.col("is_tombstone"))
    return topics.select("cluster_id", "topic", text.alias("topic_id"), "raft_index", "timestamp")


def dated_topics(frame: DataFrame, records: DataFrame, moment: str) -> DataFrame:
    """Add ``topic_id`` to a frame with ``topic``: the id that the topic had at a moment.

    Before its first record it is that of the first one. A topic that the records do not describe keeps its
    name as its id.
    """
    if "value_bytes" not in records.columns:
        return frame.withColumn("topic_id", f.col("topic"))
    ids = f.sort_array(f.collect_list(f.struct("timestamp", "raft_index", "topic_id")))
    by_name = f.broadcast(_topics(records).groupBy("cluster_id", "topic").agg(ids.alias("ids")))
    begun = f.filter("ids", lambda one: one["timestamp"] <= f.col(moment))
    known = f.coalesce(f.try_element_at(begun, f.lit(-1)), f.try_element_at("ids", f.lit(1)))["topic_id"]
    dated = frame.join(by_name, ["cluster_id", "topic"], "left")
    return dated.withColumn("topic_id", f.coalesce(known, "topic")).drop("ids")


def with_topic_names(frame: DataFrame, records: DataFrame) -> DataFrame:
    """Add ``topic`` to a frame with ``topic_id``: its name, or the id where the records do not name it."""
    if "value_bytes" not in records.columns:
        return frame.withColumn("topic", f.col("topic_id"))
    names = f.broadcast(topic_names(records))  # small: one name and one id per topic of a cluster
    named = frame.join(names, ["cluster_id", "topic_id"], "left")
    return named.withColumn("topic", f.coalesce("topic", "topic_id"))
