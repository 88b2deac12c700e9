"""One Delta table through delta-rs: its version, its files, and commits that are never rebased.

Every commit names its run as an application transaction, and its writer, so that a writer can tell its own
commit from another's after an answer was lost. `call` is the only way to delta-rs: tests let it fail.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from quorate.spark.errors import OutputBusy, OutputError
from quorate.spark.schema import comment_of

from . import names
from .failures import told
from .files import WrittenFile, synced
from .store import Store

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Schema

T = TypeVar("T")
APP = "quorate"
"""The application of our transactions, and the key of our words in a commit."""
RESTORE = "restore"
"""The purpose of a commit that brings a table back to the version that `progress` names."""
RETENTION_DAYS = 7
"""Days for which versions before the last one can be read."""
CHECKPOINT_EVERY = 20
"""Commits of a table between checkpoints of its log."""
_CONFIGURATION = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.deletedFileRetentionDuration": f"interval {RETENTION_DAYS} days",
    "delta.logRetentionDuration": f"interval {RETENTION_DAYS} days",
    "delta.enableExpiredLogCleanup": "false",  # by age alone: see `clean`
}


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table at some version."""

    table: str
    part: str
    path: str
    """Relative to the table's folder."""
    rows: int
    size: int
    group_min: str | None = None
    """The first group in the file; None: not known, as in a file without groups."""
    group_max: str | None = None
    begin_min: datetime | None = None
    """The first time at which a row begins (`names.span_of`); None: not known."""
    begin_max: datetime | None = None
    end_max: datetime | None = None
    """The last time at which a row ends; None: not known, or a row has not ended."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The writer of a commit: its random name, the number of its run, and the purpose."""

    writer: str
    run: int
    why: str = "run"
    at_ms: int = -1
    """The time that `progress` gives for the run."""

    def properties(self) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            custom_metadata={APP: asdict(self)},
            max_commit_retries=0,  # a commit on a newer version is refused, not rebased
            app_transactions=[Transaction(APP, self.run)],
        )


def call(what: str, table: str, function: Callable[[], T]) -> T:
    """Every call of delta-rs that writes; ``what`` and ``table`` say which."""
    return function()


@dataclass(slots=True)
class TableLog:
    """A table at one version."""

    store: Store
    """The output."""
    table: str
    version: int
    _delta: DeltaTable = field(repr=False)
    _files: dict[int, tuple[TableFile, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, store: Store, table: str, version: int | None = None) -> TableLog | None:
        """The table at ``version``, by default the last one; None if there is no table.

        Raises `OutputError` if the store fails or the version is gone.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        at = store.below(names.folder_of(table))
        with told(f"open the table {table} in {store.place}"):
            try:
                delta = DeltaTable(at.uri(), version=version, storage_options=at.storage_options())
            except TableNotFoundError:
                return None
        return cls(store, table, int(delta.version()), delta)

    def at(self, time: datetime) -> TableLog | None:
        """The table as it was at a time, or its first version that is left."""
        with told(f"read the history of {self.table} in {self.store.place}"):
            self._delta.load_as_version(time)
            version = int(self._delta.version())
        return TableLog.load(self.store, self.table, version)

    @classmethod
    def create(
        cls, store: Store, table: str, signature: Signature, configuration: dict[str, str] | None = None
    ) -> TableLog:
        """Create the empty table, or load it if another writer was first."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        at = store.below(names.folder_of(table))

        def create() -> DeltaTable:
            if at.is_local:
                at.filesystem().create_dir(at.root, recursive=True)
            return DeltaTable.create(
                at.uri(),
                delta_schema(table),
                mode="error",
                name=table,
                configuration={**_CONFIGURATION, **(configuration or {})},
                storage_options=at.storage_options(),
                commit_properties=signature.properties(),
                raise_if_key_not_exists=False,
            )

        with told(f"create the table {table} in {store.place}", writes=True):
            try:
                made = cls(store, table, 0, call("create", table, create))
            except DeltaError:
                there = cls.load(store, table)
                if there is None:
                    raise
                return there
        made._make_durable()
        return made

    @property
    def delta(self) -> DeltaTable:
        """The table at this version, read again only if it is needed after a commit."""
        with told(f"read {self.table} in {self.store.place}"):
            if self._delta.version() != self.version:
                self._delta.update_incremental()
            if self._delta.version() != self.version:  # another writer has committed since
                self._delta.load_as_version(self.version)
        return self._delta

    def files(self) -> tuple[TableFile, ...]:
        """The files at this version."""
        if self.version not in self._files:
            import pyarrow as pa

            self._files = {
                self.version: _files_of(self.table, pa.table(self.delta.get_add_actions(flatten=True)))
            }
        return self._files[self.version]

    def commit(
        self,
        signature: Signature,
        add: Iterable[WrittenFile] = (),
        remove: Iterable[TableFile] = (),
        *,
        merged: Sequence[WrittenFile] = (),
        merged_from: Sequence[TableFile] = (),
    ) -> None:
        """Commit the version after this one; ``merged`` has the same rows as ``merged_from``.

        Raises `OutputBusy` if another writer was first.
        """
        from deltalake.transaction import AddAction, RemoveAction

        now = int(time.time() * 1000)
        actions = [
            AddAction(one.path, one.size, {}, now, is_new, one.stats)
            for files, is_new in ((add, True), (merged, False))
            for one in files
        ] + [
            RemoveAction(one.path, is_new, now, size=one.size, partition_values={})
            for files, is_new in ((remove, True), (merged_from, False))
            for one in files
        ]
        self._commit(
            signature,
            lambda: self.delta.create_write_transaction(
                actions, "append", self.delta.schema(), commit_properties=signature.properties()
            ),
        )

    def add_missing_columns(self, signature: Signature) -> None:
        """Add the columns that an older release of ours did not have, if there are any."""
        has = {one.name for one in self.delta.schema().fields}
        missing = [one for one in delta_schema(self.table).fields if one.name not in has]
        if missing:
            self._commit(
                signature,
                lambda: self.delta.alter.add_columns(missing, commit_properties=signature.properties()),
            )

    def restore(self, version: int, signature: Signature) -> None:
        """Make the last version what ``version`` was; raises `OutputBusy`, or `OutputError`."""
        self._commit(signature, lambda: self.delta.restore(version, commit_properties=signature.properties()))

    def vacuum(self, signature: Signature) -> list[str]:
        """Delete files that no version within the retention has, and files that were never committed.

        The table is at its last version afterwards, which has the same rows.
        """
        with told(f"vacuum {self.table} in {self.store.place}", writes=True):
            removed = call(
                "vacuum",
                self.table,
                lambda: self.delta.vacuum(dry_run=False, full=True, commit_properties=signature.properties()),
            )
            self._delta.update_incremental()
            self.version = int(self._delta.version())
        return removed

    def clean(self) -> None:
        """Delete commits that are older than the retention, but none that this version needs."""
        with told(f"clean the log of {self.table} in {self.store.place}", writes=True):
            call("clean", self.table, self.delta.cleanup_metadata)

    def commit_json(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a commit; None if the log no longer (or not yet) has it."""
        at = self.store.below(names.folder_of(self.table))
        with told(f"read the log of {self.table} in {self.store.place}"):
            try:
                with at.filesystem().open_input_stream(at.path(log_file(version))) as file:
                    data = file.read()
            except FileNotFoundError:
                return None
        try:
            return [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError as error:
            raise OutputError(
                f"version {version} of {self.table} in {self.store.place} cannot be read ({error})",
                f"remove {log_file(version)} of that table if the machine lost power, then run again",
            ) from error

    def has_next(self) -> bool:
        """Whether another writer has committed to the table since this version."""
        return has_version(self.store, self.table, self.version + 1)

    def busy(self) -> OutputBusy:
        return OutputBusy(
            f"another run or tool committed version {self.version + 1} of {self.table} in {self.store.place}",
            "this run's changes were dropped: run again when the other has ended",
        )

    def _commit(self, signature: Signature, commit: Callable[[], object]) -> None:
        try:
            self._commit_next(signature, commit)
        except OutputBusy:
            if signature.why == RESTORE or not self._regained(signature):
                raise
            self._commit_next(signature, commit)

    def _regained(self, signature: Signature) -> bool:
        """Make the last version what this one is, if another run restored the table since and did no more.

        A run that is opened restores a table that is ahead of `progress`: it cannot know whether the writer
        is dead or in the middle of its commit. A run that was not the first restores what it committed.
        """
        last = TableLog.load(self.store, self.table)
        if last is None or ours_of(last.commit_json(last.version) or ()).get("why") != RESTORE:
            return False
        last.restore(self.version, Signature(signature.writer, signature.run, RESTORE))
        self.version, self._delta, self._files = last.version, last._delta, {}
        return True

    def _commit_next(self, signature: Signature, commit: Callable[[], object]) -> None:
        from deltalake.exceptions import DeltaError

        after = self.version + 1
        try:
            with told(f"commit to {self.table} in {self.store.place}", writes=True):
                call(signature.why, self.table, commit)
        except OutputError as error:
            if not isinstance(error.__cause__, DeltaError | OSError):
                raise
            self._settle_failure(after, signature, error)
        self.version = after
        self._make_durable()

    def _settle_failure(self, version: int, signature: Signature, error: OutputError) -> None:
        """Return if the commit is there in spite of its failure: only the answer was lost."""
        try:
            there = self.commit_json(version)
        except OutputError:
            hint = "whether it was committed is not known: run again, which finds out"
            raise OutputError(error.message, hint) from error
        if there is None:
            raise error
        if written_by(there) != signature.writer:
            raise self.busy() from error

    def _make_durable(self) -> None:
        """delta-rs leaves a local commit to the system's cache; a power failure could lose or empty it."""
        if self.store.is_local:
            at = self.store.below(names.folder_of(self.table))
            with told(f"commit to {self.table} in {self.store.place}", writes=True):
                synced(at.path(log_file(self.version)))
                synced(at.path("_delta_log"))
                synced(at.root)


def has_version(store: Store, table: str, version: int) -> bool:
    """Whether the log of a table has a commit; one look at the store."""
    folder = store.below(names.folder_of(table))
    with told(f"look at {table} in {store.place}"):
        return bool(folder.filesystem().get_file_info(folder.path(log_file(version))).is_file)


def log_file(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def words_of(actions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The commitInfo of a commit."""
    return next((one["commitInfo"] for one in actions if "commitInfo" in one), {})


def ours_of(actions: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The `Signature` of a commit of ours as a dict; empty if the commit is another tool's."""
    ours = words_of(actions).get(APP)
    return ours if isinstance(ours, dict) else {}


def written_by(actions: Iterable[dict[str, Any]]) -> str | None:
    """The writer's name if the commit is ours."""
    return ours_of(actions).get("writer")


def delta_schema(table: str) -> Schema:
    """The table's columns in Delta, with comments (meaning and unit)."""
    import pyarrow as pa
    from deltalake import Schema

    from .progress import progress_schema

    if table == names.PROGRESS:
        return Schema.from_arrow(progress_schema())
    comments = {one.name: comment_of(one) for one in names.columns_of(table)}
    return Schema.from_arrow(
        pa.schema([one.with_metadata({"comment": comments[one.name]}) for one in names.schema_of(table)])
    )


def _files_of(table: str, adds: pa.Table) -> tuple[TableFile, ...]:
    def column(name: str) -> list[Any]:
        return adds.column(name).to_pylist() if name in adds.column_names else [None] * adds.num_rows

    span = names.span_of(table) if table != names.PROGRESS else None
    begin, end = (span.begin, span.end) if span else ("", None)
    made = zip(
        *(column(name) for name in ("path", "num_records", "size_bytes", "min.group_id", "max.group_id")),
        *(column(f"{which}.{begin}") for which in ("min", "max")),
        *(column(f"{which}.{end}") for which in ("max", "null_count")),
        strict=True,
    )
    return tuple(
        TableFile(
            *(table, names.part_of(path), path, rows or 0, size, first, last, low, high),
            end_max=None if nulls is None or nulls else ended,
        )
        for path, rows, size, first, last, low, high, ended, nulls in made
    )
