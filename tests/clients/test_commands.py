"""The commands on a real node and on its directory, as a person or a script runs them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.launching.launcher import NodeProcess
from quorate.app import run
from quorate.client import Client
from quorate.errors import CommandError, ExitCode
from tests.support.polled_consumers import Crowd

Run = Callable[..., str]
NUM_PARTITIONS = 4


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must succeed and return its output."""

    def run_command(*arguments: object) -> str:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        assert captured.err == ""
        return captured.out

    return run_command


def refused(arguments: list[str], code: ExitCode, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    return captured.err


def test_a_topic_through_its_life(
    said: Run, bootstrap: str, group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{group}-topic"
    assert said("topics", "create", f"{name}:3", "-b", bootstrap) == f"created topic {name} (3 partitions)\n"
    listed = json.loads(said("topics", "list", "--json", "-b", bootstrap))["topics"]
    (found,) = [topic for topic in listed if topic["name"] == name]
    assert found["partitions"] == 3
    assert f"{name}  " in said("topics", "list", "-b", bootstrap)
    again = refused(["topics", "create", f"{name}:3", "-b", bootstrap], ExitCode.REFUSED, capsys)
    assert "TOPIC_ALREADY_EXISTS (36)" in again
    said("topics", "grow", f"{name}:5", "-b", bootstrap)
    shrunk = refused(["topics", "grow", f"{name}:4", "-b", bootstrap], ExitCode.REFUSED, capsys)
    assert "INVALID_PARTITIONS (37)" in shrunk
    said("topics", "delete", name, "-b", bootstrap)
    gone = refused(["topics", "delete", name, "-b", bootstrap], ExitCode.REFUSED, capsys)
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in gone


def test_one_address_of_either_kind_is_enough(
    said: Run, node: NodeProcess, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, faults = said("topics", "list", "-b", bootstrap), said("faults", "list", "--url", node.url)
    assert said("topics", "list", "--url", node.url.removeprefix("http://")) == listed
    assert said("faults", "list", "-b", bootstrap) == faults
    monkeypatch.setenv("QUORATE_URL", "http://127.0.0.1:1")
    assert node.url in said("cluster", "status", "--bootstrap", bootstrap), "the option comes first"
    monkeypatch.delenv("QUORATE_URL")
    monkeypatch.setenv("QUORATE_BOOTSTRAP", bootstrap)
    assert said("topics", "list") == listed
    assert said("faults", "list") == faults


def test_a_group_live_and_in_the_log(
    said: Run, node: NodeProcess, bootstrap: str, group: str, crowd: Crowd, capsys: pytest.CaptureFixture[str]
) -> None:
    member = crowd.join(**{"client.id": "billing-1"})
    crowd.wait_balanced(NUM_PARTITIONS)
    member.commit({1: 17})

    assert group in said("groups", "list", "-b", bootstrap)
    text = said("groups", "describe", group, "-b", bootstrap)
    assert "Stable, group epoch 1" in text
    assert f"{crowd.topic}:0-3" in text
    described = json.loads(said("groups", "describe", group, "--json", "-b", bootstrap))
    assert described["members"][0]["client_id"] == "billing-1"
    assert described["offsets"] == {crowd.topic: {"1": 17}}
    busy = refused(["groups", "delete", group, "-b", bootstrap], ExitCode.REFUSED, capsys)
    assert "NON_EMPTY_GROUP (68)" in busy

    member.close()
    said("groups", "delete", group, "-b", bootstrap)
    gone = refused(["groups", "describe", group, "-b", bootstrap], ExitCode.REFUSED, capsys)
    assert "GROUP_ID_NOT_FOUND (69)" in gone

    _read_history(said, node.data, group)


def _read_history(said: Run, data: Path, group: str) -> None:
    """Read the log of a running node: the group is deleted, its history remains."""
    explained = said("log", "explain", data, group)
    assert "billing-1" in explained
    assert "joined" in explained
    assert "left" in explained
    steps = json.loads(said("log", "explain", data, group, "--json"))["steps"]
    assert [step["epoch"] for step in steps if step["kind"] == "epoch"][:2] == [1, 2]
    rows = json.loads(said("log", "timeline", data, group, "--json"))["rows"]
    assert rows[0]["epoch"] == 1 or rows[1]["epoch"] == 1
    assert "joined" in said("log", "timeline", data, group, "--utc")
    lines = said("log", "dump", data, "--group", group, "--type", "offset_commit", "--json").splitlines()
    entries = [json.loads(line) for line in lines]
    assert len(entries) == 2  # the commit, and its deletion with the group
    states = json.loads(
        said("log", "replay", data, "--group", group, "--at", str(entries[0]["index"]), "--json")
    )
    (state,) = states["shards"]
    assert [(one["partition"], one["offset"]) for one in state["groups"][0]["offsets"]] == [(1, 17)]


def test_the_log_of_a_running_node_verifies(said: Run, node: NodeProcess) -> None:
    assert "verified: everything holds" in said("log", "verify", node.data)
    assert json.loads(said("log", "verify", node.data, "--json"))["ok"] is True
    assert "shard-0 after index" in said("log", "replay", node.data)


def test_a_damaged_copy_fails_verification_and_says_where(
    said: Run, node: NodeProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(node.data, copy)
    segment = next(path for path in sorted((copy / "metadata").glob("*.log")) if path.stat().st_size > 300)
    data = bytearray(segment.read_bytes())
    data[200] ^= 0x40
    segment.write_bytes(data)
    assert run(["log", "verify", str(copy)]) == ExitCode.FAILED
    assert segment.name in capsys.readouterr().out


def test_questions_that_the_log_cannot_answer_are_refused_in_one_line(
    node: NodeProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(node.data)
    for arguments, code in (
        (["explain", data, "no-such-group"], ExitCode.UNREADABLE),
        (["replay", data, "--at", "5"], ExitCode.USAGE),
        (["replay", data, "--at", "yesterday"], ExitCode.USAGE),
        (["replay", data, "--shard", "99"], ExitCode.UNREADABLE),
        (["dump", data, "--type", "nonsense"], ExitCode.USAGE),
        (["dump", data, "--shard", "nonsense"], ExitCode.USAGE),
    ):
        assert refused(["log", *arguments], code, capsys).startswith("quorate: error: ")


def test_cluster_status_names_node_and_shards(said: Run, node: NodeProcess) -> None:
    url = f"http://{node.host}:{node.http_port}"
    text = said("cluster", "status", "--url", url)
    assert f"{node.host}:{node.port}" in text
    assert "metadata" in text
    document = json.loads(said("cluster", "status", "--url", url, "--json"))
    assert len(document["shards"]) == 5


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        command = [sys.executable, "-P", "-m", "quorate", "up", "--json", "--data", str(tmp_path / "data")]
        command += ["--port", "0", "--http-port", "0", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_up_says_where_the_node_is_and_stops_with_it(
    said: Run, up: Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]
) -> None:
    process, ready = up("--topic", "orders:12", "--topic", "payments")
    (node,) = ready["nodes"]
    assert set(node) == {"id", "pid", "host", "port", "http_port", "data", "command"}
    assert ready["bootstrap"] == f"{node['host']}:{node['port']}"
    topics = json.loads(said("topics", "list", "--json", "-b", ready["bootstrap"]))["topics"]
    assert [(topic["name"], topic["partitions"]) for topic in topics] == [("orders", 12), ("payments", 1)]
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert not is_alive(node["pid"])
    process, again = up("--topic", "orders:12")
    assert again["nodes"][0]["data"] == node["data"]
    topics = json.loads(said("topics", "list", "--json", "-b", again["bootstrap"]))["topics"]
    assert [topic["partitions"] for topic in topics] == [12, 1]


@pytest.mark.thorough
def test_a_node_killed_under_up_can_be_restarted_by_its_command(
    said: Run, up: Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]]
) -> None:
    process, ready = up("--topic", "orders:12")
    (node,) = ready["nodes"]
    os.kill(node["pid"], signal.SIGKILL)
    assert process.wait(10) == ExitCode.NODE_STOPPED
    assert process.stderr is not None
    assert "signal 9" in process.stderr.read()
    with subprocess.Popen(node["command"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as restarted:
        assert restarted.stdout is not None
        restarted.stdout.readline()
        assert "orders" in said("topics", "list", "-b", ready["bootstrap"])
        restarted.terminate()
        assert restarted.wait(10) == 0


def test_up_repeats_the_last_words_of_its_node(
    up: Callable[..., tuple[subprocess.Popen[str], dict[str, Any]]], tmp_path: Path
) -> None:
    """Its data is deleted while it runs: while it has work, the node checks its directory once a second."""
    process, ready = up("--topic", "orders:12")
    shutil.rmtree(tmp_path / "data" / "metadata")
    with Client(ready["bootstrap"], timeout_s=0.5) as client:
        for number in itertools.takewhile(lambda _: process.poll() is None, itertools.count()):
            with contextlib.suppress(CommandError):
                client.create_topic(f"payments-{number}", 1)
    assert process.wait(10) == ExitCode.NODE_STOPPED
    assert process.stderr is not None
    error = process.stderr.read()
    assert "metadata of" in error
    assert "is gone" in error
    assert "restore this file" in error


def test_a_full_disk_at_the_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_args: Any, **_options: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    arguments = ["up", "--data", str(tmp_path / "data"), "--port", "0", "--http-port", "0"]
    assert "No space left on device: free space" in refused(arguments, ExitCode.NODE_STOPPED, capsys)


def test_a_setting_that_does_not_exist_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["up", "--data", str(tmp_path / "data"), "--port", "0", "--http-port", "0"]
    error = refused([*arguments, "--set", "group.consumer.sesion.timeout.ms=1"], ExitCode.USAGE, capsys)
    assert "group.consumer.session.timeout.ms" in error


def test_a_port_that_is_taken_is_named_without_the_clutter_of_a_log_line(
    node: NodeProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["up", "--data", str(tmp_path / "data"), "--port", str(node.port), "--http-port", "0"]
    error = refused(arguments, ExitCode.NODE_STOPPED, capsys)
    assert str(node.port) in error
    assert "choose another port" in error
    assert "CRITICAL" not in error


def test_a_directory_that_a_node_runs_on_is_not_taken_away_from_it(
    node: NodeProcess, said: Run, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["up", "--data", str(node.data), "--port", "0", "--http-port", "0"]
    assert "another process uses" in refused(arguments, ExitCode.UNREADABLE, capsys)
    said("topics", "list", "-b", bootstrap)


def test_a_node_makes_its_directory_when_told_to(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'"data.dir" = "{tmp_path / "data"}"\n"kafka.port" = 0\n"http.port" = 0\n')
    command = [sys.executable, "-P", "-m", "quorate", "node", "--config", str(config)]
    refused_run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert refused_run.returncode == ExitCode.UNREADABLE
    for _ in range(2):
        with subprocess.Popen([*command, "--format"], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert any("every shard is served" in line for line in process.stderr)
            process.terminate()
        assert process.returncode == 0


def test_a_node_takes_every_setting_as_a_flag_and_says_in_json_when_it_serves(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "quorate", "node", "--format", "--json", "--insecure"]
    command += ["--data", str(tmp_path / "data"), "--kafka-port=0", "--http-port", "0", "--node-id", "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["node_id"] == 7
        assert ready["kafka"][1]
        process.terminate()
    assert process.returncode == 0


@pytest.mark.parametrize("extra", [[], ["--format"]], ids=["plain", "format"])
def test_an_unknown_flag_of_a_node_names_the_nearest_setting(extra: list[str]) -> None:
    command = [sys.executable, "-P", "-m", "quorate", "node", *extra, "--kafka-prot", "0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.count("\n") == 1
    assert "--kafka-prot" in ran.stderr
    assert "kafka.port" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["groups", "describe", "nobody"], "groups list"),
        (["groups", "delete", "nobody"], "groups list"),
        (["topics", "delete", "nothing"], "topics list"),
        (["topics", "grow", "nothing:3"], "topics list"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_is_not_there_is_refused_with_a_way_out(
    arguments: list[str], way_out: str, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert way_out in refused([*arguments, "-b", bootstrap], ExitCode.REFUSED, capsys)
