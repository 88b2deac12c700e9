"""A commit is atomic, whichever call is its last or fails; without Spark."""

from __future__ import annotations

import errno
import os
import re

import pytest

from pipeline.errors import OutputBusy, OutputError
from pipeline.tables import Output, ShardProgress
from pipeline.tables.disk import place_of
from pipeline.tables.manifest import load
from raftlog.env.simulated_files import Crash

from .output_disk import (
    NEW,
    OLD,
    ROOT,
    SimOutputFiles,
    after_opening,
    first_commit,
    opened,
    second_commit,
    stage,
)

SEEDS = 3
"""Seeds of torn crashes at each call."""


def fresh() -> SimOutputFiles:
    disk = SimOutputFiles()
    first_commit(disk)
    return disk.crash(Crash.KEPT)


def crashes_of(act, disk: SimOutputFiles) -> list[SimOutputFiles]:
    """Return the disks that a crash before or after each call of ``act`` leaves, in each way to crash."""
    left: list[SimOutputFiles] = []

    def at_call(number: int, operation: str, path: str, done: bool) -> None:
        left.extend(disk.crash(how) for how in (Crash.KEPT, Crash.LOST))
        left.extend(disk.crash(Crash.TORN, number * SEEDS + seed) for seed in range(SEEDS))

    disk.on_call = at_call
    act(disk)
    disk.on_call = None
    return left


def test_two_commits_are_there() -> None:
    disk = fresh()
    manifest, rows = after_opening(disk)
    assert rows == OLD
    assert manifest.progress == {0: ShardProgress(10, 10, 1), 1: ShardProgress(5, 5, 1)}
    second_commit(disk)
    assert [len(disk.below(f"{ROOT}/{table}")) for table in ("commits", "waits")] == [4, 1], (
        "before any opening"
    )
    manifest, rows = after_opening(disk)
    assert rows == NEW
    assert manifest.progress == {0: ShardProgress(20, 20, 2), 1: ShardProgress(5, 5, 1)}
    assert manifest.version == 2


def test_a_crash_at_any_call_leaves_the_old_tables_or_the_new() -> None:
    states = [after_opening(disk) for disk in crashes_of(second_commit, fresh())]
    assert all(rows in (OLD, NEW) for _, rows in states)
    assert all((manifest.progress[0].records_to == 20) == (rows == NEW) for manifest, rows in states)
    assert len(states) > 500
    assert {len(rows["commits", "rows"]) for _, rows in states} == {2, 4}


def test_a_crash_while_the_folder_is_made_leaves_one_that_can_be_opened() -> None:
    for disk in crashes_of(first_commit, SimOutputFiles()):
        _, rows = after_opening(disk)
        assert rows in ({}, OLD)


def test_what_commit_returned_from_survives_the_loss_of_all_that_is_not_synced() -> None:
    disk = fresh()
    second_commit(disk)
    assert after_opening(disk.crash(Crash.LOST))[1] == NEW


def test_a_crash_while_a_commit_is_taken_up_again_is_harmless_too() -> None:
    pending = [disk for disk in crashes_of(second_commit, fresh()) if disk.exists(f"{ROOT}/_quorate/journal")]
    assert len(pending) > 100
    for disk in pending[::29]:
        for again in crashes_of(after_opening_only, disk):
            assert after_opening(again)[1] == NEW


def after_opening_only(disk: SimOutputFiles) -> None:
    disk.process_ended()
    opened(disk).close()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_call_that_fails_leaves_the_old_tables_or_the_new(code: int) -> None:
    number, seen = 0, set()
    while True:
        number += 1
        disk = fresh()
        is_hit = False

        def fail(call: int, operation: str, path: str, number: int = number) -> OSError | None:
            nonlocal is_hit
            if call != number:
                return None
            is_hit = True
            return OSError(code, os.strerror(code), path)

        disk.fail = fail
        try:
            second_commit(disk)
            words = ""
        except (OutputError, OSError) as error:  # OSError where Spark would have written
            words = str(error)
        if not is_hit:
            break
        # The cleaning at the end may fail unnoticed: the commit is complete by then.
        rows = after_opening(disk)[1]
        assert rows in (OLD, NEW)
        assert os.strerror(code) in words or (not words and rows == NEW)
        seen.add((bool(words), rows == NEW))
    assert seen == {(True, False), (True, True), (False, True)}


def test_a_full_disk_says_so_and_leaves_nothing_lying_about() -> None:
    disk = fresh()
    with opened(disk) as output:
        tx = output.begin()
        stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": b"ccc"})
        disk.fail = lambda call, operation, path: (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if operation == "pwrite" else None
        )
        with pytest.raises(OutputError, match="No space left on device; the tables are unchanged"):
            tx.commit({0: ShardProgress(20, 20, 2)})
        tx.discard()
        assert disk.below(f"{ROOT}/_quorate/staging") == []
    assert after_opening(disk)[1] == OLD


def test_a_decided_commit_is_finished_on_a_full_disk_too() -> None:
    crashes = crashes_of(second_commit, fresh())
    disk = next(disk for disk in crashes if disk.exists(f"{ROOT}/_quorate/journal"))
    disk.fail = lambda call, operation, path: (
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if operation in ("pwrite", "create", "mkdir")
        else None
    )
    with opened(disk) as output:
        assert output.manifest.version == 2
    assert after_opening(disk)[1] == NEW


def test_an_output_whose_commit_was_cut_short_begins_no_other() -> None:
    disk = fresh()
    output = opened(disk)
    tx = output.begin()
    stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": b"ccc"})
    disk.fail = lambda call, operation, path: OSError(errno.EIO, "bad") if operation == "unlink" else None
    with pytest.raises(OutputError, match="next run"):
        tx.commit({0: ShardProgress(20, 20, 2)})
    disk.fail = None
    with pytest.raises(OutputError, match="open the output again"):
        output.begin()
    output.close()
    assert after_opening(disk)[1]["commits", "rows"] == [b"a", b"bb", b"ccc"]


def test_a_journal_that_is_not_whole_was_never_carried_out() -> None:
    crashes = crashes_of(second_commit, fresh())
    just_decided = next(disk for disk in crashes if disk.exists(f"{ROOT}/_quorate/journal"))
    just_decided.damage(f"{ROOT}/_quorate/journal", 40)
    assert after_opening(just_decided)[1] == OLD


@pytest.mark.parametrize("progress", [{0: ShardProgress(10, 10, 1)}, {0: ShardProgress(10, 10, 9)}, {}])
def test_a_commit_that_is_no_further_adds_nothing(progress: dict[int, ShardProgress]) -> None:
    disk = fresh()
    with opened(disk) as output:
        tx = output.begin()
        stage(tx, "commits", "rows", {"date=2026-05-01/shard=0": b"again"})
        assert tx.commit(progress) is output.manifest
        assert output.manifest.version == 1
    assert after_opening(disk)[1] == OLD


def test_a_refresh_is_carried_out_though_no_entry_is_new() -> None:
    disk = fresh()
    with opened(disk) as output:
        tx = output.begin()
        stage(tx, "waits", "open", {"date=2026-05-01/shard=0": b"noted"})
        tx.replaced(output.manifest.of("waits", "open"))
        assert tx.commit({0: ShardProgress(10, 10, 1)}, refresh=True).version == 2
        assert output.begin().commit({}, refresh=True).version == 2, "nothing was to be refreshed"
    assert after_opening(disk)[1]["waits", "open"] == [b"noted"]


def test_progress_never_goes_back() -> None:
    disk = fresh()
    with opened(disk) as output:
        tx = output.begin()
        with pytest.raises(
            OutputError, match=r"shard 0 up to index 10 .* only up to 9 .*; the input is an older copy"
        ):
            tx.commit({0: ShardProgress(9, 9, 1)})
    assert after_opening(disk)[1] == OLD


def test_one_transaction_at_a_time_and_none_when_closed() -> None:
    output = opened(fresh())
    tx = output.begin()
    with pytest.raises(ValueError, match="one transaction"):
        output.begin()
    tx.discard()
    with pytest.raises(ValueError, match="over"):
        tx.commit({})
    output.begin()
    output.close()
    output.close()
    with pytest.raises(ValueError, match="closed"):
        output.begin()


def test_rows_that_are_not_seen_here_are_missed() -> None:
    with opened(fresh()) as output:
        tx = output.begin()
        output.files.mkdir(f"{ROOT}/{tx._folder}/job-x")
        with pytest.raises(
            OutputError, match=r"3 rows of commits were written .* 0 are visible .*; every executor"
        ):
            tx.take("commits", "rows", f"{tx._folder}/job-x", 3)


def test_strays_go_and_strangers_files_stay() -> None:
    disk = fresh()
    stray = "commits/date=2026-05-01/shard=0/rows-00000009-000000-0123abcd.parquet"
    strangers = [
        "notes.txt",
        "commits/readme.md",
        "commits/date=2026-05-01/shard=0/part-0000.parquet",
        "commits/date=2026-05-01/shard=0/mine/rows-00000009-000000-0123abcd.parquet",
        "other/rows-00000009-000000-0123abcd.parquet",
    ]
    disk.make_root(f"{ROOT}/commits/date=2026-05-01/shard=0/mine")
    disk.make_root(f"{ROOT}/other")
    for path in (stray, "_quorate/files-00000007.jsonl", *strangers):
        disk.open(f"{ROOT}/{path}", "w").close()
    opened(disk).close()
    there = disk.below(ROOT)
    assert stray not in there
    assert "_quorate/files-00000007.jsonl" not in there
    assert set(strangers) < set(there)


def test_a_folder_that_is_not_ours_is_refused_before_anything_is_written() -> None:
    disk = SimOutputFiles()
    disk.mkdir(ROOT)
    disk.open(f"{ROOT}/letters.txt", "w").close()
    calls = disk.calls
    with pytest.raises(OutputError, match="holds no tables"):
        opened(disk)
    disk.open("/file", "w").close()
    with pytest.raises(OutputError, match="is not a folder"):
        Output.open("/file", cluster_id="c", files=disk)
    assert disk.calls == calls + 1


@pytest.mark.parametrize("url", ["s3a://bucket/out", "dbfs:/mnt/out", "hdfs:///out", "file://host/out"])
def test_a_url_is_refused_with_what_to_give_instead(url: str) -> None:
    with pytest.raises(
        OutputError, match=(f"{url} is not a folder that this process can read; give a local path")
    ):
        place_of(url)


def test_a_path_may_be_written_as_a_url() -> None:
    assert [place_of(f"{scheme}/tmp/x:/y") for scheme in ("", "file:", "file://")] == ["/tmp/x:/y"] * 3


def test_a_fresh_mount_is_taken() -> None:
    disk = SimOutputFiles()
    disk.make_root(f"{ROOT}/lost+found")
    disk.open(f"{ROOT}/.hidden", "w").close()
    opened(disk).close()


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"cluster_id": "d"}, "tables of cluster c, but the input belongs to d"),
        ({"cluster_id": "c", "num_shards": 3}, "written from 2 shards, but the input has 3"),
    ],
)
def test_another_cluster_is_refused(asked: dict, match: str) -> None:
    disk = fresh()
    before, calls = disk.below(ROOT), disk.calls
    with pytest.raises(OutputError, match=match):
        Output.open(ROOT, files=disk, **asked)
    assert (disk.below(ROOT), disk.calls) == (before, calls)


def test_a_list_of_files_is_parsed_once_and_checked_each_time() -> None:
    disk = fresh()
    found = load(disk, ROOT)
    assert load(disk, ROOT).files is found.files
    disk.damage(f"{ROOT}/_quorate/files-00000001.jsonl", 0)
    with pytest.raises(OutputError, match="differs from what was written"):
        load(disk, ROOT)


@pytest.mark.parametrize("field", ["schema_version", "format"])
def test_a_newer_release_is_refused_before_anything_is_written(field: str) -> None:
    disk = fresh()
    path = f"{ROOT}/_quorate/manifest.json"
    newer = re.sub(rb'("%s": )\d+' % field.encode(), rb"\g<1>9", disk.read(path))
    disk.open(path, "w").pwrite(newer, 0)
    calls = disk.calls
    with pytest.raises(OutputError, match="newer release"):
        opened(disk)
    assert disk.calls == calls


@pytest.mark.parametrize("name", ["manifest.json", "files-00000001.jsonl"])
def test_damage_of_the_manifest_is_told(name: str) -> None:
    disk = fresh()
    disk.damage(f"{ROOT}/_quorate/{name}", 0)
    with pytest.raises(OutputError, match="is damaged"):
        opened(disk)


def test_a_second_writer_hears_who_the_first_is() -> None:
    disk = fresh()
    with opened(disk) as first:
        with pytest.raises(OutputBusy, match=rf"process {os.getpid()} on .*, since 20.*; wait until it ends"):
            opened(disk)
        assert first.begin().commit({}).version == 1
    opened(disk).close()
