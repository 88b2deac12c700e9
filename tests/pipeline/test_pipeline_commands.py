"""`quorate pipeline` for people and scripts: answers, and one-line errors with an exit code."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command

from quorate.app import run
from quorate.commands.pipeline import app
from quorate.errors import ExitCode
from quorate.spark.__main__ import main, parser
from quorate.spark.errors import OutputBusy
from quorate.spark.tables.output import Output
from quorate.spark.tables.progress import ShardProgress
from quorate.spark.tables.transaction import Transaction
from raftlog.storage.segments import decode_header, encode_header, log_name
from records.installation import how_to_install
from tests.pipeline.damage import spoiled
from tests.pipeline.no_spark import spark_error
from tests.support.disk_node import DiskNode
from tests.support.recorded_incident import INCIDENT, ROOT

CLUSTER = "test"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("logs") / "node-1")
    node = DiskNode(path, num_shards=1)
    node.create_topic("orders", 2)
    ann = node.member("billing", "app-1", "orders").join()
    for number in range(20):
        ann.commit({0: number})
    node.stop()
    return path


@pytest.fixture
def words(home: str, tmp_path: Path) -> list[str]:
    return ["pipeline", "run", "--input", home, "--output", str(tmp_path / "tables")]


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line on standard error, after checking that nothing else was printed."""
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [
        line
        for line in captured.err.splitlines()
        if not line.startswith(("starting", "cluster ", "records:"))
    ]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("quorate: error: ")
    return lines[0]


def test_sigterm_ends_a_run_in_order(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line, exit code 143, and no staged files are left."""
    staging = tmp_path / "tables" / "_quorate" / "staging"

    def killed(_places: object, _output: object, tx: Transaction, *_: object, **__: object) -> None:
        tx.staging.filesystem().create_dir(tx.staging.path("rows"))
        assert list(staging.iterdir()), "nothing is staged"
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("quorate.spark.runs.run.ingest", killed)
    assert run(words) == 143
    assert capsys.readouterr().err.splitlines()[-1] == "stopped: the tables are as of the last commit"
    assert not list(staging.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.spark
def test_the_module_alone_runs_and_reports(
    spark: object, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """spark-submit starts it like this."""
    page = tmp_path / "report.html"
    assert main([*words[1:], "--report", str(page)]) == 0
    assert "commits: 20 new rows" in capsys.readouterr().out
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert f"<code>python -m quorate.spark {shlex.join([*words[1:], '--report', str(page)])}</code>" in text
    assert main([*words[1:], "--report", str(page)]) == 1
    assert "--force overwrites it" in capsys.readouterr().err
    assert main([*words[1:], "--report", str(page), "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_empty"] is True
    assert main(words[1:]) == 0
    assert "nothing new" in capsys.readouterr().out


def test_a_run_an_empty_run_and_what_is_there(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 0
    said = capsys.readouterr()
    assert "commits" in said.out
    assert "20" in said.out
    assert "cluster test: " in said.err
    assert run(words) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("nothing new: ")
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_empty"] is True
    assert run(["pipeline", "tables", "--output", str(tmp_path / "tables"), "--json"]) == 0
    held = json.loads(capsys.readouterr().out)["held"]
    assert {one["table"]: one["rows"] for one in held["tables"]}["commits"] == 20
    assert [one["shard"] for one in held["shards"]] == [-1, 0]
    assert run(["pipeline", "tables", "--output", str(tmp_path / "tables")]) == 0
    said = capsys.readouterr().out
    assert "after 1 run\n" in said
    assert "LAST ENTRY" in said


def test_the_tables_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "tables"]) == 0
    assert "### Table member_sessions" in capsys.readouterr().out
    assert run(["pipeline", "tables", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"][0]["table"] == "records"


def test_a_folder_without_a_log_and_one_without_tables(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--input", str(tmp_path)]) == ExitCode.UNREADABLE
    said = refusal(capsys)
    assert "holds no shard" in said
    assert said.count("node-1, node-2") == 1
    assert run([*words, "--input", str(tmp_path / "nowhere")]) == ExitCode.UNREADABLE
    assert "is not a directory" in refusal(capsys)
    assert run(["pipeline", "tables", "--output", str(tmp_path)]) == ExitCode.UNREADABLE
    assert "holds no tables" in refusal(capsys)
    assert not list(tmp_path.iterdir())


def test_a_log_of_a_newer_format(
    words: list[str],
    home: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    file = copy / "shard-0" / log_name(1)
    data = file.read_bytes()
    old = decode_header(data, "")
    with monkeypatch.context() as patched:
        patched.setattr("raftlog.storage.segments.FORMAT", 2)
        file.write_bytes(encode_header(old.identity, 1) + data[old.frames_offset :])
    assert run([*words, "--input", str(copy), "--mode", "permissive"]) == ExitCode.UNREADABLE
    assert "format 2 is unknown, this release reads 1; start the release that wrote this file" in refusal(
        capsys
    )


def test_two_clusters_in_one_path(
    words: list[str], home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = tmp_path / "both"
    shutil.copytree(home, both / "node-1")
    shutil.copytree(INCIDENT / "node-2", both / "node-2")
    assert run([*words, "--input", str(both)]) == ExitCode.UNREADABLE
    assert "belong to different clusters" in refusal(capsys)


def test_damage_is_one_line(
    words: list[str], home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(home, tmp_path / "copy"))
    file = spoiled(copy, 1)
    assert run([*words, "--input", str(copy), "--json"]) == ExitCode.UNREADABLE
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert file.name in json.loads(line)["error"]


def test_an_output_that_is_busy_anothers_or_no_folder_of_ours(
    words: list[str], home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Output.open(tmp_path / "tables", cluster_id=CLUSTER) as theirs, theirs.begin() as transaction:
        assert run(words) == 0  # whoever commits first
        capsys.readouterr()
        with pytest.raises(OutputBusy, match=r"another run .*run again when"):
            transaction.commit(replace(theirs.progress, shards={0: ShardProgress(records_to=1)}))
    with Output.open(tmp_path / "theirs", cluster_id="theirs"):
        pass
    assert run([*words, "--output", str(tmp_path / "theirs")]) == ExitCode.UNWRITTEN
    assert "holds the tables of cluster theirs" in refusal(capsys)
    for inside in (Path(home) / "tables", tmp_path / "link" / "tables"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(home)
        assert run([*words, "--output", str(inside)]) == ExitCode.UNWRITTEN
        assert "is inside the input" in refusal(capsys)
        assert not (Path(home) / "tables").exists()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpeg").touch()
    assert run([*words, "--output", str(tmp_path / "photos")]) == ExitCode.UNWRITTEN
    assert "holds no tables" in refusal(capsys)
    assert run([*words, "--output", str(tmp_path / "photos" / "cat.jpeg" / "tables")]) == ExitCode.UNWRITTEN
    assert "cannot create the table progress in" in refusal(capsys)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--mode", "lenient"], "give fail or permissive"),
        (["--driver-memory", "lots"], "not an amount of memory"),
        (["--conf", "spark.x"], "KEY=VALUE"),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    more: list[str], said: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, *more]) == ExitCode.USAGE
    assert said in refusal(capsys)


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "deltalake"])
def test_a_missing_package_is_named_with_what_brings_it(package: str, words: list[str]) -> None:
    """It runs in a process of its own, as this one has imported the package already."""
    hidden = f"import sys; sys.modules[{package!r}] = None"
    code = f"{hidden}; from quorate.app import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == ExitCode.INSTALLATION
    assert f"; {how_to_install('spark')}\n" in done.stderr
    assert done.stderr.count("\n") == 1


OF_SPARK = {"--master", "--driver-memory", "--conf", "--spark-logs"}
"""Options that spark-submit has itself."""


@pytest.mark.parametrize("name", ["run", "stream"])
def test_the_module_has_every_option_of_the_command_but_sparks(name: str) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    theirs = {word for param in commands[name].params for word in (*param.opts, *param.secondary_opts)}
    (subparsers,) = [one for one in parser()._actions if isinstance(one.choices, dict)]
    assert isinstance(subparsers.choices, dict)
    ours = {word for action in subparsers.choices[name]._actions for word in action.option_strings}
    assert ours - {"-h", "--help"} == theirs - OF_SPARK - {"--help"}


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (
            ModuleNotFoundError("no", name="pandas"),
            f"pandas is not installed; {how_to_install('spark')}",
        ),
        (spark_error("java.lang.OutOfMemoryError: Java heap space"), "ran out of memory"),
    ],
)
def test_the_module_tells_any_foreseen_failure_in_one_line(
    raised: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise raised

    monkeypatch.setattr("quorate.spark.__main__._zip", fail)
    assert main(["zip", "x.zip"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("pipeline: error: ")
    assert says in said
    assert said.count("\n") == 1


def test_a_step_of_the_module_that_is_none_is_refused(
    home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stream", "--input", home, "--output", str(tmp_path / "tables"), "--max-entries", "0"]
    assert main(words) == 1
    assert "--max-entries 0 is not a number above 0" in capsys.readouterr().err
    assert not (tmp_path / "tables").exists()
