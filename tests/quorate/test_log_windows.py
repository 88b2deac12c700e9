"""Windows and moments that lie outside of a log, or behind damage that cuts it: every command says so."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.quorate.dying_member import GROUP, write_log

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_log(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def cut(data: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy whose log of the group is damaged at two thirds."""
    copy = tmp_path_factory.mktemp("cut") / "node-1"
    shutil.copytree(data, copy)
    for log in copy.glob("shard-*/*.log"):
        whole = bytearray(log.read_bytes())
        used = len(whole.rstrip(b"\0"))
        whole[used * 2 // 3] ^= 0xFF
        log.write_bytes(whole)
    return str(copy)


def said(capsys: Capture, *words: str) -> str:
    code = run(["log", *words, "--utc"])
    captured = capsys.readouterr()
    assert code in (ExitCode.OK, ExitCode.UNREADABLE), captured.err
    return captured.out + captured.err


WINDOWED = [
    ["findings", "DIR"],
    ["explain", "DIR", GROUP],
    ["timeline", "DIR", GROUP],
    ["timeline", "DIR", GROUP, "--lanes"],
    ["stats", "DIR"],
]


@pytest.mark.parametrize("words", [*WINDOWED, ["dump", "DIR"], ["diff", "DIR"]], ids=" ".join)
def test_a_clock_behind_the_end_is_not_that_of_the_day_before(
    words: list[str], data: str, capsys: Capture
) -> None:
    more = ["--until", "12:06"] if words[0] == "diff" else []
    text = said(capsys, *(data if word == "DIR" else word for word in words), "--since", "12:05", *more)
    assert "ends at 2026-03-01 12:00:08.510" in text
    assert "before the window begins" in text
    assert "2026-02-28" not in text


@pytest.mark.parametrize("bound", [["--since", "12:05"], ["--until", "11:00"]], ids=" ".join)
@pytest.mark.parametrize("words", [*WINDOWED, ["dump", "DIR"]], ids=" ".join)
def test_every_command_refuses_a_window_that_holds_nothing_of_the_log(
    words: list[str], bound: list[str], data: str, capsys: Capture
) -> None:
    assert run(["log", *(data if word == "DIR" else word for word in words), *bound]) == ExitCode.UNREADABLE
    assert "give other --since and --until" in capsys.readouterr().err


def test_what_was_in_force_at_a_time_behind_damage_is_not_asserted(cut: str, capsys: Capture) -> None:
    text = said(capsys, "explain", cut, GROUP, "--at", "12:00:10")
    assert (
        "ends at 2026-03-01 12:00:03.010+00:00, before that moment; at its end epoch 2 was in force" in text
    )
    assert "at 2026-03-01 12:00:10.000+00:00 epoch" not in text


def test_findings_of_a_damaged_log_begin_with_the_damage(cut: str, capsys: Capture) -> None:
    first, *rest = said(capsys, "findings", cut).splitlines()
    assert first.startswith("damaged: shard-0: entries 1 to 5; entries after index 5 cannot be read")
    assert rest[0].startswith("nothing odd in what could be read of 1 group")


@pytest.mark.parametrize("words", WINDOWED, ids=" ".join)
def test_a_window_that_begins_or_ends_outside_is_told(words: list[str], data: str, capsys: Capture) -> None:
    asked = [data if word == "DIR" else word for word in words]
    begins = "the log, as far as it is kept, begins at 2026-03-01 12:00:00.000+00:00, after the window does"
    assert f"{begins} (2026-03-01 11:50:00.000+00:00)" in said(capsys, *asked, "--since", "11:50")
    ends = said(capsys, *asked, "--until", "12:10")
    assert "before the window does (2026-03-01 12:10:00.000+00:00)" in ends
    inside = said(capsys, *asked, "--since", "12:00:02", "--until", "12:00:05")
    assert "the log" not in inside


def test_a_clock_of_another_day_is_told(data: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EARLY+11")  # the log is of one o'clock in the morning there
    time.tzset()
    try:
        assert run(["log", "findings", data, "--since", "23:00", "--json"]) == ExitCode.OK
        notes = json.loads(capsys.readouterr().out)["notes"]
        assert run(["log", "findings", data, "--since", "00:30"]) == ExitCode.OK
    finally:
        monkeypatch.undo()
        time.tzset()
    taken = "23:00 was taken as 2026-02-28 23:00:00.000-11:00; the log ends at 2026-03-01 01:00:08.510-11:00"
    assert taken in notes
    assert "was taken" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        *([*words, "--since", "12:00:10"] for words in WINDOWED),
        *([*words, "--until", "12:00:10"] for words in WINDOWED),
        ["explain", "DIR", GROUP, "--at", "12:00:10"],
        ["owner", "DIR", "orders-1", "--at", "12:00:10"],
        ["replay", "DIR", "--group", GROUP, "--at", "12:00:10"],
        ["diff", "DIR", "--since", "12:00:02", "--until", "12:00:10"],
    ],
    ids=" ".join,
)
def test_damage_that_hides_what_was_asked_for_is_told(words: list[str], cut: str, capsys: Capture) -> None:
    text = said(capsys, *(cut if word == "DIR" else word for word in words))
    assert "damage cuts the log at 2026-03-01 12:00:0" in text
    assert ": what happened later is unknown" in text
