"""`quorate up` and `quorate node` with real nodes: three find each other, with and without a launcher."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from quorate.app import run
from quorate.client import Client
from quorate.errors import ExitCode
from quorate.http_client import ask_json
from tests.report import count_fault
from tests.support import launched
from tests.support.launched import QUORATE, STOP_S, up
from tests.support.waiting import wait_for_end


def faults_allowed(announced: dict[str, Any]) -> bool:
    """Whether all nodes allow `quorate faults`."""
    urls = [f"http://{node['host']}:{node['http_port']}/v1/faults" for node in announced["nodes"]]
    return all(ask_json(url, 5)["enabled"] for url in urls)


def topics(bootstrap: str) -> dict[str, int]:
    with Client(bootstrap) as client:
        return {topic.name: topic.num_partitions for topic in client.topics()}


def test_three_nodes_outlive_one_of_them_and_come_back_as_the_same_cluster(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "cluster"
    with up(data, "--nodes", "3", "--topic", "orders:6") as announced:
        assert faults_allowed(announced)
        assert [node["id"] for node in announced["nodes"]] == [1, 2, 3]
        addresses = announced["bootstrap"].split(",")
        assert [topics(address) for address in addresses] == [{"orders": 6}] * 3
        assert run(["cluster", "kill", "1", "--data", str(data)]) == ExitCode.OK
        count_fault("clients", "kill -9 of a node of three")
        with Client(",".join(addresses[1:])) as client:
            client.create_topic("payments", 2)
        assert run(["cluster", "kill", "1", "--data", str(data)]) == ExitCode.REFUSED
        assert "node 1 is not running" in capfd.readouterr().err
        assert run(["cluster", "restart", "1", "--data", str(data), "--json"]) == ExitCode.OK
        again = json.loads(capfd.readouterr().out)
        assert (again["id"], again["state"]) == (1, "running")
        assert topics(addresses[0]) == {"orders": 6, "payments": 2}
        url = ["--url", ",".join(f"http://{node['host']}:{node['http_port']}" for node in announced["nodes"])]
        assert run(["cluster", "drain", "1", *url]) == ExitCode.OK
        assert "node 1 leads nothing and may be stopped" in capfd.readouterr().out
        pids = [again["pid"], *(node["pid"] for node in announced["nodes"][1:])]
    wait_for_end(*pids)
    with up(data, "--set", "faults.enable=false") as same:  # the directory says how many
        assert not faults_allowed(same)
        assert same["bootstrap"] == announced["bootstrap"]
        assert topics(same["bootstrap"]) == {"orders": 6, "payments": 2}
        capfd.readouterr()
        assert run(["cluster", "status", *url]) == ExitCode.OK
        assert "node 1 is drained" in capfd.readouterr().out
        assert run(["cluster", "undrain", "1", *url]) == ExitCode.OK
    assert run(["log", "compare", str(data)]) == ExitCode.OK


def test_nodes_need_no_launcher(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As on three machines: each directory is formatted by hand, and each node is a process of its own."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret that is long enough\n")
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(9)]
        for probe in probes:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", 0))
        ports = [probe.getsockname()[1] for probe in probes]
    nodes = ",".join(f"{n}@127.0.0.1:{ports[n - 1]}" for n in (1, 2, 3))
    processes: list[subprocess.Popen[str]] = []
    try:
        for n in (1, 2, 3):
            fixed = ["--data", str(tmp_path / f"node-{n}"), "--node-id", str(n)]
            assert run(["node", "format", *fixed, "--cluster-id", "by-hand", "--nodes", "1,2,3"]) == 0
            assert "format nodes" in capfd.readouterr().out
            where = ["--data-dir", str(tmp_path / f"node-{n}"), "--node-id", str(n)]
            where += ["--kafka-port", str(ports[2 + n]), "--http-port", str(ports[5 + n])]
            where += ["--cluster-nodes", nodes, "--cluster-secret-file", str(secret)]
            command = [*QUORATE, "node", "--json", *where]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=2, text=True))
        for process in processes:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["cluster_id"] == "by-hand"
        with Client(f"127.0.0.1:{ports[3]}") as client:
            client.create_topic("orders", 6)
        assert topics(f"127.0.0.1:{ports[5]}") == {"orders": 6}
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(STOP_S) for process in processes]
        for process in processes:
            assert process.stdout is not None
            process.stdout.close()
    assert codes == [0, 0, 0]


def test_a_directory_is_not_formatted_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["node", "format", "--data", str(tmp_path / "node"), "--node-id", "1"]
    assert run([*command, "--json"]) == ExitCode.OK
    assert json.loads(capfd.readouterr().out)["voters"] == [1]
    assert run(command) == ExitCode.UNREADABLE
    assert "is already formatted" in capfd.readouterr().err


def test_one_node_that_is_killed_ends_up_as_ever(tmp_path: Path) -> None:
    command = [*QUORATE, "up", "--data", str(tmp_path / "node"), "--port", "0", "--http-port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["nodes"][0]["pid"], signal.SIGKILL)
        begin_s = time.monotonic()
        _, said = process.communicate(timeout=STOP_S)
    assert process.returncode == ExitCode.NODE_STOPPED
    assert "by signal 9" in said
    assert time.monotonic() - begin_s < STOP_S
    count_fault("clients", "kill -9 of the only node")


def test_a_topic_that_is_refused_leaves_no_directory(tmp_path: Path) -> None:
    data = tmp_path / "new" / "cluster"
    command = [*QUORATE, "up", "--data", str(data), "--port=0", "--http-port=0", "--topic=my orders:3"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=STOP_S, check=False)
    assert refused.returncode == ExitCode.REFUSED
    assert "Topic name 'my orders' is illegal" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_says_more_than_a_pipe_holds_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talkative = "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
    talkative += (
        "sys.stderr.write('.' * 1_000_000); print('{}', flush=True); signal.sigwait({signal.SIGTERM})"
    )
    monkeypatch.setattr(launched, "QUORATE", [sys.executable, "-c", talkative])
    with up(tmp_path) as announced:
        assert announced == {}
