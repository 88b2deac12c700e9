"""What one task of a reading does, on an executor."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from .options import Rows
from .plan import Task
from .segment import segment_batches
from .snapshot import snapshot_batches


def read_task(task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as batches of its columns; raises `InputError` in fail mode."""
    return snapshot_batches(task) if task.rows is Rows.SNAPSHOT else segment_batches(task)
