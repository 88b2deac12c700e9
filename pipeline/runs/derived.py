"""The facts that a run derived, by kind: staged by Spark or, if few, held in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F

from pipeline.errors import OutputError
from pipeline.facts.batches import FACT_TABLES, STORED, out_type, stored_type
from pipeline.facts.derive import GROUP
from pipeline.facts.group import STATE
from pipeline.schema import TABLES, arrow_type, spark_type
from pipeline.tables import local
from pipeline.tables.buckets import hash_of
from pipeline.tables.reading import read_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Derived:
    """The rows of each kind, as an Arrow table if they are few, or as a frame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._folder = ""
        self._tables: dict[str, pa.Table] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._groups: pa.Table | None = None

    @classmethod
    def staged(cls, spark: SparkSession, facts: DataFrame, folder: str) -> Derived:
        """Compute the facts once, with one query that writes them to ``folder``."""
        made, seen = cls(spark), Observation()
        made._folder = folder
        counted = facts.observe(seen, F.count(F.lit(1)).alias("rows"))
        counted.write.partitionBy("kind").option("compression", "zstd").parquet(f"file://{folder}")
        rows, _ = local.size_of("/", map(str, Path(folder).rglob("*.parquet")))
        if rows != (expected := int(seen.get.get("rows") or 0)):
            raise OutputError(
                f"{expected} rows of facts were written to {folder}, but {rows} are visible there",
                "every executor must see this folder at the same path: a mount, or master local[*]",
            )
        return made

    @classmethod
    def here(cls, spark: SparkSession, batches: Iterable[pa.RecordBatch]) -> Derived:
        """Take batches from `pipeline.facts.in_process`."""
        made = cls(spark)
        by_kind: dict[str, list[pa.RecordBatch]] = {}
        for batch in batches:  # each batch has one kind
            by_kind.setdefault(batch.column("kind")[0].as_py(), []).append(batch)
        made._tables = {kind: pa.Table.from_batches(found) for kind, found in by_kind.items()}
        return made

    def count(self, *kinds: str) -> int:
        return sum(self._size(kind)[0] for kind in kinds)

    def is_few(self, *kinds: str) -> bool:
        """Whether these kinds are few enough for `table`."""
        rows, sizes = zip(*(self._size(kind) for kind in kinds), strict=True)
        return bool(self._tables) or local.is_few(sum(rows), sum(sizes))

    def size(self, *kinds: str) -> int:
        """Bytes of the staged files; 0 for an Arrow table, which is too small to matter."""
        return sum(path.stat().st_size for kind in kinds for path in self._files(kind))

    def table(self, *kinds: str) -> pa.Table:
        """The rows of kinds that belong to one table, in the columns that are written."""
        schema = arrow_of(kinds[0])
        found = [_to_write(rows, kind).cast(schema) for kind in kinds for rows in self._read(kind)]
        return pa.concat_tables(found) if found else schema.empty_table()

    def frame(self, *kinds: str) -> DataFrame:
        """The same rows as a frame."""
        if self._tables:
            return self._spark.createDataFrame(self.table(*kinds), spark_of(kinds[0]))
        rows = read_staged(self._spark, self._folder, out_type()).where(F.col("kind").isin(*kinds))
        in_table = _in_table(kinds[0])
        return rows.select(*stored_type().names if in_table is None else [f"{in_table}.*"])

    def groups(self) -> pa.Table:
        """Shard and id of every group that was processed; only for few groups."""
        if self._groups is None:
            self._groups = pa.Table.from_batches(list(self._each_group()))
        return self._groups

    def groups_frame(self) -> DataFrame:
        return self.frame(STATE).select(GROUP)

    def hashed(self) -> set[tuple[int, int]]:
        """Shard and hash (`pipeline.tables.buckets`) of every group that was processed."""
        found = set()
        for batch in self._each_group():
            shards, group_ids = (batch.column(name).to_pylist() for name in GROUP)
            found |= {(shard, hash_of(one)) for shard, one in zip(shards, group_ids, strict=True)}
        return found

    def _each_group(self) -> Iterator[pa.RecordBatch]:
        if STATE in self._tables:
            yield from self._tables[STATE].select(GROUP).to_batches()
        for path in self._files(STATE):
            yield from pq.ParquetFile(path).iter_batches(columns=GROUP)

    def _size(self, kind: str) -> tuple[int, int]:
        if self._tables:
            rows = self._tables.get(kind)
            return (0, 0) if rows is None else (rows.num_rows, rows.nbytes)
        if kind not in self._sizes:
            self._sizes[kind] = local.size_of("/", map(str, self._files(kind)))
        return self._sizes[kind]

    def _files(self, kind: str) -> list[Path]:
        return sorted(Path(self._folder, f"kind={quote(kind)}").glob("*.parquet")) if self._folder else []

    def _read(self, kind: str) -> Iterator[pa.Table]:
        if kind in self._tables:
            yield self._tables[kind]
        for path in self._files(kind):
            in_table = _in_table(kind)
            columns = [in_table] if in_table else [one for one in STORED.names if one != "kind"]
            rows = pq.ParquetFile(path).read(columns=columns)
            yield rows.append_column("kind", pa.repeat(pa.scalar(kind), rows.num_rows))


def _in_table(kind: str) -> str | None:
    """The table for rows of this kind; None if they are stored for the next run."""
    table = kind.rpartition(":")[2]
    return table if table in FACT_TABLES else None


def spark_of(kind: str) -> StructType:
    """Spark type of the rows of a kind, as they are written."""
    table = _in_table(kind)
    return stored_type() if table is None else spark_type(TABLES[table].columns)


def arrow_of(kind: str) -> pa.Schema:
    """Arrow type of the rows of a kind, as they are written."""
    table = _in_table(kind)
    return STORED if table is None else arrow_type(TABLES[table].columns)


def _to_write(rows: pa.Table, kind: str) -> pa.Table:
    table = _in_table(kind)
    if table is None:
        return rows.select(STORED.names)
    one = rows.column(table).combine_chunks()
    return pa.Table.from_arrays(one.flatten(), names=[field.name for field in one.type])


def without(rows: pa.Table, groups: pa.Table) -> pa.Table:
    """The rows of all groups except these."""
    for shard in pc.unique(groups.column("shard")).to_pylist():
        mine = groups.filter(pc.equal(groups.column("shard"), shard)).column("group_id")
        is_in = pc.is_in(rows.column("group_id"), pc.unique(mine))
        rows = rows.filter(pc.invert(pc.and_(pc.equal(rows.column("shard"), shard), is_in)))
    return rows
