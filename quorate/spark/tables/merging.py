"""Merging of small files, and the files that a run replaces.

Each batch leaves small files. Once a part has `MERGED_AT` of about one size, the next commit to its table
merges them; a row is thus rewritten at most once for each size in `TIERS`. Memory, and what a merge adds to a
batch, are bounded by `MERGE_ROWS_MAX` and `MERGE_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from quorate.spark.errors import OutputError

from . import names
from .delta import TableFile
from .files import FileWriter, WrittenFile, read_file
from .store import Store

if TYPE_CHECKING:
    import pyarrow as pa

MERGED_AT = 16
"""Files of one size that are merged."""
TIERS = (256 << 10, 2 << 20, 16 << 20)
"""Sizes in bytes; a file of the last size or more is left alone."""
MERGE_ROWS_MAX = 100_000
"""Limit on the rows of one merge, a tenth of a second; a file with half as many is left alone."""
MERGE_BYTES_MAX = 64 << 20
"""Limit on its bytes."""
GROUP_ROWS = 128 << 10
"""Rows of a row group of a merged file."""
OPEN_ROWS = 1_000
"""Target rows of a file of the part `open`: a run rewrites those that hold its groups."""
SMALL_OPEN_ROWS = OPEN_ROWS // 2
"""A file of `open` with fewer rows is rewritten with its neighbour, so that such files do not accumulate."""


def to_merge(files: Iterable[TableFile]) -> tuple[TableFile, ...]:
    """The files of one table to merge next, of one part and size; empty: none."""
    by_tier: dict[tuple[int, str], list[TableFile]] = {}
    for file in files:
        tier = next((at for at, size in enumerate(TIERS) if file.size < size), None)
        if tier is not None and file.part == names.ROWS and file.rows < MERGE_ROWS_MAX // 2:
            by_tier.setdefault((tier, file.part), []).append(file)
    for _, mine in sorted(by_tier.items()):
        if len(mine) >= MERGED_AT:
            return _bounded(sorted(mine, key=lambda one: (one.size, one.path)))
    return ()


def _bounded(files: Sequence[TableFile]) -> tuple[TableFile, ...]:
    """The first `MERGED_AT` of them at most, within the limits."""
    chosen: list[TableFile] = []
    rows = size = 0
    for file in files[:MERGED_AT]:
        rows, size = rows + file.rows, size + file.size
        if rows > MERGE_ROWS_MAX or size > MERGE_BYTES_MAX:
            break
        chosen.append(file)
    return tuple(chosen) if len(chosen) > 1 else ()


def merged(store: Store, files: Sequence[TableFile]) -> list[WrittenFile]:
    """Write the rows of these files, of one table and part, into new ones; raises `OutputError`."""
    import pyarrow as pa

    table, part = files[0].table, files[0].part
    rows: pa.Table = pa.concat_tables([read_file(store, table, file.path) for file in files])
    if rows.num_rows != sum(file.rows for file in files):
        raise OutputError(
            f"the log of {table} in {store.place} says {sum(file.rows for file in files)} rows of "
            f"{len(files)} files, but they have {rows.num_rows}",
            "its files were changed: run into a new output: quorate pipeline run -i … -o NEW",
        )
    rows = rows.sort_by([(name, "ascending") for name in names.sort_keys(rows.column_names)])
    with FileWriter(store, table, part, rows.schema, ()) as writer:
        for start in range(0, rows.num_rows, GROUP_ROWS):
            writer.write(rows.slice(start, GROUP_ROWS))
        return writer.close()


def replaced_files(files: Iterable[TableFile], groups: Collection[str]) -> tuple[TableFile, ...]:
    """Those of these files (of one part) that may hold one of the groups, and small ones next to them."""
    from bisect import bisect_left

    wanted = sorted(groups)
    ordered = sorted(files, key=lambda one: (one.group_min or "", one.group_max or "", one.path))

    def holds(file: TableFile) -> bool:
        if file.group_min is None or file.group_max is None:
            return True
        at = bisect_left(wanted, file.group_min)
        return at < len(wanted) and wanted[at] <= file.group_max

    if not wanted:
        return ()
    hits = [holds(file) for file in ordered]
    small = [file.rows < SMALL_OPEN_ROWS for file in ordered]
    return tuple(
        file
        for at, file in enumerate(ordered)
        if hits[at] or (small[at] and any(hits[max(at - 1, 0) : at + 2]))
    )
