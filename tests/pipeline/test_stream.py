"""A growing log read as a stream: the rows of the whole log, none twice and none missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from quorate.spark.errors import InputError, OptionError
from quorate.spark.schema import DAMAGE
from quorate.spark.source import register
from quorate.spark.source.options import parse_options
from quorate.spark.source.stream import LogStreamReader
from tests.pipeline.source_rows import rows_of
from tests.support.long_story import long_story

from .growing import SHARD, Growing, archived
from .rows import as_exported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]


class Stream:
    """Drives a reader as Spark does, in one process: batches between offsets, and the checkpoint."""

    def __init__(self, path: object, **options: str) -> None:
        self.path = str(path)
        self.options = options
        self.offset: dict[str, Any] | None = None
        self.rows: list[Row] = []
        self.start()

    def start(self) -> None:
        """Start or restart from the offset in the checkpoint."""
        self.reader = LogStreamReader(parse_options({"path": self.path, **self.options}))
        self.offset = self.offset or stored(self.reader.initialOffset())

    def batch(self) -> int:
        """Read one micro-batch and return its number of rows."""
        assert self.offset is not None
        end = stored(self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit()))
        rows = self.read(self.offset, end)
        self.rows += rows
        self.offset = end
        return len(rows)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
        planned = self.reader.partitions(start, end)
        executor = LogStreamReader(parse_options({"path": self.path, **self.options}))
        return [row for one in planned for batch in executor.read(one) for row in batch.to_pylist()]


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    """Return the offset as it is read back from the checkpoint."""
    return dict(json.loads(json.dumps(offset)))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["shard"], row["raft_index"], row["sequence"] or 0))


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_is_read_once_while_files_are_sealed_and_archived(tmp_path: Path, seed: int) -> None:
    """The log is appended to, truncated, sealed and archived, changes leaders; the stream restarts."""
    cluster = Growing(tmp_path / "cluster", seed=seed)
    whole = Stream(cluster.folder, raw="true")
    small = Stream(cluster.folder, raw="true", max_entries_per_trigger="7")
    for _ in range(80):
        cluster.step()
        if cluster.rng.random() < 0.3:
            whole.batch()
        if cluster.rng.random() < 0.5:
            small.batch()
        if cluster.rng.random() < 0.1:
            whole.start()
            small.start()
    cluster.settle()
    while whole.batch() or small.batch():
        pass
    expected = rows_of(cluster.folder, raw="true")
    assert [row["raft_index"] for row in expected] == list(range(1, len(cluster.leader.entries) + 1))
    assert in_order(whole.rows) == expected
    assert in_order(small.rows) == expected


def test_a_batch_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    """Everything has moved to the archive since, and more has come; another node has the same."""
    cluster = Growing(tmp_path / "cluster")
    cluster.align()
    cluster.settle()
    stream = Stream(cluster.folder)
    begin = dict(stream.offset or {})
    assert stream.batch() == 65
    end, first = dict(stream.offset or {}), list(stream.rows)
    cluster.align()
    cluster.settle()
    for disk in cluster.disks:
        disk.seal()
        disk.archive()
    assert archived(cluster.disks[0]) == [1, 65]
    stream.start()
    assert stream.read(begin, end) == first
    for disk in cluster.disks:
        single = Stream(disk.path)
        assert single.read(begin, end) == first


def test_a_segment_that_moves_between_plan_and_reading_is_found(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.align()
    cluster.write(5)
    stream = Stream(cluster.disks[0].path)
    start = stored(stream.reader.initialOffset())
    end = stored(stream.reader.latestOffset(start, ReadAllAvailable()))
    planned = stream.reader.partitions(start, end)
    cluster.disks[0].commit_index = 69
    cluster.disks[0].seal()
    cluster.disks[0].archive()
    rows = [row for one in planned for batch in stream.reader.read(one) for row in batch.to_pylist()]
    assert in_order(rows) == rows_of(cluster.disks[0].path)


def test_what_is_cut_off_was_never_shown(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster")
    cluster.write(10)
    deposed = cluster.leader
    stream, single = Stream(cluster.folder), Stream(deposed.path)
    assert (stream.batch(), single.batch()) == (0, 0)
    cluster.leader, cluster.term = cluster.disks[1], 2
    cluster.write(4)
    cluster.settle()
    cluster.settle()
    while stream.batch() or single.batch():
        pass
    assert {row["term"] for row in stream.rows} == {2}
    assert in_order(stream.rows) == rows_of(cluster.folder)
    assert in_order(single.rows) == rows_of(deposed.path)


def removed_before_read(tmp_path: Path, **options: str) -> Stream:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    disk = cluster.disks[0]
    cluster.write(10)
    stream = Stream(disk.path, **options)
    stream.batch()
    for _ in range(3):
        cluster.align()
        disk.commit_index = len(disk.entries)
        disk.seal()
    disk.archive()
    disk.forget(0)
    cluster.write(1)
    return stream


def test_entries_that_were_removed_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    stream = removed_before_read(tmp_path)
    with pytest.raises(InputError, match="entries 11 to 192 are no longer kept and were not read") as error:
        stream.batch()
    assert "mode=permissive" in str(error.value)
    assert "\n" not in str(error.value)


def test_in_permissive_mode_they_are_a_row(tmp_path: Path) -> None:
    stream = removed_before_read(tmp_path, mode="permissive")
    before = len(stream.rows)
    stream.batch()
    row, *others = stream.rows[before:]
    assert (row["shard"], row["raft_index"], row["timestamp"]) == (SHARD, 11, None)
    assert row[DAMAGE.name] == "entries 11 to 192 are no longer kept and were not read before"
    assert [(one["raft_index"], one[DAMAGE.name]) for one in others] == [(193, None)]
    assert stream.batch() == 0


def test_a_log_that_was_put_back_from_an_older_copy_is_refused(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(5)
    disk = cluster.disks[0]
    shutil.copytree(disk.path, tmp_path / "copy")
    cluster.write(5)
    stream = Stream(disk.path)
    stream.batch()
    cluster.replace(disk, str(tmp_path / "copy"))
    stream.start()
    with pytest.raises(InputError, match="ends with entry 5, but entry 10 was already read"):
        stream.batch()


def test_a_node_that_is_behind_is_waited_for(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster")
    cluster.write(5)
    cluster.settle()
    ahead, behind = cluster.disks[0], cluster.disks[2]
    cluster.write(5)
    cluster.replicate(cluster.disks[1])
    cluster.commit()
    cluster.write(1)
    stream = Stream(ahead.path)
    stream.batch()
    assert len(stream.rows) == 11
    stream.path = behind.path
    stream.start()
    assert stream.batch() == 0
    cluster.settle()
    cluster.settle()
    while stream.batch():
        pass
    assert in_order(stream.rows) == rows_of(behind.path)


def test_a_batch_that_this_node_does_not_hold_yet_is_refused(tmp_path: Path) -> None:
    """The checkpoint was made from a node that was ahead, and its last batch must be read again."""
    cluster = Growing(tmp_path / "cluster")
    cluster.write(5)
    cluster.settle()
    stream = Stream(cluster.folder)
    start = dict(stream.offset or {})
    stream.batch()
    end = {**start, "shards": {"-1": 1, "0": 9}}
    with pytest.raises(InputError, match="ends with entry 6, but the batch that was begun ends with entry 8"):
        stream.read(start, end)


def test_a_directory_that_is_taken_away_is_told(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    path = Path(cluster.disks[0].path)
    stream = Stream(path)
    cluster.write(3)
    start = dict(stream.offset or {})
    end = stored(stream.reader.latestOffset(start, ReadAllAvailable()))
    path.rename(tmp_path / "away")
    assert stored(stream.reader.latestOffset(end, ReadAllAvailable())) == end, "no news"
    with pytest.raises(InputError, match="was removed while it was read"):
        stream.read(start, end)


def test_another_clusters_log_is_refused(tmp_path: Path) -> None:
    stream = Stream(Growing(tmp_path / "cluster").folder)
    stream.offset = {**(stream.offset or {}), "cluster_id": "other"}
    with pytest.raises(InputError, match="checkpoint belongs to cluster other, the log to test"):
        stream.batch()


def test_available_now_ends_where_the_log_ended_when_it_began(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(10)
    stream = Stream(cluster.disks[0].path, max_entries_per_trigger="4")
    stream.reader.prepareForTriggerAvailableNow()
    cluster.write(10)
    assert [stream.batch() for _ in range(5)] == [4, 4, 2, 0, 0]
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(4)


def test_spans_say_what_is_new_without_reading_it(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(10)
    stream = Stream(cluster.disks[0].path, rows="spans", max_entries_per_trigger="6")
    stream.batch()
    stream.batch()
    spans = [(row["cluster_id"], row["shard"], row["from_index"], row["to_index"]) for row in stream.rows]
    assert spans == [("test", SHARD, 1, 6), ("test", SHARD, 7, 10)]


def test_a_stream_of_some_shards_has_offsets_of_these_only(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(3)
    stream = Stream(cluster.disks[0].path, shards="0")
    assert stream.offset is not None
    assert stream.offset["shards"] == {"0": 1}
    assert stream.batch() == 3


def test_a_stream_of_a_shard_that_is_not_there_does_not_begin(tmp_path: Path) -> None:
    cluster = Growing(tmp_path / "cluster", num_nodes=1)
    cluster.write(3)
    with pytest.raises(OptionError, match="does not hold shard 7; it has -1, 0"):
        Stream(cluster.disks[0].path, shards="0,7")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ranges": '{"0": [1, 2]}'}, "ranges is not an option of a stream"),
        ({"rows": "entries"}, "a stream does not support rows=entries"),
        ({"max_entries_per_trigger": "0"}, "is not a number above 0"),
    ],
)
def test_options_that_a_stream_does_not_have(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        LogStreamReader(parse_options({"path": str(tmp_path), **options}))


@pytest.mark.spark
def test_spark_reads_a_growing_log_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """A real node decides, seals and archives in between; each query resumes from the last checkpoint."""
    register(spark)
    home, rows, checkpoint = tmp_path / "node", str(tmp_path / "rows"), str(tmp_path / "checkpoint")

    def follow(**options: str) -> list[int]:
        """Return the number of rows of each batch that had any."""
        reader = spark.readStream.format("quorate").options(**options)
        writer = reader.load(str(home)).writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(rows)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    node, _ = long_story(str(home), commits=40)
    assert len(follow()) == 1
    ann = node.member("payments", "app-2", "orders").join()
    for offset in range(300):
        ann.commit({offset % 2: offset})
    assert (home / "shard-0" / "archive").exists()
    batches = follow(max_entries_per_trigger="150")
    assert len(batches) >= 2
    node.stop()
    node.start()
    follow()
    found = [as_exported(row.asDict(recursive=True)) for row in spark.read.parquet(rows).collect()]
    assert in_order(found) == in_order([as_exported(row) for row in rows_of(home)])


@pytest.mark.spark
def test_latest_begins_behind_what_is_committed_and_later_passes_nothing_over(
    spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    home, rows, checkpoint = tmp_path / "node", str(tmp_path / "rows"), str(tmp_path / "checkpoint")

    def follow() -> None:
        reader = spark.readStream.format("quorate").option("starting", "latest").load(str(home))
        writer = reader.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(rows).awaitTermination()

    node, _ = long_story(str(home), commits=5)
    before = rows_of(home)
    follow()
    ann = node.member("payments", "app-2", "orders").join()
    follow()
    for offset in range(3):
        ann.commit({0: offset})
    node.stop()
    follow()
    found = [as_exported(row.asDict(recursive=True)) for row in spark.read.parquet(rows).collect()]
    assert in_order(found) == in_order([as_exported(row) for row in rows_of(home) if row not in before])
    assert found
