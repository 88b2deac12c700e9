"""The recorded incident: its README is true, it can be recorded again, and its bytes are sound."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate.app import run
from tests.support.documented import check, commands_of, differences

ROOT = Path(__file__).parent.parent.parent
INCIDENT = ROOT / "examples" / "incident"
BYTES_MAX = 400_000
STEPS = 5

Say = Callable[[tuple[str, ...]], str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Return a function that runs a command beside the recording, on 120 columns; it must succeed."""
    monkeypatch.chdir(INCIDENT)
    monkeypatch.setenv("COLUMNS", "120")

    def said(arguments: tuple[str, ...]) -> str:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert code == 0, (arguments, captured.err)
        assert captured.err == ""
        return captured.out

    return said


def test_the_walk_shows_what_its_commands_print(say: Say, tmp_path: Path) -> None:
    walk = list(commands_of(INCIDENT / "README.md", "quorate"))
    assert len([shown for shown in walk if shown.output]) >= STEPS
    wrong = []
    for shown in walk:
        arguments = tuple(str(tmp_path / one) if one.endswith(".html") else one for one in shown.arguments)
        is_page = "--html" in arguments
        wrong.append("" if is_page and say(arguments) else check(shown, say))
    assert not list(filter(None, wrong)), "\n\n".join(filter(None, wrong))


def test_the_front_page_shows_what_its_example_prints(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (shown,) = [
        one for one in commands_of(ROOT / "README.md", "quorate") if one.output and "explain" in one.arguments
    ]
    assert not check(shown, say)


def test_the_recording_is_sound_and_small(say: Say) -> None:
    for number in (1, 2, 3):
        assert "verified: everything holds" in say(("log", "verify", f"cluster/node-{number}"))
    assert "compared: identical on all nodes" in say(("log", "compare", "cluster"))
    assert sum(path.stat().st_size for path in (INCIDENT / "cluster").rglob("*")) < BYTES_MAX


def test_recorded_again_it_is_the_same_story(say: Say, tmp_path: Path) -> None:
    again = tmp_path / "cluster"
    subprocess.run(
        [sys.executable, "-m", "examples.incident.record", str(again)], cwd=ROOT, check=True, timeout=100
    )
    for question in (
        ("explain", "{}", "billing", "--utc"),
        ("findings", "{}", "--utc"),
        ("terms", "{}", "--utc"),
        ("replay", "{}", "--utc"),
    ):
        here, there = (
            say(("log", *(word.format(where) for word in question))) for where in ("cluster", again)
        )
        assert here == there, f"record it again: python -m examples.incident.record ({question[0]})"


def test_a_document_that_shows_other_output_is_found() -> None:
    printed = ["one", "two", "three", "four"]
    for shown in (["one", "…", "four"], ["…", "two", "three", "…"], ["one", "two", "three", "four"], []):
        assert not differences(tuple(shown), printed)
    for shown in (
        ["two", "…"],
        ["one", "…", "three"],
        ["one", "three", "…"],
        ["…", "four", "…", "two"],
        ["one"],
    ):
        assert differences(tuple(shown), printed), shown
