"""Small files become fewer: a table that is fed every minute would drown its readers in them.

Files of one slot (table, part, date, shard) are merged ``FILES_MAX`` at a time. In the slot of the newest
date, which every commit adds to, those are merged that have about the same number of rows (the same power of
``FILES_MAX``), so that a row is written again some six times at most, and at most 7 files of each of 7 such
levels are left; an older date's, which sees an addition now and then, are merged whatever their sizes, so
that 7 are left. A file that is no longer small is left alone.

One commit merges no more than ``BYTES_MAX`` and ``JOBS_MAX`` allow; what is left has its turn in the next
ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.schema import TABLES

from .manifest import TableFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from .transaction import Writable

FILES_MAX = 8
"""Merged at a time: a reader opens so many more, a row is written again every so many commits."""
_LEVEL_BITS = 3
"""8 is two to the third."""
SMALL_BYTES = 16 << 20
"""Larger files are read in one go anyway."""
SMALL_ROWS = 200_000
"""8 files of fewer rows are one file again (`layout.ROWS_PER_FILE_MAX`)."""
BYTES_MAX = 256 << 20
"""Per commit: some seconds of one core. Any 8 small files fit in."""
JOBS_MAX = 4
"""Per commit: one for each table and part, a few tenths of a second each."""
_KEYS = {"date": "date", "shard": "int"}
"""Columns that are folders, and Spark's types of them."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one table and part; those of each slot become one."""

    table: str
    part: str
    files: tuple[TableFile, ...]

    @property
    def num_rows(self) -> int:
        return sum(file.rows for file in self.files)


def plan(files: Iterable[TableFile]) -> list[Merge]:
    """What the next commit merges, those slots first that have most small files."""
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
    """Those of a slot that are to become one file; none: it is too early."""
    levels: dict[int, list[TableFile]] = {}
    for file in sorted(small, key=lambda file: file.rows):
        levels.setdefault(file.rows.bit_length() // _LEVEL_BITS if is_newest else 0, []).append(file)
    return next((files[:FILES_MAX] for files in levels.values() if len(files) >= FILES_MAX), [])


def merged(spark: SparkSession, root: str, merge: Merge) -> Writable:
    """The rows of ``merge``, so that one file is written for each slot; with every column that any has."""
    from pyspark.sql import functions as F

    from . import few
    from .layout import Laid, sorted_for_files
    from .reading import read_files

    kinds = {name: kind for name, kind in _KEYS.items() if f"/{name}=" in merge.files[0].path}
    found = few.read_few(root, merge.files, _arrow_schema(root, merge, kinds))
    if found is not None:
        return few.Few(found, tuple(kinds))
    df = read_files(spark, root, merge.table, merge.files, _schema(root, merge))
    df = df.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    slots = len({file.slot for file in merge.files})
    df = df.coalesce(1) if slots == 1 else df.repartition(slots, *kinds)
    return Laid(sorted_for_files(df, list(kinds)), list(kinds))


def _arrow_schema(root: str, merge: Merge, keys: Iterable[str]) -> pa.Schema:
    """The columns that any of the files has, and those of ``keys`` that only their paths have."""
    import pyarrow as pa

    from . import few

    found = pa.unify_schemas([few.schema_of(root, file.path) for file in merge.files])
    for key in keys:
        found = found.append(pa.field(key, pa.int32()))
    return found


def _schema(root: str, merge: Merge) -> StructType | None:
    """All columns of a documented table, and its date; None: Spark has to look, with a job of its own."""
    from pyspark.sql.types import DateType

    from . import few

    if merge.table not in TABLES:
        return None
    known = TABLES[merge.table].spark().add("date", DateType())
    names = set(known.names)
    is_known = all(names.issuperset(few.schema_of(root, file.path).names) for file in merge.files)
    return known if is_known else None
