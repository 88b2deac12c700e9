"""One run: from an input to tables that reach up to its last committed entry.

    input      the log (`quorate.spark.source.inputs`), and the entries that no run has read yet
    ingest     those entries into `records`, `commits` and `failovers`; missing ones are accounted for
    facts      epochs, ownership, sessions, waits and findings of every group to which anything happened
    commit     table by table; all of it counts with the last one, `progress`, or nothing

Invariants: two runs in a row, wherever the first one ended, leave what one run leaves; a run that is
killed or refused changes nothing; of segments that were processed only the headers are read, which name the
cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING

from history.render import plural
from history.words import shard_name
from quorate.spark.errors import OptionError, OutputError
from quorate.spark.schema import SCHEMA_VERSION, TABLES
from quorate.spark.session.failures import spark_errors
from quorate.spark.source.inputs import InputLog, open_input
from quorate.spark.tables.output import Output
from quorate.spark.tables.progress import Progress, ShardProgress
from quorate.spark.tables.store import Store

from .facts import Mark, is_due, write_facts
from .ingest import ingest, repairable
from .losses import Range, lost_before
from .remembering import remember, remembered
from .step import RunStep, Say, Start, WorkPlaces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("fail", "permissive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDone:
    """The entries of one shard that a run took in, both ends included; facts reach ``facts_to``."""

    shard: int
    from_index: int
    to_index: int
    to_ms: int
    facts_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of a run."""

    input: str
    output: str
    cluster_id: str
    is_empty: bool = True
    """Nothing was new, and nothing was written."""
    shards: tuple[ShardDone, ...] = ()
    """The shards with new entries."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """New rows by table: those that the table has now and had not before."""
    rewritten: Mapping[str, int] = field(default_factory=dict)
    """Rows by table that were written again, because a row beside them changed or files were merged."""
    lost: tuple[str, ...] = ()
    """Missing or repaired parts of the log, found by this or an earlier run, in words."""
    remarks: tuple[str, ...] = ()
    """Limits of every answer in words, such as nodes whose files are not in the input."""
    seconds: float = 0.0


def _say_nothing(line: str) -> None:
    pass


def run(
    spark: SparkSession | Start,
    input_path: str,
    output_path: str,
    *,
    mode: str = "fail",
    on_progress: Say = _say_nothing,
) -> RunResult:
    """Bring the tables at ``output_path`` up to the last committed entry of the log at ``input_path``.

    Both are folders or URLs of stores (``s3://…``). ``spark`` may be a function that starts a session; it is
    not called if there is little to do. Raises `quorate.spark.errors.PipelineError`, in which case nothing
    changes. In mode ``fail`` damage that no copy makes good is an `InputError`; in ``permissive`` it is a
    row of `findings`, and everything readable is taken in.
    """
    if mode not in MODES:
        raise OptionError(f"{mode!r} is not a mode", f"give {' or '.join(MODES)}")
    log = open_input(input_path, remembered=remembered(Store.at(output_path)))
    with open_output(output_path, log) as output:
        return advance(spark, output, log, mode=mode, on_progress=on_progress)


def open_output(path: str, log: InputLog) -> Output:
    """Open the output for this log; one inside the log's own folder is refused, as the log is read-only."""
    place, home = (f"{Store.at(one).url.rstrip('/')}/" for one in (path, log.path))
    if place.startswith(home):
        raise OutputError(f"the output {path} is inside the input {log.path}", "give a folder outside of it")
    return Output.open(path, cluster_id=log.cluster_id, num_shards=log.num_shards)


def advance(
    spark: SparkSession | Start,
    output: Output,
    log: InputLog,
    *,
    mode: str = "fail",
    ranges: Mapping[int, tuple[int, int]] | None = None,
    on_progress: Say = _say_nothing,
) -> RunResult:
    """One run on an open output; ``ranges`` (shard -> first and last index) limits the entries that it takes.

    Entries that the tables already hold are skipped, so a batch may be repeated.
    """
    begun, before = monotonic(), output.progress
    asked, known_lost = dict(_new_entries(before.shards, log, ranges)), lost_before(output)
    result = RunResult(
        input=log.path,
        output=output.store.place,
        cluster_id=log.cluster_id,
        lost=tuple(one.what for one in known_lost),
        remarks=(*log.remarks, *_older_copies(before.shards, log)),
    )
    if not asked and not is_due(output, log) and not repairable(output, log, known_lost):
        return result
    entries = sum(one.count for one in asked.values())
    on_progress(
        f"cluster {log.cluster_id}: {plural(entries, 'entry')} to read of {plural(len(asked), 'shard')}"
    )
    with spark_errors(), output.begin() as tx:
        step = ingest(
            WorkPlaces(spark),
            output,
            tx,
            log,
            asked,
            known_lost,
            is_permissive=mode == "permissive",
            say=on_progress,
        )
        lost = tuple(one.what for one in step.lost)
        if not step.ranges and not tx.is_changed and not is_due(output, log):
            return replace(result, lost=lost)
        facts_to, mark = write_facts(step)
        after = tx.commit(_progress(before, log, step, facts_to, mark))
        counted = {table: tx.counts(table) for table in TABLES}
    remember(output.store, log)
    seconds = monotonic() - begun
    rows = {table: max(added - removed, 0) for table, (added, removed) in counted.items() if added or removed}
    rewritten = {table: min(added, removed) for table, (added, removed) in counted.items() if table in rows}
    on_progress(f"{plural(sum(rows.values()), 'new row')} in {seconds:.1f} s")
    shards = tuple(_shard_done(shard, asked[shard], after.shards[shard]) for shard in step.ranges)
    return replace(
        result, is_empty=False, shards=shards, rows=rows, rewritten=rewritten, lost=lost, seconds=seconds
    )


def _new_entries(
    before: Mapping[int, ShardProgress], log: InputLog, ranges: Mapping[int, tuple[int, int]] | None
) -> Iterator[tuple[int, Range]]:
    """The entries that no run has read yet, for each shard with any."""
    for shard, there in log.shards.items():
        first, last = before.get(shard, ShardProgress()).records_to + 1, there.decided_index
        if ranges is not None:
            last = min(last, ranges[shard][1] if shard in ranges else 0)
        if first <= last:
            yield shard, Range(from_index=first, to_index=last)


def _older_copies(before: Mapping[int, ShardProgress], log: InputLog) -> Iterator[str]:
    for shard, there in log.shards.items():
        known = before.get(shard, ShardProgress()).records_to
        if there.decided_index < known:
            yield (
                f"{shard_name(shard)} ends with entry {there.decided_index} here, but the tables have "
                f"entries up to {known}: this is an older copy"
            )


def _progress(
    before: Progress, log: InputLog, step: RunStep, facts_to: Mapping[int, int], mark: Mark
) -> Progress:
    after = dict(before.shards)
    for shard, new in step.ranges.items():
        after[shard] = replace(after.get(shard, ShardProgress()), records_to=new.to_index, last_ms=new.to_ms)
    for shard, index in facts_to.items():
        after[shard] = replace(after.get(shard, ShardProgress()), facts_to=index)
    return replace(
        before,
        run=before.run + 1,
        num_shards=before.num_shards or log.num_shards,
        schema_version=SCHEMA_VERSION,
        shards=after,
        notes=json.dumps({"facts": asdict(mark)}),
    )


def _shard_done(shard: int, asked: Range, reached: ShardProgress) -> ShardDone:
    return ShardDone(
        shard=shard,
        from_index=asked.from_index,
        to_index=reached.records_to,
        to_ms=reached.last_ms,
        facts_to=reached.facts_to,
    )
