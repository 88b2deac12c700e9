"""Runs commit to Delta tables: whole or not at all, wherever they die and whoever else writes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from deltalake import DeltaTable

from quorate.spark.errors import OutputBusy, OutputError
from quorate.spark.tables import (
    FileWriter,
    Output,
    ShardProgress,
    delta,
    progress,
    read_progress,
    transaction,
)
from tests.pipeline.lake import (
    CLUSTER,
    TABLES,
    DiedHere,
    add_run,
    calls,
    expected,
    rows_of,
    run_at,
    seen,
    written,
)
from tests.support.object_stores import bucket_at

T = TypeVar("T")
CALLS_OF_A_RUN = len(TABLES) + 1
"""A commit of each table and of `progress`."""


@pytest.fixture(params=["disk", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "disk":
        yield str(tmp_path / "out")
        return
    with bucket_at(request.getfixturevalue("s3_endpoint")) as bucket:
        yield f"{bucket}/some/out"


def test_a_reader_sees_the_rows_of_all_runs_and_replaced_ones_once(url: str) -> None:
    for at in (1, 2, 3):
        run_at(url, at)
        assert seen(url) == expected(*range(1, at + 1))


def test_a_run_commits_progress_last_and_names_itself_in_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_at(str(tmp_path), 1)
    made = calls(monkeypatch)
    progress = run_at(str(tmp_path), 2)
    assert made.made == [("run", table) for table in (*TABLES, "progress")]
    for table in (*TABLES, "progress"):
        log = DeltaTable(str(tmp_path / table))
        assert log.transaction_version("quorate") == 2
        assert log.history(1)[0]["quorate"]["run"] == 2
        assert progress.versions.get(table, log.version()) == log.version()


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("call", range(CALLS_OF_A_RUN))
def test_a_reader_sees_a_whole_run_wherever_it_died_and_the_next_run_repeats_it(
    call: int, before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    with monkeypatch.context() as dying:
        calls(dying, call, before=before)
        with pytest.raises(DiedHere):
            run_at(url, 2)
    is_committed = call == CALLS_OF_A_RUN - 1 and not before
    assert seen(url) == (expected(1, 2) if is_committed else expected(1))
    runs = (3,) if is_committed else (2, 3)
    for at in runs:
        run_at(url, at)
    assert seen(url) == expected(1, 2, 3)
    for table in TABLES:  # and so does a reader that opens a table's last version
        assert DeltaTable(str(tmp_path / table)).version() == read_progress(url).versions[table]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_first_run_that_died_while_it_created_tables_is_repeated(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as counting:
        made = calls(counting)
        run_at(str(tmp_path / "whole"), 1)
    assert len(made.made) > CALLS_OF_A_RUN
    for call in range(len(made.made)):
        url = str(tmp_path / f"{call}")
        with monkeypatch.context() as dying:
            calls(dying, call, before=before)
            with pytest.raises(DiedHere):
                run_at(url, 1)
        if seen_run := (call == len(made.made) - 1 and not before):
            assert seen(url) == expected(1)
        run_at(url, 1 + seen_run)
        assert seen(url) == (expected(1, 2) if seen_run else expected(1))


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_restore_that_died_is_repeated(
    before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    with monkeypatch.context() as dying:
        calls(dying, len(TABLES), before=True)
        with pytest.raises(DiedHere):
            run_at(url, 2)
    for call in range(len(TABLES)):
        with monkeypatch.context() as dying:
            made = calls(dying, 0, before=before)
            with pytest.raises(DiedHere):
                run_at(url, 2)
            assert made.made[0][0] == "restore"
        assert seen(url) == expected(1), call
        if before:
            break
    run_at(url, 2)
    assert seen(url) == expected(1, 2)


KILLED = """
import sys
from tests.pipeline import lake
from quorate.spark.tables import delta
delta.call = lake.Calls(int(sys.argv[2]), before=False, really=True)
lake.run_at(sys.argv[1], 2)
"""


@pytest.mark.parametrize("call", [0, 2, CALLS_OF_A_RUN - 1])
def test_a_run_killed_between_commits_blocks_no_later_one(call: int, tmp_path: Path) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    ended = subprocess.run([sys.executable, "-c", KILLED, url, str(call)], timeout=60)
    assert ended.returncode == -9
    is_committed = call == CALLS_OF_A_RUN - 1
    assert seen(url) == (expected(1, 2) if is_committed else expected(1))
    run_at(url, 3 if is_committed else 2)
    assert seen(url)[0] == 2 + is_committed


def test_of_two_writers_one_commits_each_run_and_the_other_is_told_so(url: str) -> None:
    run_at(url, 1)
    for at in (2, 3, 4):
        results: list[str] = []
        together = threading.Barrier(2)

        def race(at: int = at, results: list[str] = results, together: threading.Barrier = together) -> None:
            with Output.open(url, cluster_id=CLUSTER) as output:
                together.wait(timeout=30)
                try:
                    add_run(output, at)
                    results.append("committed")
                except OutputBusy:
                    results.append("busy")

        threads = [threading.Thread(target=race) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert sorted(results) == ["busy", "committed"]
        assert seen(url) == expected(*range(1, at + 1))


@pytest.mark.parametrize("first", TABLES)
def test_of_two_writers_with_different_tables_one_commits(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer commits in the middle of the first one's commit, and may be first at any table."""
    url = str(tmp_path)
    run_at(url, 1)
    with Output.open(url, cluster_id=CLUSTER) as one, Output.open(url, cluster_id=CLUSTER) as two:
        inner, results = delta.call, []

        def call(what, table, function):
            if (what, table) == ("run", first) and not results:
                results.append("second")
                try:
                    add_run(two, 2, tables=TABLES[1:])
                except OutputBusy:
                    results.append("busy")
            return inner(what, table, function)

        with monkeypatch.context() as patched:
            patched.setattr(delta, "call", call)
            try:
                add_run(one, 2)
            except OutputBusy:
                results.append("busy")
        assert results == ["second", "busy"]
    run, groups = seen(url)
    assert run == 2
    assert all(groups[table] == expected(1, 2)[1][table] for table in TABLES[1:])


@pytest.mark.thorough
@pytest.mark.parametrize("opens", range(2 * CALLS_OF_A_RUN))
def test_a_writer_that_comes_in_the_middle_leaves_one_of_the_two(
    opens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens at one call of a writer that makes three runs, and commits there or some calls later."""
    for commits in range(opens, 3 * CALLS_OF_A_RUN, 3):
        url = str(tmp_path / f"{commits}")
        run_at(url, 1)
        one, second, lost, at = Output.open(url, cluster_id=CLUSTER), [], [], itertools.count()

        def call(what, table, function, url=url, commits=commits, at=at, second=second, lost=lost):
            if threading.current_thread().name == "second":
                return function()
            now = next(at) if what == "run" else -1
            if now == opens:
                second.append(in_thread(partial(Output.open, url, cluster_id=CLUSTER)))
            if now == commits:
                try:
                    in_thread(partial(add_run, second[0], 9))
                except OutputBusy:
                    lost.append("second")
            return function()

        with monkeypatch.context() as patched:
            calls(patched)
            patched.setattr(delta, "call", call)
            done = [1]
            try:
                for run in (2, 3, 4):
                    add_run(one, run)
                    done.append(run)
            except OutputBusy:
                lost.append("first")
                done.append(9)
        assert len(lost) == 1, (commits, lost)
        assert seen(url) == expected(*done), commits


def in_thread(work: Callable[[], T]) -> T:
    """Do something in a thread with the name "second"."""
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="second")
    thread.start()
    thread.join(timeout=120)
    if errors:
        raise errors[0]
    return results[0]


def test_a_writer_that_opens_in_the_middle_of_anothers_commit_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    inner = delta.call
    results = []

    def call(what, table, function):
        result = inner(what, table, function)
        if (what, table) == ("run", TABLES[1]) and not results:
            results.append("opening")
            Output.open(url, cluster_id=CLUSTER).close()  # restores what the other has committed so far
        return result

    calls(monkeypatch)
    monkeypatch.setattr(delta, "call", call)
    run_at(url, 2)
    assert seen(url) == expected(1, 2)
    run_at(url, 3)
    assert seen(url) == expected(1, 2, 3)


def test_a_commit_whose_answer_was_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_at(str(tmp_path), 1)

    def call(what, table, function):
        function()
        raise OSError("connection reset by peer")

    monkeypatch.setattr(delta, "call", call)
    run_at(str(tmp_path), 2)
    assert seen(str(tmp_path)) == expected(1, 2)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_whose_outcome_cannot_be_asked_for_is_said_to_be_unknown(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    run_at(url, 1)

    def call(what, table, function):
        if table != "progress" or is_there:
            function()
        if table == "progress":
            monkeypatch.setattr(delta.TableLog, "commit_json", unreachable)
            raise OSError("connection reset by peer")

    def unreachable(log: delta.TableLog, version: int) -> None:
        raise OutputError("cannot read the log")

    with monkeypatch.context() as failing:
        failing.setattr(delta, "call", call)
        failing.setattr(delta.TableLog, "commit_json", delta.TableLog.commit_json)
        with pytest.raises(OutputError, match="whether it was committed is not known: run again"):
            run_at(url, 2)
    monkeypatch.undo()
    assert seen(url) == (expected(1, 2) if is_there else expected(1))
    run_at(url, 3 if is_there else 2)
    assert seen(url) == (expected(1, 2, 3) if is_there else expected(1, 2))


def test_a_failed_commit_changes_nothing_and_the_output_must_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path)
    run_at(url, 1)

    def call(what, table, function):
        if table == "progress":
            raise OSError(28, "No space left on device")
        return function()

    with Output.open(url, cluster_id=CLUSTER) as output:
        with monkeypatch.context() as failing:
            failing.setattr(delta, "call", call)
            with pytest.raises(
                OutputError, match=r"commit to progress .*the disk is full.*free space and run again"
            ):
                add_run(output, 2)
        with pytest.raises(OutputError, match="open the output again"):
            output.begin()
    assert seen(url) == expected(1)
    run_at(url, 2)
    assert seen(url) == expected(1, 2)


def test_a_run_without_anything_new_commits_nothing(tmp_path: Path) -> None:
    before = run_at(str(tmp_path), 1)
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output, output.begin() as transaction:
        assert transaction.commit(output.progress) == before
    assert DeltaTable(str(tmp_path / "progress")).version() == 1


def test_a_shard_cannot_go_back(tmp_path: Path) -> None:
    run_at(str(tmp_path), 5)
    with pytest.raises(OutputError, match=r"up to index 5 .*only up to 4 .*older copy"):
        run_at(str(tmp_path), 4)
    assert seen(str(tmp_path))[0] == 1


def test_progress_comes_back_as_it_was_committed(tmp_path: Path) -> None:
    shards = {-1: ShardProgress(3, 0, -1), 7: ShardProgress(9, 8, 1_700_000_000_123)}
    with (
        Output.open(str(tmp_path), cluster_id=CLUSTER, num_shards=8) as output,
        output.begin() as transaction,
    ):
        after = transaction.commit(replace(output.progress, shards=shards, notes='{"losses": [1]}'))
    assert (after.run, after.num_shards, after.shards) == (1, 8, shards)
    assert read_progress(str(tmp_path)) == after
    rows = DeltaTable(str(tmp_path / "progress")).to_pyarrow_table().to_pylist()
    assert [(row["shard"], dict(row["versions"])["ownership"]) for row in rows] == [(-1, 0), (7, 0)]


def test_intermediate_results_are_gone_when_the_transaction_is_over(tmp_path: Path) -> None:
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        with output.begin() as transaction:
            rows = rows_of("commits", "a")
            with FileWriter(transaction.staging, "", "rows", rows.schema, ["group_id"]) as writer:
                writer.write(rows)
                assert writer.close()[0].rows == 1
            assert list(tmp_path.glob("_quorate/staging/*/rows-*.parquet"))
        assert not list(tmp_path.glob("_quorate/staging/*"))
        with pytest.raises(ValueError, match="over"):
            transaction.commit(output.progress)


def test_rows_that_were_not_committed_are_not_seen(tmp_path: Path) -> None:
    run_at(str(tmp_path), 1)
    with Output.open(str(tmp_path), cluster_id=CLUSTER) as output:
        written(output, "commits", rows_of("commits", "lost"))
    assert seen(str(tmp_path)) == expected(1)


@pytest.mark.parametrize("table", ["moves", "progress"])
@pytest.mark.parametrize("keep", [0, 100], ids=["empty", "cut"])
def test_a_commit_that_a_power_failure_cut_short_is_taken_back(table: str, keep: int, tmp_path: Path) -> None:
    url = str(tmp_path)
    run_at(url, 1)
    whole = (tmp_path / f"{table}/_delta_log/{1:020d}.json").read_bytes()
    if table == "progress":
        run_at(url, 2)  # its commit was in the system's cache only
    (tmp_path / f"{table}/_delta_log/{2:020d}.json").write_bytes(whole[:keep])
    run_at(url, 3)
    assert seen(url) == (2, {table: ["g-1", "g-3", "open-3"] for table in TABLES})


def test_a_field_that_progress_got_later_is_added_to_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = progress.progress_schema()
    with monkeypatch.context() as before:
        older = whole.remove(whole.get_field_index("last_time"))
        for module in (progress, transaction):
            before.setattr(module, "progress_schema", lambda: older)
        run_at(str(tmp_path), 1)
    assert read_progress(str(tmp_path)).shards == {0: ShardProgress(1, 1, -1)}
    run_at(str(tmp_path), 2)
    assert read_progress(str(tmp_path)).shards == {0: ShardProgress(2, 2, 2000)}
    assert "last_time" in {one.name for one in DeltaTable(str(tmp_path / "progress")).schema().fields}
