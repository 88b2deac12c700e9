"""The safe path: a user's own modules never stand in for the rooms, and never cause a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def run_quorate(
    directory: Path, *arguments: str, python_path: str = "", command: tuple[str, ...] = ("-m", "quorate")
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = python_path
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture(params=["records.py", "cluster/__init__.py", "wire/notes.txt"])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A user's file named like one of our packages: a module, a package, a directory that is no package."""
    file = tmp_path / str(request.param)
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('the wrong module was imported')\n")
    return file


def test_modules_in_the_working_directory_are_not_looked_at(foreign: Path, tmp_path: Path) -> None:
    ran = run_quorate(tmp_path, "topics", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "create" in ran.stdout


def test_a_foreign_module_on_the_path_is_named(foreign: Path, tmp_path: Path) -> None:
    ran = run_quorate(tmp_path, "topics", "--help", python_path=str(tmp_path))
    assert ran.returncode == 6
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    place = foreign.parent if foreign.suffix == ".txt" else foreign
    assert str(place) in ran.stderr
    assert "PYTHONPATH" in ran.stderr


def test_a_relative_python_path_is_no_way_around(tmp_path: Path) -> None:
    (tmp_path / "history.py").write_text("raise SystemExit('the wrong module was imported')\n")
    ran = run_quorate(tmp_path, "--help", python_path=".")
    assert ran.returncode == 6
    assert "history.py" in ran.stderr


def test_child_processes_inherit_the_safe_path(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").write_text("raise SystemExit('the wrong module was imported')\n")
    code = (
        "import sys; sys.path.pop(0); import quorate.entry as e, subprocess; e.use_safe_path('/nowhere');"
        "subprocess.run([sys.executable, '-c', 'import sys; print(\"\" in sys.path)'])"
    )
    ran = run_quorate(tmp_path, command=("-c", code))
    assert ran.stdout.strip() == "False", ran.stderr


def test_a_checkout_runs_from_its_own_root() -> None:
    ran = run_quorate(HOME, "--version")
    assert ran.returncode == 0
    assert ran.stdout.startswith("quorate ")


def test_ctrl_c_before_anything_runs_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from quorate import app, entry

    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "run", interrupted)
    monkeypatch.setattr(entry, "use_safe_path", lambda home: None)
    assert entry.main() == 130
