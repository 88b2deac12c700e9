"""Output to a full disk, in an encoding that lacks its characters, and to a terminal it could control."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.support.disk_node import DiskNode

NAME = "b\u00fclling\x9b31m\u202e"
"""A group id with an umlaut, a one-character control sequence, and a mark that reverses the line."""
HALF = "half \udcff"


def quorate(
    *arguments: str, into: str, unbuffered: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    with open(into, "w") as output:
        return subprocess.run(
            [sys.executable, "-m", "quorate", *arguments],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered} | environ,
        )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    node = DiskNode(str(tmp_path_factory.mktemp("data") / "node-1"))
    node.create_topic("orders", 2)
    node.member(NAME, "app-1", "orders").join()
    node.stop()
    return node.path


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        ["stats"],
        ["dump"],
        ["dump", "--json"],
        ["stats", "--json"],
        ["verify"],
        ["verify", "--json"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_an_answer_that_does_not_fit_is_one_line_and_no_fault_of_the_log(
    data: str, words: list[str], unbuffered: str
) -> None:
    name, *more = words
    asked = ["log", name, *([] if name == "--help" else [data]), *more]
    done = quorate(*asked, into="/dev/full", unbuffered=unbuffered)
    assert done.returncode == ExitCode.UNWRITTEN, done.stderr
    assert "the output cannot be written: No space left on device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert data not in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", ["stats", "dump"])
def test_names_are_harmless_in_json_and_can_be_read_back(
    data: str, name: str, encoding: str, tmp_path: Path
) -> None:
    file = tmp_path / "answer"
    done = quorate("log", name, data, "--json", into=str(file), PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    text = file.read_bytes().decode(encoding)
    assert all(line.isprintable() for line in text.splitlines())
    said = [json.loads(line) for line in text.splitlines()]
    assert NAME in _texts(said)


@pytest.mark.parametrize("encoding", ["latin-1"])
def test_text_is_written_in_any_encoding(data: str, encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "answer"
    for words in (["stats", data], ["explain", data, HALF], ["dump", data]):
        done = quorate("log", *words, into=str(file), PYTHONIOENCODING=encoding)
        assert done.returncode in (ExitCode.OK, ExitCode.UNREADABLE), done.stderr
        assert "Traceback" not in done.stderr


def test_a_refusal_in_json_survives_half_a_character(data: str, tmp_path: Path) -> None:
    done = quorate("log", "explain", data, HALF, "--json", into=str(tmp_path / "answer"))
    assert done.returncode == ExitCode.UNREADABLE
    assert "half" in json.loads(done.stderr)["error"]


@pytest.mark.parametrize(
    "words",
    [
        ["timeline", "DIR", HALF],
        ["findings", "DIR", HALF],
        ["stats", "DIR", "--group", HALF],
        ["whatif", "DIR", HALF],
    ]
    + [[name, "DIR", "--group", HALF] for name in ("dump", "diff", "replay")]
    + [["explain", "DIR", HALF, "--since", "end-5m"], ["owner", "DIR", "orders-0", "--group", HALF]],
    ids=lambda words: words[0],
)
def test_half_a_character_names_no_group(
    data: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", *(data if word == "DIR" else word for word in words)]) == ExitCode.UNREADABLE
    assert "there is no group" in capsys.readouterr().err


def _texts(value: object) -> set[str]:
    """Return every text of a JSON document."""
    if isinstance(value, str):
        return {value}
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return set().union(*map(_texts, parts)) if isinstance(parts, list) else set()


TOO_LONG = "n" * 300
"""A name that no file can have: as for one in a directory of somebody else, even the look at it fails."""


@pytest.mark.parametrize(
    "words",
    [
        ["log", "stats", "--html", f"{TOO_LONG}.html"],
        ["log", "timeline", NAME, "--html", f"{TOO_LONG}.html"],
        ["log", "export", "--format", "csv", "--output", TOO_LONG],
        ["log", "export", "--format", "csv", "--output", f"{TOO_LONG}.csv", "--table", "commits"],
        ["generations", "--out", f"{TOO_LONG}.html"],
        ["pipeline", "run", "--output", "tables", "--report", f"{TOO_LONG}.html"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_place_that_cannot_be_looked_at_is_named(
    words: list[str], data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"log": ["--data", data], "pipeline": ["--input", data]}.get(words[0], [])
    assert run([*words, *told]) == ExitCode.UNWRITTEN
    error = capsys.readouterr().err
    assert error.startswith(f"quorate: error: cannot write {TOO_LONG}")
    assert "File name too long" in error


def test_a_log_that_cannot_be_looked_at_is_not_called_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "stats", "--data", TOO_LONG]) == ExitCode.UNREADABLE
    assert f"cannot read {TOO_LONG}: File name too long" in capsys.readouterr().err


def test_a_node_directory_that_cannot_be_looked_at_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["node", "run", "--format", "--data", TOO_LONG]) == ExitCode.UNWRITTEN
    assert f"cannot write {TOO_LONG}: File name too long" in capsys.readouterr().err


def test_spark_submit_names_a_report_that_cannot_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    from quorate.spark.__main__ import main

    assert main(["run", "--input", "log", "--output", "tables", "--report", TOO_LONG]) == 1
    assert f"{TOO_LONG} cannot be written: File name too long" in capsys.readouterr().err
