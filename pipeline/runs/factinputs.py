"""Inputs of facts besides new records and terms: notes, and snapshots that replace lost entries.

All of it is small. Notes are gathered on the driver; snapshots are staged by Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
from pyspark.sql import functions as F

from coordinator.state.group_records import GROUP_TYPES
from pipeline.errors import InputError
from pipeline.facts.group import STATE_VERSION
from pipeline.facts.shared import Bridge, notes_by_group
from pipeline.schema import RECORD_COLUMNS, columns_named, spark_type
from pipeline.tables import local
from pipeline.tables.disk import join
from pipeline.tables.reading import read_staged, read_table
from pipeline.tables.transaction import Staging
from records.ids import METADATA_SHARD, shard_of

from .factspans import FactSpan
from .step import RunStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pipeline.source.inputs import InputLog
    from pipeline.tables.output import Output

STATES, PARTS, BRIDGES = "group_states", "group_parts", "fact_bridges"
MARKS = "marks"
BRIDGES_MAX = 10_000
"""Limit on snapshots that ever replaced lost entries: the same as the limit on losses."""
NO_RECORD = -1
"""Record type of a row that stands for a whole snapshot."""
Notes = Mapping[tuple[int, str], tuple[str, ...]]


# Notes beside the log.


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A summary that a run leaves, which the next run checks before it starts Spark."""

    version: str
    """Version of the stored states."""
    notes_crc: int
    """CRC of all notes."""

    @classmethod
    def of(cls, notes: Notes) -> Mark:
        """The mark of a run with these notes."""
        return cls(version=STATE_VERSION, notes_crc=crc32(repr(sorted(notes.items())).encode()))


def mark_of(output: Output) -> Mark | None:
    """The mark of the previous run; ``None`` if there is none."""
    for file in output.manifest.of(STATES, MARKS):
        for row in local.read_file(output.root, file.path).to_pylist():
            return Mark(version=row["version"], notes_crc=row["notes_crc"])
    return None


def write_mark(step: RunStep, mark: Mark) -> None:
    rows = pa.table(
        {"shard": pa.array([-1], pa.int32()), "version": [mark.version], "notes_crc": [mark.notes_crc]}
    )
    there = step.output.manifest.of(STATES, MARKS)
    step.tx.stage(Staging(table=STATES, rows=rows, part=MARKS, instead_of=there))


def notes_of(log: InputLog) -> Notes:
    """The nodes' notes by group. The note files are shared by all shards, and bounded."""
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    group_shards = [shard for shard in log.shards if shard != METADATA_SHARD]
    if not group_shards:
        return found
    noted = log.log.reader(group_shards[0]).evidence()
    for shard in group_shards:
        mine = [note for note in noted if _is_in(note.get("group"), shard, log.num_shards)]
        found |= notes_by_group(shard, mine)
    return found


def _is_in(group_id: object, shard: int, num_shards: int | None) -> bool:
    if not isinstance(group_id, str):
        return False
    try:
        home = shard_of(group_id, num_shards or 1)
    except UnicodeEncodeError:  # no group in a log has such a name
        return False
    return num_shards is None or home == shard


# Snapshots that replace lost entries.


def crossed_before(step: RunStep) -> Mapping[int, Sequence[Bridge]]:
    """The bridges of earlier runs, by shard."""
    rows = _stored_bridges(step).where(F.col("type") == NO_RECORD).limit(BRIDGES_MAX).collect()
    found: dict[int, list[Bridge]] = {}
    for row in sorted(rows, key=lambda row: (row["shard"], row["raft_index"])):
        bridge = Bridge(
            after_index=row["after_index"],
            after_ms=row["after_ms"],
            index=row["raft_index"],
            ms=row["timestamp_ms"],
        )
        found.setdefault(row["shard"], []).append(bridge)
    return found


def bridge_records(
    step: RunStep, spans: Mapping[int, FactSpan], crossed: Mapping[int, Sequence[Bridge]]
) -> DataFrame | None:
    """The records of the snapshots that the spans need; newly read ones are kept for later runs."""
    if not any(span.bridges for span in spans.values()):
        return None
    fresh = {
        shard: [bridge for bridge in span.bridges if bridge not in crossed.get(shard, ())]
        for shard, span in spans.items()
    }
    rounds = max(map(len, fresh.values()))
    found = [_read(step, {s: of[n] for s, of in fresh.items() if n < len(of)}, n) for n in range(rounds)]
    if found:
        rows = reduce(lambda one, other: one.unionByName(other), found)
        step.tx.stage(Staging(table=BRIDGES, rows=rows))
    if crossed:
        found.append(_stored_bridges(step))
    return reduce(lambda one, other: one.unionByName(other), found).where(F.col("type") != NO_RECORD)


def _read(step: RunStep, bridges: Mapping[int, Bridge], number: int) -> DataFrame:
    """Read and stage one bridging snapshot per shard: a node may replace it at any time."""
    asked = {str(shard): [None, bridge.index] for shard, bridge in bridges.items()}
    reader = step.spark.read.format("quorate").option("rows", "snapshot").option("raw", "true")
    reader = reader.option("types", ",".join(str(int(type_)) for type_ in sorted(GROUP_TYPES)))
    records = reader.option("ranges", json.dumps(asked)).load(step.log.path)
    places = [(shard, one.index, one.ms, one.after_index, one.after_ms) for shard, one in bridges.items()]
    known = "shard int, raft_index bigint, timestamp_ms bigint, after_index bigint, after_ms bigint"
    at = step.spark.createDataFrame(places, known)
    columns = [
        F.lit(None).cast(one.dataType).alias(one.name) for one in _bridge_type() if one.name not in at.columns
    ]
    whole = at.select("*", *columns).withColumn("type", F.lit(NO_RECORD))
    joined = records.drop("timestamp_ms").join(F.broadcast(at), ["shard", "raft_index"])
    names = _bridge_type().names
    path = join(step.tx.staging, f"bridges-{number}")
    joined.select(names).unionByName(whole.select(names)).write.parquet(f"file://{path}")
    _check_kept(step, bridges)
    return read_staged(step.spark, path, _bridge_type())


def _check_kept(step: RunStep, bridges: Mapping[int, Bridge]) -> None:
    """Raise `InputError` if a snapshot may have been replaced before it was read."""
    for shard, bridge in bridges.items():
        if bridge.index not in (header.last_index for header in step.log.log.reader(shard).snapshots()):
            raise InputError(
                f"the snapshot of index {bridge.index} of shard {shard} was replaced while it was read",
                "run again",
            )


def _stored_bridges(step: RunStep) -> DataFrame:
    return read_table(step.spark, step.output.root, BRIDGES, schema=_bridge_type())


def _bridge_type() -> StructType:
    names = ["shard", "group_id", "raft_index", "sequence", "timestamp_ms", "type", "version"]
    raw = ["key_bytes", "value_bytes", "cause_bytes"]
    from pyspark.sql.types import LongType

    found = spark_type(columns_named(RECORD_COLUMNS, [*names, *raw]))
    return found.add("after_index", LongType()).add("after_ms", LongType())
