"""docs/history.md names every command; its commands run on the incident and print what the page shows."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.app import run
from quorate.commands.log import app, subject
from tests.support.documented import commands_of, differences

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "history.md"
INCIDENT = ROOT / "examples" / "incident"
NOW_S = datetime(2026, 3, 1, 3, 20, tzinfo=UTC).timestamp()
"""The time at which the page's reader types: `2h` counts from it."""


@pytest.fixture
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the clock to UTC, which the incident uses."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_table_of_questions_has_every_command() -> None:
    table = re.findall(
        r"^\| [^|]+ \| \[`quorate log (\w+)`\]\(#([\w-]+)\) \|$", PAGE.read_text(), re.MULTILINE
    )
    assert {name for name, _ in table} == {command.name for command in app.registered_commands}
    headings = {
        re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^## (.+)$", PAGE.read_text(), re.MULTILINE)
    }
    assert {anchor for _, anchor in table} <= headings


@pytest.mark.usefixtures("_utc")
def test_what_the_page_types_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run every command of the page except those that need a running cluster."""
    shutil.copytree(INCIDENT / "cluster", tmp_path / "cluster")
    monkeypatch.setattr(subject, "time", SimpleNamespace(time=lambda: NOW_S))
    typed = [shown for shown in commands_of(PAGE, "quorate") if "--url" not in shown.arguments]
    shown_commands = {shown.arguments[1] for shown in typed}
    assert shown_commands == {command.name for command in app.registered_commands}
    for number, shown in enumerate(typed):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)  # for the files it writes
        code = run([re.sub("^DIR(?=/|$)", "../cluster", word) for word in shown.arguments])
        captured = capsys.readouterr()
        assert code == 0, (str(shown), captured.err)
        assert captured.out or list(folder.iterdir()), str(shown)
        assert not differences(shown.output, captured.out.splitlines()), str(shown)
