"""A million records of a cluster's days: every row of every table is that of plain history.

Rows are compared by their number and by the sum of their hashes, which depends on every value and on no
order, so that neither side keeps them. Table `records` is compared only for some groups, chosen by seed:
plain history renders keys and values for people, which is slow.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.mixedlog import write_life
from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.moments import LogWindow
from history.reading.opening import open_node
from quorate.spark.analyses import ANALYSES
from quorate.spark.runs.run import run
from quorate.spark.schema import TABLES
from quorate.spark.tables import Store, read_table, table_files
from quorate.spark.tables.files import iter_batches
from tests.support.table_rows import NOT_IN_RECORDS, in_ms, in_table

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 1_000_000
SEED = 11
GROUPS = 5
"""Number of the two hundred groups that are compared record by record."""
HASHES = 1 << 64


class Rows:
    """The number of rows of each table, and the sum of their hashes."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        count = total = 0
        for row in rows:
            count += 1
            total += hash(row)
        self.counts[table] += count
        self.sums[table] = (self.sums[table] + total) % HASHES

    def told(self) -> dict[str, tuple[int, int]]:
        return {table: (self.counts[table], self.sums[table]) for table in self.counts}


def columns_of(table: str) -> list[str]:
    """Return the columns that both the export and the pipeline have."""
    names = [column.name for column in SCHEMAS[table].columns]
    return [name for name in names if table != "records" or name not in NOT_IN_RECORDS]


def in_history(path: Path, tables: Collection[str], groups: frozenset[str] | None = None) -> Rows:
    """Return the rows from one walk over each shard."""
    log, found = open_node(str(path)), Rows()
    kept = {
        table: [place for place, one in enumerate(SCHEMAS[table].columns) if one.name in columns_of(table)]
        for table in tables
    }

    def take(table: str, row: object) -> None:
        values = SCHEMAS[table].values(row)
        found.add(table, [tuple(_hashable(values[place]) for place in kept[table])])

    catalog = log.catalog()
    for shard in log.shards:
        ShardRows(shard, catalog, tables, groups, LogWindow(), take).run(log.reader(shard))
    return found


def in_tables(output: Path, tables: Collection[str], groups: Collection[str] | None = None) -> Rows:
    """Return the rows of the files that count."""
    found, store = Rows(), Store.at(output)
    for table in tables:
        named = in_table(table)
        wanted = [named[name] for name in columns_of(table)]
        for file in table_files(output, table):
            for batch in iter_batches(store, table, file.path, columns=wanted):
                rows = pa.Table.from_batches([batch])
                if groups is not None:
                    rows = rows.filter(pc.is_in(rows.column("group_id"), pa.array(sorted(groups))))
                columns = [in_ms(rows.column(name)).to_pylist() for name in wanted]
                found.add(table, (tuple(map(_hashable, row)) for row in zip(*columns, strict=True)))
    return found


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def test_the_tables_of_a_million_records_are_those_of_history(spark: SparkSession, tmp_path: Path) -> None:
    log, output = tmp_path / "node", tmp_path / "tables"
    life = write_life(str(log), RECORDS, seed=SEED)
    done = run(spark, str(log), str(output))
    assert RECORDS <= life.records <= RECORDS * 1.01
    assert done.rows["records"] == life.records + 1  # and the topic's record

    tables = [table for table in TABLES if table != "records"]
    found = in_tables(output, tables)
    assert found.told() == in_history(log, tables).told()
    assert set(found.counts) == set(tables)
    everybody = sorted(group for service in life.plan.services for group in service.groups)
    some = frozenset(random.Random(SEED).sample(everybody, GROUPS))
    recorded = in_tables(output, ["records"], some)
    assert recorded.told() == in_history(log, ["records"], some).told()
    assert recorded.counts["records"] > RECORDS // len(everybody) * GROUPS // 2

    audit = ANALYSES["double_ownership"]
    assert audit.run(*(read_table(spark, output, table) for table in audit.takes)).isEmpty()
