"""Merges small files, which would otherwise accumulate in a table with a commit every minute.

Files of one slot (table, part, date, shard) are merged ``FILES_MAX`` at a time. In the slot of the newest
date, which every commit adds to, only files with about the same number of rows are merged (the same power of
``FILES_MAX``): a row is rewritten some six times at most, and at most 7 files remain on each of 7 such
levels. In the slots of older dates, which rarely grow, files of any size are merged, so that 7 remain. A file
that is no longer small is left alone.

One commit merges no more than ``BYTES_MAX`` and ``JOBS_MAX`` allow; the rest waits for the next commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipeline.schema import TABLES, spark_type

from .manifest import TableFile
from .reading import read_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FILES_MAX = 8
"""Files merged at a time: readers open up to this many more; rows are rewritten once in as many commits."""
_LEVEL_BITS = 3
"""log2 of `FILES_MAX`."""
SMALL_BYTES = 16 << 20
"""Larger files are read efficiently as they are."""
SMALL_ROWS = 200_000
"""8 smaller files still fit into one (`layout.ROWS_PER_FILE_MAX`)."""
BYTES_MAX = 256 << 20
"""Bytes merged per commit, some seconds of one core; any 8 small files fit."""
JOBS_MAX = 4
"""Jobs per commit, one for each table and part, at a few tenths of a second each."""
_KEYS = {"date": "date", "shard": "int"}
"""Columns that are folders, with their Spark types."""


class Writable(Protocol):
    """Rows ready to be written."""

    def write(self, folder: str) -> int:
        """Write them to a new folder; returns the number of rows."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one table and part to merge; those of each slot become one."""

    table: str
    part: str
    files: tuple[TableFile, ...]

    @property
    def num_rows(self) -> int:
        return sum(file.rows for file in self.files)


def plan(files: Iterable[TableFile]) -> list[Merge]:
    """The merges of the next commit, slots with the most small files first."""
    slots: dict[tuple[str, str, str | None, int | None], list[TableFile]] = {}
    newest: dict[tuple[str, str, int | None], str] = {}
    for file in files:
        lane = file.table, file.part, file.shard
        newest[lane] = max(newest.get(lane, ""), file.date or "")
        if file.size < SMALL_BYTES and file.rows < SMALL_ROWS:
            slots.setdefault(file.slot, []).append(file)
    chosen: dict[tuple[str, str], list[TableFile]] = {}
    room = BYTES_MAX
    for (table, part, date, shard), small in sorted(slots.items(), key=lambda item: -len(item[1])):
        due = _due(small, is_newest=(date or "") == newest[table, part, shard])
        size = sum(file.size for file in due)
        has_job = (table, part) in chosen or len(chosen) < JOBS_MAX
        if due and has_job and size <= room:
            room -= size
            chosen.setdefault((table, part), []).extend(due)
    return [Merge(table, part, tuple(found)) for (table, part), found in chosen.items()]


def _due(small: list[TableFile], *, is_newest: bool) -> list[TableFile]:
    """The files of a slot to merge into one; empty if it is too early."""
    levels: dict[int, list[TableFile]] = {}
    for file in sorted(small, key=lambda file: file.rows):
        levels.setdefault(file.rows.bit_length() // _LEVEL_BITS if is_newest else 0, []).append(file)
    return next((files[:FILES_MAX] for files in levels.values() if len(files) >= FILES_MAX), [])


def merged(spark: SparkSession, root: str, merge: Merge) -> Writable:
    """The rows of ``merge`` with the union of all columns, laid out as one file for each slot."""
    from pyspark.sql import functions as F

    from . import local
    from .layout import Laid, sorted_for_files

    kinds = {name: kind for name, kind in _KEYS.items() if f"/{name}=" in merge.files[0].path}
    found = local.read_locally(root, merge.files, _arrow_schema(root, merge, kinds))
    if found is not None:
        return local.LocalRows(found, tuple(kinds))
    df = read_files(spark, root, merge.table, merge.files, _schema(root, merge))
    df = df.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    slots = len({file.slot for file in merge.files})
    df = df.coalesce(1) if slots == 1 else df.repartition(slots, *kinds)
    return Laid(sorted_for_files(df, list(kinds)), list(kinds))


def _arrow_schema(root: str, merge: Merge, keys: Iterable[str]) -> pa.Schema:
    """The union of the files' columns, and the ``keys`` that only appear in their paths."""
    import pyarrow as pa

    from . import local

    found = pa.unify_schemas([local.schema_of(root, file.path) for file in merge.files])
    for key in keys:
        found = found.append(pa.field(key, pa.int32()))
    return found


def _schema(root: str, merge: Merge) -> StructType | None:
    """All columns of a documented table and its date; None: Spark must find out, which takes a job."""
    from pyspark.sql.types import DateType

    from . import local

    if merge.table not in TABLES:
        return None
    known = spark_type(TABLES[merge.table].columns).add("date", DateType())
    names = set(known.names)
    is_known = all(names.issuperset(local.schema_of(root, file.path).names) for file in merge.files)
    return known if is_known else None
