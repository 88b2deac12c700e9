"""A run over little writes little anew: only the buckets of groups that were looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

pytest.importorskip("pyspark", reason="needs quorate[spark]")

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pipeline.facts.derive import derive
from pipeline.facts.group import RESTLESS
from pipeline.facts.here import of_groups
from pipeline.runs import derived, factstage
from pipeline.runs.factstage import OF_GROUPS, OPENED, STATES, buckets_for, tasks_for
from pipeline.runs.run import advance
from pipeline.source.inputs import open_input
from pipeline.tables import Manifest, Output, TableFile, few, names, table_files
from tests.history.reallog import Node
from tests.pipeline.truth import OF_FACTS, exported, held

PARTS = [*((table, "open") for table in OPENED), ("findings", OF_GROUPS), (STATES, "states")]


def file(part: str, size: int) -> TableFile:
    return TableFile("waits", part, f"waits/{part}", 0, None, 1, size)


def test_a_part_is_split_by_its_size_and_seldom_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factstage, "BUCKET_BYTES", 1_000)
    assert buckets_for([], 1_000, 1) == 1
    assert buckets_for([], 1_001, 1) == 2
    assert buckets_for([], 8_000, 2) == 4
    assert buckets_for([], 10**9, 1) == derived.BUCKETS_MAX
    assert buckets_for([file("open", 3_900)], 2_000, 1) == 4
    assert buckets_for([file("open", 2_000)], 1_900, 1) == 1, "twice as much is no reason"
    assert buckets_for([file("open_4_2", 100)], 100, 1) == 4
    assert buckets_for([file("open_4_2", 2_000), file("open_4_1", 7_000)], 100, 1) == 16


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
    """Each costs its start and a worker; too few leave cores idle, and a run over little waits for none."""
    assert tasks_for(records, most=200) == tasks


def test_a_bucket_is_a_part_of_its_part() -> None:
    one = file(names.bucket_part("open", 16, 7), 1)
    assert (one.part, names.bucket_of(one.part)) == ("open_16_7", ("open", 16, 7))
    assert [one.is_of(part) for part in ("open", "open_16_7", "rows")] == [True, True, False]
    assert names.bucket_part("open", 1, 0) == "open"
    assert names.bucket_of("group_states") == ("group_states", 1, 0)
    assert names.bucket_folder("date=2026-05-01/shard=0/bucket=7") == ("date=2026-05-01/shard=0", 7)
    assert names.bucket_folder("shard=0") == ("shard=0", 0)


def restless(path: Path, states: Sequence[TableFile]) -> set[str]:
    """Groups of whose states time alone may make a finding."""
    rows = (row for file in states for row in pq.ParquetFile(path / file.path).read().to_pylist())
    return {row["group_id"] for row in rows if row["sequence"] == RESTLESS}


def named_behind(path: Path, index: int) -> set[str]:
    """Groups of the one shard that have new records."""
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
    """A part that is whole, as an older release leaves it; split; and touched in a few of its buckets."""
    asked: list[int] = []
    tasks: list[int | None] = []
    if not is_few:
        monkeypatch.setattr(few, "FEW_ROWS", -1)
        monkeypatch.setattr(factstage, "RECORDS_PER_TASK", 30)
        monkeypatch.setattr(factstage, "derive", lambda *given: tasks.append(given[-1]) or derive(*given))
    home, path = str(tmp_path / "node-1"), tmp_path / "tables"
    node = Node(home, num_shards=1)
    node.create_topic("orders", 2)
    members = [node.member(f"group-{number}", "app", "orders").join() for number in range(9)]

    def taken_in() -> Manifest:
        node.pass_ms(1_000, *members)
        log = open_input(home)
        with Output.open(path, cluster_id=log.cluster_id, num_shards=log.num_shards) as output:
            asked.append(advance(spark, output, log).rows["records"])
            return output.manifest

    assert {file.part for file in taken_in().of("group_epochs", "open")} == {"open"}
    monkeypatch.setattr(factstage, "BUCKET_BYTES", 1)
    members.append(node.member("group-9", "app", "orders").join())
    before = taken_in()
    assert len({file.part for file in before.of("group_epochs", "open")}) > 5
    touched = restless(path, before.of(STATES, "states"))
    members.append(node.member("group-3", "other", "orders").join())
    after = {file.path for file in taken_in().files}
    touched |= named_behind(path, before.progress[0].records_to)
    assert "group-3" in touched
    assert len(touched) < 5
    for file in (file for one in PARTS for file in before.of(*one)):
        _, buckets, bucket = names.bucket_of(file.part)
        is_touched = any(crc32(group_id.encode()) % buckets == bucket for group_id in touched)
        assert (file.path not in after) is is_touched, file
    assert tasks == ([] if is_few else [tasks_for(records, 4) for records in asked])
    assert is_few or len(set(tasks)) > 1
    wanted = exported(home, *OF_FACTS)
    for table in OF_FACTS:
        assert held(path, table, part=OF_GROUPS if table == "findings" else None)[table] == wanted[table]
