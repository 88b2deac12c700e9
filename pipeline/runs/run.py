"""One run: from an input to tables that reach up to its last committed entry.

    input      the log (`pipeline.source.inputs`), and the entries that no run has read yet
    records    those entries, read once and written; missing ones are accounted for (`losses`)
    commits, failovers    projections of the new records
    facts      epochs, ownership, sessions, waits and findings of every group to which anything happened
    commit     everything at once, or nothing

Invariants: two runs in a row, wherever the first one ended, leave what one run leaves; a run that is
killed or refused changes nothing; of segments that were processed only the headers are read, which name the
cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from history.render import plural
from history.words import shard_name
from pipeline.errors import OptionError, OutputError
from pipeline.schema import TABLES
from pipeline.session.failures import spark_errors
from pipeline.source import register
from pipeline.source.inputs import InputLog, open_input
from pipeline.tables.disk import place_of
from pipeline.tables.manifest import ShardProgress
from pipeline.tables.output import Output

from .factstage import is_due, write_facts
from .ingest import Say, bytes_of, ingest
from .step import Range, RunStep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("fail", "permissive")
Start = Callable[[int], "SparkSession"]
"""Starts a session, given the number of bytes of segments to read."""


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
    """Rows written by table, including rewritten ones."""
    lost: tuple[str, ...] = ()
    """Missing parts of the log, found by this or an earlier run, in words."""
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

    ``spark`` may be a function that starts a session; it is not called if there is nothing to do. Raises
    `pipeline.errors.PipelineError`, in which case nothing changes. In mode ``fail`` damage is an
    `InputError`; in ``permissive`` it is a row of `findings`, and everything readable is taken in.
    """
    if mode not in MODES:
        raise OptionError(f"{mode!r} is not a mode", f"give {' or '.join(MODES)}")
    log = open_input(input_path)
    with open_output(output_path, log) as output:
        return advance(spark, output, log, mode=mode, on_progress=on_progress)


def open_output(path: str, log: InputLog) -> Output:
    """Open the output for this log; one inside the log's own folder is refused, as the log is read-only."""
    root, home = Path(place_of(path)), Path(log.path).resolve()
    if root.is_relative_to(home):
        raise OutputError(f"the output {root} is inside the input {home}", "give a folder outside of it")
    return Output.open(root, cluster_id=log.cluster_id, num_shards=log.num_shards)


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
    begun = monotonic()
    before = output.manifest.progress
    asked = dict(_new_entries(before, log, ranges))
    result = RunResult(
        input=log.path,
        output=output.root,
        cluster_id=log.cluster_id,
        remarks=(*log.remarks, *_older_copies(before, log)),
    )
    if not asked and not is_due(output, log):
        return result
    with spark_errors():
        session = spark(bytes_of(log, asked)) if callable(spark) else spark
        register(session)
        entries = sum(one.count for one in asked.values())
        on_progress(
            f"cluster {log.cluster_id}: {plural(entries, 'entry')} to read of {plural(len(asked), 'shard')}"
        )
        with output.begin() as tx:
            is_permissive = mode == "permissive"
            step = ingest(
                session, output, tx, log, asked, is_permissive=is_permissive, on_progress=on_progress
            )
            lost = tuple(one.what for one in step.lost)
            if not step.ranges and not any(tx.rows.values()) and not is_due(output, log):
                return replace(result, lost=lost)
            facts_to = write_facts(step)
            progress = _progress(before, step, facts_to)
            rows = _by_table(tx.rows)
            tx.commit(progress, refresh=True)
    seconds = monotonic() - begun
    on_progress(f"{plural(sum(rows.values()), 'row')} in {seconds:.1f} s")
    shards = tuple(_shard_done(shard, asked[shard], progress[shard]) for shard in step.ranges)
    return replace(result, is_empty=False, shards=shards, rows=rows, lost=lost, seconds=seconds)


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
    before: Mapping[int, ShardProgress], step: RunStep, facts_to: Mapping[int, int]
) -> dict[int, ShardProgress]:
    after = dict(before)
    for shard, new in step.ranges.items():
        after[shard] = replace(after.get(shard, ShardProgress()), records_to=new.to_index, last_ms=new.to_ms)
    for shard, index in facts_to.items():
        after[shard] = replace(after.get(shard, ShardProgress()), facts_to=index)
    return after


def _shard_done(shard: int, asked: Range, reached: ShardProgress) -> ShardDone:
    return ShardDone(
        shard=shard,
        from_index=asked.from_index,
        to_index=reached.records_to,
        to_ms=reached.last_ms,
        facts_to=reached.facts_to,
    )


def _by_table(rows: Mapping[tuple[str, str], int]) -> dict[str, int]:
    """Row counts of the documented tables, in their order."""
    total: Counter[str] = Counter()
    for (table, _part), count in rows.items():
        total[table] += count
    return {table: total[table] for table in TABLES if table in total}
