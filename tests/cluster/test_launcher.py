"""Real node processes: started, announced, killed, restarted with the same command, and never left behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.launching.launcher import LaunchError, NodeProcess, launch_node, prepare_cluster
from cluster.main import EXIT_OK, EXIT_UNREADABLE, EXIT_USAGE, Arguments, parse_arguments
from cluster.settings import SettingsError
from raftlog.env.files import OsFiles
from raftlog.storage.directory import read_identity
from tests.support.waiting import wait_for_end


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = launch_node(tmp_path / "node")
    yield process
    process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_node_is_launched_killed_restarted_and_stopped(node: NodeProcess) -> None:
    assert set(node.as_dict()) == {"id", "pid", "host", "port", "http_port", "data", "command"}
    assert node.command[:4] == [sys.executable, "-P", "-m", "cluster"]
    identity = read_identity(OsFiles(), str(node.data))
    assert (identity.node_id, identity.num_shards) == (1, 4)
    first_pid, ports = node.pid, (node.port, node.http_port)
    assert is_listening(node.port)
    assert is_listening(node.http_port)
    node.kill()
    assert node.poll() == -signal.SIGKILL
    assert not is_listening(node.port)
    node.start()
    assert node.pid != first_pid
    assert (node.port, node.http_port) == ports
    assert is_listening(node.port)
    started = time.monotonic()
    assert node.stop() == EXIT_OK
    assert time.monotonic() - started < 1.0
    assert (node.data / "metadata" / "clean").exists()
    assert read_identity(OsFiles(), str(node.data)) == identity


def test_ports_stay_over_launches_on_a_directory(node: NodeProcess) -> None:
    ports = (node.port, node.http_port)
    assert node.stop() == EXIT_OK
    again = launch_node(node.data)
    try:
        assert (again.port, again.http_port) == ports
        again.let_go()
        assert again.await_end(5.0) == EXIT_OK
        assert "stopping: the launcher stops the cluster" in (again.data / "node.log").read_text()
    finally:
        again.kill()


def test_the_command_alone_brings_the_node_back(node: NodeProcess) -> None:
    node.kill()
    process = subprocess.Popen(node.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/")
    try:
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        assert announced["kafka"] == ["127.0.0.1", node.port]
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == EXIT_OK
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_node_stops_when_its_launcher_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, json, time; from pathlib import Path\n"
        "from cluster.launching.launcher import launch_node\n"
        f"node = launch_node(Path({str(tmp_path / 'node')!r}))\n"
        "print(json.dumps(node.as_dict()), flush=True)\n"
        "time.sleep(60)"
    )
    launcher = subprocess.Popen([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE)
    try:
        assert launcher.stdout is not None
        launched = json.loads(launcher.stdout.readline())
    finally:
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
    wait_for_end(launched["pid"])
    assert (tmp_path / "node" / "shard-0" / "clean").exists()
    log = (tmp_path / "node" / "node.log").read_text()
    assert "stopping: the process that started this node has ended" in log


def test_a_second_node_on_a_directory_is_refused_with_its_own_words(node: NodeProcess) -> None:
    config = (node.data / "node.toml").read_bytes()
    with pytest.raises(LaunchError, match="another process uses"):
        launch_node(node.data)
    assert (node.data / "node.toml").read_bytes() == config
    second = subprocess.run(node.command, capture_output=True, timeout=20, check=False)
    assert second.returncode == EXIT_UNREADABLE
    assert b"another process uses" in second.stderr
    assert node.poll() is None


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"did you mean kafka\.port") as refused:
        launch_node(tmp_path / "node", settings={"kafka.prot": "1"})
    assert refused.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("number", ["0", "5000", "many"])
def test_a_number_of_shards_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, number: str
) -> None:
    with pytest.raises(LaunchError, match=r"cluster\.shards") as refused:
        launch_node(tmp_path / "node", settings={"cluster.shards": number})
    assert refused.value.exit_code == EXIT_USAGE
    assert not (tmp_path / "node").exists()


def test_ports_beyond_the_last_one_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="HTTP port 65534 is too high for 3 nodes"):
        prepare_cluster(tmp_path / "cluster", 3, http_port=65_534)
    assert not (tmp_path / "cluster").exists()


def test_what_was_fixed_at_format_cannot_be_set_otherwise(tmp_path: Path) -> None:
    launch_node(tmp_path / "node", settings={"cluster.shards": "2"}).kill()
    for name, value in (("node.id", "7"), ("cluster.shards", "3")):
        said = rf"{name} = {value}, but .* was formatted with [12]"
        with pytest.raises(LaunchError, match=said) as refused:
            launch_node(tmp_path / "node", settings={name: value})
        assert refused.value.exit_code == EXIT_USAGE
    launch_node(tmp_path / "node").kill()


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    node = launch_node(tmp_path / "ünïcode \U0001f600 'and' \"quotes\"", settings={"cluster.shards": "1"})
    assert node.stop() == EXIT_OK


def test_a_host_name_that_cannot_be_one_is_an_error_and_no_hang(tmp_path: Path) -> None:
    wrong = {"kafka.host": "a..b", "insecure": "true"}
    with pytest.raises(LaunchError, match=r"cannot listen on 'a\.\.b'"):
        launch_node(tmp_path / "node", settings=wrong)


def test_a_directory_with_foreign_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(LaunchError, match="not empty"):
        launch_node(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_taken_port_is_named(node: NodeProcess, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="address already in use"):
        launch_node(tmp_path / "other", kafka_port=node.port)


def test_arguments_of_the_process() -> None:
    parsed = parse_arguments(["--config", "f.toml", "--announce", "--kafka-port=9", "--log.level", "debug"])
    assert parsed == Arguments(Path("f.toml"), True, None, {"kafka-port": "9", "log.level": "debug"})
    assert parse_arguments(["--lifeline", "7"]).lifeline_fd == 7
    assert parse_arguments(["--insecure", "--kafka-port", "9"]).flags == {
        "insecure": "true",
        "kafka-port": "9",
    }
    assert parse_arguments(["--insecure=false"]).flags == {"insecure": "false"}
    for wrong in (["--config"], ["start"], ["--"]):
        with pytest.raises(SettingsError):
            parse_arguments(wrong)
