"""Accounts for every entry: it is in the tables, or it is lost and a finding says so.

The written entries are counted against those the log is known to have; only a difference triggers a search. A
compacted beginning is expected; damage is as the source reports it. Entries explained by neither vanished
while the log was read, and the run is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from history.render import plural
from history.words import shard_name
from pipeline.errors import InputError
from pipeline.schema import TABLES, arrow_type
from pipeline.tables.local import read_all

from .step import Lost, Range, is_undecodable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.source.inputs import InputLog
    from pipeline.tables.output import Output

HOLES_MAX = 10_000
"""Limit on gaps over all runs: the driver handles them, and each is a finding.

A log with more is unusable.
"""
PART = "log"
"""The part of table `findings` about the log itself rather than a group."""
DAMAGED, GAP = "LOG_DAMAGED", "LOG_GAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEntries:
    """The written entries of one shard."""

    entries: int
    first_ms: int
    last_index: int
    last_ms: int


def read_log(spark: SparkSession, path: str, ranges: Mapping[int, Range], *, raw: bool) -> DataFrame:
    """The records in ranges, and rows of damage."""
    asked = {str(shard): [one.from_index, one.to_index] for shard, one in ranges.items()}
    reader = spark.read.format("quorate").option("mode", "permissive").option("ranges", json.dumps(asked))
    return reader.option("raw", str(raw).lower()).load(path)


def reached(records: DataFrame) -> dict[int, WrittenEntries]:
    """Progress by shard; every entry has a record with sequence 0."""
    by_shard = _entries(records).groupBy("shard")
    counted = by_shard.agg(
        F.count("*").alias("entries"),
        F.min_by("timestamp_ms", "raft_index").alias("first_ms"),
        F.max("raft_index").alias("last_index"),
        F.max_by("timestamp_ms", "raft_index").alias("last_ms"),
    )
    rows = [row.asDict() for row in counted.collect()]  # one row per shard
    return {row.pop("shard"): WrittenEntries(**row) for row in rows}


def not_kept(log: InputLog, shard: int, asked: Range, before_ms: int | None, first_ms: int) -> Lost:
    """The part of a range that is no longer kept; ``before_ms`` is set if an earlier run read up to it."""
    first, last = asked.from_index, min(log.shards[shard].begins_index - 1, asked.to_index)
    why = "" if before_ms is None else ": they were removed before a run read them"
    return Lost(
        shard=shard,
        first_index=first,
        last_index=last,
        what=f"entries {first} to {last} of {shard_name(shard)} are not kept{why}",
        is_damage=False,
        from_ms=first_ms if before_ms is None else before_ms,
        to_ms=first_ms,
    )


def damage(
    spark: SparkSession, log: InputLog, records: DataFrame, ranges: Mapping[int, Range]
) -> Iterator[Lost]:
    """The entries missing from these shards; raises `InputError` for any that damage does not explain."""
    said = _said(spark, log.path, ranges)
    every = (piece for hole in _holes(records, ranges) for piece in pieces(hole, said.get(hole.shard, ())))
    for hole, words in every:
        if not words:
            raise InputError(
                f"entries {hole.first} to {hole.last} of {shard_name(hole.shard)} were removed while "
                f"{log.path} was read",
                "run again, or read a copy that does not change",
            )
        yield Lost(
            shard=hole.shard,
            first_index=hole.first,
            last_index=hole.last,
            what=f"{shard_name(hole.shard)}: " + "; ".join(words[:1]) + _more(words),
            is_damage=True,
            from_ms=hole.from_ms,
            to_ms=hole.to_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hole:
    """Consecutive entries that are not among the records, both ends included."""

    shard: int
    first: int
    last: int
    from_ms: int
    to_ms: int | None


def pieces(hole: Hole, said: Sequence[tuple[int, str]]) -> Iterator[tuple[Hole, list[str]]]:
    """Split a hole into single undecodable entries and lost ranges between them, each with its description.

    Facts skip the former and stop at the latter, so neighbours of different kinds must not be merged.
    """
    within = [(at, what) for at, what in said if hole.first <= at <= hole.last]
    first = hole.first
    for at, what in [*((at, what) for at, what in within if is_undecodable(at, what)), (hole.last + 1, "")]:
        if first < at:
            words = [words for place, words in within if first <= place < at]
            yield replace(hole, first=first, last=at - 1), words
        if what:
            yield replace(hole, first=at, last=at), [what]
        first = at + 1


def _holes(records: DataFrame, ranges: Mapping[int, Range]) -> Iterator[Hole]:
    """Gaps between the records within the ranges."""
    in_order = Window.partitionBy("shard").orderBy("raft_index")
    entries = _entries(records).where(F.col("shard").isin(list(ranges)))
    jumps = entries.select(
        "shard",
        F.lag("raft_index").over(in_order).alias("before"),
        F.lag("timestamp_ms").over(in_order).alias("before_ms"),
        F.col("raft_index").alias("behind"),
        F.col("timestamp_ms").alias("behind_ms"),
    ).where("before IS NULL OR before + 1 < behind")
    for row in _bounded(jumps.orderBy("shard", "behind")):
        shard, behind, behind_ms = row["shard"], row["behind"], row["behind_ms"]
        first = ranges[shard].from_index if row["before"] is None else row["before"] + 1
        if first < behind:
            from_ms = behind_ms if row["before_ms"] is None else row["before_ms"]
            yield Hole(shard=shard, first=first, last=behind - 1, from_ms=from_ms, to_ms=behind_ms)
    ends = {shard: (one.last_index, one.last_ms) for shard, one in reached(entries).items()}
    for shard, asked in ranges.items():
        last, last_ms = ends.get(shard, (asked.from_index - 1, 0))
        if last < asked.to_index:
            yield Hole(shard=shard, first=last + 1, last=asked.to_index, from_ms=last_ms, to_ms=None)


def _said(spark: SparkSession, path: str, ranges: Mapping[int, Range]) -> dict[int, list[tuple[int, str]]]:
    """Damage that the source reports: by shard, the first entry lost and the reason."""
    rows = read_log(spark, path, ranges, raw=False).where("damage IS NOT NULL")
    told: dict[int, list[tuple[int, str]]] = {}
    for row in _bounded(rows.select("shard", "raft_index", "damage").orderBy("shard", "raft_index")):
        told.setdefault(row["shard"], []).append((row["raft_index"], row["damage"]))
    return told


def _more(words: Sequence[str]) -> str:
    return f"; and {plural(len(words) - 1, 'more place')}" if words[1:] else ""


def _entries(records: DataFrame) -> DataFrame:
    return records.where(F.col("sequence") == 0)


def _bounded(rows: DataFrame) -> Sequence[Any]:
    found = rows.limit(HOLES_MAX + 1).collect()
    if len(found) > HOLES_MAX:
        raise InputError(f"entries are missing in more than {HOLES_MAX:,} places", "read another node's log")
    return found


def findings(cluster_id: str, lost: Iterable[Lost]) -> pa.Table:
    """Rows of table `findings` for lost entries; they have no group."""
    rows: list[dict[str, Any]] = [
        {
            "cluster_id": cluster_id,
            "kind": DAMAGED if one.is_damage else GAP,
            "severity": "error" if one.is_damage else "note",
            "shard": one.shard,
            "epochs": [],
            "members": [],
            "partitions": [],
            "from_index": one.first_index,
            "from_ms": one.from_ms,
            "to_index": one.last_index,
            "to_ms": one.to_ms,
            "words": one.what,
            "rests_on": [],
            "is_certain": True,
        }
        for one in lost
    ]
    return pa.Table.from_pylist(rows, arrow_type(TABLES["findings"].columns))


def lost_before(output: Output) -> tuple[Lost, ...]:
    """The losses of earlier runs, read from their findings; at most `HOLES_MAX`."""
    files = output.manifest.of("findings", PART)
    rows = read_all(output.root, files, arrow_type(TABLES["findings"].columns)).to_pylist()
    return tuple(
        Lost(
            shard=row["shard"],
            first_index=row["from_index"],
            last_index=row["to_index"],
            what=row["words"],
            is_damage=row["kind"] == DAMAGED,
            from_ms=row["from_ms"],
            to_ms=row["to_ms"],
        )
        for row in sorted(rows, key=lambda row: (row["shard"], row["from_index"]))
    )
