"""The first half of a run: `records`, `commits`, `failovers`, and an account of all losses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from history.render import plural
from quorate.spark.errors import InputError
from quorate.spark.source.plan import plan_records
from quorate.spark.source.verifying import readable

from . import losses
from .ingesting import IngestJob, IngestResult, Run, ingest_bundle, joined, verify_bundle
from .losses import Lost, Range
from .rows import write_rows
from .step import RunStep, Say, WorkPlaces
from .terms import Place, terms_before, terms_begun

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog, InputShard
    from quorate.spark.tables.output import Output
    from quorate.spark.tables.progress import ShardProgress
    from quorate.spark.tables.transaction import Transaction

HINT = "--mode permissive reads the rest and records the damage as a finding"
LITTLE_ENTRIES = 50_000
"""New entries that this process takes in itself, in a second or two; Spark alone takes longer to start."""
LITTLE_BYTES = 512 << 20
"""Bytes of segments that it reads for them at most."""


def repairable(
    output: Output, log: InputLog, known: Collection[Lost]
) -> dict[Lost, tuple[tuple[int, int], ...]]:
    """Losses that runs went past, with their entries that can be read now, from a restored or an added file.

    ``known`` are all that earlier runs noted (`losses.lost_before`). An entry that cannot be decoded is in a
    sound file: it would be read again for ever.
    """
    reached = {shard: one.records_to for shard, one in output.progress.shards.items()}
    return {
        one: found
        for one in known
        if one.is_damage
        and not one.is_unreadable
        and one.shard in log.shards
        and one.last_index <= reached.get(one.shard, 0)
        and (found := readable(log, one.shard, one.first_index, one.last_index))
    }


def ingest(
    places: WorkPlaces,
    output: Output,
    tx: Transaction,
    log: InputLog,
    asked: Mapping[int, Range],
    known_lost: Sequence[Lost],
    *,
    is_permissive: bool,
    say: Say,
) -> RunStep:
    """Take in these entries; raises `InputError` for vanished and, unless ``is_permissive``, damaged ones."""
    back = repairable(output, log, known_lost)
    there = {shard: kept for shard, one in asked.items() if (kept := _kept(log, shard, one)).count}
    found = _read(places, output, tx, log, [there, *_again(back)], is_permissive=is_permissive)
    say(f"records: {plural(sum(f.rows for f in found.files if f.table == 'records'), 'row')}")
    missed = _missed(output, log, asked, there, found)
    for one in missed:
        if one.is_damage and not is_permissive:
            raise InputError(one.what, HINT)
        say(one.what)
    for one in back:  # what is left of them was accepted before
        whole = Range(from_index=one.first_index, to_index=one.last_index)
        missed += _damage(log, {one.shard: whole}, found, one)
    tx.add(found.files)
    known, terms = tuple(terms_before(output)), terms_begun(found.starts, _ends(log, output, found.runs))
    tx.add(write_rows(output.store, "failovers", log.cluster_id, terms))
    lost = _account(output, known_lost, missed, found, back)
    if lost != tuple(known_lost):
        tx.remove("findings", output.files("findings", losses.PART))
        rows = losses.findings(log.cluster_id, lost)
        tx.add(write_rows(output.store, "findings", log.cluster_id, rows, part=losses.PART))
    return RunStep(
        places=places,
        output=output,
        tx=tx,
        log=log,
        say=say,
        ranges=dict(_settled(log, asked, found.runs, missed)),
        lost=lost,
        terms=tuple(sorted([*known, *terms], key=lambda term: (term.shard, term.index))),
        staged=tuple(file.path for file in found.staged),
        staged_rows=sum(file.rows for file in found.staged),
        groups=frozenset(found.groups),
        are_old_repaired=bool(back),
    )


def bytes_of(log: InputLog, asked: Mapping[int, Range]) -> int:
    """Bytes of the segments that hold any of these entries."""
    return sum(
        segment.size
        for shard, one in asked.items()
        for segment in log.shards[shard].segments
        if segment.last_index is None or segment.last_index >= one.from_index
    )


def _read(
    places: WorkPlaces,
    output: Output,
    tx: Transaction,
    log: InputLog,
    wanted: Sequence[Mapping[int, Range]],
    *,
    is_permissive: bool,
) -> IngestResult:
    """Do the tasks; in mode fail everything is verified before the first byte is written."""
    ranges = [{shard: (one.from_index, one.to_index) for shard, one in some.items()} for some in wanted]
    tasks = [bundle.packed() for some in ranges if some for bundle in plan_records(log, some)]
    size = sum(bytes_of(log, some) for some in wanted)
    entries = sum(one.count for some in wanted for one in some.values())
    workers = places.choose(size, is_little=entries <= LITTLE_ENTRIES and size <= LITTLE_BYTES)
    if not is_permissive:
        for broken in workers.each(verify_bundle, tasks):
            raise InputError(broken.decode(), HINT)
    found = IngestResult()
    for packed in workers.each(partial(ingest_bundle, IngestJob(output.store, tx.staging)), tasks):
        found.take(packed)
    return found


def _kept(log: InputLog, shard: int, asked: Range) -> Range:
    """The part of a range that has not been compacted away."""
    return replace(asked, from_index=max(asked.from_index, log.shards[shard].begins_index))


def _again(back: Mapping[Lost, Sequence[tuple[int, int]]]) -> Iterator[Mapping[int, Range]]:
    for one, found in back.items():
        for first, last in found:
            yield {one.shard: Range(from_index=first, to_index=last)}


def _missed(
    output: Output,
    log: InputLog,
    asked: Mapping[int, Range],
    there: Mapping[int, Range],
    found: IngestResult,
) -> list[Lost]:
    """The requested entries that were not read."""
    missed = []
    for shard, one in asked.items():
        if _kept(log, shard, one).from_index > one.from_index:
            before = output.progress.shards.get(shard)
            read = joined(_within(found.runs.get(shard, ()), one))
            first_ms = read[0].first_ms if read else max(log.shards[shard].last_ms, 0)
            missed.append(
                losses.not_kept(log, shard, one, None if before is None else before.last_ms, first_ms)
            )
    return [*missed, *_damage(log, there, found)]


def _damage(
    log: InputLog, asked: Mapping[int, Range], found: IngestResult, known: Lost | None = None
) -> Iterator[Lost]:
    """The entries of these ranges that no node has intact; ``known`` is a loss that was read again."""
    runs = {shard: joined(_within(found.runs.get(shard, ()), one)) for shard, one in asked.items()}
    return losses.damage(log.path, replace(found, runs=runs), asked, known)


def _within(runs: Sequence[Run], asked: Range) -> list[Run]:
    return [run for run in runs if run.first >= asked.from_index and run.last <= asked.to_index]


def _account(
    output: Output,
    known_lost: Sequence[Lost],
    missed: Sequence[Lost],
    found: IngestResult,
    back: Collection[Lost],
) -> tuple[Lost, ...]:
    """Everything to be known about losses from now on."""
    reached = {shard: one.records_to for shard, one in output.progress.shards.items()}
    known = [
        one
        for one in known_lost
        if one not in back and one.last_index <= reached.get(one.shard, 0)  # else it was read again
    ]
    repaired = [
        Lost(
            kind=losses.REPAIRED,
            shard=note.shard,
            first_index=note.first_index,
            last_index=note.last_index,
            what=note.words,
            from_ms=note.from_ms,
            to_ms=note.to_ms,
        )
        for note in found.repairs
    ]
    return tuple(sorted({*known, *missed, *repaired}, key=lambda one: (one.shard, one.first_index, one.kind)))


def _settled(
    log: InputLog, asked: Mapping[int, Range], runs: Mapping[int, list[Run]], missed: list[Lost]
) -> Iterator[tuple[int, Range]]:
    """The range each shard completed; a loss at its end is left out if its file may still be incomplete."""
    for shard, one in asked.items():
        at_end = (loss for loss in missed if loss.shard == shard and loss.last_index == one.to_index)
        may_come_back = (loss for loss in at_end if loss.is_damage and not loss.is_unreadable)
        torn = next((loss.first_index for loss in may_come_back), None)
        to_index = one.to_index if torn is None else torn - 1
        if to_index >= one.from_index:
            last = max(_within(runs.get(shard, ()), one), key=lambda run: run.last, default=None)
            yield shard, replace(one, to_index=to_index, to_ms=_time_of(to_index, log.shards[shard], last))


def _time_of(index: int, shard: InputShard, last: Run | None) -> int:
    """The timestamp of an entry; for a lost one, the nearest known."""
    if last is None or last.last < index == shard.decided_index:
        return shard.last_ms
    return last.last_ms


def _ends(log: InputLog, output: Output, runs: Mapping[int, list[Run]]) -> dict[Place, int]:
    """Timestamps of the entries that a term may follow: ends of what was read, and of snapshots."""
    progress: Mapping[int, ShardProgress] = output.progress.shards
    places = {(shard, one.records_to): one.last_ms for shard, one in progress.items()}
    for shard, of in runs.items():
        for header in log.log.reader(shard).snapshots():
            places[shard, header.last_index] = header.last_timestamp_ms
        places |= {(shard, run.last): run.last_ms for run in of}
    return places
