"""A run's changes to the tables: committed table by table, and counted once `progress` is committed last.

A reader takes the versions that `progress` names, so that it sees all changes of a run or none. A run that
is killed before `progress` leaves tables ahead of it; the next `Output.open` takes that back.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Protocol
from uuid import uuid4

from quorate.spark.errors import OutputBusy, OutputError
from quorate.spark.schema import SCHEMA_VERSION

from . import merging, names, upkeep
from .delta import RESTORE, Signature, TableFile, TableLog
from .files import FileWriter, WrittenFile
from .progress import Progress, ShardProgress, as_rows, progress_schema
from .store import Store

CLAIM = "records"
"""The table that decides between two runs at the same time: each commits to it first, with files or without.

If each could be first at another table, both would lose.
"""
SIDE_BY_SIDE = 4
"""Tables that are committed concurrently: a store takes its time to answer."""


class OpenOutput(Protocol):
    """The part of an output that a transaction reads and changes."""

    store: Store
    progress: Progress
    writer: str
    is_broken: bool

    def log(self, table: str) -> TableLog: ...
    def committed(self, progress: Progress) -> None: ...


class Transaction:
    """Changes that enter the tables together; as a context manager it discards uncommitted ones."""

    def __init__(self, output: OpenOutput) -> None:
        self.is_over = False
        self._output = output
        self._staging = f"{names.STAGING}/{socket.gethostname()}-{os.getpid()}-{uuid4().hex}"
        self._added: dict[str, list[WrittenFile]] = {}
        self._removed: dict[str, dict[str, TableFile]] = {}
        self._versions_before: dict[str, int] = {}
        self._merged_rows: dict[str, int] = {}

    @property
    def staging(self) -> Store:
        """A folder for intermediate results, removed at the end; it exists once something is in it."""
        return self._output.store.below(self._staging)

    def add(self, files: Iterable[WrittenFile]) -> None:
        """Add files, which `FileWriter` has written below the output."""
        for file in files:
            names.folder_of(file.table)
            self._added.setdefault(file.table, []).append(file)

    def remove(self, table: str, files: Iterable[TableFile]) -> None:
        """Remove files of `Output.files`: the added ones replace them."""
        self._removed.setdefault(table, {}).update((file.path, file) for file in files)

    @property
    def is_changed(self) -> bool:
        return any(self._added.values()) or any(self._removed.values())

    def counts(self, table: str) -> tuple[int, int]:
        """Rows of the files that enter a table and of those that leave it, after `commit` merged ones too."""
        added, removed = self._added.get(table, ()), self._removed.get(table, {})
        merged = self._merged_rows.get(table, 0)
        return sum(file.rows for file in added) + merged, sum(f.rows for f in removed.values()) + merged

    def commit(self, progress: Progress) -> Progress:
        """Commit everything with ``progress``, whose run, versions and times are filled in.

        Raises `OutputBusy` if another writer was first, else `OutputError`; the next `Output.open` then finds
        all changes or none. If nothing was added or removed and no shard advances, nothing is committed.
        """
        if self.is_over:
            raise ValueError("the transaction is over")
        before = self._output.progress
        _check_forward(self._output.store, before.shards, progress.shards)
        try:
            if not (self._added or self._removed) and _is_nothing_new(before, progress):
                return before
            if (log := self._output.log(names.PROGRESS)).has_next():
                raise log.busy()
            now = max(int(time.time() * 1000), before.committed_ms)
            signature = Signature(self._output.writer, before.run + 1, at_ms=now)
            touched = {*self._added, *self._removed, *(set(names.all_tables()) - set(before.versions))}
            versions = self._commit_tables(touched, signature)
            after = replace(
                progress,
                run=signature.run,
                cluster_id=before.cluster_id,
                num_shards=before.num_shards if progress.num_shards is None else progress.num_shards,
                schema_version=SCHEMA_VERSION,
                shards={**before.shards, **progress.shards},
                versions={**before.versions, **versions},
                committed_ms=now,
                vacuumed_ms=now if upkeep.is_due(before, now) else before.vacuumed_ms,
            )
            write_progress(self._output.log(names.PROGRESS), after, signature)
            self._versions_before.clear()  # they count now
            self._output.committed(after)
            return after
        except BaseException as error:
            self._output.is_broken = True
            if isinstance(error, OutputBusy):
                self._undo()
            raise
        finally:
            self.discard()

    def discard(self) -> None:
        """Drop what was not committed."""
        if self.is_over:
            return
        self.is_over = True
        staging = self.staging
        with contextlib.suppress(OSError, OutputError):
            staging.filesystem().delete_dir(staging.root)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _commit_tables(self, touched: set[str], signature: Signature) -> dict[str, int]:
        """Commit the tables that a run touches, `CLAIM` before all others; returns their versions."""
        versions = {CLAIM: self._commit_table(CLAIM, signature)} if touched else {}
        others = sorted(touched - {CLAIM})
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            made = pool.map(lambda table: self._commit_table(table, signature), others)
            return versions | dict(zip(others, made, strict=True))

    def _undo(self) -> None:
        """Restore the tables that were committed before another run turned out to be first.

        That one finds a restore at its next commit, and not changes of a run that may be alive.
        """
        for table, version in self._versions_before.items():
            log = self._output.log(table)
            if log.version != version:
                with contextlib.suppress(OutputError):
                    log.restore(version, Signature(self._output.writer, self._output.progress.run, RESTORE))

    def _commit_table(self, table: str, signature: Signature) -> int:
        """Commit one table's changes and merge small files; returns its version."""
        log = self._output.log(table)
        self._versions_before[table] = log.version
        log.add_missing_columns(signature)
        added, gone = self._added.get(table, ()), self._removed.get(table, {})
        if added or gone or table == CLAIM:
            old = merging.to_merge(file for file in log.files() if file.path not in gone)
            new = merging.merged(self._output.store, old) if old else []
            self._merged_rows[table] = sum(file.rows for file in old)
            log.commit(signature, added, gone.values(), merged=new, merged_from=old)
        return log.version


def write_progress(log: TableLog, progress: Progress, signature: Signature) -> None:
    """Commit the rows of `progress` in place of the ones before."""
    log.add_missing_columns(signature)
    with FileWriter(log.store, names.PROGRESS, names.ROWS, progress_schema(), ()) as writer:
        writer.write(as_rows(progress))
        files = writer.close()
    log.commit(signature, files, log.files())


def _is_nothing_new(before: Progress, after: Progress) -> bool:
    shards = all(before.shards.get(shard) == new for shard, new in after.shards.items())
    return before.run > 0 and shards and before.notes == after.notes


def _check_forward(
    store: Store, before: Mapping[int, ShardProgress], after: Mapping[int, ShardProgress]
) -> None:
    """Raise `OutputError` if a shard goes back."""
    for shard, new in after.items():
        old = before.get(shard, ShardProgress())
        if new.records_to < old.records_to or new.facts_to < old.facts_to:
            raise OutputError(
                f"the tables in {store.place} know shard {shard} up to index {old.records_to} (facts: "
                f"{old.facts_to}), but this run only up to {new.records_to} ({new.facts_to})",
                "the input is an older copy of the log: give the newer one, or another output",
            )
