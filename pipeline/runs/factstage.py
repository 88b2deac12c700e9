"""The second half of a run: facts of every group to which anything happened, and the states to continue from.

New events are fed to each group once (`pipeline.facts`), by a Spark plan or, if they are few, in this
process; the results are then distributed to the tables (`derived`). A group's concluded rows are appended to
a table; its open rows replace the previous ones. Open rows are therefore split by shard and, if there are
many, into buckets by group: only buckets of processed groups are rewritten, so that a small run is cheap
however many groups there are. States are split in the same way, since later runs read them. The invariant: a
state written by another release is never read; facts are then rebuilt from the table `records`.

Internal tables: `group_states` (one row per group; its part `marks` holds the release and a checksum of the
notes beside the log; its part `terms` the newest term of each shard), `group_parts` (concluded rows and
notes, for the diagnoses) and `fact_bridges` (the snapshots that replaced lost entries).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from pipeline.facts.batches import FACT_TABLES, stored_type
from pipeline.facts.derive import GROUP, derive
from pipeline.facts.group import FINDINGS, NOTES, PART, STATE, STATE_VERSION
from pipeline.facts.in_process import derive_in_process
from pipeline.facts.shared import ShardShared, Shared
from pipeline.tables import local, names
from pipeline.tables.buckets import Hashed, buckets_for, may_hold
from pipeline.tables.disk import join
from pipeline.tables.manifest import ShardProgress, TableFile
from pipeline.tables.reading import read_files, read_table
from pipeline.tables.transaction import Staging
from records.ids import METADATA_SHARD

from .derived import Derived, arrow_of, spark_of, without
from .factinputs import (
    PARTS,
    STATES,
    Mark,
    Notes,
    bridge_records,
    crossed_before,
    mark_of,
    notes_of,
    write_mark,
)
from .factspans import FactSpan, may_go_on, spans
from .factterms import terms_of, write_newest_terms
from .local_fact_inputs import few_inputs
from .step import RunStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.source.inputs import InputLog
    from pipeline.tables.output import Output

OF_GROUPS = "groups"
"""The part of table `findings` with findings about groups."""
OPENED = tuple(table for table in FACT_TABLES if table != FINDINGS)
RECORDS_PER_TASK = 50_000
"""Records of all types per task: about a tenth concern groups, and take a third of a second of Python."""


def is_due(output: Output, log: InputLog) -> bool:
    """Whether facts can change without a new entry; a cheap check without Spark."""
    mark = mark_of(output)
    if mark is None:
        return False
    return mark != Mark.of(notes_of(log)) or may_go_on(output.manifest.progress, log)


def write_facts(step: RunStep) -> Mapping[int, int]:
    """Stage the rows of all fact tables; returns the last entry of each shard that facts have processed."""
    mark, notes = mark_of(step.output), notes_of(step.log)
    stage = _Stage(step, notes, mark)
    if stage.spans:
        stage.run()
    if mark != Mark.of(notes):
        write_mark(step, Mark.of(notes))
    write_newest_terms(step)
    reached = {shard: span.to_index for shard, span in stage.spans.items()}
    if METADATA_SHARD in step.ranges:
        reached[METADATA_SHARD] = step.ranges[METADATA_SHARD].to_index
    return reached


class _Stage:
    """The facts of one run."""

    def __init__(self, step: RunStep, notes: Notes, mark: Mark | None) -> None:
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
        self.spans = spans(self._known, step.ranges, step.lost, step.log, self._crossed)

    def run(self) -> None:
        """Stage the new rows of every table."""
        facts = self._derived()
        if not facts.count(STATE):
            return
        looked_at = facts.hashed()
        for table in OPENED:
            self._add(facts, table, f"rows:{table}")
            self._put(facts, table, "open", f"open:{table}", instead_of=looked_at)
        self._put(facts, FINDINGS, OF_GROUPS, FINDINGS, instead_of=looked_at)
        self._put(facts, STATES, "states", STATE, instead_of=looked_at)
        self._put(facts, PARTS, "rows", PART, NOTES)
        self._step.tx.stage(*self._wanted)

    def _derived(self) -> Derived:
        step, shared = self._step, self._shared()
        bridges = bridge_records(step, self.spans, self._crossed)
        if bridges is None and not self._begins_anew:
            inputs = few_inputs(step, self.spans, shared)
            if inputs is not None:
                return Derived.here(step.spark, derive_in_process(*inputs, shared))
        facts = derive(self._records(), self._stored(), shared, bridges, self._tasks())
        return Derived.staged(step.spark, facts, join(step.tx.staging, "facts"))

    def _tasks(self) -> int | None:
        """The number of tasks that share the groups; None if facts have older records to process."""
        if not self._are_all_new():
            return None
        count = self._step.tx.rows.get(("records", "rows"), 0)
        return tasks_for(count, int(self._step.spark.conf.get("spark.sql.shuffle.partitions") or 1))

    def _add(self, facts: Derived, table: str, *kinds: str) -> None:
        """Append the groups' concluded rows."""
        gone = self._step.output.manifest.of(table, "rows") if self._begins_anew else ()
        if gone or facts.count(*kinds):
            rows = facts.table(*kinds) if facts.is_few(*kinds) else facts.frame(*kinds)
            self._wanted.append(Staging(table=table, rows=rows, instead_of=gone))

    def _put(
        self, facts: Derived, table: str, part: str, *kinds: str, instead_of: Hashed = frozenset()
    ) -> None:
        """Write rows in buckets, dropping older rows of the processed groups in ``instead_of``."""
        there = self._step.output.manifest.of(table, part)
        buckets = buckets_for(there, facts.count(*kinds), facts.size(*kinds), len(self.spans))
        gone = tuple(
            file
            for file in there
            if self._begins_anew or names.bucket_of(file.part)[1] != buckets or may_hold(file, instead_of)
        )
        if gone or facts.count(*kinds):
            kept = () if self._begins_anew else gone
            rows = self._with_kept(facts, table, kept, *kinds, are_of_others=bool(instead_of))
            self._wanted.append(Staging(table=table, rows=rows, part=part, buckets=buckets, instead_of=gone))

    def _with_kept(
        self, facts: Derived, table: str, kept: Sequence[TableFile], *kinds: str, are_of_others: bool
    ) -> DataFrame | pa.Table:
        """The new rows, with the rows to keep from replaced files.

        These are all of their rows, or with ``are_of_others`` those of groups that were not processed.
        """
        root = self._step.output.root
        if facts.is_few(*kinds) and facts.is_few(STATE):
            before = local.read_locally(root, kept, arrow_of(kinds[0]))
            if before is not None:
                before = without(before, facts.groups()) if are_of_others else before
                return pa.concat_tables([before, facts.table(*kinds)])
        rows = facts.frame(*kinds)
        if not kept:
            return rows
        there = read_files(self._step.spark, root, table, kept, spark_of(kinds[0]))
        return rows.unionByName(
            there.join(facts.groups_frame(), GROUP, "left_anti") if are_of_others else there
        )

    # Inputs.

    def _records(self) -> DataFrame:
        """Records that facts have not processed, except in shards that wait for a snapshot."""
        step, goes_on = self._step, self._goes_on()
        if self._are_all_new():
            return step.records().where(F.col("shard").isin(list(goes_on)))
        return step.records_beyond({shard: span.from_index - 1 for shard, span in goes_on.items()})

    def _goes_on(self) -> dict[int, FactSpan]:
        return {shard: span for shard, span in self.spans.items() if span.to_index >= span.from_index}

    def _are_all_new(self) -> bool:
        """Whether all unprocessed records belong to this run."""
        known = (self._known.get(shard, ShardProgress()) for shard in self._goes_on())
        return bool(self._step.ranges) and all(one.facts_to == one.records_to for one in known)

    def _stored(self) -> DataFrame | None:
        step, schema = self._step, stored_type()
        if self._begins_anew or not step.output.manifest.of(STATES, "states"):
            return None
        states = read_table(step.spark, step.output.root, STATES, "states", schema=schema)
        return states.unionByName(read_table(step.spark, step.output.root, PARTS, schema=schema))

    def _shared(self) -> Shared:
        log, terms = self._step.log, terms_of(self._step, self.spans)
        catalog = log.log.catalog()
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
        return Shared(
            cluster_id=log.cluster_id,
            shards=shards,
            names=catalog.names,
            shapes=catalog.shapes,
            notes=self._notes,
            are_notes_new=self._are_notes_new,
        )


def tasks_for(records: int, most: int) -> int | None:
    """The number of tasks for this many records; None leaves it to Spark."""
    return min(most, -(-records // RECORDS_PER_TASK)) or None
