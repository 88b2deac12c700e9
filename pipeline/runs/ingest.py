"""The first half of a run: stages `records`, `commits` and `failovers`, and accounts for all losses.

The log is read once. Everything else derives from the written rows, which the transaction returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from history.render import plural
from pipeline.errors import InputError
from pipeline.tables.manifest import ShardProgress
from pipeline.tables.transaction import Staging

from . import local_records, losses, projections
from .step import Lost, Range, RunStep

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.source.inputs import InputLog, InputShard
    from pipeline.tables.output import Output
    from pipeline.tables.transaction import Transaction

ONE_TASK_BYTES = 4 << 20
"""Bytes of segments (some 50,000 records) that one task reads and writes before more could be set up."""
Say = Callable[[str], None]
"""Receives a line about the progress."""


def ingest(
    spark: SparkSession,
    output: Output,
    tx: Transaction,
    log: InputLog,
    asked: Mapping[int, Range],
    *,
    is_permissive: bool,
    on_progress: Say,
) -> RunStep:
    """Stage the records of these entries and their projections; returns the inputs of the facts.

    Raises `InputError` for damage unless ``is_permissive``, and for entries that vanished.
    """
    known = losses.lost_before(output)
    step = RunStep(spark=spark, output=output, tx=tx, log=log, ranges={}, lost=known)
    if not asked:
        return step
    there = {shard: kept for shard, one in asked.items() if (kept := _kept(log, shard, one)).count}
    rows = losses.read_log(spark, log.path, there, raw=True).where("damage IS NULL").drop("damage")
    is_one_task = bytes_of(log, there) <= ONE_TASK_BYTES
    rows = rows.coalesce(1) if is_one_task else rows
    (count,) = tx.stage(Staging(table="records", rows=rows, is_gathered=is_one_task))
    on_progress(f"records: {plural(count, 'row')}")
    few = tx.staged_few("records")
    found = losses.reached(tx.staged("records")) if few is None else local_records.reached_of(few)
    missed = _missed(step, asked, there, found)
    for one in missed:
        if one.is_damage and not is_permissive:
            raise InputError(one.what, _around(log))
        on_progress(one.what)
    terms = _project(tx, few, _places(log, output.manifest.progress, asked))
    before = (one for one in known if one.shard not in asked or one.last_index < asked[one.shard].from_index)
    lost = tuple(sorted((*before, *missed), key=lambda one: (one.shard, one.first_index)))
    if lost != known:
        gone = output.manifest.of("findings", losses.PART)
        found_lost = losses.findings(log.cluster_id, lost)
        tx.stage(Staging(table="findings", rows=found_lost, part=losses.PART, instead_of=gone))
    ranges = dict(_settled(log, asked, found, missed))
    return replace(step, ranges=ranges, lost=lost, few=few, terms=terms)


def bytes_of(log: InputLog, asked: Mapping[int, Range]) -> int:
    """Bytes of the segments that hold any of these entries."""
    return sum(
        segment.size
        for shard, one in asked.items()
        for segment in log.shards[shard].segments
        if segment.last_index is None or segment.last_index >= one.from_index
    )


def _project(tx: Transaction, few: pa.Table | None, places: Mapping[projections.Place, int]) -> pa.Table:
    """Stage the tables that derive directly from the new records; returns the failovers."""
    if few is not None:
        starts = local_records.starts_of(few)
        times = local_records.times_of(few, projections.before(starts))
        made: DataFrame | pa.Table = local_records.commits_of(few)
    else:
        records = tx.staged("records")
        starts = projections.starts(records)
        times = projections.times(records, projections.before(starts))
        made = projections.commits(records)
    terms = projections.failovers(starts, {**places, **times})
    tx.stage(Staging(table="commits", rows=made, is_gathered=True), Staging(table="failovers", rows=terms))
    return terms


def _kept(log: InputLog, shard: int, asked: Range) -> Range:
    """The part of a range that has not been compacted away."""
    return replace(asked, from_index=max(asked.from_index, log.shards[shard].begins_index))


def _missed(
    step: RunStep,
    asked: Mapping[int, Range],
    there: Mapping[int, Range],
    found: Mapping[int, losses.WrittenEntries],
) -> list[Lost]:
    """The requested entries that are not among the records."""
    log, progress, missed = step.log, step.output.manifest.progress, []
    for shard, one in asked.items():
        if _kept(log, shard, one).from_index > one.from_index:
            before_ms = progress[shard].last_ms if shard in progress else None
            first_ms = found[shard].first_ms if shard in found else max(log.shards[shard].last_ms, 0)
            missed.append(losses.not_kept(log, shard, one, before_ms, first_ms))
    short = {s: one for s, one in there.items() if s not in found or found[s].entries < one.count}
    return [*missed, *losses.damage(step.spark, log, step.records(), short)] if short else missed


def _settled(
    log: InputLog, asked: Mapping[int, Range], found: Mapping[int, losses.WrittenEntries], missed: list[Lost]
) -> Iterator[tuple[int, Range]]:
    """The range each shard completed; a loss at its end is left out if its file may still be incomplete."""
    for shard, one in asked.items():
        at_end = (loss for loss in missed if loss.shard == shard and loss.last_index == one.to_index)
        may_come_back = (loss for loss in at_end if loss.is_damage and not loss.is_unreadable)
        torn = next((loss.first_index for loss in may_come_back), None)
        to_index = one.to_index if torn is None else torn - 1
        if to_index >= one.from_index:
            to_ms = _time_of(to_index, log.shards[shard], found.get(shard))
            yield shard, replace(one, to_index=to_index, to_ms=to_ms)


def _time_of(index: int, shard: InputShard, reached: losses.WrittenEntries | None) -> int:
    """The timestamp of an entry; for a lost one, the nearest known."""
    if reached is None or reached.last_index < index == shard.decided_index:
        return shard.last_ms
    return reached.last_ms


def _places(
    log: InputLog, progress: Mapping[int, ShardProgress], asked: Mapping[int, Range]
) -> dict[projections.Place, int]:
    """Timestamps of the previous run's end and of snapshot ends, for a term that starts right after."""
    places = {(shard, one.records_to): one.last_ms for shard, one in progress.items() if shard in asked}
    for shard in asked:
        for header in log.log.reader(shard).snapshots():
            places[shard, header.last_index] = header.last_timestamp_ms
    return places


def _around(log: InputLog) -> str:
    """A hint about damage: each shard is read from one node, and another one may hold it intact."""
    hint = "--mode permissive reads the rest and records the damage as a finding"
    return (
        hint
        if len(log.members) == 1
        else (f"another node may have it intact: give only that node's directory; {hint}")
    )
