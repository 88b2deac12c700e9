"""What one task of a reading does, on an executor."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache

import pyarrow as pa

from .options import Rows
from .plan import Task
from .segment import segment_batches
from .snapshot import snapshot_batches


def read_task(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as batches of its columns; raises `InputError` in fail mode."""
    return snapshot_batches(task) if task.rows is Rows.SNAPSHOT else segment_batches(task)


@cache
def settle() -> None:
    """Leaves what this process has imported out of its garbage collections.

    It is a Python worker of Spark, which collects after each of their tasks: looking through some ten
    thousand imported things, which stay anyway, took a seventh of what a reading took of the workers.
    """
    gc.collect()
    gc.freeze()
