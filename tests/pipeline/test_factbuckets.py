"""A small run rewrites little: only the buckets of groups that it processed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra spark")

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.facts import group
from pipeline.facts.derive import derive
from pipeline.facts.group import RESTLESS
from pipeline.facts.in_process import of_groups
from pipeline.runs import factstage
from pipeline.runs.factinputs import PARTS, STATES
from pipeline.runs.factstage import OF_GROUPS, OPENED, tasks_for
from pipeline.runs.run import advance
from pipeline.source.inputs import open_input
from pipeline.tables import Output, OutputManifest, TableFile, buckets, local, names, table_files
from pipeline.tables.buckets import hash_of
from tests.support.disk_node import DiskNode
from tests.support.table_rows import OF_FACTS, exported, held

REPLACED = [*((table, "open") for table in OPENED), ("findings", OF_GROUPS), (STATES, "states")]


@pytest.mark.parametrize(
    ("records", "tasks"),
    [
        (1, 1),
        (50_000, 1),
        (50_001, 2),
        (100_000, 2),
        (1_000_000, 20),
        (10_000_001, 200),
        (10**9, 200),
        (0, None),
    ],
)
def test_a_task_takes_fifty_thousand_records_until_there_are_no_more_tasks(
    records: int, tasks: int | None
) -> None:
    """A task costs its start and a worker; too few leave cores idle, and a small run waits for none."""
    assert tasks_for(records, most=200) == tasks


def as_in_format_2(part: str, buckets: int, bucket: int) -> str:
    return part if buckets == 1 else f"{part}_{buckets}_{bucket}"


def restless(path: Path, states: Sequence[TableFile]) -> set[str]:
    """Return the groups that may get findings by the passage of time alone."""
    rows = (row for file in states for row in pq.ParquetFile(path / file.path).read().to_pylist())
    return {row["group_id"] for row in rows if row["sequence"] == RESTLESS}


def named_behind(path: Path, index: int) -> set[str]:
    """Return the groups of the only shard with records after ``index``."""
    found: set[str] = set()
    for file in table_files(path, "records"):
        for row in of_groups(pq.ParquetFile(path / file.path).read()).to_pylist():
            if row["raft_index"] > index:
                found.add(row["group_id"])
    return found


@pytest.mark.parametrize("is_few", [True, False], ids=["here", "spark"])
def test_buckets_of_other_groups_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_few: bool
) -> None:
    """The part is whole, or split as in format 2; then split; then only a few of its buckets change."""
    asked: list[int] = []
    tasks: list[int | None] = []
    monkeypatch.setattr(factstage, "RECORDS_PER_TASK", 4)
    monkeypatch.setattr(factstage, "derive", lambda *given: tasks.append(given[-1]) or derive(*given))
    monkeypatch.setattr(group, "DRAIN_ROWS", 1)
    home, path = str(tmp_path / "node-1"), tmp_path / "tables"
    node = DiskNode(home, num_shards=1)
    node.create_topic("orders", 2)
    members = [node.member(f"group-{number}", "app", "orders").join() for number in range(9)]

    def taken_in() -> OutputManifest:
        node.pass_ms(1_000, *members)
        log = open_input(home)
        with Output.open(path, cluster_id=log.cluster_id, num_shards=log.num_shards) as output:
            asked.append(advance(spark, output, log).rows["records"])
            return output.manifest

    if is_few:
        with monkeypatch.context() as older:
            older.setattr(buckets, "HASHED_BITS", 0)
            older.setattr(buckets, "BUCKET_ROWS", 1)
            older.setattr(names, "bucket_part", as_in_format_2)
            assert len({file.part for file in taken_in().of("group_epochs", "open")}) > 5
    else:
        assert {file.part for file in taken_in().of("group_epochs", "open")} == {"open"}
        monkeypatch.setattr(local, "FEW_ROWS", -1)
    monkeypatch.setattr(buckets, "BUCKET_ROWS", 1)
    members.append(node.member("group-9", "app", "orders").join())
    before = taken_in()
    assert len({file.part for file in before.of("group_epochs", "open")}) > 5
    touched = restless(path, before.of(STATES, "states"))
    members.append(node.member("group-3", "other", "orders").join())
    after = {file.path for file in taken_in().files}
    touched |= named_behind(path, before.progress[0].records_to)
    assert "group-3" in touched
    assert len(touched) < 5
    for file in (file for one in REPLACED for file in before.of(*one)):
        _, number, bucket = names.bucket_of(file.part)
        is_touched = any(hash_of(group_id) % number == bucket for group_id in touched)
        assert (file.path not in after) is is_touched, file
    assert len({file.part for file in before.of(PARTS)}) > 5
    assert {file.path for file in before.of(PARTS)} < after, "those are added to"
    assert tasks == ([] if is_few else [tasks_for(records, 4) for records in asked[1:]]), asked
    assert is_few or len(set(tasks)) > 1, asked
    wanted = exported(home, *OF_FACTS)
    for table in OF_FACTS:
        assert held(path, table, part=OF_GROUPS if table == "findings" else None)[table] == wanted[table]
