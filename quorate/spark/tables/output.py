"""An output: the folder that holds the tables, for the run that writes them.

`Output.open` refuses a folder that is not ours, another cluster's or a newer release's before anything is
written, and brings tables back to `progress` that a killed run left ahead of it. There is no lock: of two
runs at the same time one commits and the other gets `OutputBusy`, in every store and however either ends.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from uuid import uuid4

from quorate.spark.errors import OutputBusy, OutputError
from quorate.spark.schema import SCHEMA_VERSION

from . import names, upkeep
from .delta import RESTORE, Signature, TableFile, TableLog, has_version
from .failures import told
from .progress import Progress
from .reading import CLUSTER, missing, progress_of
from .settling import check_progress, check_protocol, last_version, settled
from .store import Store
from .transaction import Transaction

CHECKS = 16
"""Tables that are checked concurrently."""
_NOT_CONTENT = ("lost+found",)
"""Contents of a fresh mount; names that start with a dot are ignored as well."""


class Output:
    """The tables of one cluster, as a context manager for one writer; see `Output.open`."""

    def __init__(self, store: Store, progress: Progress, writer: str, log: TableLog) -> None:
        self.store = store
        self.progress = progress
        """The progress that the tables contain, as of the last commit."""
        self.writer = writer
        """A random name that every commit of this writer carries."""
        self._logs = {names.PROGRESS: log}
        self._transaction: Transaction | None = None
        self.is_broken = False
        """A commit failed: the tables must be settled again."""

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, cluster_id: str, num_shards: int | None = None) -> Output:
        """Open the output at a path or URL, creating it if necessary; raises `OutputError`."""
        store, writer = Store.at(url), uuid4().hex
        log = last_version(store, names.PROGRESS)
        if log is None:
            _refuse_strangers(store)
            log = TableLog.create(
                store, names.PROGRESS, Signature(writer, 0, "create"), {CLUSTER: cluster_id}
            )
        check_protocol(log)
        check_progress(log)
        progress = progress_of(log)
        _check(store, progress, cluster_id, num_shards)
        if progress.num_shards is None:
            progress = replace(progress, num_shards=num_shards)
        output = cls(store, progress, writer, log)
        with ThreadPoolExecutor(CHECKS) as pool:
            list(pool.map(output._settle, names.all_tables()))
        upkeep.remove_leftovers(store)
        return output

    def files(self, table: str, part: str | None = None) -> tuple[TableFile, ...]:
        """The files of a table, or of one part, as the next commit finds them; none before the first run."""
        if table not in self._logs and table not in self.progress.versions:
            return ()
        files = self.log(table).files()
        return files if part is None else tuple(file for file in files if file.part == part)

    def begin(self) -> Transaction:
        """Start a transaction; the previous one must be over."""
        if self.is_broken:
            raise OutputError(f"a commit to {self.store.place} failed", "open the output again")
        if self._transaction is not None and not self._transaction.is_over:
            raise ValueError("only one transaction at a time is possible")
        self._transaction = Transaction(self)
        return self._transaction

    def log(self, table: str) -> TableLog:
        """The table at the version to build on, created if there is none."""
        if table not in self._logs:
            if table in self.progress.versions:
                log = TableLog.load(self.store, table, self.progress.versions[table])
                if log is None:
                    raise missing(self.store, table)
            else:
                log = TableLog.create(
                    self.store, table, Signature(self.writer, self.progress.run + 1, "create")
                )
                if log.version > 0:
                    raise OutputBusy(
                        f"another run has created {table} in {self.store.place}",
                        "run again when it has ended",
                    )
            check_protocol(log)
            self._logs[table] = log
        return self._logs[table]

    def committed(self, progress: Progress) -> None:
        """Called by the transaction: the tables are at ``progress`` now."""
        before, self.progress = self.progress, progress
        if before.run and progress.vacuumed_ms != before.vacuumed_ms:
            for table in (*names.all_tables(), names.PROGRESS):
                upkeep.vacuum(self.log(table), Signature(self.writer, progress.run))
            upkeep.clean_logs(self.store, progress.committed_ms)

    def close(self) -> None:
        """Discard uncommitted changes."""
        if self._transaction is not None:
            self._transaction.discard()

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self, table: str) -> None:
        """Load the table if it is ahead of `progress`, and settle that; one look at the store if not."""
        named = self.progress.versions.get(table)
        if not has_version(self.store, table, 0 if named is None else named + 1):
            return
        log = last_version(self.store, table)
        if log is None:
            raise missing(self.store, table)
        self._logs[table] = settled(log, named or 0, Signature(self.writer, self.progress.run, RESTORE))


def _refuse_strangers(store: Store) -> None:
    """Raise `OutputError` for a folder that is not ours to write."""
    from pyarrow.fs import FileSelector, FileType

    files = store.filesystem()
    with told(f"open the output {store.place}"):
        info = files.get_file_info(store.root)
        if info.type == FileType.File:
            raise OutputError(
                f"{store.place} is not a folder", "give one that is empty or does not exist yet"
            )
        if files.get_file_info(store.path(names.FORMAT_3)).is_file:
            raise OutputError(
                f"{store.place} was written by an older release, whose tables are not Delta tables",
                "run into a new output: quorate pipeline run -i … -o NEW",
            )
        there = files.get_file_info(FileSelector(store.root, allow_not_found=True))
    names_there = [one.base_name for one in there]
    content = [one for one in names_there if not one.startswith(".") and one not in _NOT_CONTENT]
    if content and not (content == [names.PROGRESS] and _is_unborn(store)):
        raise OutputError(
            f"{store.place} is not empty and holds no tables of ours (it has {content[0]}, but no "
            f"{names.PROGRESS})",
            "run into a new output: quorate pipeline run -i … -o NEW",
        )


def _is_unborn(store: Store) -> bool:
    """Whether a run was killed when it had only made the folder of `progress`."""
    from pyarrow.fs import FileSelector

    with told(f"open the output {store.place}"):
        there = store.filesystem().get_file_info(FileSelector(store.path(names.PROGRESS), recursive=True))
    return not any(one.is_file and one.extension in ("json", "parquet") for one in there)


def _check(store: Store, progress: Progress, cluster_id: str, num_shards: int | None) -> None:
    """Raise `OutputError` unless a run for this cluster may write here."""
    if progress.cluster_id != cluster_id:
        raise OutputError(
            f"{store.place} holds the tables of cluster {progress.cluster_id}, but the input belongs to "
            f"{cluster_id}",
            "give each cluster its own output; their tables can be read together",
        )
    if None not in (progress.num_shards, num_shards) and progress.num_shards != num_shards:
        raise OutputError(
            f"{store.place} was written from {progress.num_shards} shards, but the input has {num_shards}",
            "a cluster's number of shards never changes: this is another cluster's log",
        )
    if progress.schema_version > SCHEMA_VERSION:
        raise OutputError(
            f"{store.place} was written by a newer release: its schema is {progress.schema_version}, but "
            f"this release knows {SCHEMA_VERSION}",
            "use that release, or run into a new output: quorate pipeline run -i … -o NEW",
        )
