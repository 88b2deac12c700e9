"""``spark.readStream.format("quorate")``: a log that is read while it grows.

Spark asks where the log ends, writes the next batch's range to its checkpoint, and only then has it read.
After a failure the same batch is read again between the same two offsets. Invariants:

- Only decided entries are ever before an offset: an entry that is truncated later was never shown.
- A batch consists of the same rows whenever it is read: by its indexes, from whichever directory holds them,
  wherever the files have moved in the meantime.
- Entries that were removed before they were read are reported, never skipped silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from history.words import shard_name
from quorate.spark.errors import InputError, OptionError
from quorate.spark.schema import DAMAGE, TableColumn

from .datasource import TaskPartition
from .following import FollowedInput
from .inputs import InputShard
from .offsets import Offsets, admitted, entries_max, starting_at
from .options import Mode, Rows, SourceOptions
from .plan import ReadOptions, Task, no_such_shard, plan
from .reading import read_task, settle
from .segment import batch_of
from .tail import DecidedEnd


@dataclass
class RowsPartition(InputPartition):
    """Rows that need no reading, about lost or new entries of each shard."""

    columns: tuple[TableColumn, ...]
    rows: list[dict[str, Any]]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver while a query runs, and briefly on each executor.

    It keeps nothing for batches that are not read yet, and no file open between two looks.
    """

    def __init__(self, options: SourceOptions) -> None:
        if options.ranges is not None:
            raise OptionError("ranges is not an option of a stream", "starting_index says where it begins")
        if options.rows not in (Rows.RECORDS, Rows.SPANS):
            raise OptionError(f"a stream does not support rows={options.rows}", "leave it out: rows=records")
        self._options = options
        self._entries_max = entries_max(options.of_stream)
        self._following: FollowedInput | None = None
        self._until: dict[int, int] | None = None
        """The end of the log when a query with the trigger availableNow started; None otherwise."""

    def initialOffset(self) -> dict[str, Any]:
        reached = self._look()
        listed = self._log.listed(reached)
        if unknown := sorted((self._options.shards or frozenset()) - set(reached)):
            raise no_such_shard(self._options, unknown[0], self._log.look())
        latest = {shard: one.index + 1 for shard, one in reached.items()}
        begins = {shard: one.begins_index for shard, one in listed.shards.items()}
        return Offsets(self._log.cluster_id, starting_at(self._options.of_stream, begins, latest)).document()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        latest = self._until or {shard: one.index + 1 for shard, one in self._look().items()}
        begin = self._offsets(start)
        self._check_not_shorter(begin, latest)
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return admitted(begin, latest, count).document()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._entries_max is None else ReadMaxRows(self._entries_max)

    def reportLatestOffset(self) -> dict[str, Any]:
        ends = {shard: one.index + 1 for shard, one in self._look().items()}
        return Offsets(self._log.cluster_id, ends).document()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = {shard: one.index + 1 for shard, one in self._look().items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        spans = self._offsets(start).to(self._offsets(end))
        if self._options.rows is Rows.SPANS:
            return self._rows(
                {s: {"from_index": first, "to_index": last} for s, (first, last) in spans.items()}
            )
        listed = self._log.up_to({shard: last for shard, (_, last) in spans.items()})
        lost = {
            s: row for s, (first, last) in spans.items() if (row := self._lost(listed.shards[s], first, last))
        }
        tasks = plan(replace(self._options, ranges=spans), listed) if spans else []
        return [*self._rows(lost), *(TaskPartition(task.packed(with_options=False)) for task in tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, TaskPartition):
            yield from read_task(Task.of(partition.packed, ReadOptions.of(self._options)))
        elif isinstance(partition, RowsPartition):
            yield batch_of(partition.columns, partition.rows)
        settle()

    @property
    def _log(self) -> FollowedInput:
        if self._following is None:
            self._following = FollowedInput(self._options.path)
        return self._following

    def _look(self) -> dict[int, DecidedEnd]:
        wanted = self._options.shards
        reached = self._log.look()
        return {shard: one for shard, one in reached.items() if wanted is None or shard in wanted}

    def _offsets(self, document: dict[str, Any]) -> Offsets:
        return Offsets.read(document, self._log.cluster_id, dict.fromkeys(self._look(), 1))

    def _check_not_shorter(self, begin: Offsets, latest: dict[int, int]) -> None:
        """Raise `InputError` if a single node's log got shorter: everything complete in it was decided."""
        if not self._log.is_alone:
            return  # this node may lag behind the one read before, and will catch up
        for shard, index in begin.shards.items():
            if latest.get(shard, index) < index:
                raise InputError(
                    f"{self._options.path}: {shard_name(shard)} ends with entry {latest[shard] - 1}, but "
                    f"entry {index - 1} was already read",
                    "it is an older copy or lost its last entries: start again with another checkpoint "
                    "folder",
                )

    def _lost(self, shard: InputShard, first: int, last: int) -> dict[str, Any]:
        """A row about the part of a batch that is no longer kept, or an error in fail mode; empty if none."""
        if first >= shard.begins_index:
            return {}
        gone = min(last, shard.begins_index - 1)
        what = f"entries {first} to {gone} are no longer kept and were not read before"
        if self._options.mode is Mode.FAIL:
            raise InputError(
                f"{shard.home}: {what}",
                "start again with another checkpoint folder, or continue with mode=permissive",
            )
        return {"raft_index": first, DAMAGE.name: what}

    def _rows(self, known: Mapping[int, Mapping[str, Any]]) -> list[RowsPartition]:
        """One row per shard in a partition of their own, if there are any."""
        of = {"cluster_id": self._log.cluster_id}
        rows = [{**of, "shard": shard, **row} for shard, row in known.items()]
        return [RowsPartition(self._options.columns, rows)] if rows else []
