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

from .disk import join
from .manifest import TableFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from .transaction import Laid

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
"""Per commit: Spark jobs, one for each table and part, a few tenths of a second each."""


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


def merged(spark: SparkSession, root: str, merge: Merge) -> Laid:
    """The rows of ``merge``, so that one file is written for each slot; with every column that any has."""
    from pyspark.sql import functions as F

    from . import few
    from .layout import Laid, sorted_for_files
    from .reading import read_files

    if few.are_few(root, merge.files):
        return _few(root, merge)
    df = read_files(spark, root, merge.table, merge.files, _schema(root, merge))
    kinds = {name: kind for name, kind in (("date", "date"), ("shard", "int")) if name in df.columns}
    df = df.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    slots = len({file.slot for file in merge.files})
    df = df.coalesce(1) if slots == 1 else df.repartition(slots, *kinds)
    return Laid(sorted_for_files(df, list(kinds)), list(kinds))


def _few(root: str, merge: Merge) -> Laid:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from . import few

    found, keys = [], [key for key in ("date", "shard") if f"/{key}=" in merge.files[0].path]
    for file in merge.files:
        rows = pq.ParquetFile(join(root, file.path)).read()
        for key in keys:
            value = pa.scalar(few.day_of(file.date) if key == "date" else file.shard, pa.int32())
            rows = rows.append_column(key, pa.repeat(value, rows.num_rows))
        found.append(rows)
    return few.in_order(pa.concat_tables(found, promote_options="default"), keys)


def _schema(root: str, merge: Merge) -> StructType | None:
    """All columns of a documented table, and its date; None: Spark has to look, with a job of its own."""
    import pyarrow.parquet as pq
    from pyspark.sql.types import DateType

    if merge.table not in TABLES:
        return None
    known = TABLES[merge.table].spark().add("date", DateType())
    names = set(known.names)
    is_known = all(names.issuperset(pq.read_schema(join(root, file.path)).names) for file in merge.files)
    return known if is_known else None
