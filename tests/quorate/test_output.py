"""Text for people is aligned, plain where it must be, and accurate."""

from __future__ import annotations

import io

import pytest

from quorate.app import run
from quorate.demo.display import Display
from quorate.output import assignment_text, put_json, say, table_lines, use_colour


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    assert table_lines(("TOPIC", "PARTITIONS"), [("orders", 12), ("p", 4)]) == [
        "TOPIC   PARTITIONS",
        "orders          12",
        "p                4",
    ]


def test_assignments_fold_runs_of_partitions() -> None:
    assert assignment_text({"orders": [3, 0, 1, 2, 7], "empty": []}) == "orders:0-3,7"
    assert assignment_text({}) == "-"


def test_no_escape_code_reaches_a_pipe() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.step("a step")
    display.live("0.1 s  one of two", change="one of two")
    display.live("0.2 s  one of two", change="one of two")
    display.claim(False, "it held")
    text = stream.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.count("one of two") == 1
    assert "NOT TRUE: it held" in text


def test_a_terminal_gets_one_live_line_that_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    display = Display(stream)
    display.live("0.1 s  one", change="one")
    display.live("0.2 s  two", change="two")
    display.line("done")
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.count("\r\x1b[2K") == 3
    assert text.endswith("done\n")


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_may_decline_colour(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    assert not use_colour(Terminal())


def test_a_terminal_sees_headings_states_and_errors_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    for line in ("GROUP    STATE", "billing  Stable", "no colour here"):
        say(line)
    put_json('{"state": "Stable"}')
    assert terminal.getvalue().splitlines() == [
        "\x1b[1mGROUP    STATE\x1b[0m",
        "billing  \x1b[32mStable\x1b[0m",
        "no colour here",
        '{"state": "Stable"}',
    ]


def test_what_is_said_about_names_leaves_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("deleted group a\x1b]0;b\x07\nexit 0 \u202e é")
    assert capsys.readouterr().out == "deleted group a\\x1b]0;b\\x07\\nexit 0 \\u202e é\n"
    assert run(["log", "verify", "no-such-\x1b[31mdirectory"]) != 0
    assert "\x1b" not in capsys.readouterr().err
