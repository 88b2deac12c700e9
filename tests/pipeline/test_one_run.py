"""Tables that were made in many runs, some of them killed, are those of one run: EXCEPT ALL, both ways."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from benchmarks.mixedlog import write_life
from quorate.spark.runs.run import advance, open_output, run
from quorate.spark.schema import TABLES
from quorate.spark.source.inputs import open_input
from quorate.spark.tables import delta, transaction
from quorate.spark.tables.reading import read_progress
from tests.pipeline.grown import STEPS, Story
from tests.pipeline.lake import Calls
from tests.pipeline.no_spark import no_session
from tests.support.object_stores import copy, upload
from tests.support.table_sets import RowSets, except_all, row_sets

RECORDS = 3_000
CUTS = 5
"""Runs into which a log is cut; each takes a random part of each shard."""
AWS = "AWS_"


@dataclass(frozen=True)
class Place:
    """A folder, or a bucket of an S3 store, for logs and outputs."""

    home: Path
    bucket: str | None

    def log(self, path: str) -> str:
        """The log as a run reads it: a copy in the bucket, if there is one."""
        if self.bucket is None:
            return path
        url = f"{self.bucket}/{self.home.name}/logs"
        upload(path, url)
        return url

    def output(self, name: str) -> str:
        return f"{self.bucket}/{self.home.name}/{name}" if self.bucket else str(self.home / name)

    def copy(self, output: str, to: str) -> None:
        if self.bucket is None:
            shutil.copytree(output, to)
        else:
            copy(output, to)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.getfixturevalue("bucket") if request.param == "store" else None)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RowSets]:
    """A log of a day with deployments and failovers, and the rows that one run makes of it."""
    home = tmp_path_factory.mktemp("life")
    write_life(str(home / "node"), RECORDS, shards=2, days=1, seed=4)
    run(no_session, str(home / "node"), str(home / "tables"))
    wanted = row_sets(home / "tables")
    assert all(wanted[name] for name in TABLES)
    return str(home / "node"), wanted


@pytest.mark.parametrize(("seed", "place"), [(0, "disk"), (1, "disk"), (2, "store")], indirect=["place"])
def test_runs_up_to_random_entries_make_the_tables_of_one_run(
    seed: int, place: Place, life: tuple[str, RowSets]
) -> None:
    rng, output = random.Random(seed), place.output("tables")
    path, wanted = place.log(life[0]), life[1]
    log = open_input(path)
    ends = {
        shard: sorted(rng.randint(1, there.decided_index) for _ in range(CUTS - 1))
        for shard, there in log.shards.items()
    }
    for number in range(CUTS - 1):
        with open_output(output, log) as opened:
            advance(no_session, opened, log, ranges={shard: (1, of[number]) for shard, of in ends.items()})
    assert not run(no_session, path, output).is_empty
    assert read_progress(output).run > CUTS // 2
    assert except_all(row_sets(output), wanted) == {}


@pytest.mark.parametrize("seed", range(2))
def test_runs_at_random_moments_of_a_growing_log_make_the_tables_of_one_run(
    seed: int, tmp_path: Path
) -> None:
    rng, output = random.Random(seed), tmp_path / "tables"
    story = Story(str(tmp_path / "node"), seed)
    for _ in range(CUTS):
        for _ in range(rng.randint(1, 40)):
            story._step()
        if rng.random() < 0.5:
            story.restart()
        run(no_session, story.path, str(output))
    story.node.stop()
    run(no_session, story.path, str(output))
    run(no_session, story.path, str(tmp_path / "once"))
    assert except_all(row_sets(output), row_sets(tmp_path / "once")) == {}


# A run that is killed: a process of its own, at each call that changes a table.


def killed_at(
    call: int, path: str, output: str, ranges: Mapping[int, tuple[int, int]] | None, env: Mapping[str, str]
) -> None:
    """Run in a process: kill it with SIGKILL after the call of that number."""
    os.environ.update(env)
    delta.call = Calls(call, before=False, really=True)
    transaction.SIDE_BY_SIDE = 1
    log = open_input(path)
    with open_output(output, log) as opened:
        advance(no_session, opened, log, ranges=ranges)


class Killer:
    """Starts processes that have the modules already, from a server that has no threads."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def run(
        self, call: int, path: str, output: str, ranges: Mapping[int, tuple[int, int]] | None
    ) -> int | None:
        """Return the exit code: -9, or 0 if the run made fewer calls."""
        env = {name: value for name, value in os.environ.items() if name.startswith(AWS)}
        process = self._context.Process(target=killed_at, args=(call, path, output, ranges, env))
        process.start()
        process.join(60)
        return process.exitcode


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> str:
    told = Story(str(tmp_path_factory.mktemp("story") / "node"))
    told.chapter()
    told.restart()
    for _ in range(STEPS // 2):
        told._step()
    told.node.stop()
    return told.path


@pytest.mark.parametrize(
    ("place", "is_first", "step"),
    [
        ("disk", True, 5),
        ("disk", False, 4),
        pytest.param("disk", False, 1, marks=pytest.mark.thorough),
        pytest.param("store", False, 6, marks=pytest.mark.spark),
    ],
    indirect=["place"],
    ids=["the first run", "a later run", "a later run at every call", "a later run in a store"],
)
def test_a_process_killed_at_any_commit_leaves_a_whole_run_and_blocks_no_later_one(
    place: Place, is_first: bool, step: int, story: str, tmp_path: Path
) -> None:
    path, killer, whole = place.log(story), Killer(), str(tmp_path / "whole")
    log = open_input(path)
    half = {shard: (1, there.decided_index // 2) for shard, there in log.shards.items()}
    run(no_session, path, whole)
    wanted = row_sets(whole)
    begun = place.output("begun")
    if not is_first:
        with open_output(begun, log) as opened:
            advance(no_session, opened, log, ranges=half)
        before = row_sets(begun)
    call = count = 0
    while True:
        output = place.output(f"tables-{call}")
        if not is_first:
            place.copy(begun, output)
        code = killer.run(call, path, output, None)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        is_committed = not is_first and read_progress(output).run == 2
        if not is_first:
            assert except_all(row_sets(output), wanted if is_committed else before) == {}
        run(no_session, path, output)
        assert except_all(row_sets(output), wanted) == {}, call
        assert read_progress(output).run == (1 if is_first else 2)
        call, count = call + step, count + is_committed
        if place.bucket is None:
            shutil.rmtree(output)
    assert call > len(TABLES)
    assert is_first or step > 1 or count == 1  # the last call is the commit of `progress`
