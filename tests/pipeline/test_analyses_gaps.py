"""Analyses of logs with damage, read permissively: rows of damage never count, and nothing is invented.

Analyses through the coordinator's code end where plain `history` ends, and resume at a bridging snapshot.
Analyses of single records take all records that are there.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from benchmarks.mixedlog import write_life
from history.reading.opening import open_node
from history.reading.source import LogGap, Walk
from history.whatif.settings import WhatIf
from quorate.spark.analyses import ANALYSES
from quorate.spark.analyses.registry import RECORDS
from quorate.spark.analyses.whatif import whatif
from quorate.spark.errors import OptionError
from quorate.spark.source import register
from tests.pipeline.damage import flip, segments
from tests.pipeline.whatif_rows import _whatif

from .logs import check_columns, columns_of, interpreted, told
from .rows import exported_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SEED = 3
CLUSTER = f"life-{SEED}"
SLOW = "whatif"
"""The slow analysis, which is compared with plain history instead."""


@pytest.fixture(autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreted(spark):
        yield
    spark.catalog.clearCache()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several segments of one group shard, with a snapshot in the middle."""
    path = tmp_path_factory.mktemp("gaps") / "node"
    write_life(str(path), 5_000, shards=1, days=1, seed=SEED, segment_bytes=1 << 16, snapshot_records=3_000)
    return path


def damaged(written: Path, folder: Path, place: int) -> Path:
    """Return a copy in which one segment has a flipped byte in its middle."""
    log = Path(shutil.copytree(written, folder / "node"))
    file = segments(log)[place]
    flip(file, file.stat().st_size // 2)
    return log


def read(spark: SparkSession, log: Path, **options: str) -> DataFrame:
    register(spark)
    reader = spark.read.format("quorate").option("raw", "true").option("mode", "permissive")
    return reader.options(**options).load(str(log)).coalesce(2).cache()


def gaps(log: Path) -> list[LogGap]:
    return [item for item in Walk(0, open_node(str(log)).reader(0)) if isinstance(item, LogGap)]


def test_rows_of_damage_count_nowhere(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    spoiled = read(spark, damaged(written, tmp_path, 1)).withColumn("cluster_id", f.lit("spoiled"))
    sound = spoiled.where("damage IS NULL").withColumn("cluster_id", f.lit("sound"))
    both = spoiled.unionByName(sound).coalesce(2).cache()
    asked = [one for one in ANALYSES.values() if one.takes == (RECORDS,) and one.name != SLOW]
    assert len(asked) >= 5
    for one in asked:
        frame = one.run(both)
        check_columns(frame, one.name)
        rows = told(frame)
        names = [name for name in exported_names(one.columns) if name != "cluster_id"]
        found, expected = (
            [row for row in rows if row["cluster_id"] == name] for name in ("spoiled", "sound")
        )
        assert columns_of(found, names) == columns_of(expected, names), one.name
        assert expected or one.name in ("double_ownership", "transactional_offsets")
    assert both.where("damage IS NOT NULL").count() == 1


def test_whatif_ends_where_entries_are_lost(spark: SparkSession, written: Path, tmp_path: Path) -> None:
    log = damaged(written, tmp_path, len(segments(written)) - 2)
    (gap,) = gaps(log)
    assert gap.bridged_by is None
    change = WhatIf(session_timeout_ms=60_000)
    found = told(whatif(read(spark, log), change))
    assert found == columns_of(_whatif(open_node(str(log)), change, CLUSTER), list(found[0]))


def test_whatif_goes_on_with_the_snapshot_that_stands_in(
    spark: SparkSession, written: Path, tmp_path: Path
) -> None:
    log = damaged(written, tmp_path, 0)
    (gap,) = gaps(log)
    assert gap.bridged_by is not None
    records = read(spark, log).unionByName(read(spark, log, rows="snapshot", to_index=str(gap.bridged_by)))
    change = WhatIf(session_timeout_ms=60_000)
    found = told(whatif(records, change))
    expected = columns_of(_whatif(open_node(str(log)), change, CLUSTER), list(found[0]))
    assert columns_of(found, list(found[0])) == expected


def test_evidence_is_of_one_cluster(spark: SparkSession, written: Path) -> None:
    one = read(spark, written, to_index="20")
    both = reduce(DataFrame.unionByName, [one, one.withColumn("cluster_id", one.member_id)])
    with pytest.raises(OptionError, match="evidence belongs to one cluster"):
        whatif(both.fillna({"cluster_id": "other"}), evidence={0: [{"at_ms": 1, "group": "g"}]})
