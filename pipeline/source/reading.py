"""The work of one read task, on an executor."""

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
    """The rows of a task as batches of its columns; raises `InputError` in fail mode."""
    return snapshot_batches(task) if task.rows is Rows.SNAPSHOT else segment_batches(task)


@cache
def settle() -> None:
    """Exclude the modules imported so far from garbage collection.

    Spark's Python workers collect garbage after each task. Scanning some ten thousand imported objects, which
    stay alive anyway, took a seventh of the workers' time for a read.
    """
    gc.collect()
    gc.freeze()
