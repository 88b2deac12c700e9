"""The place of a run's tasks: in this process if they are few and small, else by Spark's executors.

A task is plain bytes, and so are its results. The same functions do the work in both places: they read and
write files themselves, and only the rows that must meet by group pass through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from quorate.spark.facts.inputs import IN_ORDER, IN_SCHEMA, in_order, spark_in_type
from quorate.spark.session.failures import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[bytes], Iterable[bytes]]
"""One task: its description in, its results out."""
Read = Callable[[bytes], Iterable[pa.RecordBatch]]
"""Reads the input of one task as rows of `IN_SCHEMA`."""
WorkOnGroups = Callable[[Iterable[pa.RecordBatch]], Iterable[bytes]]
"""Takes rows sorted by group; all rows of a group come together."""

TASKS_MAX = 500
"""Tasks of one Spark job: their descriptions travel with each task, and their results meet on the driver."""
RESULT = "result"
_RESULTS = pa.schema([(RESULT, pa.binary())])


class Workers(Protocol):
    """A place that does the tasks of a run."""

    def each(self, work: Work, tasks: Sequence[bytes]) -> Iterator[bytes]:
        """The results of all tasks, in any order."""

    def by_group(
        self, read: Read, tasks: Sequence[bytes], work: WorkOnGroups, spread: int
    ) -> Iterator[bytes]:
        """Bring the rows of all inputs together by group, and work on them in ``spread`` tasks."""


class InProcess:
    """This process, one task after another."""

    def each(self, work: Work, tasks: Sequence[bytes]) -> Iterator[bytes]:
        for task in tasks:
            yield from work(task)

    def by_group(
        self, read: Read, tasks: Sequence[bytes], work: WorkOnGroups, spread: int
    ) -> Iterator[bytes]:
        rows = pa.Table.from_batches([batch for task in tasks for batch in read(task)], IN_SCHEMA)
        yield from work(in_order(rows).to_batches())


class OnSpark:
    """The executors of a session, classic or Connect. Raises `quorate.spark.errors.PipelineError`."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def each(self, work: Work, tasks: Sequence[bytes]) -> Iterator[bytes]:
        for start in range(0, len(tasks), TASKS_MAX):
            some = list(tasks[start : start + TASKS_MAX])
            numbers = self._session.range(0, len(some), 1, len(some))  # one row for each task
            done = numbers.mapInArrow(partial(_each, work, some), f"{RESULT} binary")
            with spark_errors():
                rows = done.collect()
            yield from (bytes(row[RESULT]) for row in rows)

    def by_group(
        self, read: Read, tasks: Sequence[bytes], work: WorkOnGroups, spread: int
    ) -> Iterator[bytes]:
        numbers = self._session.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(partial(_read, read, list(tasks)), spark_in_type())
        # ranges of groups rather than hashes: the files that a task writes then hold groups of its own range
        together = rows.repartitionByRange(spread, "group_id").sortWithinPartitions(*IN_ORDER)
        done = together.mapInArrow(partial(_on_groups, work), f"{RESULT} binary")
        with spark_errors():
            found = done.collect()
        yield from (bytes(row[RESULT]) for row in found)


def _each(work: Work, tasks: Sequence[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for result in work(tasks[number]):
                yield _result(result)


def _read(read: Read, tasks: Sequence[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read(tasks[number])


def _on_groups(work: WorkOnGroups, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for result in work(batches):
        yield _result(result)


def _result(result: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], schema=_RESULTS)
