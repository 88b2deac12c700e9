"""Offset commits by partition: commits that stopped on owned partitions, commit rates, and lag.

The definition of a stalled partition, with its wording, thresholds and rows, is that of
`history.answers.stalls`. The log does not know a topic's end offsets; a caller that does passes them as
``end_offsets``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.window import Window

from history.answers.stalls import INTERVALS_KEPT, INTERVALS_MIN, STALL_MS_MIN, STALL_TIMES
from history.export.columns import float64, int64, span, text
from quorate.spark.schema import TABLES, columns_named, moment
from records import RecordType

from .keys import GROUP, Moment, at_moment, ms_between
from .registry import RECORDS, Analysis, needed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTITION = (*GROUP, "topic", "partition")
_COMMIT = int(RecordType.OFFSET_COMMIT)


def stalled_commits(
    records: DataFrame,
    ownership: DataFrame,
    at: Moment | None = None,
    times: int = STALL_TIMES,
    quiet_ms_min: int = STALL_MS_MIN,
) -> DataFrame:
    """Partitions that have an owner but whose commits have stopped."""
    needed(records, "stalled_commits", "topic", "partition", "is_tombstone")
    if at is not None:
        records = records.where(f.col("timestamp") <= at_moment(at))
    ends = f.broadcast(records.groupBy("cluster_id", "shard").agg(f.max("timestamp").alias("end_time")))
    usual = _usual(records)
    of_group = f.broadcast(_median_of_groups(usual))
    # greatest() ignores nulls
    quiet = ms_between(f.greatest("owned_since_time", "last_commit_time"), "end_time")
    return (
        _owned(ownership, at)
        .join(ends, ["cluster_id", "shard"])
        .join(usual, [*PARTITION], "left")
        .join(of_group, [*GROUP])
        .withColumn("quiet_ms", quiet)
        .withColumn("measured_by", f.when(f.col("own_ms").isNull(), "others").otherwise("own"))
        .withColumn("usual_ms", f.coalesce("own_ms", "others_ms"))
        .where((f.col("quiet_ms") >= quiet_ms_min) & (f.col("quiet_ms") > times * f.col("usual_ms")))
        .select(*[one.name for one in STALLED_COLUMNS])
    )


def _owned(ownership: DataFrame, at: Moment | None) -> DataFrame:
    """Partitions owned at ``at``, by default at the end."""
    is_open = f.col("to_time").isNull()
    if at is not None:
        is_open = (f.col("from_time") <= at_moment(at)) & (is_open | (f.col("to_time") > at_moment(at)))
    owned = ownership.where((f.col("kind") == "owned") & is_open)
    return owned.select(*PARTITION, "member_id", f.col("from_time").alias("owned_since_time"))


def _usual(records: DataFrame) -> DataFrame:
    """Each partition's last commit and, given enough commits, the median of its last intervals.

    A tombstone ends the series: no interval is measured across it, and it is not a last commit.
    """
    newest_first = Window.partitionBy(*PARTITION).orderBy(f.desc("raft_index"), f.desc("sequence"))
    follows = ~f.col("is_tombstone") & ~f.lead("is_tombstone", 1, True).over(newest_first)
    before = f.lead("timestamp").over(newest_first)
    commits = (
        records.where(f.col("type") == _COMMIT)
        .select(*PARTITION, "raft_index", "sequence", "timestamp", "is_tombstone")
        .withColumn("interval_ms", f.when(follows, f.greatest(ms_between(before, "timestamp"), f.lit(0))))
        .withColumn("place", f.row_number().over(newest_first))
        .withColumn("number", f.count("interval_ms").over(newest_first))  # intervals so far, newest first
    )
    kept = f.when(f.col("number") <= INTERVALS_KEPT, f.col("interval_ms"))
    is_last = (f.col("place") == 1) & ~f.col("is_tombstone")
    return commits.groupBy(*PARTITION).agg(
        f.max(f.when(is_last, f.col("timestamp"))).alias("last_commit_time"),
        f.when(f.count(kept) >= INTERVALS_MIN, _median(kept)).alias("own_ms"),
    )


def _median_of_groups(usual: DataFrame) -> DataFrame:
    """The typical interval of each group, the median over its partitions; a group without one is left out."""
    known = usual.where(f.col("own_ms").isNotNull())
    return known.groupBy(*GROUP).agg(_median(f.col("own_ms")).alias("others_ms"))


def _median(values: Column) -> Column:
    """The median, with halves rounded to even as `statistics.median` and Python's round do."""
    return f.bround(f.percentile(values, 0.5)).cast("bigint")


def lagging_commits(commits: DataFrame, end_offsets: DataFrame | None = None) -> DataFrame:
    """Each partition's commit rate, offset rate, regressions and lag.

    Of two records in one entry the later one counts. Rows written by an older release do not say which that
    is.
    """
    in_order = Window.partitionBy(*PARTITION).orderBy("raft_index", "sequence")
    place = f.struct("raft_index", "sequence")
    before = f.lag("offset").over(in_order)  # null after a removal, which starts a new series
    seconds = ms_between("first_commit_time", "last_commit_time") / 1000
    rows = (
        commits.withColumn("back_by", f.when(f.col("offset") < before, before - f.col("offset")))
        .groupBy(*PARTITION)
        .agg(
            f.count("offset").alias("commits"),
            f.min(f.when(f.col("offset").isNotNull(), f.col("timestamp"))).alias("first_commit_time"),
            f.max(f.when(f.col("offset").isNotNull(), f.col("timestamp"))).alias("last_commit_time"),
            f.min_by("offset", f.when(f.col("offset").isNotNull(), place)).alias("first_offset"),
            f.max_by("offset", place).alias("last_offset"),
            f.count("back_by").alias("regressions"),
            f.max("back_by").alias("largest_regression"),
        )
        .withColumn("commits_per_s", f.when(seconds > 0, (f.col("commits") - 1) / seconds))
        .withColumn(
            "offsets_per_s", f.when(seconds > 0, (f.col("last_offset") - f.col("first_offset")) / seconds)
        )
    )
    if end_offsets is None:
        rows = rows.withColumn("end_offset", f.lit(None).cast("bigint"))
    else:
        keys: list[str] = [
            name for name in ("cluster_id", "topic", "partition") if name in end_offsets.columns
        ]
        ends = end_offsets.groupBy(*keys).agg(f.max("end_offset").alias("end_offset"))
        rows = rows.join(ends, keys, "left")
    rows = rows.withColumn("lag", f.col("end_offset") - f.col("last_offset"))
    return rows.select(*[one.name for one in LAGGING_COLUMNS])


_KEYS = columns_named(TABLES["commits"].columns, ["cluster_id", "group_id", "shard", "topic", "partition"])
STALLED_COLUMNS = (
    *_KEYS,
    text("member_id", "The member that owns it."),
    moment("last_commit_time", "Its last commit; null if there is none or it was removed."),
    moment("owned_since_time", "When the member became its owner."),
    span("quiet_ms", "Time without a commit while the member owned it."),
    span("usual_ms", "The usual interval between two commits."),
    text("measured_by", "`own`: from the partition's own commits, or `others`: from those of the group."),
)
LAGGING_COLUMNS = (
    *_KEYS,
    int64("commits", "Number of commits, without removals."),
    moment("first_commit_time", "The first commit."),
    moment("last_commit_time", "The last commit."),
    int64("last_offset", "The last committed offset; null: it was removed."),
    float64("commits_per_s", "Commits per second between the first and the last.", unit="1/s"),
    float64("offsets_per_s", "Offsets per second between the first and the last commit.", unit="1/s"),
    int64("regressions", "Commits of a lower offset than the previous one."),
    int64("largest_regression", "Largest decrease of the offset; null: none.", unit="offsets"),
    int64("end_offset", "The partition's given end offset; null: none given."),
    int64("lag", "Offsets between the last commit and that end.", unit="offsets"),
)

ANALYSES = (
    Analysis(
        takes=(RECORDS, "ownership"),
        answers=(
            "Which owned partitions have no commits any more? Those without a commit for longer than ten of "
            "their usual intervals and ten seconds, at the end of each shard's log."
        ),
        columns=STALLED_COLUMNS,
        run=stalled_commits,
        options={
            "at": "The moment to check, instead of the end of each shard's log.",
            "times": "Number of usual intervals without a commit that make a stall.",
            "quiet_ms_min": "Shortest time without a commit that makes a stall, in ms.",
        },
    ),
    Analysis(
        takes=("commits",),
        answers=(
            "How often and how fast does each group commit, how far does it lag, and how often do offsets go "
            "back? One row for each partition."
        ),
        columns=LAGGING_COLUMNS,
        run=lagging_commits,
        options={
            "end_offsets": "Rows of topic, partition, end_offset (and cluster_id) to compute the lag from.",
        },
    ),
)
