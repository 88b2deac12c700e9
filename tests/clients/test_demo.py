"""The demo as a newcomer runs it: its claims hold, it is quick, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.report import count_fault
from tests.support.waiting import wait_for

DEMO_S_MAX = 25.0  # the README's promise, with a margin for a busy machine
COMMAND = [sys.executable, "-P", "-m", "quorate", "demo"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


def processes_of(directory: Path) -> list[str]:
    """Return the command lines of running processes that name the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found


def test_every_claim_holds_in_time_without_a_terminal(tmp_path: Path, environment: dict[str, str]) -> None:
    keep = tmp_path / "kept"
    started_s = time.monotonic()
    ran = subprocess.run(
        [*COMMAND, "--keep", str(keep)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    took_s = time.monotonic() - started_s
    count_fault("clients", "kill -9 of a consumer")
    count_fault("clients", "kill -9 of a leader")
    count_fault("clients", "planned hand-over")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert took_s < DEMO_S_MAX
    assert "NOT TRUE" not in ran.stdout
    assert "session timeout 3 s" in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "\r" not in ran.stdout
    assert "session of" in ran.stdout
    assert "the shard has no leader" in ran.stdout or "heartbeat again" in ran.stdout
    assert "took over from" in ran.stdout
    assert "planned transfer" in ran.stdout
    assert processes_of(tmp_path) == []
    compared = [*COMMAND[:-1], "log", "compare", str(keep / "cluster"), "--json"]
    again = subprocess.run(compared, capture_output=True, text=True, timeout=30, check=True)
    assert json.loads(again.stdout)["ok"] is True


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_behind(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    with subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as demo:
        wait_for(
            lambda: sum("consumer.py" in line for line in processes_of(tmp_path)) == 6, "six consumers", 20
        )
        demo.send_signal(number)
        _, said = demo.communicate(timeout=20)
    assert demo.returncode == 130
    assert b"Traceback" not in said
    wait_for(lambda: processes_of(tmp_path) == [], "the end of every process", 20)


def test_a_directory_that_is_in_use_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "precious").write_text("mine")
    ran = subprocess.run(
        [*COMMAND, "--keep", str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "not empty" in ran.stderr
    assert (tmp_path / "precious").read_text() == "mine"
