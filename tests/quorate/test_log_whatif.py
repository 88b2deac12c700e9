"""`quorate log whatif` on a node's directory: figures as text and JSON, all groups, invalid questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.support.disk_node import DiskNode
from tests.support.incidents.world import GROUP
from tests.support.mixed_story import mixed_world


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups; in `billing`, two members share three topics of one partition, and one is killed."""
    path = tmp_path_factory.mktemp("whatif") / "node-1"
    node = DiskNode(str(path), num_shards=2)
    for name in ("orders", "events", "late"):
        node.create_topic(name, 1)
    ann = node.member("billing", "app-1", "orders", "events", "late").join()
    node.pass_ms(2_000, ann)
    bob = node.member("billing", "app-2", "orders", "events", "late").join()
    node.pass_ms(5_000, ann, bob)
    eve = node.member("audit", "app-3", "orders").join()
    node.pass_ms(6_000, ann, eve)
    node.stop()
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["log", "whatif", *words]) == 0
    return capsys.readouterr().out


def test_one_group_as_text(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = asked(capsys, str(directory), "billing", "--assignor", "range")
    assert "Group billing: what if assignor range" in said
    assert "nothing missing" in said
    assert "2 fewer partitions moved. Worse: partitions spread less evenly (up to 3 apart" in said
    figures = {line[:48].strip(): line[48:].split() for line in said.splitlines()}
    assert figures["epochs"] == ["3", "3", "="]
    assert figures["partitions moved between members"] == ["2", "0", "-2"]
    assert figures["largest difference in partitions between members"] == ["1", "3", "+2"]
    assert "largest difference in partitions at the end " in said
    assert "the replay with the recorded settings (assignor uniform) equals what really happened" in said


@pytest.mark.parametrize("more", [[], ["--json"], ["--html", "page.html"]], ids=" ".join)
def test_a_group_that_cannot_be_replayed_is_no_answer(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = mixed_world().node()
    monkeypatch.setattr("history.reading.opening.open_node", lambda _: log)
    monkeypatch.chdir(tmp_path)
    assert run(["log", "whatif", "./", GROUP, "--assignor", "range", *more]) == ExitCode.UNREADABLE
    captured = capsys.readouterr()
    assert f"nothing was replayed of group {GROUP}: it had members of the classic protocol" in captured.err
    assert "whatif replays only members of the consumer protocol" in captured.err
    assert captured.out == ""
    assert run(["log", "whatif", "./", "--assignor", "range"]) == ExitCode.OK
    assert f"not replayed: {GROUP}: it had members of the classic protocol" in capsys.readouterr().out


def test_one_group_as_json(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(asked(capsys, str(directory), "billing", "--session-timeout", "1500ms", "--json"))
    (result,) = told["results"]
    assert result["is_faithful"]
    assert result["asked"] == ["session timeout 1.5 s"]
    assert result["really"]["sessions_expired"] == result["whatif"]["sessions_expired"] == 1
    assert result["whatif"]["unstable_ms"] == result["really"]["unstable_ms"]
    assert set(result["assumed"]) >= {"as_then", "usual", "one_interval", "unknown_sessions"}
    assert "facts" not in result
    assert told["basis"][0]["last_index"]


def test_all_groups_by_how_much_would_have_been_different(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = asked(capsys, str(directory), "--assignor", "range")
    assert said.index("billing") < said.index("audit")
    assert "2 -> 0" in said


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (["billing", "--assignor", "best"], "give uniform or range, or module:Class", ExitCode.USAGE),
        (["billing", "--session-timeout", "soon"], "--session-timeout: 'soon' is not a span", ExitCode.USAGE),
        (["billing", "--session-timeout", "1ms"], "use 1000 to 1800000 ms", ExitCode.USAGE),
        (["biling"], "it has billing", ExitCode.UNREADABLE),
        (["billing", "orders"], "'orders' is one argument too many", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    directory: Path, words: list[str], says: str, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "whatif", str(directory), *words]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err


def test_one_group_as_a_page_that_is_not_overwritten_unasked(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    said = asked(capsys, str(directory), "billing", "--assignor", "range", "--html", str(page))
    assert str(page) in said
    text = page.read_text(encoding="utf-8")
    assert "Group billing: what if assignor range" in text
    assert f" from {directory} with <code>quorate log whatif {directory} billing" in text
    assert run(["log", "whatif", str(directory), "billing", "--html", str(page)]) == ExitCode.USAGE
    assert "--force" in capsys.readouterr().err
    assert run(["log", "whatif", str(directory), "--html", str(tmp_path / "all.html")]) == ExitCode.USAGE
    assert "shows one group" in capsys.readouterr().err
