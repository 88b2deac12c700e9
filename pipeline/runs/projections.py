"""Tables that derive directly from records: `commits` and `failovers`.

The invariant: their rows equal those of `quorate log export` of the same log. Records may arrive in any order
and any split: a row needs only its own entry and, for a failover, the timestamp of the entry before it.
Commits are a Spark projection of `records`; terms are few enough to be collected and converted here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from history.words import is_takeover, term_why
from pipeline.errors import InputError
from pipeline.schema import TABLES, arrow_type
from records import RawRecord, RecordsError, RecordType, TermStartValue, decode_value
from records.ids import METADATA_SHARD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TERMS_MAX = 100_000
"""Limit on new terms in one run: the driver handles them and sends them to every task, some ten megabytes.

A cluster with more elections than that between two runs is unusable.
"""
TERMS_HINT = "a healthy cluster does not have so many elections"
Place = tuple[int, int]
"""Shard and index of an entry."""
_NOBODY = -1
"""The value in the log for "no epoch" and "no leader"."""
SAID_NOTHING: Mapping[str, tuple[str, int | str]] = {
    "leader_epoch": ("leader_epoch", _NOBODY),
    "metadata": ("metadata", ""),
    "member_id": ("cause_member_id", ""),
    "member_epoch": ("cause_member_epoch", _NOBODY),
}
"""Column of `commits` -> its column in `records`, and the value that becomes null."""
START_COLUMNS = ["cluster_id", "shard", "raft_index", "timestamp_ms", "type", "version", "value_bytes"]


def commits(records: DataFrame) -> DataFrame:
    """The rows of table `commits`."""
    mine = records.where(
        (F.col("type") == int(RecordType.OFFSET_COMMIT)) & (F.col("shard") != METADATA_SHARD)
    )
    said = {
        name: F.when(F.col(column) != F.lit(nothing), F.col(column))
        for name, (column, nothing) in SAID_NOTHING.items()
    }
    return mine.select(*(said.get(name, F.col(name)).alias(name) for name in TABLES["commits"].names))


def starts(records: DataFrame) -> list[dict[str, Any]]:
    """The records that start a term; raises `InputError` if there are more than `TERMS_MAX`."""
    is_start = (F.col("type") == int(RecordType.TERM_START)) & (F.col("sequence") == 0)
    rows = records.where(is_start).select(START_COLUMNS).limit(TERMS_MAX + 1).collect()
    if len(rows) > TERMS_MAX:
        raise InputError(f"there are more than {TERMS_MAX:,} new terms", TERMS_HINT)
    return [row.asDict() for row in rows]


def times(records: DataFrame, places: Collection[Place]) -> dict[Place, int]:
    """The timestamps of those entries of ``places`` that exist; there are no more of them than terms."""
    by_shard: dict[int, list[int]] = {}
    for shard, index in places:
        by_shard.setdefault(shard, []).append(index)
    if not by_shard:
        return {}
    those = [(F.col("shard") == s) & F.col("raft_index").isin(of) for s, of in by_shard.items()]
    found = records.where((F.col("sequence") == 0) & reduce(lambda one, other: one | other, those))
    rows = found.select("shard", "raft_index", "timestamp_ms").collect()
    return {(row["shard"], row["raft_index"]): row["timestamp_ms"] for row in rows}


def before(begun: Iterable[Mapping[str, Any]]) -> set[Place]:
    """The places of the entries before these."""
    return {(row["shard"], row["raft_index"] - 1) for row in begun}


def failovers(begun: Iterable[Mapping[str, Any]], times: Mapping[Place, int]) -> pa.Table:
    """The rows of table `failovers`; ``gap_ms`` is null for a term whose previous entry is not in ``times``.

    A term that this release cannot decode is skipped.
    """
    rows = []
    for row in begun:
        with contextlib.suppress(RecordsError):
            term = decode_value(RawRecord(row["type"], row["version"], b"", row["value_bytes"]))
            if isinstance(term, TermStartValue):
                rows.append(_term(row, term, times.get((row["shard"], row["raft_index"] - 1))))
    return pa.Table.from_pylist(rows, arrow_type(TABLES["failovers"].columns))


def _term(row: Mapping[str, Any], term: TermStartValue, before_ms: int | None) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("cluster_id", "shard", "raft_index", "timestamp_ms")},
        "term": term.term,
        "node_id": term.node_id,
        "previous_leader": None if term.previous_leader == _NOBODY else term.previous_leader,
        "why": term_why(term.why),
        "is_takeover": is_takeover(term),
        "gap_ms": None if before_ms is None else row["timestamp_ms"] - before_ms,
    }
