"""Benchmarks are run by hand: here each is imported, and some run once on a short log."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import history_bench, log_bench
from benchmarks.mixedlog import Written, write_log
from benchmarks.replicas import Counting
from history.reading.opening import open_node
from raftlog.env.state_machine import StateMachine

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.fixture(scope="module")
def short_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Written]:
    path = str(tmp_path_factory.mktemp("log") / "node")
    return path, write_log(path, 10_000, groups=20)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("question", history_bench.QUESTIONS)
def test_a_question_is_answered(question: str, short_log: tuple[str, Written]) -> None:
    path, written = short_log
    history_bench.QUESTIONS[question][0](open_node(path), written.entries)


def test_replicas_of_a_benchmark_drive_a_whole_state_machine() -> None:
    methods = {name for name in vars(StateMachine) if not name.startswith("_")}
    assert methods <= set(vars(Counting))


def test_memory_is_that_of_the_process_alone() -> None:
    """A process that holds 64 MiB more does not add to the peak of one that it starts."""
    held = bytes(64 << 20)
    command = [sys.executable, "-c", "from benchmarks.figures import peak_mib; print(peak_mib())"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(run.stdout) < len(held) >> 20


def test_the_merge_of_a_log_is_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_bench, "PLACE", tmp_path / "log")
    log_bench.merge_bench(2_000)
    assert "merge of 2,000 records into 2,001: " in capsys.readouterr().out


def test_help_names_every_benchmark() -> None:
    command = [sys.executable, "-m", "benchmarks"]
    run = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = set(run.stdout.replace(",", " ").split())
    assert {name.removesuffix("_bench") for name in MODULES if name.endswith("_bench")} <= named


def test_an_unknown_benchmark_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "nothing"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "no benchmark named nothing; there are: assignor, " in run.stderr
