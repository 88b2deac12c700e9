"""What the facts of a run are made of, where it is little: read by this process, without Spark.

Of what is stored only the buckets of groups that something may have happened to are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.facts.batches import STORED
from pipeline.facts.group import RESTLESS
from pipeline.facts.here import of_groups
from pipeline.facts.shared import Shared
from pipeline.schema import RECORD_COLUMNS, arrow_type
from pipeline.tables import few, names
from pipeline.tables.disk import join
from pipeline.tables.manifest import TableFile

from .factinputs import PARTS, STATES
from .factspans import Span
from .step import Step

RECORDS_MAX = 10_000
"""Of groups, in one run: less than a second of Python, which a plan of Spark takes at least."""
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
    if records.num_rows > RECORDS_MAX:
        return None
    if not step.output.manifest.of(STATES, "states"):
        return records, None
    stored = _stored(step, _named(records), shared)
    return None if stored is None else (records, stored)


def _stored(step: Step, due: Groups, shared: Shared) -> pa.Table | None:
    """What is stored of the groups that are due, those named and others; None: it is not little."""
    states = [f for f in step.output.manifest.of(STATES, "states") if f.shard in shared.shards]
    if sum(file.rows for file in states) > few.FEW_ROWS:
        return None
    root = step.output.root
    for file in states:
        assert file.shard is not None
        due.setdefault(file.shard, set()).update(
            _due_in(root, file, shared.shards[file.shard].is_news_to_all)
        )
    for shard, group_id in shared.notes if shared.are_notes_new else ():
        if shard in shared.shards:
            due.setdefault(shard, set()).add(group_id)
    files = [file for file in states if _may_hold(file, due)]
    files += [file for file in step.output.manifest.of(PARTS) if file.shard in due]
    if not few.are_few(root, files):
        return None
    stored = few.read_few(root, files, STORED)
    mine = [stored.slice(0, 0)]
    for shard, group_ids in due.items():
        is_due = pc.is_in(stored.column("group_id"), pa.array(sorted(group_ids), pa.string()))
        mine.append(stored.filter(pc.and_(pc.equal(stored.column("shard"), shard), is_due)))
    return pa.concat_tables(mine)


def _due_in(root: str, file: TableFile, is_news_to_all: bool) -> list[str]:
    """The groups of a file of states that are due without a record of theirs."""
    rows = pq.ParquetFile(join(root, file.path)).read(columns=["group_id", "sequence"])
    if not is_news_to_all:
        rows = rows.filter(pc.equal(rows.column("sequence"), RESTLESS))
    return list(rows.column("group_id").to_pylist())


def _named(records: pa.Table) -> Groups:
    found: Groups = {}
    pairs = records.group_by(["shard", "group_id"]).aggregate([])
    for row in pairs.to_pylist():
        found.setdefault(row["shard"], set()).add(row["group_id"])
    return found


def _may_hold(file: TableFile, due: Groups) -> bool:
    _, buckets, bucket = names.bucket_of(file.part)
    group_ids = due.get(file.shard or 0, ())
    return any(crc32(one.encode()) % buckets == bucket for one in group_ids)
