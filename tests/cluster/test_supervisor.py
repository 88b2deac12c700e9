"""The launcher of a running cluster: its output, its commands, and its clean end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from cluster.launching.supervisor import LogTail
from cluster.supervisor_socket import LINE_BYTES_MAX, SOCKET_FILE, NoSupervisor, ask, listening
from tests.report import count_fault
from tests.support.waiting import wait_for_end

TIMEOUT_S = 10.0
ROOT = Path(__file__).resolve().parents[2]


class Supervised:
    """A supervisor in a process of its own, and its output."""

    def __init__(self, data: Path, *wishes: str) -> None:
        self.data = data
        command = [sys.executable, "-m", "tests.cluster.supervised", str(data), *wishes]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0)
        self._lines: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def shown_until(self, words: str) -> list[str]:
        """Return all lines up to the first one that contains `words`."""
        lines: list[str] = []
        try:
            while not lines or words not in lines[-1]:
                lines.append(self._lines.get(timeout=TIMEOUT_S))
        except Empty:
            raise AssertionError(f"{words!r} was not shown: {lines}") from None
        return lines

    def ask(self, command: str, node_id: int) -> dict[str, Any]:
        return ask(self.data, command, node_id, TIMEOUT_S)

    def pids(self) -> list[int]:
        return [row["pid"] for row in json.loads((self.data / "cluster.json").read_text())["nodes"]]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


DEEP = "deep" * 40
"""A directory name too long for a Unix socket's path, which may have 107 bytes."""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    running: list[Supervised] = []

    def start(*wishes: str) -> Supervised:
        running.append(Supervised(tmp_path / DEEP / "cluster", *wishes))
        return running[-1]

    yield start
    for one in running:
        one.end()


@pytest.fixture
def doomed(launch: Callable[..., Supervised]) -> Supervised:
    """A supervisor that its test ends."""
    one = launch()
    one.shown_until("all serve")
    return one


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """A supervisor that several tests share; each test leaves its nodes running."""
    one = Supervised(tmp_path_factory.mktemp("supervised") / DEEP / "cluster")
    one.shown_until("all serve")
    yield one
    one.end()


def test_what_nodes_log_is_shown_with_their_names_and_kept_in_their_files(
    launch: Callable[..., Supervised],
) -> None:
    shown = launch().shown_until("all serve")
    for node_id in (1, 2, 3):
        assert f"node {node_id} | 03:12:00,000 INFO stand.in: begins" in shown


def test_a_killed_node_is_shown_and_stays_down_until_it_is_asked_for(supervised: Supervised) -> None:
    pid = supervised.pids()[1]
    answer = supervised.ask("kill", 2)
    assert answer["said"] == f"node 2 was killed (SIGKILL, process {pid})"
    assert answer["node"]["state"] == "down"
    wait_for_end(pid)
    shown = supervised.shown_until("node 2 | it was ended")[-1]
    assert "signal 9 (Killed)" in shown
    assert f"quorate cluster restart 2 --data {supervised.data}" in shown
    refused = supervised.ask("kill", 2)
    assert refused["error"] == "node 2 is not running"
    assert "restart 2" in refused["hint"]
    answer = supervised.ask("restart", 2)
    assert answer["said"] == f"node 2 serves again (process {answer['node']['pid']})"
    assert answer["node"]["pid"] != pid
    assert supervised.pids()[1] == answer["node"]["pid"]
    supervised.shown_until("node 2 | 03:12:00,000 INFO stand.in: serves")
    count_fault("cluster", "kill -9 of a supervised node")


def test_a_node_that_ended_by_itself_is_shown_too(supervised: Supervised) -> None:
    os.kill(supervised.pids()[2], signal.SIGTERM)
    assert (
        "node 3 | it has stopped; `quorate cluster restart 3" in supervised.shown_until("it has stopped")[-1]
    )
    assert supervised.process.poll() is None


def test_a_node_stands_still_and_goes_on(supervised: Supervised) -> None:
    answer = supervised.ask("stop", 1)
    assert answer["node"]["state"] == "paused"
    state = Path(f"/proc/{answer['node']['pid']}/stat").read_text().rpartition(")")[2].split()[0]
    assert state == "T"
    assert supervised.ask("cont", 1)["node"]["state"] == "running"
    count_fault("cluster", "SIGSTOP")


def test_a_running_or_standing_node_is_restarted(supervised: Supervised) -> None:
    for pause in (False, True):
        before = supervised.pids()[0]
        if pause:
            supervised.ask("stop", 1)
        answer = supervised.ask("restart", 1)
        assert answer["node"]["state"] == "running"
        assert answer["node"]["pid"] != before
        wait_for_end(before)


def test_a_slow_restart_delays_no_other_command(launch: Callable[..., Supervised]) -> None:
    """Restarting a node that ignores SIGTERM takes ten seconds; others are killed and started meanwhile."""
    doomed = launch("deaf", "well", "well")
    doomed.shown_until("all serve")

    def restart() -> None:
        with contextlib.suppress(NoSupervisor):  # the supervisor ends with the test
            doomed.ask("restart", 1)

    waiting = threading.Thread(target=restart)
    waiting.start()
    deadline_s = time.monotonic() + TIMEOUT_S
    while "is being restarted" not in doomed.ask("cont", 1).get("error", ""):
        assert time.monotonic() < deadline_s
    assert "said" in doomed.ask("kill", 2)
    assert "said" in doomed.ask("restart", 2)
    assert waiting.is_alive()
    doomed.end()
    waiting.join()


def test_a_node_that_does_not_come_back_is_named_with_its_last_words(doomed: Supervised) -> None:
    doomed.ask("kill", 2)
    data = Path(doomed.ask("stop", 1)["node"]["data"]).parent / "node-2"
    log = data / "node.log"
    log.unlink()
    log.mkdir()  # a log that cannot be opened
    assert "cannot start the node" in doomed.ask("restart", 2)["error"]
    assert "said" in doomed.ask("cont", 1)


@pytest.mark.parametrize(
    ("command", "node_id", "says"),
    [("kill", 9, "there is no node 9"), ("burn", 1, "not a request"), ("kill", "x", "no node x")],
)
def test_what_cannot_be_done_is_refused(
    supervised: Supervised, command: str, node_id: Any, says: str
) -> None:
    assert says in supervised.ask(command, node_id)["error"]


def test_garbage_and_silence_do_no_harm(supervised: Supervised) -> None:
    def connected() -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        fd = os.open(supervised.data, os.O_RDONLY)
        client.connect(f"/proc/self/fd/{fd}/{SOCKET_FILE}")
        os.close(fd)
        client.settimeout(TIMEOUT_S)
        return client

    silent = [connected() for _ in range(20)]  # more than are served at once
    for line in (b"\n", b"[]\n", b'{"command": []}\n', b"x" * (2 * LINE_BYTES_MAX)):
        with connected() as client:
            client.sendall(line)
            client.recv(LINE_BYTES_MAX)
    for client in silent:
        client.close()
    assert "said" in supervised.ask("stop", 1)
    assert "said" in supervised.ask("cont", 1)
    count_fault("cluster", "garbage to the supervisor", 4)


def test_only_its_owner_can_ask(supervised: Supervised) -> None:
    assert stat.S_IMODE((supervised.data / SOCKET_FILE).stat().st_mode) == 0o600


def test_an_interrupt_stops_all_and_takes_the_socket_away(doomed: Supervised) -> None:
    doomed.ask("stop", 3)
    doomed.process.send_signal(signal.SIGINT)
    assert doomed.process.wait(5) == 0
    wait_for_end(*doomed.pids())
    assert not (doomed.data / SOCKET_FILE).exists()
    with pytest.raises(NoSupervisor, match="no launcher runs a cluster on"):
        doomed.ask("kill", 1)


def test_kill_9_of_the_supervisor_leaves_no_node_not_even_one_that_stands_still(
    doomed: Supervised,
) -> None:
    doomed.ask("stop", 2)
    pids = doomed.pids()
    doomed.process.kill()
    doomed.process.wait()
    wait_for_end(*pids)
    with pytest.raises(NoSupervisor, match="no launcher runs a cluster on"):  # the socket is still there
        doomed.ask("kill", 1)
    count_fault("cluster", "kill -9 of the supervisor")


def test_the_next_supervisor_takes_over_what_a_killed_one_left(launch: Callable[..., Supervised]) -> None:
    first = launch()
    first.shown_until("all serve")
    first.end()
    assert (first.data / SOCKET_FILE).exists()
    second = launch()
    second.shown_until("all serve")
    assert "said" in second.ask("kill", 1)


def test_a_directory_without_a_cluster_is_named(tmp_path: Path) -> None:
    for data in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NoSupervisor, match=f"no launcher runs a cluster on {data}"):
            ask(data, "kill", 1, 1.0)


def test_a_supervisor_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with listening(tmp_path), pytest.raises(TimeoutError):
        ask(tmp_path, "kill", 1, 0.05)


def test_lines_are_shown_whole_and_once(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_text("old\n")
    tail = LogTail(path)
    with path.open("a") as log:
        log.write("one\ntw")
        log.flush()
        assert tail.new_lines() == ["one"]
        log.write("o\n")
        log.flush()
        assert tail.new_lines() == ["two"]
    assert tail.new_lines() == []
    path.unlink()
    assert tail.new_lines() == []
