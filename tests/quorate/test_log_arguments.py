"""The arguments of `quorate log`: how the log and the group are told apart, and their other spellings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.support.disk_node import DiskNode


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with quorate-data, in which group billing and group quorate-data have a member."""
    work = tmp_path_factory.mktemp("work")
    node = DiskNode(str(work / "quorate-data"), num_shards=1)
    node.create_topic("orders", 2)
    for group in ("billing", "quorate-data"):
        node.member(group, "app-1", "orders").join()
    node.stop()
    (work / "empty").mkdir()
    return work


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = run(["log", *words])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], code: ExitCode, *words: str) -> str:
    assert run(["log", *words]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["billing"],
        ["--group", "billing"],
        ["quorate-data", "billing"],
        ["quorate-data", "--group", "billing"],
        ["--data", "quorate-data", "billing"],
        ["--data", "quorate-data", "--group", "billing"],
        ["./quorate-data", "billing"],
    ],
    ids=" ".join,
)
def test_the_log_and_the_group_are_given_in_any_way(
    words: list[str],
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(work)
    assert json.loads(answer(capsys, "explain", *words, "--json"))["group_id"] == "billing"
    (one,) = json.loads(answer(capsys, "stats", *words, "--json"))["groups"]
    assert one["group_id"] == "billing"


@pytest.mark.parametrize("command", ["timeline", "findings", "replay", "diff", "dump"])
def test_every_command_on_a_group_takes_it_as_argument_and_as_option(
    command: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    told = answer(capsys, command, "billing", "--utc")
    assert told == answer(capsys, command, "--group", "billing", "--utc", "--data", "quorate-data")


def test_a_directory_is_the_log_and_only_the_option_names_a_group_like_it(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    assert len(json.loads(answer(capsys, "stats", "quorate-data", "--json"))["groups"]) == 2
    (one,) = json.loads(answer(capsys, "stats", "--group", "quorate-data", "--json"))["groups"]
    assert one["group_id"] == "quorate-data"
    assert "GROUP is missing" in refusal(capsys, ExitCode.USAGE, "explain", "quorate-data")


def test_owner_takes_a_partition_and_a_group(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    whole = answer(capsys, "owner", "orders-0")
    assert "quorate-data" in whole
    told = answer(capsys, "owner", "orders-0", "billing")
    assert told == answer(capsys, "owner", "quorate-data", "orders-0", "--group", "billing") != whole


def test_what_reads_files_only_reads_the_default_directory_too(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(work)
    assert "directory is given (quorate-data)" in refusal(capsys, ExitCode.UNREADABLE, "compare")
    assert "everything holds" in answer(capsys, "verify")
    assert answer(capsys, "archive") == answer(capsys, "archive", "--data", "quorate-data")
    for command in ("verify", "compare"):
        assert "no such option: --url" in refusal(capsys, ExitCode.USAGE, command, "--url", "h:1").lower()


@pytest.mark.parametrize("command", ["run", "stream"])
def test_the_pipeline_reads_the_default_directory_too(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    assert run(["pipeline", command, "--output", "tables"]) == ExitCode.UNREADABLE
    assert "quorate-data is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["explain"], ExitCode.USAGE, "GROUP is missing"),
        (["explain", "a", "b", "c"], ExitCode.USAGE, "'c' is one argument too many"),
        (["explain", "billing", "--group", "web"], ExitCode.UNREADABLE, "billing is not a directory"),
        (["stats", "./quorate-data", "--url", "http://h:1"], ExitCode.USAGE, "two logs are given"),
        (["stats", "./quorate-data", "--data", "b"], ExitCode.USAGE, "two logs are given"),
        (["dump", "--from", "2"], ExitCode.USAGE, "no such option: --from; it is --since"),
        (["diff", "--to", "2"], ExitCode.USAGE, "no such option: --to; it is --until"),
        (["explain", "billing"], ExitCode.UNREADABLE, "there is no directory quorate-data here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_arguments_that_do_not_fit_are_named(
    words: list[str],
    code: ExitCode,
    says: str,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(work / "empty")
    assert says in refusal(capsys, code, *words)
