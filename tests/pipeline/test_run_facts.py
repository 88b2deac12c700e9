"""Facts in the tables of an output: the rows of an export, run after run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

import pyarrow as pa

from benchmarks.mixedlog import write_life
from quorate.spark.runs import facts, factwork
from quorate.spark.runs.facts import is_due
from quorate.spark.runs.factwork import BRIDGES
from quorate.spark.runs.losses import PART
from quorate.spark.runs.run import advance, open_output
from quorate.spark.source.inputs import open_input
from raftlog.storage.archive import places_of
from raftlog.storage.segments import log_name
from tests.pipeline.damage import spoiled
from tests.pipeline.no_spark import no_session
from tests.support.recorded_incident import INCIDENT
from tests.support.table_rows import OF_FACTS, exported, held, in_order

LIFE_ROWS_MIN = 5_000
UNREACHABLE_MAX = 300
"""Objects in cycles, of whatever libraries make per file; a cycle for each record would be thousands."""


def assert_same(output: Path, log: Path | str) -> None:
    """Compare the tables with the export, which has no findings of the log itself."""
    wanted = exported(log, *OF_FACTS)
    for table in OF_FACTS:
        rows = [row for part in ("rows", "open", "leaders") for row in held(output, table, part=part)[table]]
        assert in_order(rows) == wanted[table], table


def test_another_release_starts_over_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = open_input(str(INCIDENT)), tmp_path / "tables"
    ends = {shard: there.decided_index for shard, there in log.shards.items()}
    with open_output(str(path), log) as output:
        advance(no_session, output, log, ranges={shard: (1, end // 2) for shard, end in ends.items()})
        advance(no_session, output, log)
        assert {shard: one.facts_to for shard, one in output.progress.shards.items()} == ends
        assert_same(path, INCIDENT)
        assert not is_due(output, log)
        with monkeypatch.context() as noted:
            noted.setattr(facts, "notes_of", lambda _: {(0, "billing"): ("{}",)})
            assert is_due(output, log)
        monkeypatch.setattr(facts, "STATE_VERSION", "0.9")
        assert is_due(output, log)
        done = advance(no_session, output, log)
        assert not done.is_empty
        assert "records" not in done.rows
        assert not is_due(output, log)
        assert advance(no_session, output, log).is_empty
    assert_same(path, INCIDENT)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("life") / "node")
    write_life(path, 3_000, shards=1, days=1, seed=3, segment_bytes=60_000, snapshot_records=1_000)
    return path


def test_a_snapshot_stands_in_for_what_is_damaged(life: str, tmp_path: Path) -> None:
    """The file is whole again later: its entries are taken in, and facts are those of the whole log."""
    log, path = open_input(life), tmp_path / "tables"
    segment = log.shards[0].segments[1]
    file = next(filter(os.path.exists, places_of(segment.home, log_name(segment.first_index))))
    whole = Path(file).read_bytes()
    spoiled(Path(life), segment.first_index)
    with open_output(str(path), log) as output:
        done = advance(no_session, output, open_input(life), mode="permissive")
        assert done.lost
        assert output.files(BRIDGES)
        assert_same(path, life)
        again = advance(no_session, output, open_input(life), mode="permissive")
        assert again.is_empty
        assert again.lost == done.lost
        Path(file).write_bytes(whole)
        mended = advance(no_session, output, open_input(life))
        assert not mended.is_empty
        assert mended.lost == ()
        assert not output.files("findings", PART)
    assert held(path) == exported(life)


def test_a_task_makes_no_garbage_that_only_a_collection_would_free(
    life: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collections are off during a task, so cycles made for each record would fill an executor's memory."""
    unreachable: list[int] = []

    class Counting:
        """The part of `gc` that the module uses; counts when collections are switched off and on."""

        isenabled = staticmethod(gc.isenabled)

        @staticmethod
        def disable() -> None:
            gc.collect()
            gc.disable()

        @staticmethod
        def enable() -> None:
            unreachable.append(gc.collect())
            gc.enable()

    monkeypatch.setattr(factwork, "gc", Counting)
    log = open_input(life)
    with open_output(str(tmp_path / "tables"), log) as output:
        assert sum(advance(no_session, output, log).rows.values()) > LIFE_ROWS_MIN
    assert gc.isenabled()
    assert unreachable
    assert sum(unreachable) < UNREACHABLE_MAX


def test_collections_are_on_again_after_a_task_that_fails(life: str, tmp_path: Path) -> None:
    def fail() -> Iterator[pa.RecordBatch]:
        assert not gc.isenabled()
        raise KeyError("a bug")
        yield

    log = open_input(life)
    with pytest.MonkeyPatch.context() as patch, open_output(str(tmp_path / "tables"), log) as output:
        patch.setattr(factwork, "derive_batches", lambda shared, batches: fail())
        with pytest.raises(KeyError):
            advance(no_session, output, log)
    assert gc.isenabled()


def test_what_a_batch_rewrites_does_not_grow_with_what_is_there(tmp_path: Path) -> None:
    """Open rows and states of groups without news stay in their files, except for small neighbours."""
    path, home = tmp_path / "tables", str(tmp_path / "node")
    write_life(home, 20_000, shards=1, days=1, seed=5)
    log = open_input(home)
    end = log.shards[0].decided_index
    with open_output(str(path), log) as output:
        advance(no_session, output, log, ranges={-1: (1, 10), 0: (1, end - 300)})
        done = advance(no_session, output, log)
    new = sum(done.rows.values())
    assert new > 300
    assert sum(done.rewritten.values()) <= 5 * new
    assert held(path) == exported(home)
