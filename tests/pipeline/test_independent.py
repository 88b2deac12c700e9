"""Tables are what a short decoder of its own makes of `quorate log dump --json`."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.mixedlog import write_life
from history.reading.node import NodeLog
from history.telling.dump import dump, dump_json
from tests.support import independent
from tests.support.independent import KEYS, Recomputed, Row, differences, dumped, recomputed
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import exported

from .grown import Story
from .no_spark import no_session
from .randomlogs import random_log
from .world_logs import node_of, world_log

WORLDS = range(6)


def of_memory(log: NodeLog) -> Recomputed:
    return recomputed(dump_json(dump(log)))


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three days of a cluster with deployments, crash loops and failovers."""
    path = str(tmp_path_factory.mktemp("life") / "node")
    write_life(path, 12_000, days=3, seed=2)
    return path


@pytest.fixture(scope="module")
def incident() -> Recomputed:
    return recomputed(dumped(str(INCIDENT)))


def test_the_export_of_a_recorded_cluster_is_what_its_dump_says(incident: Recomputed) -> None:
    assert all(incident.tables.values())
    assert differences(incident, exported(INCIDENT, *KEYS)) == []


@pytest.mark.parametrize("seed", WORLDS)
def test_the_export_of_a_random_schedule_is_what_its_dump_says(seed: int) -> None:
    log = node_of(world_log(seed))
    said = of_memory(log)
    assert {row["kind"] for row in said.tables["ownership"]} == {"owned", "revoking", "unowned"}
    assert differences(said, exported(log, *KEYS)) == []


def test_the_export_of_days_with_failovers_is_what_the_dump_says(life: str) -> None:
    said = recomputed(dumped(life))
    assert sum(row["is_takeover"] for row in said.tables["failovers"]) > 1
    assert differences(said, exported(life, *KEYS)) == []


def test_the_export_of_segments_that_were_archived_is_what_the_dump_says(tmp_path: Path) -> None:
    story = Story(str(tmp_path / "node"))
    for _ in range(3):
        story.chapter()
        story.restart()
    story.node.stop()
    assert any((tmp_path / "node").glob("shard-*/archive/*.log"))
    said = recomputed(dumped(str(tmp_path / "node")))
    assert differences(said, exported(str(tmp_path / "node"), *KEYS)) == []


@pytest.mark.parametrize("name", ["incident", "life"])
def test_the_tables_of_a_run_are_what_the_dump_says(
    name: str, incident: Recomputed, life: str, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake", reason="needs the extra spark")
    from quorate.spark.runs.run import run
    from quorate.spark.tables.reading import arrow_table

    output = tmp_path / "tables"
    log, said = (str(INCIDENT), incident) if name == "incident" else (life, recomputed(dumped(life)))
    run(no_session, log, str(output))
    tables = {table: arrow_table(output, table).to_pylist() for table in KEYS}
    assert differences(said, tables) == []
    assert arrow_table(output, "records").num_rows == said.num_records
    assert said.last_offsets() == newest_offsets(tables["commits"])


def newest_offsets(commits: list[Row]) -> dict[tuple[str, str, int], int | None]:
    newest: dict[tuple[str, str, int], Row] = {}
    for row in commits:
        key = row["group_id"], row["topic"], row["partition"]
        newest[key] = max(newest.get(key, row), row, key=lambda one: (one["raft_index"], one["sequence"]))
    return {key: row["offset"] for key, row in newest.items()}


def drop_one(rows: list[Row]) -> None:
    del rows[len(rows) // 2]


def double_one(rows: list[Row]) -> None:
    rows.append(dict(rows[0]))


def move_one(rows: list[Row]) -> None:
    for name in ("to_index", "raft_index"):
        if name in rows[0]:
            rows[0][name] = (rows[0][name] or 0) + 1


def invent_one(rows: list[Row]) -> None:
    rows.append({**rows[0], "shard": 99})


@pytest.mark.parametrize("table", KEYS)
@pytest.mark.parametrize("harm", [drop_one, double_one, move_one, invent_one])
def test_one_wrong_row_is_a_difference(
    table: str, harm: Callable[[list[Row]], None], incident: Recomputed
) -> None:
    tables = copy.deepcopy(exported(INCIDENT, table))
    harm(tables[table])
    assert differences(incident, tables)


def test_a_partition_with_two_owners_is_refused() -> None:
    with pytest.raises(ValueError, match="is held by"):
        of_memory(NodeLog("random", {0: random_log(0)}, 1))


def test_damage_is_refused() -> None:
    with pytest.raises(ValueError, match="the log is damaged"):
        recomputed(['{"shard":0,"damage":"changed bytes","after_index":3,"file":"1.log","offset":9}'])


def test_the_decoder_shares_no_code_with_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imported again where the product's packages cannot be."""
    rooms = ("history", "quorate", "records", "raftlog", "coordinator", "cluster", "wire")
    for name in [name for name in sys.modules if name.partition(".")[0] in rooms]:
        monkeypatch.delitem(sys.modules, name)
    for name in rooms:
        monkeypatch.setitem(sys.modules, name, None)
    importlib.reload(independent)
