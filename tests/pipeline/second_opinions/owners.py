"""The owners of a partition over time, from each member's own records: to compare with table `ownership`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from quorate.spark.analyses.keys import GROUP, by_group, with_topic_names
from quorate.spark.analyses.ownership import holdings, merged, shown
from quorate.spark.schema import TABLES, columns_named
from records import RecordType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCHS = (int(RecordType.GROUP_METADATA), int(RecordType.CONSUMER_GROUP_METADATA))


def ownership_intervals(records: DataFrame) -> DataFrame:
    """Return intervals in which a member had a partition, from the entry that assigned it to its removal.

    A request to revoke the partition starts a new interval.
    """
    spans = _with_epoch(merged(holdings(records), "kind"), records)
    return shown(with_topic_names(spans, records), COLUMNS)


def _with_epoch(spans: DataFrame, records: DataFrame) -> DataFrame:
    """Add the group epoch at the entry that starts each interval: the newest one written by then."""
    epochs = by_group(records, _EPOCHS, "raft_index", "sequence", "epoch")
    marks = epochs.withColumnsRenamed({"raft_index": "from_index", "epoch": "newest"})
    all_of_them = spans.unionByName(marks, allowMissingColumns=True)
    # An epoch written by the same entry counts. Rows without a sequence are the intervals, and sort last.
    in_order = Window.partitionBy(*GROUP).orderBy("from_index", f.asc_nulls_last("sequence"))
    epoch = f.last("newest", ignorenulls=True).over(in_order)
    return all_of_them.withColumn("epoch", epoch).where(f.col("sequence").isNull())


COLUMNS = columns_named(
    TABLES["ownership"].columns,
    [
        *("cluster_id", "group_id", "shard", "topic", "topic_id", "partition", "kind", "member_id", "epoch"),
        *("from_index", "from_time", "to_index", "to_time", "duration_ms"),
    ],
)
