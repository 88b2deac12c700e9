"""`quorate log export` for people and scripts, from a directory and from a running cluster."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.app import run
from quorate.errors import ExitCode
from tests.quorate.lognode import LogNode
from tests.support.disk_node import DiskNode


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("logs") / "node-1")
    node = DiskNode(path, num_shards=1)
    node.create_topic("orders", 2)
    ann = node.member("billing", "app-1", "orders").join()
    node.pass_ms(1_000, ann)
    ann.commit({0: 17})
    node.stop()
    return path


@pytest.fixture
def live() -> Iterator[LogNode]:
    node = LogNode(1)
    yield node
    node.close()


def test_a_folder_of_tables_and_one_file(
    home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["log", "export", home, "--format", "jsonl", "--output", str(tmp_path)]
    assert run(words) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}/commits.jsonl  1 rows" in said
    assert "from shard-0: entries 1 to" in said
    assert json.loads((tmp_path / "commits.jsonl").read_text())["offset"] == 17
    assert run(words) == 2
    assert "already exists" in capsys.readouterr().err
    assert run([*words, "--force", "--table", "commits", "--since", "start", "--json"]) == 0
    (written,) = json.loads(capsys.readouterr().out)["files"]
    assert (written["table"], written["rows"]) == ("commits", 1)
    file = str(tmp_path / "epochs.csv")
    one = ["--format", "csv", "-o", file, "--table", "group_epochs", "--group", "billing", "--until", "2"]
    assert run(["log", "export", home, *one]) == 0
    assert Path(file).read_text().startswith('"group_id","shard","epoch"')


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_no_export_is_named(
    number: int,
    home: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir" if number == errno.EROFS else "replace", refuse)
    words = ["log", "export", home, "--format", "csv", "--output", str(tmp_path / "tables")]
    assert run(words) == ExitCode.UNWRITTEN
    said = capsys.readouterr().err
    assert f"records.csv: {os.strerror(number)}; nothing was written: free space or make it writable" in said
    assert not list(tmp_path.rglob("*.csv"))


def test_of_a_running_cluster(live: LogNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["log", "export", "--url", live.url, "--format", "parquet", "-o", str(tmp_path)]
    assert run([*words, "--table", "commits", "--table", "records"]) == 0
    assert "40 rows" in capsys.readouterr().out
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "commits.parquet").num_rows == 40


def test_the_tables_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "export", "--tables"]) == 0
    assert "### Table member_sessions" in capsys.readouterr().out
    assert run(["log", "export", "--tables", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["table"] == "records"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--format and --output are needed"),
        (["--format", "xls", "-o", "x"], "is not a format"),
        (["--format", "csv", "-o", "x", "--group", "biling"], "it has billing"),
        (["--format", "csv", "-o", "x", "--since", "3"], "each shard has its own indexes"),
    ],
)
def test_what_is_refused(
    home: str,
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["log", "export", home, *words]) != 0
    assert said in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
