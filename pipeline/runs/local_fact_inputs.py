"""The inputs of a run's facts if they are small: read in this process, without Spark.

Of the stored rows, only buckets with groups to which something may have happened are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.facts.batches import RAW, STORED
from pipeline.facts.group import RESTLESS
from pipeline.facts.in_process import of_groups
from pipeline.facts.shared import Shared
from pipeline.schema import RECORD_COLUMNS, arrow_type
from pipeline.tables import local
from pipeline.tables.buckets import hash_of, may_hold
from pipeline.tables.manifest import TableFile

from .factinputs import PARTS, STATES
from .factspans import FactSpan
from .step import RunStep

RECORDS_MAX = 10_000
"""Limit on group records in one run: under a second of Python, which a Spark plan takes at least."""
GROUPS_MAX = 1_000
"""Limit on due groups, with or without new records: a new term makes every group due, at 1 ms each."""
BYTES_MAX = 4 << 20
"""Limit on the bytes of these records and of these groups' stored rows: large groups take time."""
Groups = dict[int, set[str]]
"""Group ids by shard."""


def few_inputs(
    step: RunStep, spans: Mapping[int, FactSpan], shared: Shared
) -> tuple[pa.Table, pa.Table | None] | None:
    """New group records, and the stored rows of all groups that are due; None if they are not small."""
    progress = step.output.manifest.progress
    goes_on = {shard for shard, span in spans.items() if span.to_index >= span.from_index}
    if any(progress[shard].facts_to != progress[shard].records_to for shard in goes_on & {*progress}):
        return None  # facts have not processed the records of earlier runs either
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


def _stored(step: RunStep, due: Groups, shared: Shared) -> pa.Table | None:
    """The stored rows of groups that are due, in ``due`` or otherwise; None if they are not small."""
    root = step.output.root
    states = [file for file in step.output.manifest.of(STATES, "states") if file.shard in shared.shards]
    if sum(file.rows for file in states) > local.FEW_ROWS:
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
        """Keep the rows of groups that are due; all rows of a file belong to one shard."""
        return rows.filter(pc.is_in(rows.column("group_id"), wanted[rows.column("shard")[0].as_py()]))

    files = [file for file in (*states, *step.output.manifest.of(PARTS)) if may_hold(file, hashed)]
    found = local.read_locally(root, files, STORED, only=of_due)
    return None if found is None or found.column("blob").nbytes > BYTES_MAX else found


def _due_in(root: str, file: TableFile, *, is_news_to_all: bool) -> list[str]:
    """The groups in a file of states that are due without a new record."""
    rows = local.read_file(root, file.path, ["group_id", "sequence"])
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
