"""`quorate log explain` on a directory that a node wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.quorate.dying_member import GROUP, write_log

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_log(tmp_path_factory.mktemp("data"))


def said(capsys: Capture, data: str, *more: str) -> str:
    assert run(["log", "explain", data, GROUP, "--utc", *more]) == ExitCode.OK
    return capsys.readouterr().out


def test_it_begins_with_what_stands_out_and_tells_every_step(data: str, capsys: Capture) -> None:
    text = said(capsys, data)
    assert text.index("findings:") < text.index("epoch 0 -> 1")
    assert "warning SESSION_EXPIRED" in text
    assert re.search(
        r"m2 waited \d.* for orders 3-5, held by m1, which was told at .* and gave them up at", text
    )
    assert "had a heartbeat of m2 come before " in text


@pytest.mark.parametrize(
    ("choice", "epochs"),
    [
        (["--epoch", "2"], [2]),
        (["--member", "app-2"], [2, 3]),
        (["--member", "m2", "--partition", "orders-5"], [2, 3]),
        (["--partition", "orders-0"], [1]),
        (["--at", "end"], [3]),
        (["--at", "start+9"], None),
        (["--until", "end-4s"], [1, 2]),
        (["--since", "end-4s"], [2, 3]),
    ],
    ids=lambda words: " ".join(words) if words and isinstance(words[0], str) else "",
)
def test_what_is_asked_for(data: str, capsys: Capture, choice: list[str], epochs: list[int] | None) -> None:
    if epochs is None:
        assert run(["log", "explain", data, GROUP, *choice]) == ExitCode.USAGE
        return
    steps = json.loads(said(capsys, data, *choice, "--json"))["steps"]
    assert [step["epoch"] for step in steps if step["kind"] == "epoch"] == epochs


@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        (["--epoch", "7"], "it has epochs 1-3"),
        (["--member", "app-9"], "client app-2"),
        (["--partition", "orders-6"], "it has orders 0-5"),
        (["--at", "1"], "was not there yet at index 1: its first epoch began at"),
    ],
    ids=" ".join,
)
def test_what_does_not_exist_is_told_what_does(
    data: str, capsys: Capture, choice: list[str], answer: str
) -> None:
    assert run(["log", "explain", data, GROUP, *choice]) == ExitCode.UNREADABLE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert answer in captured.err


def test_a_group_that_does_not_exist_is_told_which_do(data: str, capsys: Capture) -> None:
    assert run(["log", "explain", data, "biling"]) == ExitCode.UNREADABLE
    assert "it has billing" in capsys.readouterr().err
    assert run(["log", "explain", str(Path(data).parent), GROUP, "--json"]) == ExitCode.OK
