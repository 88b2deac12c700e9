"""The second half of a run: facts of the groups to which anything happened, and the states to go on from.

A group's concluded rows are appended. Its open rows and its state replace those of the last run, in the few
files whose range of groups holds it. The invariant: a state written by another release is never read; facts
then begin anew from the table `records`, as they do when entries come back that an earlier run gave up.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

import msgpack
import pyarrow as pa

from history.diagnoses.shards import ShardFindings
from history.facts.rows import GroupFinding, TermRow
from quorate.spark.facts.batches import FACT_TABLES
from quorate.spark.facts.group import FINDINGS, STATE_VERSION
from quorate.spark.facts.shared import ShardShared, Shared, notes_by_group
from quorate.spark.tables.delta import TableFile
from quorate.spark.tables.files import WrittenFile, read_file
from quorate.spark.tables.merging import replaced_files
from quorate.spark.tables.names import OPEN
from quorate.spark.tables.progress import ShardProgress
from quorate.spark.tables.store import Store
from records.ids import METADATA_SHARD, shard_of

from .bridges import crossed_before, write_bridges
from .factspans import FactSpan, may_go_on, spans
from .factwork import (
    BRIDGES,
    RESTLESS_PART,
    SETTLED_PART,
    STATES,
    FactInput,
    FactJob,
    FactResult,
    derive_and_write,
    read_input,
    without,
    write_small,
)
from .losses import Range
from .rows import write_rows
from .step import RunStep
from .workers import TASKS_MAX, InProcess, Workers

if TYPE_CHECKING:
    from quorate.spark.source.inputs import InputLog
    from quorate.spark.tables.output import Output

LITTLE_RECORDS = 20_000
"""Group records that this process takes in itself: some two seconds of Python."""
LITTLE_STORED_BYTES = 8 << 20
"""Bytes of stored states that it reads for them."""
RECORDS_OF_SMALL_TASK, SMALL_TASKS_MAX = 50_000, 8
"""Records of a task, and tasks of a run, up to 2 M records: enough tasks for the cores of a small machine."""
RECORDS_OF_TASK, FACT_TASKS_MAX = 250_000, 200
"""The same of a larger run. Each task leaves a file or more in each table, and the batches after the run
read, replace and merge these files."""
JOINED_ROWS = 200_000
"""Open rows of one table that are sorted together in this process."""
LEADERS_PART = "leaders"
"""The part of `findings` with those of shards that later terms may change; every run writes it anew."""
REPLACED = (*((table, OPEN) for table in FACT_TABLES), (STATES, SETTLED_PART), (STATES, RESTLESS_PART))
Notes = Mapping[tuple[int, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The basis of facts beside the log; the next run checks it before anything else."""

    version: str
    """Version of the stored states."""
    notes_crc: int
    """CRC of all notes beside the log."""

    @classmethod
    def of(cls, notes: Notes) -> Mark:
        return cls(version=STATE_VERSION, notes_crc=crc32(repr(sorted(notes.items())).encode()))

    @classmethod
    def in_(cls, output: Output) -> Mark | None:
        """The mark of the previous run; ``None`` if there is none."""
        found = json.loads(output.progress.notes or "{}").get("facts")
        return None if found is None else cls(**found)


def notes_of(log: InputLog) -> Notes:
    """The nodes' notes by group. The note files are shared by all shards, and bounded."""
    found: dict[tuple[int, str], tuple[str, ...]] = {}
    group_shards = [shard for shard in log.shards if shard != METADATA_SHARD]
    noted = log.log.reader(group_shards[0]).evidence() if group_shards else ()
    for shard in group_shards:
        mine = [note for note in noted if _is_in(note.get("group"), shard, log.num_shards)]
        found |= notes_by_group(shard, mine)
    return found


def is_due(output: Output, log: InputLog) -> bool:
    """Whether facts can change without a new entry."""
    mark = Mark.in_(output)
    return mark is not None and (mark != Mark.of(notes_of(log)) or may_go_on(output.progress.shards, log))


def write_facts(step: RunStep) -> tuple[Mapping[int, int], Mark]:
    """Add the rows of all fact tables; returns the last entry of each shard that facts have taken in."""
    notes = notes_of(step.log)
    stage = _Stage(step, notes, Mark.in_(step.output))
    if stage.is_anew and stage.spans:
        step.say(
            "facts are derived again from all records: lost entries came back, or the release is another"
        )
    if stage.spans:
        stage.run()
    reached = {shard: span.to_index for shard, span in stage.spans.items()}
    if METADATA_SHARD in step.ranges:
        reached[METADATA_SHARD] = step.ranges[METADATA_SHARD].to_index
    return reached, Mark.of(notes)


class _Stage:
    """The facts of one run."""

    def __init__(self, step: RunStep, notes: Notes, mark: Mark | None) -> None:
        progress = step.output.progress.shards
        is_other_release = mark is not None and mark.version != STATE_VERSION
        self._step = step
        self._notes = notes
        self._are_notes_new = mark != Mark.of(notes)
        self.is_anew = is_other_release or step.are_old_repaired
        self._known = (
            {s: replace(one, facts_to=0) for s, one in progress.items()} if self.is_anew else progress
        )
        self._crossed = crossed_before(step.output) if self.is_anew else {}
        damaged = [one for one in step.lost if not one.is_repair]
        self.spans = spans(self._known, step.ranges, damaged, step.log, self._crossed)

    def run(self) -> None:
        """Derive, and add what comes of it to the transaction."""
        step, tx, output = self._step, self._step.tx, self._step.output
        bridges = write_bridges(output, step.log, self.spans, self._crossed)
        tx.add(bridges)
        due = self._due()
        inputs, size, count = self._inputs(due, bridges)
        is_little = count <= LITTLE_RECORDS and size <= LITTLE_STORED_BYTES
        workers = step.places.choose(size, is_little=is_little)
        job = FactJob(
            store=output.store,
            staging=tx.staging,
            shared=self._shared(),
            from_index={shard: one.from_index for shard, one in self._goes_on().items()},
            due=due,
            are_open_staged=is_little,
        )
        found = FactResult()
        tasks = _bundled([one.packed() for one in inputs])
        if tasks:
            reads, works = partial(_read_all, job), partial(derive_and_write, job)
            for packed in workers.by_group(reads, tasks, works, spread_of(count)):
                found.take(packed)
        tx.add(found.files)
        self._replace(workers, found)
        self._add_leaders()

    def _add_leaders(self) -> None:
        """Add the findings of shards about their leaders, from the terms alone."""
        step, tx, output = self._step, self._step.tx, self._step.output
        concluded: list[GroupFinding] = []
        still_open: list[GroupFinding] = []
        for shard in self.spans:
            known = output.progress.shards.get(shard, ShardProgress())
            mine = [term for term in step.terms if term.shard == shard]
            some, rest = leaders_findings(mine, known, step.ranges.get(shard), is_anew=self.is_anew)
            concluded += some
            still_open += rest
        tx.add(write_rows(output.store, FINDINGS, step.log.cluster_id, concluded))
        tx.remove(FINDINGS, output.files(FINDINGS, LEADERS_PART))
        tx.add(write_rows(output.store, FINDINGS, step.log.cluster_id, still_open, part=LEADERS_PART))

    # What goes in.

    def _due(self) -> frozenset[tuple[int, str]] | None:
        """The groups whose states are needed; ``None``: all."""
        if self.is_anew or self._is_behind() or any(span.bridges for span in self.spans.values()):
            return None
        due = {one for one in self._step.groups if one[0] in self.spans}
        for file in self._step.output.files(STATES, RESTLESS_PART):
            rows = read_file(self._step.output.store, STATES, file.path, columns=["shard", "group_id"])
            due |= set(
                zip(rows.column("shard").to_pylist(), rows.column("group_id").to_pylist(), strict=True)
            )
        return frozenset(due | (set(self._notes) if self._are_notes_new else set()))

    def _inputs(
        self, due: Collection[tuple[int, str]] | None, bridges: Sequence[WrittenFile]
    ) -> tuple[list[FactInput], int, int]:
        """The files to read, the bytes of stored states among them, and the number of records of groups."""
        output, step = self._step.output, self._step
        inputs = [FactInput("staged", path) for path in step.staged]
        count = step.staged_rows
        if self._is_behind():
            older = output.files("records")
            inputs += [FactInput("records", file.path) for file in older]
            count += sum(file.rows for file in older)
        crossed = [(file.path, file.rows) for file in bridges]
        if self.is_anew:
            crossed += [(file.path, file.rows) for file in output.files(BRIDGES)]
        inputs += [FactInput("bridges", path) for path, _ in crossed]
        count += sum(rows for _, rows in crossed)
        states: list[TableFile] = []
        if not self.is_anew:
            for part in (SETTLED_PART, RESTLESS_PART):
                there = output.files(STATES, part)
                states += there if due is None else replaced_files(there, {group_id for _, group_id in due})
        inputs += [FactInput("states", file.path) for file in states]
        return inputs, sum(file.size for file in states), count

    def _goes_on(self) -> dict[int, FactSpan]:
        return {shard: span for shard, span in self.spans.items() if span.to_index >= span.from_index}

    def _is_behind(self) -> bool:
        """Whether facts have not taken in all records of earlier runs."""
        known = (self._known.get(shard, ShardProgress()) for shard in self._goes_on())
        return any(one.facts_to != one.records_to for one in known)

    def _shared(self) -> Shared:
        log, terms = self._step.log, self._step.terms
        catalog = log.log.catalog()
        shards = {
            shard: ShardShared(
                from_index=span.from_index,
                to_index=span.to_index,
                to_ms=span.to_ms,
                terms=tuple(one for one in terms if one.shard == shard),
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

    # What comes out.

    def _replace(self, workers: Workers, found: FactResult) -> None:
        """Replace the open rows and states of the processed groups."""
        tx, output = self._step.tx, self._step.output
        processed = found.groups
        ids = {group_id for _, group_id in processed}
        if self.is_anew:
            for table in (*FACT_TABLES, STATES):
                tx.remove(table, [file for file in output.files(table) if file.part != "log"])
        for table, part in REPLACED:
            gone = () if self.is_anew else replaced_files(output.files(table, part), ids)
            new = [file for file in found.staged if (file.table, file.part) == (table, part)]
            tx.remove(table, gone)
            if isinstance(workers, InProcess) and sum(file.rows for file in gone) <= JOINED_ROWS:
                tx.add(self._joined(table, part, gone, new, processed))
            else:
                tx.add(self._kept(workers, table, part, gone, processed))
                tx.add(self._joined(table, part, (), new, ()))

    def _joined(
        self,
        table: str,
        part: str,
        gone: Sequence[TableFile],
        new: Sequence[WrittenFile],
        processed: Collection[tuple[int, str]],
    ) -> list[WrittenFile]:
        """The new rows and the rows of other groups in the replaced files, sorted and in small files."""
        store, groups = self._step.output.store, _by_shard(processed)
        rows = [without(read_file(store, table, file.path), groups) for file in gone]
        rows += [read_file(self._step.tx.staging, table, file.path) for file in new]
        return write_small(store, table, part, pa.concat_tables(rows)) if rows else []

    def _kept(
        self,
        workers: Workers,
        table: str,
        part: str,
        gone: Sequence[TableFile],
        processed: Collection[tuple[int, str]],
    ) -> Iterator[WrittenFile]:
        """The rows of other groups in the replaced files, a task for each."""
        keep = partial(_keep, self._step.output.store, table, part, _by_shard(processed))
        for packed in workers.each(keep, [file.path.encode() for file in gone]):
            yield WrittenFile(**msgpack.unpackb(packed))


def spread_of(records: int) -> int:
    """The number of tasks for the facts of so many records."""
    small = min(-(-records // RECORDS_OF_SMALL_TASK), SMALL_TASKS_MAX)
    return max(1, small, min(-(-records // RECORDS_OF_TASK), FACT_TASKS_MAX))


def leaders_findings(
    terms: Sequence[TermRow], known: ShardProgress, new: Range | None, *, is_anew: bool = False
) -> tuple[Sequence[GroupFinding], Sequence[GroupFinding]]:
    """A run's conclusions about one shard's leaders, and those that later terms may change.

    ``terms`` are all of the shard, by index. Where the run before ended is where its records ended: facts of
    groups may end earlier, at a loss, which says nothing about leaders.
    """
    before = [] if is_anew else [one for one in terms if one.index <= known.records_to]
    leaders = ShardFindings.going_on(before, -1 if is_anew else known.last_ms)
    concluded = leaders.take(terms[len(before) :], known.last_ms if new is None else new.to_ms)
    return concluded, leaders.open()


def _is_in(group_id: object, shard: int, num_shards: int | None) -> bool:
    if not isinstance(group_id, str):
        return False
    try:
        home = shard_of(group_id, num_shards or 1)
    except UnicodeEncodeError:  # no group in a log has such a name
        return False
    return num_shards is None or home == shard


def _by_shard(groups: Collection[tuple[int, str]]) -> dict[int, pa.Array]:
    found: dict[int, list[str]] = {}
    for shard, group_id in sorted(groups):
        found.setdefault(shard, []).append(group_id)
    return {shard: pa.array(ids, pa.string()) for shard, ids in found.items()}


def _bundled(inputs: Sequence[bytes]) -> list[bytes]:
    """The inputs in at most `TASKS_MAX` tasks."""
    tasks = min(len(inputs), TASKS_MAX)
    return [bytes(msgpack.packb(inputs[place::tasks])) for place in range(tasks)]


def _read_all(job: FactJob, packed: bytes) -> Iterator[pa.RecordBatch]:
    for one in msgpack.unpackb(packed):
        yield from read_input(job, one)


def _keep(
    store: Store, table: str, part: str, processed: Mapping[int, pa.Array], path: bytes
) -> Iterator[bytes]:
    """Write the rows of a file that belong to other groups than the processed ones."""
    kept = without(read_file(store, table, path.decode()), processed)
    for file in write_small(store, table, part, kept):
        yield bytes(msgpack.packb(asdict(file)))
