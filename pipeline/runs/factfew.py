"""What the facts of a run are made of, where it is little: read by this process, without Spark.

Of what is stored only the buckets of groups that something may have happened to are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.facts.batches import RAW, STORED
from pipeline.facts.group import RESTLESS
from pipeline.facts.here import of_groups
from pipeline.facts.shared import Shared
from pipeline.schema import RECORD_COLUMNS, arrow_type
from pipeline.tables import few
from pipeline.tables.buckets import hash_of, may_hold
from pipeline.tables.manifest import TableFile

from .factinputs import PARTS, STATES
from .factspans import Span
from .step import Step

RECORDS_MAX = 10_000
"""Of groups, in one run: less than a second of Python, which a plan of Spark takes at least."""
GROUPS_MAX = 1_000
"""That are due, with records or without: a new term concerns every group, and each takes a millisecond."""
BYTES_MAX = 4 << 20
"""Of these records, and of what is stored of these groups: thousands of partitions take their time."""
Groups = dict[int, set[str]]
"""Group ids by shard."""


def few_inputs(
    step: Step, spans: Mapping[int, Span], shared: Shared
) -> tuple[pa.Table, pa.Table | None] | None:
    """New records of groups, and what is stored of all that are due; None: it is not little."""
    progress = step.output.manifest.progress
    goes_on = {shard for shard, span in spans.items() if span.to_index >= span.from_index}
    if any(progress[shard].facts_to != progress[shard].records_to for shard in goes_on & {*progress}):
        return None  # records of earlier runs are new to facts
    new = step.few if step.ranges else arrow_type(RECORD_COLUMNS).empty_table()
    if new is None:
        return None
    records = of_groups(new.filter(pc.is_in(new.column("shard"), pa.array(sorted(goes_on), pa.int32()))))
    size = sum(records.column(name).nbytes for name in RAW.values())
    if records.num_rows > RECORDS_MAX or size > BYTES_MAX:
        return None
    due = _named(records)
    if not step.output.manifest.of(STATES, "states"):
        return (records, None) if _num_groups(due) <= GROUPS_MAX else None
    stored = _stored(step, due, shared)
    return None if stored is None else (records, stored)


def _stored(step: Step, due: Groups, shared: Shared) -> pa.Table | None:
    """What is stored of the groups that are due, those named and others; None: it is not little."""
    root = step.output.root
    states = [file for file in step.output.manifest.of(STATES, "states") if file.shard in shared.shards]
    if sum(file.rows for file in states) > few.FEW_ROWS:
        return None
    for file in states:
        assert file.shard is not None
        more = _due_in(root, file, is_news_to_all=shared.shards[file.shard].is_news_to_all)
        due.setdefault(file.shard, set()).update(more)
    for shard, group_id in shared.notes if shared.are_notes_new else ():
        if shard in shared.shards:
            due.setdefault(shard, set()).add(group_id)
    if _num_groups(due) > GROUPS_MAX:
        return None
    hashed = {(shard, hash_of(one)) for shard, group_ids in due.items() for one in group_ids}
    wanted = {shard: pa.array(sorted(group_ids), pa.string()) for shard, group_ids in due.items()}

    def of_due(rows: pa.Table) -> pa.Table:
        """Rows of a file are of one shard."""
        return rows.filter(pc.is_in(rows.column("group_id"), wanted[rows.column("shard")[0].as_py()]))

    files = [file for file in (*states, *step.output.manifest.of(PARTS)) if may_hold(file, hashed)]
    found = few.read_few(root, files, STORED, only=of_due)
    return None if found is None or found.column("blob").nbytes > BYTES_MAX else found


def _due_in(root: str, file: TableFile, *, is_news_to_all: bool) -> list[str]:
    """The groups of a file of states that are due without a record of theirs."""
    rows = few.read_file(root, file.path, ["group_id", "sequence"])
    if not is_news_to_all:
        rows = rows.filter(pc.equal(rows.column("sequence"), RESTLESS))
    return list(rows.column("group_id").to_pylist())


def _named(records: pa.Table) -> Groups:
    found: Groups = {}
    pairs = records.group_by(["shard", "group_id"]).aggregate([])
    for row in pairs.to_pylist():
        found.setdefault(row["shard"], set()).add(row["group_id"])
    return found


def _num_groups(groups: Groups) -> int:
    return sum(map(len, groups.values()))
