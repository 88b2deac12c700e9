"""A transaction: rows staged by Spark, then added to the tables all at once or not at all.

Each `Staging` is one Spark query (those of one `stage` run concurrently), whose Parquet files go to the
staging folder; few rows are written there by this process (`local`). The commit names the files and has
the journal move them into place. A transaction whose progress does not exceed the manifest's adds nothing, so
that repeating a batch is harmless.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from pipeline.errors import OutputError
from pipeline.schema import SCHEMA_VERSION, TABLES, arrow_type, spark_type
from raftlog.env.files import write_aside

from . import journal, merging, names
from .disk import TableFiles, is_full, join, parent, told
from .manifest import OutputManifest, ShardProgress, TableFile
from .merging import Writable
from .reading import read_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


SIDE_BY_SIDE = 4
"""Queries that run concurrently: small ones keep the driver busier than the executors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Rows to be added to a table, replacing the rows of some of its files."""

    table: str
    rows: DataFrame | pa.Table
    """An Arrow table if the rows are few (`pipeline.tables.local`)."""
    part: str = "rows"
    buckets: int = 1
    """Number of buckets that the part is split into, by group."""
    instead_of: tuple[TableFile, ...] = ()
    is_gathered: bool = False
    """See `pipeline.tables.layout.laid_out`."""


class OpenOutput(Protocol):
    """The part of an output that a transaction reads and changes."""

    root: str
    files: TableFiles
    manifest: OutputManifest
    is_cut_short: bool


class Transaction:
    """Changes that enter the tables together; created by `Output.begin`.

    As a context manager it discards uncommitted changes.
    """

    def __init__(self, output: OpenOutput, folder: str) -> None:
        self.rows: dict[tuple[str, str], int] = {}
        """Rows staged so far, by table and part."""
        self.is_over = False
        self._output = output
        self._folder = folder
        self._ready = f"{folder}/ready"
        self._unique = secrets.token_hex(4)
        self._added: list[TableFile] = []
        self._gone: set[str] = set()
        """Paths of files from earlier commits that this one replaces."""
        self._jobs = 0
        self._spark: SparkSession | None = None
        with told(f"write to {output.root}"):
            for path in (folder, self._ready):
                output.files.mkdir(join(output.root, path))

    @property
    def staging(self) -> str:
        """A folder for intermediate results, removed at the end; ``ready`` and ``job-…`` are reserved."""
        return join(self._output.root, self._folder)

    def stage(self, *wanted: Staging) -> list[int]:
        """Stage rows for several tables or parts concurrently; returns the number of each.

        A documented table gets its columns (`pipeline.schema.TABLES`), an internal one any, partitioned by
        ``shard`` if present.
        """
        self._check_open()
        for one in wanted:
            names.checked_name(one.part)
            names.table_folder(one.table)
        counts = self._stage([(one.table, one.part, one.buckets, self._laid(one)) for one in wanted])
        self.replaced(file for one in wanted for file in one.instead_of)
        return counts

    def replaced(self, files: Iterable[TableFile]) -> None:
        """Remove these files with the commit: the staged rows replace theirs."""
        self._gone.update(file.path for file in files)

    def _laid(self, one: Staging) -> Writable:
        import pyarrow as pa

        from .layout import laid_out
        from .local import lay_out_locally

        schema = TABLES.get(one.table)
        if isinstance(one.rows, pa.Table):
            return lay_out_locally(one.rows, schema, one.buckets)
        self._spark = one.rows.sparkSession
        return laid_out(one.rows, schema, buckets=one.buckets, is_gathered=one.is_gathered)

    def staged(self, table: str, part: str = "rows") -> DataFrame:
        """The rows of a documented table that this transaction has written, as input for others."""
        if self._spark is None:
            raise ValueError("nothing has been written yet")
        mine = [file for file in self._added if (file.table, file.part) == (table, part)]
        ready = join(self._output.root, self._ready)
        return read_files(self._spark, ready, table, mine, spark_type(TABLES[table].columns))

    def staged_few(self, table: str, part: str = "rows") -> pa.Table | None:
        """The same rows read by this process; None if they are not few."""
        from . import local

        mine = [file for file in self._added if (file.table, file.part) == (table, part)]
        ready = join(self._output.root, self._ready)
        return local.read_locally(ready, mine, arrow_type(TABLES[table].columns))

    def take(self, table: str, part: str, folder: str, expected: int, buckets: int = 1) -> int:
        """Take over the Parquet files in ``folder`` (relative to the output), ``expected`` rows in all."""
        files, root, rows = self._output.files, self._output.root, 0
        with told(f"stage rows in {root}"):
            version = self._output.manifest.version + 1
            for path in list(_parquet_below(files, root, folder)):
                here, size = files.num_rows(join(root, path)), files.size(join(root, path))
                if not here:
                    continue
                between, bucket = names.bucket_folder(parent(path).removeprefix(folder).strip("/"))
                mine = names.bucket_part(part, buckets, bucket)
                name = names.file_name(mine, version, len(self._added), self._unique)
                place = "/".join(filter(None, (names.table_folder(table), between, name)))
                self._make_ready(parent(place))
                files.rename(join(root, path), join(root, self._ready, place))
                date, shard = names.partition_of(place)
                self._added.append(TableFile(table, mine, place, shard, date, here, size))
                rows += here
            files.remove_tree(join(root, folder))
        if rows != expected:
            raise OutputError(
                f"{expected} rows of {table} were written to {root}, but {rows} are visible there",
                "every executor must see this folder at the same path: a mount, or master local[*]",
            )
        self.rows[table, part] = self.rows.get((table, part), 0) + rows
        return rows

    def commit(self, progress: Mapping[int, ShardProgress], *, refresh: bool = False) -> OutputManifest:
        """Commit everything; if it raises, the next `Output.open` finds all of the changes or none.

        ``progress`` is that of the processed shards. If none of them exceeds the manifest's, nothing is added
        unless ``refresh`` is set, for changes without a new entry.
        """
        self._check_open()
        before = self._output.manifest
        if not (_is_ahead(before.progress, progress) or refresh):
            self.discard()
            return before
        if not progress and not self._added and not self._gone:
            self.discard()
            return before
        self._merge()
        after = self._next_manifest(progress)
        with told(f"commit to {self._output.root}"):
            change = self._change(before, after)
            journal.prepare(self._output.files, self._output.root, change)
        self.is_over = self._output.is_cut_short = True  # staged files now belong to the next `Output.open`
        with told(f"finish a commit to {self._output.root}", "the next run completes or repeats it"):
            journal.decide(self._output.files, self._output.root)
            journal.carry_out(self._output.files, self._output.root, change)
        self._output.manifest, self._output.is_cut_short = after, False
        self._output.files.remove_tree(self.staging)
        return after

    def discard(self) -> None:
        """Drop all staged changes."""
        if not self.is_over:
            self.is_over = True
            self._output.files.remove_tree(self.staging)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def _check_open(self) -> None:
        if self.is_over:
            raise ValueError("the transaction is over")

    def _stage(self, wanted: Sequence[tuple[str, str, int, Writable]]) -> list[int]:
        """Run one Spark query each, unless rows are few; their output is taken over in order."""
        if not wanted:
            return []
        write = self._written
        if self._spark is not None:
            from pyspark.util import inheritable_thread_target

            write = inheritable_thread_target(self._spark)(write)
        folders = [f"{self._folder}/job-{self._jobs + place}" for place in range(len(wanted))]
        self._jobs += len(wanted)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            laid = (rows for *_, rows in wanted)
            expected = list(pool.map(write, laid, folders))
        return [
            self.take(table, part, folder, count, buckets)
            for (table, part, buckets, _), folder, count in zip(wanted, folders, expected, strict=True)
        ]

    def _written(self, rows: Writable, folder: str) -> int:
        root = self._output.root
        try:
            return rows.write(join(root, folder))
        except Exception as error:
            if is_full(error):
                hint = "the tables are unchanged: free space and run again"
                raise OutputError(f"the disk of {root} is full", hint) from error
            if isinstance(error, OSError):  # raised in this process, not by Spark
                raise OutputError(f"cannot write to {root}: {error.strerror or error}") from error
            raise

    def _make_ready(self, folder: str) -> None:
        """Create a table's folder and its parents below the staging folder."""
        names_of = folder.split("/")
        for depth in range(1, len(names_of) + 1):
            path = join(self._output.root, self._ready, *names_of[:depth])
            if not self._output.files.exists(path):
                self._output.files.mkdir(path)

    def _merge(self) -> None:
        """Stage the merges of earlier commits' small files."""
        if self._spark is None:
            return
        merges = merging.plan(f for f in self._output.manifest.files if f.path not in self._gone)
        for merge, found in zip(merges, self._rewrite(merges, self._spark), strict=True):
            if found != merge.num_rows:
                raise OutputError(
                    f"earlier runs wrote {merge.num_rows} rows of {merge.table} to {self._output.root}, but "
                    f"{found} of them are there",
                    "its files were changed: write to a new output",
                )
            self.rows[merge.table, merge.part] -= found  # they are not new
            self.replaced(merge.files)

    def _rewrite(self, merges: Sequence[merging.Merge], spark: SparkSession) -> list[int]:
        root = self._output.root
        return self._stage([(one.table, one.part, 1, merging.merged(spark, root, one)) for one in merges])

    def _next_manifest(self, progress: Mapping[int, ShardProgress]) -> OutputManifest:
        before = self._output.manifest
        kept = (file for file in before.files if file.path not in self._gone)
        return replace(
            before,
            version=before.version + 1,
            schema_version=SCHEMA_VERSION,
            progress={**before.progress, **progress},
            files=tuple(sorted([*kept, *self._added], key=lambda file: file.path)),
        )

    def _change(self, before: OutputManifest, after: OutputManifest) -> journal.FileOperations:
        """Write the next manifest beside the staged files; returns the moves and removals."""
        files, root = self._output.files, self._output.root
        head, listed = after.encoded()
        moves = [(f"{self._ready}/{f.path}", f.path) for f in self._added]
        for target, data in ((names.files_list(after.version), listed), (names.MANIFEST, head)):
            source = f"{self._ready}/{target.rpartition('/')[2]}"
            write_aside(files, join(root, source), data)
            moves.append((source, target))
        named = {file.path for file in after.files}
        gone = [file.path for file in before.files if file.path not in named]
        return journal.FileOperations(tuple(moves), (*gone, names.files_list(before.version)))


def _is_ahead(before: Mapping[int, ShardProgress], after: Mapping[int, ShardProgress]) -> bool:
    """Whether any shard advances; raises `OutputError` if one goes back."""
    is_ahead = False
    for shard, new in after.items():
        old = before.get(shard, ShardProgress())
        if new.records_to < old.records_to or new.facts_to < old.facts_to:
            raise OutputError(
                f"the tables know shard {shard} up to index {old.records_to} (facts: {old.facts_to}), but "
                f"this run only up to {new.records_to} ({new.facts_to})",
                "the input is an older copy of the log: give the newer one, or another output",
            )
        is_ahead = is_ahead or new.records_to > old.records_to or new.facts_to > old.facts_to
    return is_ahead


def _parquet_below(files: TableFiles, root: str, folder: str) -> Iterator[str]:
    """Parquet files that Spark wrote; names that start with `.` or `_` are its own metadata."""
    for name in files.listdir(join(root, folder)):
        path = f"{folder}/{name}"
        if name.startswith((".", "_")):
            continue
        if files.is_dir(join(root, path)):
            yield from _parquet_below(files, root, path)
        elif name.endswith(".parquet"):
            yield path
