"""A run of several tasks leaves files that later batches do not merge, unless it was very large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.mixedlog import write_life
from quorate.spark.facts.inputs import IN_SCHEMA, in_order
from quorate.spark.runs import facts
from quorate.spark.runs.facts import spread_of
from quorate.spark.runs.run import RunResult, advance, open_output
from quorate.spark.runs.step import WorkPlaces
from quorate.spark.runs.workers import Read, Work, WorkOnGroups
from quorate.spark.source.inputs import open_input
from quorate.spark.tables import merging, names
from tests.pipeline.no_spark import no_session
from tests.support.table_rows import exported, held

ENTRIES = 2_000
BATCH = 20


class SeveralTasks:
    """Stands for Spark: tasks for ranges of groups, one after another."""

    def each(self, work: Work, tasks: Sequence[bytes]) -> Iterator[bytes]:
        for task in tasks:
            yield from work(task)

    def by_group(
        self, read: Read, tasks: Sequence[bytes], work: WorkOnGroups, spread: int
    ) -> Iterator[bytes]:
        batches: Iterable[pa.RecordBatch] = (batch for task in tasks for batch in read(task))
        rows = in_order(pa.Table.from_batches(batches, IN_SCHEMA))
        groups = sorted(rows.column("group_id").unique().to_pylist())
        for place in range(spread):
            mine = pa.array(groups[place * len(groups) // spread : (place + 1) * len(groups) // spread])
            yield from work(rows.filter(pc.is_in(rows.column("group_id"), mine)).to_batches())


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = str(tmp_path_factory.mktemp("life") / "node")
    write_life(home, ENTRIES, shards=1, days=1, seed=5)
    return home


def large_run(output: Path, life: str, batches: int) -> RunResult:
    """Take in all but the entries of some batches, in as many tasks as a year of a small cluster has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(facts, "LITTLE_RECORDS", -1)
        patched.setattr(WorkPlaces, "choose", lambda *_, **__: SeveralTasks())
        patched.setattr(facts, "RECORDS_OF_SMALL_TASK", 1)
        log = open_input(life)
        end = log.shards[0].decided_index - batches * BATCH
        with open_output(str(output), log) as opened:
            return advance(no_session, opened, log, ranges={-1: (1, end), 0: (1, end)})


def files_of(output: Path, life: str) -> dict[tuple[str, str], int]:
    """Return the number of files by table and part; all files there are must be theirs."""
    found: dict[tuple[str, str], int] = {}
    paths = set()
    with open_output(str(output), open_input(life)) as opened:
        for table in (*names.all_tables(), names.PROGRESS):
            for file in opened.files(table) if table != names.PROGRESS else opened.log(table).files():
                found[table, file.part] = found.get((table, file.part), 0) + 1
                paths.add(output / names.folder_of(table) / file.path)
    assert set(output.rglob("*.parquet")) == paths
    return found


@pytest.mark.parametrize(
    ("records", "tasks"),
    [(0, 1), (1, 1), (50_000, 1), (50_001, 2), (350_001, 8), (2_000_000, 8), (2_000_001, 9), (10**9, 200)],
)
def test_small_runs_use_all_cores_and_large_ones_have_few_tasks(records: int, tasks: int) -> None:
    assert spread_of(records) == tasks


def test_the_first_batch_after_a_run_of_several_tasks_merges_nothing(
    life: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "tables"
    done = large_run(output, life, 2)
    assert max(files_of(output, life).values()) == facts.SMALL_TASKS_MAX < merging.MERGED_AT
    assert sum(done.rewritten.values()) == 0
    merges: list[Any] = []
    monkeypatch.setattr(merging, "merged", lambda *args: merges.append(args))
    log = open_input(life)
    with open_output(str(output), log) as opened:
        end = log.shards[0].decided_index - BATCH
        advance(no_session, opened, log, ranges={-1: (1, end), 0: (1, end)})
        advance(no_session, opened, log)
    assert merges == []
    assert held(output) == exported(life)


def test_rows_of_merged_files_count_as_rewritten(life: str, tmp_path: Path) -> None:
    output = tmp_path / "tables"
    large_run(output, life, merging.MERGED_AT)
    log = open_input(life)
    last = log.shards[0].decided_index
    counted = []
    with open_output(str(output), log) as opened:
        for at in reversed(range(merging.MERGED_AT)):
            there = sum(file.rows for file in opened.files("records"))
            done = advance(no_session, opened, log, ranges={-1: (1, last), 0: (1, last - at * BATCH)})
            after = opened.files("records")
            assert done.rows["records"] == sum(file.rows for file in after) - there
            counted.append(done.rewritten["records"])
    assert [count > 0 for count in counted] == [False] * (merging.MERGED_AT - 1) + [True]
