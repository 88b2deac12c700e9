"""The work of one read task, on an executor."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from functools import cache

import pyarrow as pa

from raftlog.env.object_stores import StoreError, files_at

from .inputs import of_store
from .loading import OnNote, RepairNote
from .options import Rows
from .plan import Task
from .segment import segment_batches
from .snapshot import snapshot_batches


def log_note(note: RepairNote) -> None:
    """Write a repair to the log of the process."""
    logging.getLogger(__name__).warning("%s", note.words)


def read_task(task: Task, on_note: OnNote = log_note) -> Iterator[pa.RecordBatch]:
    """The rows of a task as batches of its columns, in the order of the log.

    Entries that a node's file lacks are read from another node and reported to ``on_note``. Raises
    `InputError` in fail mode for entries that no node has.
    """
    try:
        files = files_at(task.path)
        for piece in task.pieces():
            if piece.rows is Rows.SNAPSHOT:
                yield from snapshot_batches(piece)
            else:
                yield from segment_batches(piece, files, on_note)
    except StoreError as error:
        raise of_store(error) from None


def read_bundle(bundle: Task, on_note: OnNote = log_note) -> Iterator[pa.RecordBatch]:
    """The rows of a task of `plan_records`: records with raw columns, and rows of damage."""
    return read_task(bundle, on_note)


@cache
def settle() -> None:
    """Exclude the modules imported so far from garbage collection.

    Spark's Python workers collect garbage after each task. Scanning some ten thousand imported objects, which
    stay alive anyway, took a seventh of the workers' time for a read.
    """
    gc.collect()
    gc.freeze()
