"""Thousands of groups under other settings: `history.whatif` on one group at a time, in Spark's workers.

A group's records go through the same extractor and the same replay as in `quorate log whatif`, so the figures
are the same. Terms belong to shards rather than groups: they are sent to every executor beforehand, a few
bytes per failover, as is the evidence beside the log if it is given.

Commits are not exchanged, except for a group's first one, which shows that the group exists.

A replay covers what is known: it starts at the newest snapshot whose rows are among the records, if any, and
ends before the first loss after that (a row of `damage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f

from coordinator.state.group_records import GROUP_TYPES
from history.export.columns import boolean, float64, int64, span, text, texts
from history.reading.notes import by_group
from history.whatif.answer import WhatIfResult
from history.whatif.answer import whatif as whatif_of_one
from history.whatif.extract import Extractor
from history.whatif.measures import Measures
from history.whatif.settings import WhatIf, WhatIfError
from quorate.spark.errors import InputError, OptionError
from quorate.spark.milliseconds import in_milliseconds
from quorate.spark.schema import RECORD_COLUMNS, arrow_type, columns_named, spark_type
from records import Entry, RawRecord, RecordsError, RecordType, TermStartValue, decode_value
from records.entry import load_cause

from .keys import GROUP
from .registry import RECORDS, Analysis, needed
from .streams import Row, groups_of, in_groups

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TERMS_MAX = 1_000_000
"""Limit on the terms of all shards together: a failover a minute for two years. Every executor holds them."""
_COMMITS = [int(RecordType.OFFSET_COMMIT_LEGACY), int(RecordType.OFFSET_COMMIT)]
_COLUMNS = ("raft_index", "sequence", "timestamp_ms", "type", "version")
_BYTES = ("key_bytes", "value_bytes", "cause_bytes")
_SHARD = ("cluster_id", "shard")

Notes = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Shard:
    """Data shared by all groups of a shard."""

    terms: list[tuple[int, int, TermStartValue]] = field(default_factory=list)
    """(index, ms, term start), in order."""
    last_ms: int = -1
    begins_index: int = 0
    """Index of the snapshot at which the shard's records start; 0: no snapshot."""
    notes: Mapping[object, Notes] | None = None
    """Notes by group; ``None``: there is no evidence."""
    evidence_from_ms: int | None = None


_Shards = dict[tuple[str, int], _Shard]


def whatif(
    records: DataFrame, change: WhatIf | None = None, evidence: Mapping[int, Notes] | None = None
) -> DataFrame:
    """Each group's actual course, and its simulated course under other settings."""
    needed(records, "whatif", "trigger", *_BYTES)
    change = change or WhatIf()
    records = in_milliseconds(records)
    shards, records = _shards_of(records, evidence or {})
    is_mine = f.col("type").isin([int(one) for one in GROUP_TYPES])
    members = records.where(is_mine & f.col("group_id").isNotNull()).select(*GROUP, *_COLUMNS, *_BYTES)
    first = f.min_by(f.struct(*_COLUMNS), f.struct("raft_index", "sequence")).alias("first")
    commits = records.where(f.col("type").isin(_COMMITS)).groupBy(*GROUP).agg(first)
    all_of_them = members.unionByName(commits.select(*GROUP, "first.*"), allowMissingColumns=True)

    def replay(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_type(COLUMNS)
        for key, rows in groups_of(batches, GROUP):
            yield pa.RecordBatch.from_pylist([_row(key, rows, shards[key[:2]], change)], schema)

    ordered = in_groups(all_of_them, GROUP, "raft_index", "sequence")
    return ordered.mapInArrow(replay, spark_type(COLUMNS))


def _shards_of(records: DataFrame, evidence: Mapping[int, Notes]) -> tuple[_Shards, DataFrame]:
    """The terms and bounds of each shard, and the records within these bounds.

    Only the terms and bounds are collected on the driver; both are small.
    """
    found: _Shards = {}
    is_of_snapshot = f.col("type").isNotNull() & f.col("trigger").isNull()
    snapshot = f.max(f.when(is_of_snapshot, f.col("raft_index"))).alias("snapshot")
    for end in records.groupBy(*_SHARD).agg(_last_ms(), snapshot).toLocalIterator():
        found[end.cluster_id, end.shard] = _Shard(last_ms=end.last_ms, begins_index=end.snapshot or 0)
    _check_evidence(found, evidence)
    records = _between_ends(records, found, is_of_snapshot)
    for (_, number), one in found.items():
        notes = evidence.get(number)
        if notes:
            one.evidence_from_ms = min((int(note["at_ms"]) for note in notes), default=0)
            one.notes = by_group(notes)
    begins = records.where((f.col("type") == int(RecordType.TERM_START)) & f.col("value_bytes").isNotNull())
    begins = begins.select(*_SHARD, "raft_index", "timestamp_ms", "version", "value_bytes").limit(
        TERMS_MAX + 1
    )
    for number, row in enumerate(begins.toLocalIterator()):
        if number == TERMS_MAX:
            raise InputError(
                f"there are more than {TERMS_MAX:,} terms, too many for the memory of an executor",
                "select fewer shards or a shorter time",
            )
        raw = RawRecord(int(RecordType.TERM_START), row.version, b"", bytes(row.value_bytes))
        try:
            term = decode_value(raw)
        except RecordsError:
            continue
        if isinstance(term, TermStartValue):
            found[row.cluster_id, row.shard].terms.append((row.raft_index, row.timestamp_ms, term))
    for one in found.values():
        one.terms.sort(key=itemgetter(0))
    return found, records


def _last_ms() -> Column:
    return f.max("timestamp_ms").alias("last_ms")


def _check_evidence(shards: _Shards, evidence: Mapping[int, Notes]) -> None:
    """Raise `OptionError` for several clusters: evidence names its shard but not its cluster."""
    clusters = sorted({cluster_id for cluster_id, _ in shards})
    if evidence and len(clusters) > 1:
        raise OptionError(
            f"evidence belongs to one cluster, but the records belong to {', '.join(clusters)}",
            "analyse each cluster separately",
        )


def _between_ends(records: DataFrame, shards: _Shards, is_of_snapshot: Column) -> DataFrame:
    """Records from each shard's snapshot up to its first loss; updates ``last_ms`` of shards with losses."""
    for (cluster_id, number), one in shards.items():
        if one.begins_index:
            is_behind = (f.col("raft_index") > one.begins_index) | (
                (f.col("raft_index") == one.begins_index) & is_of_snapshot
            )
            records = records.where(_is_elsewhere(cluster_id, number) | is_behind)
    if "damage" not in records.columns:
        return records
    lost = records.where("damage IS NOT NULL").groupBy(*_SHARD).agg(f.min("raft_index").alias("lost_index"))
    losses = list(lost.toLocalIterator())
    for loss in losses:
        is_before = f.col("raft_index") < loss.lost_index
        records = records.where(_is_elsewhere(loss.cluster_id, loss.shard) | is_before)
    if losses:
        for end in records.groupBy(*_SHARD).agg(_last_ms()).toLocalIterator():
            shards[end.cluster_id, end.shard].last_ms = end.last_ms
    return records


def _is_elsewhere(cluster_id: str, shard: int) -> Column:
    return (f.col("cluster_id") != cluster_id) | (f.col("shard") != shard)


def _row(key: tuple[Any, ...], rows: Iterable[Row], shard: _Shard, change: WhatIf) -> Row:
    """Replay one group: extract its recorded membership, then simulate it with and without the change."""
    cluster_id, number, group_id = key
    made = Extractor(group_id, number, _notes(shard, group_id), shard.evidence_from_ms or 0)
    terms = iter(shard.terms)
    term = next(terms, None)
    is_met = False
    for index, of_entry in groupby(rows, key=itemgetter("raft_index")):
        while term is not None and term[0] < index:
            if is_met:  # terms before the group existed do not concern it
                made.term(*term)
            term = next(terms, None)
        is_met = True
        records = [row for row in of_entry if row["key_bytes"] is not None]  # skip the marker of a commit
        if records and records[0]["cause_bytes"] is None:  # a snapshot
            made = Extractor(group_id, number, _notes(shard, group_id), shard.evidence_from_ms or 0)
            made.begin_with(_raws(records), index, records[0]["timestamp_ms"])
        elif records:
            _entry(made, index, records)
    while term is not None:
        made.term(*term)
        term = next(terms, None)
    made.passed(shard.last_ms)
    try:
        result = whatif_of_one(made.finish(), change)
    except WhatIfError as error:
        result = WhatIfResult(group_id=group_id, shard=number, asked=change.words(), left_out=str(error))
    return _told(cluster_id, result)


def _notes(shard: _Shard, group_id: str) -> Notes | None:
    return None if shard.notes is None else shard.notes.get(group_id, [])


def _entry(made: Extractor, index: int, rows: Sequence[Row]) -> None:
    """Feed one entry about the group; one that cannot be decoded is skipped, since `verify` reports it."""
    try:
        cause = load_cause(rows[0]["cause_bytes"])
    except RecordsError:
        return
    made.entry(index, rows[0]["timestamp_ms"], Entry(cause, tuple(_raws(rows))))


def _raws(rows: Iterable[Row]) -> list[RawRecord]:
    return [RawRecord(row["type"], row["version"], row["key_bytes"], row["value_bytes"]) for row in rows]


def _told(cluster_id: str, result: WhatIfResult) -> Row:
    return {
        "cluster_id": cluster_id,
        "group_id": result.group_id,
        "shard": result.shard,
        "asked": list(result.asked),
        "left_out": result.left_out or None,
        "assignor": result.assignor or None,
        "is_faithful": result.is_faithful if result.really is not None else None,
        "difference": result.difference if result.really is not None else None,
        **_measures("really", result.really),
        **_measures("whatif", result.whatif),
        "has_evidence": result.has_evidence,
        "interval_ms": result.interval_ms,
        "notes": list(result.notes),
    }


def _measures(course: str, measures: Measures | None) -> Row:
    if measures is None:
        return {}
    return {f"{course}_{one.name}": getattr(measures, one.name) for one in fields(Measures)}


_MEANS = {
    "epochs": ("Epochs", ""),
    "moved": ("Partitions that targets moved from one member to another", ""),
    "unowned_ms": ("Time in which partitions had no owner", "partition-ms"),
    "revoking_ms": ("Time in which partitions were being given up", "partition-ms"),
    "unstable_ms": ("Time in which the group was not stable", "ms"),
    "sessions_expired": ("Expired sessions", ""),
    "fenced_revoking": ("Members removed because they did not give up partitions in time", ""),
    "spread": ("Largest difference between the partition counts of two members", ""),
    "spread_at_end": ("That difference in the last target", ""),
}
COLUMNS = (
    *columns_named(RECORD_COLUMNS, ["cluster_id", "group_id", "shard"]),
    texts("asked", "The changed settings, in words."),
    text("left_out", "Why the group was not replayed; null: it was."),
    text("assignor", "The recorded assignor, used for members that vote for none."),
    boolean("is_faithful", "True: a replay with the recorded settings equals what really happened."),
    float64(
        "difference",
        "How much the two courses differ: each move, epoch, fenced member and partition-second counts as "
        "one.",
    ),
    *(
        int64(f"{course}_{name}", f"{means}, {words}.", unit=unit)
        for course, words in (("really", "as recorded"), ("whatif", "with the change"))
        for name, (means, unit) in _MEANS.items()
    ),
    boolean("has_evidence", "True: the evidence beside the log was used."),
    span("interval_ms", "The heartbeat interval that was assumed."),
    texts("notes", "What limits the answer, in words."),
)

ANALYSES = (
    Analysis(
        takes=(RECORDS,),
        answers=(
            "How would each group have fared with another assignor or other timeouts? One row for each group."
        ),
        columns=COLUMNS,
        run=whatif,
        options={
            "change": (
                "The changed settings, a `history.whatif.settings.WhatIf`; by default nothing is changed."
            ),
            "evidence": "Evidence notes by shard; without them only the log is used.",
        },
        needs_raw=True,
    ),
)
