"""`quorate log timeline`: the table, the lanes, the page, and the refusals."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from quorate.app import run
from quorate.commands.options import TYPED, typed
from quorate.errors import ExitCode
from records import RELEASE
from tests.support.timeline_logs import BILLING, billing_log


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(billing_log(tmp_path_factory.mktemp("billing") / "node-1"))


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: ExitCode = ExitCode.OK) -> str:
    assert run(["log", "timeline", *arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code == ExitCode.OK else captured.err


def test_the_page_is_written_once_and_says_where(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "billing.html"
    said = answer(capsys, node, BILLING, "--html", str(file), "--utc")
    assert said.startswith(f"wrote {file} (")
    text = file.read_text(encoding="utf-8")
    assert "shard-0: entries 1 to 32, nothing missing" in text
    assert "2026-03-01 12:00:00.010+00:00" in text
    assert "there is no evidence of the group" in text
    file.write_text("mine")
    said = answer(capsys, node, BILLING, "--html", str(file), code=ExitCode.USAGE)
    assert "already exists" in said
    assert "--force" in said
    assert file.read_text() == "mine"
    answer(capsys, node, BILLING, "--html", str(file), "--force")
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [one.name for one in tmp_path.iterdir()] == ["billing.html"]


def test_the_page_says_by_what_it_was_written_when_and_from_what(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(time=lambda: datetime(2026, 3, 1, 3, 20, tzinfo=UTC).timestamp())
    monkeypatch.setattr("history.pages.frame.time", clock)
    file = tmp_path / "billing.html"
    answer(capsys, node, BILLING, "--utc", "--html", str(file))
    text = file.read_text(encoding="utf-8")
    assert f"Written by Quorate {RELEASE} on 2026-03-01 03:20:00+00:00 from {node} with" in text
    assert f"<code>quorate log timeline {node} billing --utc --html {file}</code>" in text


def test_the_command_on_a_page_has_no_passwords() -> None:
    url, setting = "http://me:word@host:80/x", "spark.hadoop.fs.s3a.secret.key=word"
    TYPED.set(["log", "stats", "--url", url, "--conf", setting, f"--conf={setting}", "--html=a b"])
    hidden = "spark.hadoop.fs.s3a.secret.key=…"
    said = f"quorate log stats --url 'http://…@host:80/x' --conf '{hidden}' '--conf={hidden}' '--html=a b'"
    assert typed() == said


def test_a_page_that_cannot_be_written_leaves_nothing(
    node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = answer(capsys, node, BILLING, "--html", str(tmp_path / "no" / "x.html"), code=ExitCode.USAGE)
    assert "cannot write" in said
    os.mkfifo(fifo := tmp_path / "fifo")
    said = answer(capsys, node, BILLING, "--force", "--html", str(fifo), code=ExitCode.USAGE)
    assert "not a regular file" in said
    fifo.unlink()
    assert "directory" in answer(capsys, node, BILLING, "--html", str(tmp_path), code=ExitCode.USAGE)
    assert list(tmp_path.iterdir()) == []


def test_a_window(node: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(answer(capsys, node, BILLING, "--json"))["rows"]
    later = json.loads(
        answer(capsys, node, BILLING, "--json", "--since", "12:00:40", "--until", "21", "--utc")
    )
    assert [row["epoch"] for row in rows if row["epoch"]] == [1, 2, 3, 4, 5, 6, 7]
    assert [row["epoch"] for row in later["rows"] if row["epoch"]] == [4, 5]
    assert later["members"] == json.loads(answer(capsys, node, BILLING, "--json"))["members"]
    lanes = answer(capsys, node, BILLING, "--lanes", "--since", "12:00:40", "--utc")
    assert lanes.startswith("2026-03-01 12:00:40.000+00:00 to 2026-03-01 12:02:57.220+00:00")
    assert "nothing missing" in lanes
    end = answer(capsys, node, BILLING, "--lanes", "--since", "2027-01-01", "--utc", code=ExitCode.UNREADABLE)
    assert "the log that was read ends at 2026-03-01 12:02:57.220+00:00" in end


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_plain_letters_where_the_locale_has_no_others(
    node: str, locale: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    assert "█" in answer(capsys, node, BILLING, "--lanes")
    monkeypatch.setenv("LC_ALL", locale)
    assert answer(capsys, node, BILLING, "--lanes").isascii()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lanes", "--json"], "exclude each other"),
        (["--html", "x.html", "--lanes"], "exclude each other"),
        (["--force"], "--force needs --html"),
        (["--since", "yesterday"], "'yesterday' is neither an index nor a time"),
    ],
)
def test_what_makes_no_sense_is_refused(
    node: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in answer(capsys, node, BILLING, *arguments, code=ExitCode.USAGE)


@pytest.mark.parametrize("how", [["--lanes"], ["--html", "x.html"], []], ids="".join)
def test_a_group_that_is_not_there(
    node: str,
    how: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "billing" in answer(capsys, node, "biling", *how, code=ExitCode.UNREADABLE)
    assert list(tmp_path.iterdir()) == []
