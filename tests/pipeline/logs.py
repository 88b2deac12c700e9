"""Logs with everything that happens to groups, and plain `history` of them to check the analyses against.

Each log is a cluster with a name of its own, so that one DataFrame holds them all and one job reads them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from benchmarks.mixedlog import write_log
from history.export.schema import SCHEMAS
from history.export.sources import ShardRows
from history.moments import LogWindow
from history.reading.node import NodeLog
from history.reading.opening import open_node
from quorate.spark.analyses import ANALYSES
from quorate.spark.schema import spark_type
from quorate.spark.source import register
from raftlog.storage.frames import Frame
from records import encode_entry
from tests.support import classic_log
from tests.support.memory_log import MemoryReader, Writer
from tests.support.mixed_story import mixed_world
from tests.support.payments_log import group_log, metadata_log
from tests.support.random_worlds import random_world
from tests.support.recorded_incident import INCIDENT
from tests.support.world import World

from .rows import as_exported

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS = ((0, False), (3, True))
"""Seeds of the protocol's schedules, and whether targets are installed one record at a time."""


def all_logs(scratch: Path) -> dict[str, NodeLog]:
    """Return by cluster: random schedules, scripted stories, a recorded incident, a generated log."""
    write_log(str(scratch / "mixed"), 3_000, groups=10, segment_bytes=1 << 16)
    return {
        **{f"world-{seed}": in_memory(_world(seed, in_parts=parts)) for seed, parts in SEEDS},
        "story": NodeLog("story", {-1: metadata_log().log, 0: group_log().log}, 1),
        "classic": NodeLog("classic", {-1: metadata_log().log, 0: classic_stories().log}, 1),
        "protocols": mixed_world().node(),
        "incident": open_node(str(INCIDENT)),
        "mixed": open_node(str(scratch / "mixed")),
    }


def classic_stories() -> Writer:
    """The story of a classic group, and then one that changes its protocol twice while it is empty."""
    return classic_log.converted(classic_log.group_log())


@cache
def _world(seed: int, *, in_parts: bool) -> World:
    return random_world(seed, in_parts=in_parts)


def read_by_the_source(spark: SparkSession, scratch: Path) -> DataFrame:
    """Read the file-based logs of `all_logs` with the source, as clusters with `READ` in their names."""
    register(spark)
    reader = spark.read.format("quorate").option("raw", "true")
    frames = {"incident": reader.load(str(INCIDENT)), "mixed": reader.load(str(scratch / "mixed"))}
    named = [frame.withColumn("cluster_id", f.lit(name + READ)) for name, frame in frames.items()]
    return named[0].unionByName(named[1])


READ = "-read"


def in_memory(world: World) -> NodeLog:
    """Return a world's shard as a log without a metadata shard; topics have names only in group records."""
    frames = [
        Frame(
            index=one.index,
            term=1,
            commit_index=one.index - 1,
            timestamp_ms=one.timestamp_ms,
            record_count=len(one.records),
            body=encode_entry(one.cause, one.records),
            file="world",
            offset=0,
            decided=True,
        )
        for one in world.log
    ]
    return NodeLog("world", {0: MemoryReader(frames)}, 1)


def table(log: NodeLog, name: str, cluster_id: str) -> list[dict[str, Any]]:
    """Return a table of the export as dictionaries, for every group shard."""
    found: list[dict[str, Any]] = []
    names = [column.name for column in SCHEMAS[name].columns]

    def take(_name: str, row: object) -> None:
        values = SCHEMAS[name].values(row)
        found.append({"cluster_id": cluster_id, **dict(zip(names, values, strict=True))})

    for shard in log.shards:
        if shard >= 0:
            ShardRows(shard, log.catalog(), [name], None, LogWindow(), take).run(log.reader(shard))
    return found


def told(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a small result, with moments as an export has them."""
    return [as_exported(row.asDict(recursive=True)) for row in frame.collect()]


def check_columns(frame: DataFrame, name: str) -> None:
    """Check that the frame has the columns that the analysis declares."""
    announced = spark_type(ANALYSES[name].columns)
    assert [(one.name, one.dataType) for one in frame.schema] == [
        (one.name, one.dataType) for one in announced
    ]


@contextmanager
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Turn off code generation: small jobs then take a third of the time."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def columns_of(rows: Iterable[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    """Return these columns of the rows, sorted by content so that both sides have the same order."""
    return sorted(({name: row[name] for name in names} for row in rows), key=repr)
