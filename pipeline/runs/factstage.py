"""The second half of a run: facts of every group that anything happened to, and the states to go on from.

Groups are told what is new by one plan (`pipeline.facts.derive`), whose result is staged once; every table
takes its rows from there. What groups have concluded is added to a table; what is open of a group takes the
place of what was. What must stay true: a state that another release wrote is never read; facts begin anew
then, from the table `records`.

Internal tables: `group_states` (a row for each group; its part `marks` says by which release, and what was
noted beside the log), `group_parts` (concluded rows and notes, as diagnoses need them) and `fact_bridges`
(the snapshots that stood in for lost entries).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from pipeline.facts.batches import FACT_TABLES, out_type, stored_type
from pipeline.facts.derive import GROUP, derive
from pipeline.facts.group import FINDINGS, NOTES, PART, STATE, STATE_VERSION
from pipeline.facts.shared import ShardShared, Shared
from pipeline.schema import TABLES
from pipeline.tables.disk import join
from pipeline.tables.layout import FEW_ROWS
from pipeline.tables.manifest import Progress
from pipeline.tables.reading import read_staged, read_table
from pipeline.tables.transaction import Staging
from records.ids import METADATA_SHARD

from .factinputs import (
    STATES,
    Mark,
    Notes,
    bridge_records,
    crossed_before,
    mark_of,
    notes_of,
    terms_of,
    write_mark,
)
from .factspans import may_go_on, spans
from .step import Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.source.inputs import InputLog
    from pipeline.tables.output import Output

PARTS = "group_parts"
OF_GROUPS = "groups"
"""The part of table `findings` that is of groups."""
OPENED = tuple(table for table in FACT_TABLES if table != FINDINGS)
KINDS = (
    *(f"rows:{table}" for table in OPENED),
    *(f"open:{table}" for table in OPENED),
    FINDINGS,
    STATE,
    NOTES,
    PART,
)


def is_due(output: Output, log: InputLog) -> bool:
    """Whether anything changed for facts without a new entry: cheap, and without Spark."""
    mark = mark_of(output)
    if mark is None:
        return False
    return mark != Mark.of(notes_of(log)) or may_go_on(output.manifest.progress, log)


def write_facts(step: Step) -> Mapping[int, int]:
    """Stages the rows of all fact tables; the last entry of each shard that facts know of."""
    mark, notes = mark_of(step.output), notes_of(step.log)
    stage = _Stage(step, notes, mark)
    if stage.spans:
        stage.run()
    if mark != Mark.of(notes):
        write_mark(step, Mark.of(notes))
    reached = {shard: span.to_index for shard, span in stage.spans.items()}
    if METADATA_SHARD in step.ranges:
        reached[METADATA_SHARD] = step.ranges[METADATA_SHARD].to_index
    return reached


class _Stage:
    """The facts of one run."""

    def __init__(self, step: Step, notes: Notes, mark: Mark | None) -> None:
        progress = step.output.manifest.progress
        begins_anew = mark is not None and mark.version != STATE_VERSION
        self._step = step
        self._notes = notes
        self._are_notes_new = mark != Mark.of(notes)
        self._begins_anew = begins_anew
        self._known = (
            {s: replace(one, facts_to=0) for s, one in progress.items()} if begins_anew else progress
        )
        self._crossed = crossed_before(step) if begins_anew else {}
        self._wanted: list[Staging] = []
        self._num_rows = 0
        self.spans = spans(self._known, step.ranges, step.lost, step.log, self._crossed)

    def run(self) -> None:
        """Stages what is new of every table."""
        bridges = bridge_records(self._step, self.spans, self._crossed)
        counts, facts = self._staged(derive(self._records(), self._stored(), self._shared(), bridges))
        if not counts[STATE]:
            return
        self._num_rows = sum(counts.values())
        touched = facts.where(F.col("kind") == STATE).select(GROUP)
        for table in OPENED:
            self._add(table, counts[f"rows:{table}"], _of_table(facts, f"rows:{table}"))
            self._replace(table, "open", counts[f"open:{table}"], _of_table(facts, f"open:{table}"), touched)
        self._replace(FINDINGS, OF_GROUPS, counts[FINDINGS], _of_table(facts, FINDINGS), touched)
        self._replace(STATES, "states", counts[STATE], _to_store(facts, STATE), touched)
        self._add(PARTS, counts[PART] + counts[NOTES], _to_store(facts, PART, NOTES))
        self._step.tx.stage(*self._wanted)

    def _staged(self, facts: DataFrame) -> tuple[Mapping[str, int], DataFrame]:
        """The rows of all kinds, computed once, and how many there are of each."""
        path = join(self._step.tx.staging, "facts")
        seen = Observation()
        counted = [F.count_if(F.col("kind") == kind).alias(f"kind_{n}") for n, kind in enumerate(KINDS)]
        facts.observe(seen, *counted).write.parquet(f"file://{path}")
        found = seen.get
        counts = {kind: int(found.get(f"kind_{n}") or 0) for n, kind in enumerate(KINDS)}
        return counts, read_staged(self._step.spark, path, out_type())

    def _add(self, table: str, count: int, rows: DataFrame) -> None:
        if self._begins_anew or count:
            self._want(table, "rows", rows, self._num_rows, replaces=self._begins_anew)

    def _replace(self, table: str, part: str, count: int, rows: DataFrame, touched: DataFrame) -> None:
        """Of groups that were not looked at everything stays."""
        step, num_rows = self._step, self._num_rows
        there = step.output.manifest.of(table, part)
        if there and not self._begins_anew:
            num_rows += sum(file.rows for file in there)
            schema = None if table in TABLES else stored_type()
            before = read_table(step.spark, step.output.root, table, part, schema=schema)
            rows = rows.unionByName(before.join(touched, GROUP, "left_anti"))
        if there or count:
            self._want(table, part, rows, num_rows, replaces=True)

    def _want(self, table: str, part: str, rows: DataFrame, num_rows: int, *, replaces: bool) -> None:
        """``num_rows``: how many are looked at for these."""
        few = num_rows <= FEW_ROWS
        self._wanted.append(Staging(table=table, df=rows, part=part, replaces=replaces, is_few=few))

    # What goes in.

    def _records(self) -> DataFrame:
        """The records that facts do not know of yet; none of a shard in which they wait for a snapshot."""
        step = self._step
        goes_on = {shard: span for shard, span in self.spans.items() if span.to_index >= span.from_index}
        known = (self._known.get(shard, Progress()) for shard in goes_on)
        if step.ranges and all(one.facts_to == one.records_to for one in known):
            return step.records().where(F.col("shard").isin(list(goes_on)))
        return step.records_beyond({shard: span.from_index - 1 for shard, span in goes_on.items()})

    def _stored(self) -> DataFrame | None:
        step, schema = self._step, stored_type()
        if self._begins_anew or not step.output.manifest.of(STATES, "states"):
            return None
        states = read_table(step.spark, step.output.root, STATES, "states", schema=schema)
        return states.unionByName(read_table(step.spark, step.output.root, PARTS, schema=schema))

    def _shared(self) -> Shared:
        log, terms = self._step.log, terms_of(self._step, self.spans)
        shards = {
            shard: ShardShared(
                from_index=span.from_index,
                to_index=span.to_index,
                to_ms=span.to_ms,
                terms=tuple(terms.get(shard, ())),
                bridges=span.bridges,
            )
            for shard, span in self.spans.items()
        }
        names = log.log.catalog().names
        return Shared(
            cluster_id=log.cluster_id,
            shards=shards,
            names=names,
            notes=self._notes,
            are_notes_new=self._are_notes_new,
        )


def _of_table(facts: DataFrame, kind: str) -> DataFrame:
    return facts.where(F.col("kind") == kind).select(f"{kind.rpartition(':')[2]}.*")


def _to_store(facts: DataFrame, *kinds: str) -> DataFrame:
    return facts.where(F.col("kind").isin(*kinds)).select(*stored_type().names)
