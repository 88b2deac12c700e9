"""Small files become fewer: a table that is fed every minute would drown its readers in them.

Of one slot (table, part, date, shard) at most ``FILES_MAX`` small files are left by earlier commits; the
next commit makes one of them. A row is written again a few times at most, since a file that has grown is
small no more, and one commit merges no more than ``BYTES_MAX`` and ``JOBS_MAX`` allow: what is left has its
turn in the next ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .manifest import TableFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .layout import Laid

FILES_MAX = 8
"""Small files of a slot that wait: a reader opens so many more, and a row is merged every so many commits."""
SMALL_BYTES = 16 << 20
"""A file of this size is read in one go anyway."""
SMALL_ROWS = 200_000
"""Together with `FILES_MAX` below the rows of one file, so that what is merged is one file again."""
BYTES_MAX = 256 << 20
"""Per commit: some seconds of one core."""
JOBS_MAX = 4
"""Per commit: Spark jobs, one for each table and part."""


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
    for file in files:
        if file.size < SMALL_BYTES and file.rows < SMALL_ROWS:
            slots.setdefault(file.slot, []).append(file)
    chosen: dict[tuple[str, str], list[TableFile]] = {}
    room = BYTES_MAX
    for slot, small in sorted(slots.items(), key=lambda item: -len(item[1])):
        job = slot[:2]
        if len(small) < FILES_MAX or (job not in chosen and len(chosen) == JOBS_MAX):
            continue
        taken = sorted(small, key=lambda file: file.size)[:FILES_MAX]
        size = sum(file.size for file in taken)
        if size <= room:
            room -= size
            chosen.setdefault(job, []).extend(taken)
    return [Merge(table, part, tuple(found)) for (table, part), found in chosen.items()]


def merged(spark: SparkSession, root: str, merge: Merge) -> Laid:
    """The rows of ``merge``, so that Spark writes one file for each slot; with every column that any has."""
    from pyspark.sql import functions as F

    from .layout import Laid, sorted_for_files
    from .reading import read_files

    df = read_files(spark, root, merge.table, merge.files, None)
    kinds = {name: kind for name, kind in (("date", "date"), ("shard", "int")) if name in df.columns}
    df = df.withColumns({name: F.col(name).cast(kind) for name, kind in kinds.items()})
    tasks = len({file.slot for file in merge.files})
    return Laid(sorted_for_files(df.repartition(tasks, *kinds), list(kinds)), list(kinds))
