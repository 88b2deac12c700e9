"""Tables that a record tells by itself: `commits` and `failovers`, as projections of `records`.

What must stay true: their rows are those of `quorate log export` of the same log. Records may come in any
order and any cut: a row of either needs its own entry, and a failover the time of the entry before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from history.words import is_takeover, term_why
from pipeline.schema import TABLES, arrow_type, columns_named, spark_type
from records import RawRecord, RecordsError, RecordType, TermStartValue, decode_value
from records.ids import METADATA_SHARD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NOBODY = -1
"""How a log says that there is no epoch and no leader."""


def commits(records: DataFrame) -> DataFrame:
    """The rows of table `commits`."""
    mine = records.where(
        (F.col("type") == int(RecordType.OFFSET_COMMIT)) & (F.col("shard") != METADATA_SHARD)
    )
    said = {
        "leader_epoch": _known(F.col("leader_epoch"), _NOBODY),
        "metadata": _known(F.col("metadata"), ""),
        "member_id": _known(F.col("cause_member_id"), ""),
        "member_epoch": _known(F.col("cause_member_epoch"), _NOBODY),
    }
    return mine.select(*(said.get(name, F.col(name)).alias(name) for name in TABLES["commits"].names))


def failovers(records: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of table `failovers`.

    ``known`` are places (shard, raft_index, timestamp_ms) of entries that are not among the records: where
    the run before ended, and where snapshots did. A term behind none of them has no ``gap_ms``.
    """
    is_start = (F.col("type") == int(RecordType.TERM_START)) & (F.col("sequence") == 0)
    given = ["cluster_id", "shard", "raft_index", "timestamp_ms", "type", "version", "value_bytes"]
    starts = records.where(is_start)
    terms = starts.select(given).mapInArrow(_terms, spark_type(_TERM_COLUMNS))
    behind = F.broadcast(starts.select("shard", (F.col("raft_index") - 1).alias("raft_index")))
    place = ["shard", "raft_index", "timestamp_ms"]
    before = (
        records.where(F.col("sequence") == 0)
        .select(place)
        .join(behind, ["shard", "raft_index"], "left_semi")
        .unionByName(known.select(place))
        .groupBy("shard", (F.col("raft_index") + 1).alias("raft_index"))
        .agg(F.max("timestamp_ms").alias("before_ms"))
    )
    told = terms.join(F.broadcast(before), ["shard", "raft_index"], "left")
    gap = (F.col("timestamp_ms") - F.col("before_ms")).alias("gap_ms")
    return told.select(*(gap if name == "gap_ms" else F.col(name) for name in TABLES["failovers"].names))


_TERM_NAMES = [name for name in TABLES["failovers"].names if name != "gap_ms"]
_TERM_COLUMNS = columns_named(TABLES["failovers"].columns, _TERM_NAMES)


def _terms(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the value of each `TERM_START` says; one that this release cannot read says nothing."""
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            with contextlib.suppress(RecordsError):
                term = decode_value(RawRecord(row["type"], row["version"], b"", row["value_bytes"]))
                if isinstance(term, TermStartValue):
                    rows.append(_term(row, term))
        yield pa.RecordBatch.from_pylist(rows, arrow_type(_TERM_COLUMNS))


def _term(row: dict[str, Any], term: TermStartValue) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("cluster_id", "shard", "raft_index", "timestamp_ms")},
        "term": term.term,
        "node_id": term.node_id,
        "previous_leader": None if term.previous_leader == _NOBODY else term.previous_leader,
        "why": term_why(term.why),
        "is_takeover": is_takeover(term),
    }


def _known(column: Column, nothing: int | str) -> Column:
    return F.when(column != F.lit(nothing), column)
