"""The command line for people and scripts: help, one-line errors, exit codes."""

from __future__ import annotations

import dataclasses
import errno
import inspect
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cluster.launching.cluster_directory import kept_if_ready
from cluster.main import main as node_main
from quorate.app import app, run
from quorate.commands.log.common import plain
from quorate.errors import EXIT_CODE_MEANINGS, CommandError, ExitCode
from raftlog.env.files import OsFiles
from tests.quorate.lognode import LogNode
from tests.support.disk_node import DiskNode

COMMANDS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
COMMANDS = [
    ["demo"],
    ["up"],
    ["generations"],
    ["docs"],
    ["settings"],
    *(["node", name] for name in ("run", "format")),
    *(["topics", name] for name in ("create", "list", "describe", "grow", "recreate", "delete", "mirror")),
    *(["groups", name] for name in ("list", "describe", "delete")),
    *(["groups", name] for name in ("config", "remove-member", "delete-offsets", "reset-offsets")),
    *(["cluster", name] for name in ("status", "transfer", "drain", "undrain", "upgrade")),
    *(["cluster", name] for name in ("kill", "stop", "cont", "restart")),
    *(["faults", name] for name in ("add", "list", "clear")),
    *(["log", name] for name in ("dump", "verify", "compare", "replay", "explain", "timeline", "terms")),
    *(["log", name] for name in ("findings", "owner", "diff", "stats", "export", "whatif", "archive")),
    *(["pipeline", name] for name in ("run", "stream", "tables")),
]


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is bound but not listened on, so that no other process can answer there."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("quorate: error: ")
    return lines[0]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself_with_an_example(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: quorate {' '.join(command)}" in shown
    usage, _, rest = shown.partition("\n")
    assert not re.search(r"[{}<>]", usage), "values are named plainly"
    assert not re.search(r"<\w", rest), "values are named plainly"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_examples_are_wrapped_at_blanks_only(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert run([*command, "--help"]) == 0
    assert not re.search(r"\w-+$", capsys.readouterr().out, re.MULTILINE)


def test_a_port_that_speaks_no_tls_is_said_to_do_so(capsys: pytest.CaptureFixture[str]) -> None:
    node = LogNode(1)
    try:
        assert run(["cluster", "status", "--url", node.url.replace("http:", "https:")]) == 3
        assert "the port speaks HTTP without TLS); give its address with http://" in one_error(capsys)
        assert run(["log", "terms", "--url", node.url.replace("http:", "https:")]) == 3
        assert "the port speaks HTTP without TLS); give its address with http://" in one_error(capsys)
    finally:
        node.close()


def test_a_wrong_flag_of_a_node_is_an_error_like_any_other(capfd: pytest.CaptureFixture[str]) -> None:
    assert node_main(["--foo", "3"]) == ExitCode.USAGE
    assert one_error(capfd).startswith("quorate: error: flag --foo: unknown setting foo")


def test_only_a_setting_with_a_name_like_it_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    run(["settings", "nope"])
    assert "did you mean" not in one_error(capsys)
    run(["settings", "kafka.prot"])
    assert "did you mean kafka.port?" in one_error(capsys)


def test_a_shell_completes_commands_and_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def completed(line: str) -> list[str]:
        monkeypatch.setenv("_QUORATE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            run([])
        return capsys.readouterr().out.split()

    assert completed("quorate gro") == ["groups"]
    assert {"explain", "export"} == set(completed("quorate log exp"))
    assert completed("quorate groups describe --boo") == ["--bootstrap"]
    assert completed("quorate node ") == ["run", "format"]


def test_settings_are_listed_and_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    from cluster.settings import table

    assert run(["settings", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["settings"]
    assert [one["name"] for one in listed] == [setting.name for setting in table()]
    for name in ("kafka.port", "kafka-port", "QUORATE_KAFKA_PORT"):
        assert run(["settings", name]) == 0
        shown = capsys.readouterr().out
        assert shown.splitlines()[:3] == ["kafka.port", "  default  9,092", "  range    0 to 65,535"]
        assert "quorate node --kafka-port 9092, QUORATE_KAFKA_PORT=9092" in shown
    assert run(["settings", "session.timeout"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(names) > 2
    assert all("session.timeout" in name for name in names[1:])


def tree() -> Iterator[tuple[list[str], str]]:
    """Yield every command with the module that defines it, below `quorate.commands`."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        for word, one in getattr(command, "commands", {"": command}).items():
            module = inspect.unwrap(one.callback).__module__
            yield [name, word] if word else [name], module.removeprefix("quorate.commands.")


def test_no_command_is_missing_from_this_list() -> None:
    assert sorted(command for command, _ in tree()) == sorted(COMMANDS)


def test_each_command_is_in_a_module_of_its_name_or_of_its_groups_name() -> None:
    """For example, `quorate log explain` is in commands/log/explain.py."""
    for command, module in tree():
        assert module in (command[0], ".".join(command).replace("-", "_"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topics", "create", "--nope", "orders"], "--nope"),
        (["topics", "create"], "quorate topics create --help"),
        (["topics", "create", "orders:many"], "orders:12"),
        (["topics", "grow", "orders"], "orders:24"),
        (["nonsense"], "nonsense"),
        (["up", "--nodes", "4"], "choose 3 or 5"),
        (["up", "--nodes", "2"], "choose 1 or 3"),
        (["up", "--nodes", "7"], "1, 3 or 5"),
        (["node", "format", "--data", "x", "--node-id", "1", "--nodes", "2,3"], "--node-id 1"),
        (["node", "format", "--data", "x", "--node-id", "1", "--nodes", "1,b"], "1,2,3"),
        (["node", "format", "--data", "x", "--node-id", "1", "--nodes", "1,2,3"], "--cluster-id ID"),
        (["node", "format", "--data", "x", "--node-id", "1", "--replace"], "--nodes"),
        (["up", "--set", "nonsense"], "KEY=VALUE"),
        (["topics", "list", "--bootstrap", "localhost"], "HOST:PORT"),
        (
            ["topics", "list", "--bootstrap", "http://127.0.0.1:9092"],
            "leave out http://, as in 127.0.0.1:9092",
        ),
        (["cluster", "status", "--url", "ftp://localhost"], "http://127.0.0.1:8092"),
        (["settings", "kafka.prot"], "did you mean kafka.port?"),
        (["settings", "xyzzy"], "`quorate settings` lists them all"),
        (["groups", "describe"], "GROUP is missing; for example `quorate groups describe billing"),
        (
            ["groups", "remove-member", "--group", "billing"],
            "MEMBER is missing; give it after group billing; for example `quorate",
        ),
        (["groups", "describe", "billing", "--group", "web"], "two groups are given"),
        (["log", "explain"], "GROUP is missing; for example `quorate log explain"),
        (["log", "owner", "a/b", "c", "d", "e"], "for example `quorate log owner"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_usage_error_is_one_line_that_says_what_to_do(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert says in one_error(capsys)


@pytest.mark.parametrize("command", [["topics", "list"], ["groups", "describe", "billing"]], ids=" ".join)
def test_a_cluster_that_is_not_there_is_named(
    command: list[str], closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{closed_port}"
    assert run([*command, "--bootstrap", address, "--timeout", "0.3"]) == ExitCode.UNREACHABLE
    error = one_error(capsys)
    assert address in error
    assert "quorate up" in error


def test_an_http_address_that_is_not_there_is_named(
    closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "status", "--url", f"http://127.0.0.1:{closed_port}"]) == ExitCode.UNREACHABLE
    assert str(closed_port) in one_error(capsys)


def test_http_may_be_left_out_of_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    node = LogNode(1)
    try:
        assert run(["log", "terms", "--url", node.url.removeprefix("http://")]) == ExitCode.OK
    finally:
        node.close()


def test_a_cluster_of_one_has_no_launcher_for_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DiskNode(str(tmp_path / "alone")).stop()
    assert run(["cluster", "kill", "1", "--data", str(tmp_path / "alone")]) == ExitCode.UNREACHABLE
    assert "is a cluster of one node" in one_error(capsys)
    assert run(["cluster", "kill", "1", "--data", str(tmp_path / "none")]) == ExitCode.UNREACHABLE
    assert f"start it with `quorate up --nodes 3 --data {tmp_path}/none`" in one_error(capsys)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_no_node_is_named(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("raftlog.storage.directory.format_node", refuse)
    monkeypatch.setattr("cluster.launching.launcher.format_node", refuse)
    data = str(tmp_path / "node")
    assert run(["node", "format", "--data", data, "--node-id", "1"]) == ExitCode.UNWRITTEN
    error = one_error(capsys)
    assert f"cannot write the files of {data}: {os.strerror(number)}; free space" in error
    assert run(["up", "--data", data]) == ExitCode.NODE_STOPPED
    error = one_error(capsys)
    assert f"{os.strerror(number)}: free space, or choose another directory" in error
    assert "None" not in error


def test_a_file_of_the_launcher_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert run(["up", "--data", str(tmp_path)]) == ExitCode.UNREADABLE
    assert "cluster.json: Permission denied: run this as the user who started" in one_error(capsys)


def test_with_json_errors_are_json_too(closed_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--json", "-b", f"127.0.0.1:{closed_port}", "--timeout", "0.3"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["exit_code"] == 3


@pytest.mark.parametrize("command", [["dump"], ["verify"], ["replay"], ["timeline", "g"], ["explain", "g"]])
def test_a_directory_that_is_no_nodes_is_said_to_be_none(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["log", command[0], str(tmp_path), *command[1:]]
    assert run(arguments) == ExitCode.UNREADABLE
    assert str(tmp_path) in one_error(capsys)


@pytest.mark.parametrize("name", ["verify", "compare"])
def test_what_is_checked_on_disk_is_not_asked_of_a_running_cluster(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", name, "http://127.0.0.1:1"]) == ExitCode.USAGE
    assert "reads files, not a running cluster" in one_error(capsys)


@pytest.mark.parametrize(("begin", "end"), [("end", "end-1s"), ("2", "1"), ("2030-01-01", "2029-01-01")])
@pytest.mark.parametrize(
    "words", [["findings"], ["explain"], ["timeline"], ["stats", "--group"]], ids=" ".join
)
def test_a_window_that_ends_before_it_begins_is_refused(
    words: list[str], begin: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = DiskNode(str(tmp_path / "node-1"))
    node.create_topic("orders", 2)
    node.member("billing", "app-1", "orders").join()
    node.pass_ms(2_000)
    node.stop()
    name, *option = words
    window = ["--since", begin, "--until", end]
    assert run(["log", name, node.path, *option, "billing", *window]) == ExitCode.USAGE
    assert "before it begins" in one_error(capsys)


@pytest.mark.parametrize("group", ["log", "groups", "topics", "cluster"])
def test_lists_of_commands_have_whole_sentences(
    group: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    run([group, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    command_line: Any = typer.main.get_command(app)
    for name, command in command_line.commands[group].commands.items():
        sentence = " ".join(re.split(r"\.\s", command.help)[0].split())
        assert f" {name} {sentence}" in shown


def test_exit_codes_are_documented_where_people_look(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    page = COMMANDS_PAGE.read_text(encoding="utf-8")
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"{code.value} {meaning}" in shown
        assert f"| {code.value} | {meaning} |" in page


def test_commands_without_json_are_named_on_the_page() -> None:
    command_line: Any = typer.main.get_command(app)

    def without(command: Any, name: str) -> list[str]:
        if hasattr(command, "commands"):
            return [found for key, one in command.commands.items() for found in without(one, f"{name} {key}")]
        return [] if any("--json" in option.opts for option in command.params) else [f"`{name.strip()}`"]

    said = f"({' and '.join(sorted(without(command_line, ''), reverse=True))} have none)"
    assert said in COMMANDS_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words", [["export", "DIR", "--format", "parquet", "--output", "DIR/out"], ["dump", "s3://logs/node-1"]]
)
def test_a_missing_package_has_its_exit_code(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "node")
    DiskNode(data).stop()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(["log", *(word.replace("DIR", data) for word in words)]) == ExitCode.INSTALLATION
    assert "needs pyarrow" in one_error(capsys)


def test_a_command_error_carries_its_hint() -> None:
    assert str(CommandError("it is late", hint="go home")) == "it is late; go home"
    assert str(CommandError("it is late")) == "it is late"


def test_a_state_hash_is_the_same_text_in_json_as_on_the_screen() -> None:
    @dataclasses.dataclass
    class Replayed:
        state_hash: int

    assert plain([Replayed(2**64 - 1), Replayed(1)]) == [
        {"state_hash": "ffffffffffffffff"},
        {"state_hash": "0000000000000001"},
    ]


def test_a_port_in_use_is_told_in_the_words_of_the_command() -> None:
    from cluster.launching.launcher import LaunchError
    from quorate.commands.options import launch_failure

    said = "address already in use; choose another port (kafka.port, http.port, peer.port)"
    assert str(launch_failure(LaunchError(said, 70))).endswith(
        "choose another port with --port and --http-port"
    )


@pytest.mark.parametrize("nodes", ["1", "3"])
def test_an_up_that_fails_removes_the_directory_that_it_created(
    nodes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = ["up", "--nodes", nodes, "--port", str(other.getsockname()[1]), "--http-port", "0"]
        for data in ([], ["--data", "new/one"]):
            assert run([*taken, *data]) == ExitCode.NODE_STOPPED
            assert "address already in use" in one_error(capsys)
            assert list(tmp_path.iterdir()) == []
        mine = tmp_path / "mine"
        mine.mkdir()
        run([*taken, "--data", str(mine)])
        assert mine.exists(), "what was there before stays"


def test_an_up_removes_no_directory_that_is_ready_or_that_another_process_uses(tmp_path: Path) -> None:
    with kept_if_ready(tmp_path / "ready") as keep:
        keep()
    assert (tmp_path / "ready").exists()
    with kept_if_ready(tmp_path / "used"):
        lock = OsFiles().lock(str(tmp_path / "used" / "lock"))
    lock.release()
    assert (tmp_path / "used").exists()


def test_a_cluster_of_one_that_cannot_grow_is_no_dead_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DiskNode(str(tmp_path / "alone")).stop()
    assert run(["up", "--nodes", "3", "--data", str(tmp_path / "alone")]) == ExitCode.USAGE
    assert "cannot grow: give another directory with --data, or remove this one if" in one_error(capsys)
