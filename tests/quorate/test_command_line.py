"""The command line for people and scripts: help, one-line errors, exit codes."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from quorate.app import app, run
from quorate.commands.log.common import plain
from quorate.errors import EXIT_CODE_MEANINGS, CommandError, ExitCode
from tests.support.disk_node import DiskNode

README = Path(__file__).resolve().parents[2] / "README.md"
COMMANDS = [
    ["demo"],
    ["up"],
    ["generations"],
    *(["node", name] for name in ("run", "format")),
    *(["topics", name] for name in ("create", "list", "describe", "grow", "recreate", "delete", "mirror")),
    *(["groups", name] for name in ("list", "describe", "delete")),
    *(["groups", name] for name in ("config", "remove-member", "delete-offsets", "reset-offsets")),
    *(["cluster", name] for name in ("status", "transfer", "upgrade", "kill", "stop", "cont", "restart")),
    *(["faults", name] for name in ("add", "list", "clear")),
    *(["log", name] for name in ("dump", "verify", "compare", "replay", "explain", "timeline", "terms")),
    *(["log", name] for name in ("findings", "owner", "diff", "stats", "export", "whatif")),
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
    assert f"Example: quorate {' '.join(command)}" in capsys.readouterr().out


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
        (["cluster", "status", "--url", "localhost:8092"], "http://127.0.0.1:8092"),
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


@pytest.mark.parametrize("where", [["--url", "http://127.0.0.1:1"], ["http://127.0.0.1:1"]], ids=" ".join)
@pytest.mark.parametrize("name", ["verify", "compare"])
def test_what_is_checked_on_disk_is_not_asked_of_a_running_cluster(
    name: str, where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", name, *where]) == ExitCode.USAGE
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


def test_exit_codes_are_documented_where_people_look(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    shown = re.sub(r"\s+", " ", capsys.readouterr().out)
    readme = README.read_text(encoding="utf-8")
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)
    for code, meaning in EXIT_CODE_MEANINGS.items():
        assert f"{code.value} {meaning}" in shown
        assert f"| {code.value} | {meaning} |" in readme


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
