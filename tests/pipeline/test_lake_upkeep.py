"""Logs of tables over weeks: old commits go, and none that `progress` needs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("deltalake", reason="needs the extra spark")

from quorate.spark.tables import Output, delta, read_progress, upkeep
from tests.pipeline.lake import CLUSTER, add_run, expected, run_at, seen

OLD_S = (delta.RETENTION_DAYS + 2) * 86_400


def aged(monkeypatch: pytest.MonkeyPatch, output: Path, *runs: int) -> None:
    """Make runs as if they were made before the retention."""
    past = time.time() - OLD_S
    with monkeypatch.context() as patched:
        patched.setattr(delta, "time", SimpleNamespace(time=lambda: past))
        patched.setattr(upkeep, "is_due", lambda *_: False)
        for at in runs:
            run_at(str(output), at)
    for file in output.rglob("*"):
        if file.is_file():
            os.utime(file, (past, past))


def commits(output: Path, table: str) -> list[int]:
    return sorted(int(file.stem) for file in (output / table / "_delta_log").glob("*.json"))


@pytest.mark.parametrize("runs", [delta.CHECKPOINT_EVERY - 2, delta.CHECKPOINT_EVERY - 1])
def test_a_table_without_news_is_readable_after_its_retention(
    runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum adds commits, and with them a checkpoint after the version that counts."""
    output, all_runs = tmp_path / "tables", range(1, runs + 1)
    aged(monkeypatch, output, *all_runs)
    monkeypatch.setattr(upkeep, "is_due", lambda *_: True)
    with Output.open(str(output), cluster_id=CLUSTER, num_shards=1) as opened:
        add_run(opened, runs + 1, tables=("commits",))
    assert max(commits(output, "moves")) >= delta.CHECKPOINT_EVERY
    assert read_progress(str(output)).versions["moves"] == runs
    assert seen(str(output))[1]["moves"] == expected(*all_runs)[1]["moves"]
    run_at(str(output), runs + 2)
    assert f"g-{runs + 2}" in seen(str(output))[1]["moves"]


def test_commits_older_than_the_retention_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, runs = tmp_path / "tables", range(1, 2 * delta.CHECKPOINT_EVERY + 3)
    aged(monkeypatch, output, *runs)
    assert min(commits(output, "moves")) == 0
    monkeypatch.setattr(upkeep, "is_due", lambda *_: True)
    run_at(str(output), len(runs) + 1)
    for table in ("moves", "progress"):
        assert delta.CHECKPOINT_EVERY < min(commits(output, table)) <= len(runs)
    assert seen(str(output)) == expected(*runs, len(runs) + 1)
    run_at(str(output), len(runs) + 2)
    assert seen(str(output)) == expected(*runs, len(runs) + 1, len(runs) + 2)
