"""A user's own tests with `quorate.testing`: the tutorial of docs/testing-clients.md, and a killed leader."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from quorate.testing import QuorateCluster
from tests.report import count_fault

TUTORIAL = Path(__file__).parents[2] / "examples" / "testing"
BUG = '{"bootstrap.servers": bootstrap}'
MENDED = '{"bootstrap.servers": bootstrap, "enable.idempotence": True}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    home = tmp_path / "testing"
    shutil.copytree(TUTORIAL, home)
    (home / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return home


def outcome(project: Path) -> str:
    """Run the user's tests in a process of their own; return pytest's output."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(project / "tmp")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=100
    ).stdout


def test_the_tutorial_finds_its_bug_by_a_lost_answer_and_nothing_after_the_mend(project: Path) -> None:
    found = outcome(project)
    assert re.search("1 failed, 2 passed", found), found
    assert "b'invoice of 1001': 2" in found
    assert "quorate: group invoicing" in found
    program = project / "invoices.py"
    text = program.read_text()
    assert text.count(BUG) == 1
    program.write_text(text.replace(BUG, MENDED))
    mended = outcome(project)
    assert re.search("3 passed", mended), mended


def test_another_node_leads_after_kill_leader_and_the_killed_one_comes_back(tmp_path: Path) -> None:
    with QuorateCluster(tmp_path / "cluster", 3) as cluster:
        count_fault("failover", "kill -9 of a leader")
        killed = cluster.kill_leader("billing")
        assert not killed.is_running
        assert cluster.leader("billing") is not killed
        killed.start()
        fault = cluster.add_fault("error", error="NOT_COORDINATOR", api="ConsumerGroupHeartbeat")
        cluster.clear_fault(fault)
