"""Replica divergence: the findings of `compare` in damaged directories, and none for undecided entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

from history.checking.compare import compare
from quorate.spark.analyses import ANALYSES, replicas
from quorate.spark.analyses.replicas import BEHIND, DIFFERS, MISSING, replica_divergence
from quorate.spark.schema import ENTRY_COLUMNS, spark_type
from quorate.spark.source.options import parse_options
from quorate.spark.source.plan import plan
from quorate.spark.source.reading import read_task
from raftlog.offline.reader import ShardReader
from raftlog.storage.frames import HEADER_BYTES, frames_in
from raftlog.storage.segments import decode_header
from records import Cause, TermWhy, Trigger
from tests.support.memory_log import commit
from tests.support.three_logs import ThreeLogs

from .rows import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
NAMES = [column.name for column in ENTRY_COLUMNS]


def ten(folder: Path) -> ThreeLogs:
    """Three nodes that hold the same ten entries."""
    logs = ThreeLogs(folder)
    logs.opens(1, term=1, why=TermWhy.START)
    logs.fill(9)
    return logs


def equal(folder: Path) -> ThreeLogs:
    return ten(folder)


def behind(folder: Path) -> ThreeLogs:
    logs = ten(folder)
    logs.fill(3, 1, 2)
    return logs


def one_undecided_tail(folder: Path) -> ThreeLogs:
    logs = ten(folder)
    logs.fill(3, 1, commit_index=10)
    return logs


def fallen_leader(folder: Path) -> ThreeLogs:
    """Node 1 failed with entries that reached no other node; the others reused the same indexes."""
    logs = one_undecided_tail(folder)
    logs.last[1] = 10
    logs.opens(2, 2, 3, term=2, previous=1)
    logs.fill(4, 2, 3, term=2)
    return logs


def figure_8(folder: Path) -> ThreeLogs:
    """An entry of an old term is on two of three nodes and may still be overwritten (Raft's figure 8)."""
    logs = ThreeLogs(folder)
    logs.entry(term=1, commit_index=0)
    logs.entry(1, 2, term=2, commit_index=0)
    logs.entry(3, term=3, commit_index=0)
    logs.entry(1, term=4, commit_index=0)
    return logs


def tampered(folder: Path) -> ThreeLogs:
    """Two entries of one node have other content with valid CRCs; those after each are equal."""
    logs = ten(folder)
    for at_2 in (12, 13):
        cause = Cause(trigger=Trigger.OFFSETS_COMMITTED, member_id="ann")
        logs.entry(1, 3, cause=cause, records=[commit(0, 11)])
        logs.entry(2, cause=cause, records=[commit(0, at_2)])
        logs.fill(2)
    return logs


def of_another_term(folder: Path) -> ThreeLogs:
    """A decided entry differs on one node only in its term."""
    logs = ten(folder)
    logs.entry(1, 3, term=1)
    logs.entry(2, term=3)
    logs.fill(3)
    return logs


def damaged(folder: Path) -> ThreeLogs:
    """A byte of node 2's sixth entry is flipped, in a segment that is not its last."""
    logs = ten(folder)
    path = logs.file(2)
    (at,) = [frame.offset for frame in ShardReader(logs.path(2), 0).frames(6, 6)]
    data = bytearray(path.read_bytes())
    data[at + HEADER_BYTES] ^= 1
    logs.cut()
    logs.fill(3)
    path.write_bytes(data)
    return logs


STORIES: list[Callable[[Path], ThreeLogs]] = [
    equal,
    behind,
    one_undecided_tail,
    fallen_leader,
    figure_8,
    tampered,
    of_another_term,
]


def entries_of(logs: ThreeLogs, name: str) -> list[Row]:
    """Return the entries as the source reads them: up to the last decided one, with rows for damage."""
    options = parse_options({"path": str(logs.folder), "rows": "entries", "mode": "permissive"})
    return [
        {**row, "cluster_id": name}
        for task in plan(options)
        for batch in read_task(task)
        for row in batch.to_pylist()
        if row["shard"] == 0
    ]


def all_entries_of(logs: ThreeLogs, name: str) -> list[Row]:
    """Return every whole frame of the newest segments, even undecided ones."""
    rows = []
    for node in logs.voters:
        data = logs.file(node).read_bytes()
        for frame in frames_in(data[decode_header(data, "").frames_offset :]):
            row = {"cluster_id": name, "node_id": node, "shard": 0, "raft_index": frame.index}
            row |= {"term": frame.term, "timestamp": moment(frame.timestamp_ms), "size": frame.size}
            row |= {"commit_index": frame.commit_index, "num_records": frame.record_count}
            rows.append({**row, "crc": int.from_bytes(frame.encode()[4:8], "little")})
    return rows


def without(rows: list[Row], node: int, *indexes: int) -> list[Row]:
    return [row for row in rows if row["node_id"] != node or row["raft_index"] not in indexes]


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The findings of all stories at once, each as a cluster of its own, with blocks of four entries."""
    rows: list[Row] = []
    for story in STORIES:
        logs = story(tmp_path_factory.mktemp(story.__name__))
        rows += entries_of(logs, story.__name__)
        rows += all_entries_of(logs, f"{story.__name__}, all")
    rows += entries_of(damaged(tmp_path_factory.mktemp("damaged")), "damaged")
    whole = entries_of(ten(tmp_path_factory.mktemp("whole")), "whole")
    harmed = {
        "in_a_block": without(whole, 2, 5),
        "a_block": without(whole, 2, 4, 5, 6, 7),
        "over_blocks": without(whole, 2, 3, 4, 5, 6, 7, 8),
        "truncated": without(whole, 3, 6, 7, 8, 9, 10),
        "compacted": without(whole, 3, 1, 2, 3, 4, 5),
    }
    for name, kept in harmed.items():
        rows += [{**row, "cluster_id": name} for row in kept]
    data = [tuple(row[name] for name in NAMES) for row in rows]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(replicas, "BLOCK", 4)
        frame = replica_divergence(spark.createDataFrame(data, spark_type(ENTRY_COLUMNS)).repartition(3))
        columns = ANALYSES["replica_divergence"].columns
        assert [(one.name, one.dataType) for one in frame.schema] == [
            (one.name, one.dataType) for one in spark_type(columns)
        ]
        told = [row.asDict() for row in frame.collect()]
    by_story: dict[str, list[Row]] = {row["cluster_id"]: [] for row in rows}
    for row in sorted(told, key=lambda row: (row["from_index"], row["node_ids"])):
        by_story[row["cluster_id"]].append(row)
    return by_story


@pytest.mark.parametrize("which", ["", ", all"], ids=["decided", "all"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_it_is_what_compare_finds(
    found: dict[str, list[Row]], story: Callable[[Path], ThreeLogs], which: str, tmp_path: Path
) -> None:
    rows = found[story.__name__ + which]
    comparison = compare(story(tmp_path).paths)
    (shard,) = [one for one in comparison.shards if one.shard == 0]
    differing = [row for row in rows if row["kind"] == DIFFERS]
    if shard.difference is None:
        assert not differing
        lacking = {row["node_ids"][0]: row["to_index"] - row["from_index"] + 1 for row in rows}
        assert lacking == {number: node.behind for number, node in enumerate(shard.nodes, 1) if node.behind}
        assert {row["kind"] for row in rows} <= {BEHIND}
    else:
        first = [row for row in differing if row["from_index"] == shard.difference.index]
        assert first == [row for row in differing if row["from_index"] <= shard.difference.index]
        assert sorted((row["term"], row["node_ids"]) for row in first) == sorted(
            (variant.term, [int(node.removeprefix("node ")) for node in variant.nodes])
            for variant in shard.difference.variants
        )


def test_every_tampered_entry_is_told_not_only_the_first(found: dict[str, list[Row]]) -> None:
    assert [(row["from_index"], row["node_ids"]) for row in found["tampered"]] == [
        (11, [1, 3]),
        (11, [2]),
        (14, [1, 3]),
        (14, [2]),
    ]


def test_a_damaged_entry_is_missing(found: dict[str, list[Row]], tmp_path: Path) -> None:
    (shard,) = [one for one in compare(damaged(tmp_path).paths).shards if one.shard == 0]
    assert [problem.index for problem in shard.problems] == [6]
    (row,) = found["damaged"]
    assert (row["kind"], row["node_ids"], row["from_index"], row["to_index"]) == (MISSING, [2], 6, 6)


def test_missing_entries_are_told_as_ranges(found: dict[str, list[Row]]) -> None:
    def ranges(name: str) -> list[tuple[str, list[int], int, int]]:
        return [(row["kind"], row["node_ids"], row["from_index"], row["to_index"]) for row in found[name]]

    assert ranges("in_a_block") == [(MISSING, [2], 5, 5)]
    assert ranges("a_block") == [(MISSING, [2], 4, 7)]
    assert ranges("over_blocks") == [(MISSING, [2], 3, 8)]
    assert ranges("truncated") == [(BEHIND, [3], 6, 10)]
    assert ranges("compacted") == []
