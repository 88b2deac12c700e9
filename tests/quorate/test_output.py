"""Text for people is aligned, plain where it must be, and fits terminals of 40 to 200 columns."""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path

import pytest

from history.columns import display_width
from quorate.app import run
from quorate.demo.display import Display
from quorate.output import assignment_text, put_json, say, table_lines, use_colour

INCIDENT = Path(__file__).parents[2] / "examples" / "incident" / "cluster"

PROSE = (
    *("explain billing --epoch 13", "verify", "findings", "findings --rules", "owner orders-3"),
    *("diff billing --since 03:10 --until 03:12 --utc", "replay", "dump --group billing --since 03:15 --utc"),
)
OTHERS = (
    "compare",
    "stats",
    "terms",
    "timeline billing",
    "whatif billing --session-timeout 6s",
    "whatif",
    "timeline billing --lanes",
)


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
    for line in ("GROUP    STATE  NODE 1", "TERM     1", "billing  Stable", "no colour here"):
        say(line)
    for line in ("MIN/MEAN/MAX", "         PARTITIONS", "NOT_COORDINATOR", "set QUORATE_KAFKA_PORT=1"):
        say(line)
    for line in ("error  1  FLAPPING_MEMBER  a", "WARNING  SESSION_EXPIRED: b", "because MEMBER_JOINED"):
        say(line)
    put_json('{"state": "Stable"}')
    assert terminal.getvalue().splitlines() == [
        "\x1b[1mGROUP    STATE  NODE 1\x1b[0m",
        "TERM     1",
        "billing  \x1b[32mStable\x1b[0m",
        "no colour here",
        "MIN/MEAN/MAX",
        "\x1b[1m         PARTITIONS\x1b[0m",
        "\x1b[31mNOT_COORDINATOR\x1b[0m",
        "set QUORATE_KAFKA_PORT=1",
        "\x1b[31merror  1  FLAPPING_MEMBER\x1b[0m  a",
        "\x1b[33mWARNING  SESSION_EXPIRED\x1b[0m: b",
        "because MEMBER_JOINED",
        '{"state": "Stable"}',
    ]


def test_what_is_said_about_names_leaves_nothing_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("deleted group a\x1b]0;b\x07\nexit 0 \u202e é")
    assert capsys.readouterr().out == "deleted group a\\x1b]0;b\\x07\\nexit 0 \\u202e é\n"
    assert run(["log", "verify", "no-such-\x1b[31mdirectory"]) != 0
    assert "\x1b" not in capsys.readouterr().err


def answer(monkeypatch: pytest.MonkeyPatch, width: int, command: str) -> str:
    """The output of a command of `quorate log` about the example on a terminal of this width."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", terminal := Terminal())
        assert run(["log", *shlex.split(command), "--data", str(INCIDENT)]) == 0
    return terminal.getvalue()


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("command", [*PROSE, *OTHERS])
def test_no_line_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    assert max(map(display_width, answer(monkeypatch, width, command).splitlines())) <= width


@pytest.mark.parametrize("command", PROSE)
def test_lines_break_between_words_on_a_terminal_and_nowhere_on_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    shown = answer(monkeypatch, 80, command)
    assert max(map(display_width, shown.splitlines())) <= 80
    assert run(["log", *shlex.split(command), "--data", str(INCIDENT)]) == 0
    piped = capsys.readouterr().out
    assert words_of(shown) == words_of(piped)
    assert max(map(display_width, piped.splitlines())) > 80


def words_of(text: str) -> list[str]:
    """The words of a text; lists may be broken behind a comma."""
    return re.sub(r",\s+", ",", text).split()


def test_an_error_is_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    assert run(["log", "verify", "no-such-directory"]) != 0
    first, *rest = terminal.getvalue().splitlines()
    assert first.startswith("quorate: error: ")
    assert max(map(len, [first, *rest])) <= 40
    assert all(line.startswith("  ") for line in rest)
