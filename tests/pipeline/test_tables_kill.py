"""SIGKILL at each step of a commit on the real disk, and the lock that dies with its process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.errors import OutputBusy
from pipeline.tables import Output, read_manifest

from . import kill_output

OLD = {"commits": ["commits 1"], "waits": ["waits 1"]}
NEW = {"commits": ["commits 1", "commits 2"], "waits": ["waits 2"]}
STEPS = range(0, 100, 3)
"""Only some steps: the simulated disk covers every call, and this test is about the real disk."""


def started(out: Path, step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.pipeline.kill_output", str(out), step]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=Path(__file__).parents[2])


def tables(out: Path) -> dict[str, list[str]]:
    """Return the tables according to the folders, which agree with the manifest after an opening."""
    Output.open(out, cluster_id="c").close()
    found = {table: sorted(p.read_text() for p in (out / table).rglob("*.parquet")) for table in OLD}
    named = {file.path for file in read_manifest(out).files}
    assert named == {str(path.relative_to(out)) for table in OLD for path in (out / table).rglob("*.parquet")}
    assert list((out / "_quorate" / "staging").iterdir()) == []
    return found


def test_a_process_that_is_killed_at_some_step_leaves_the_old_tables_or_the_new(tmp_path: Path) -> None:
    seen = []
    for step in STEPS:
        out = tmp_path / str(step)
        kill_output.commit(str(out), 1, kill_output.MortalFiles())
        process = started(out, str(step))
        said, _ = process.communicate(timeout=60)
        seen.append(tables(out))
        if process.returncode == 0:
            assert said == "committed\n"
            break
        assert process.returncode == -signal.SIGKILL
    assert seen[0] == OLD
    assert seen[-1] == NEW
    assert seen == [OLD] * seen.count(OLD) + [NEW] * seen.count(NEW), "decided once"
    assert seen.count(OLD) > 3
    assert seen.count(NEW) > 3


def test_an_output_that_another_process_has_is_busy_until_that_ends(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = started(out, "hold")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(OutputBusy, match=rf"process {process.pid} on {socket.gethostname()}, since 20"):
            Output.open(out, cluster_id="c")
    finally:
        process.kill()
        process.communicate(timeout=60)
    Output.open(out, cluster_id="c").close()


def test_a_reader_beside_commits_sees_whole_ones(tmp_path: Path) -> None:
    """Each manifest that is read names files that belong together."""
    out, ended = tmp_path / "out", threading.Event()
    kill_output.commit(str(out), 1, kill_output.MortalFiles())
    seen: set[tuple[int, int]] = set()
    broken: list[str] = []

    def read() -> None:
        while not ended.is_set():
            manifest = read_manifest(out)
            number = manifest.progress[0].records_to
            if (len(manifest.of("commits")), len(manifest.of("waits"))) != (number, 1):
                broken.append(str(manifest))
            seen.add((manifest.version, number))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2, 20):
            kill_output.commit(str(out), number, kill_output.MortalFiles())
    finally:
        ended.set()
        reader.join()
    assert not broken
    assert len(seen) > 2
