"""The pytest plugin in a user's project, with a stock client and pytest-xdist."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from quorate.pytest_plugin import _fresh_directory

TESTS = """
import sys, time
import pytest

def test_pytest_loads_nothing_of_quorate_before_a_test_asks():
    ours = {"records", "wire", "coordinator", "raftlog", "cluster", "history", "quorate.testing"}
    assert not ours & set(sys.modules)

def copied(quorate):
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": quorate.bootstrap})
    producer.produce("orders", "7")
    assert producer.flush(10) == 0
    consumer = Consumer(
        {"bootstrap.servers": quorate.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(10)
    member_id, now_ms = consumer.memberid(), int(time.time() * 1000)
    consumer.close()
    return message.value(), member_id, now_ms

@pytest.mark.quorate(1, {"orders": 2})
def test_green(quorate):
    assert quorate.topics() == {"orders": 2}
    value, member_id, then_ms = copied(quorate)
    assert value == b"7"
    assert [member.member_id for member in quorate.state("billing", at_ms=then_ms).members] == [member_id]
    assert not quorate.state("billing").members
    with pytest.raises(Exception, match="nodes=3"):
        quorate.kill_leader("billing")

@pytest.mark.parametrize("path", ["a/b", "a-b"])
@pytest.mark.quorate(topics={"orders": 1}, settings={"group.consumer.session.timeout.ms": "6000"})
def test_red(quorate, path):
    assert quorate.groups() == []
    copied(quorate)
    assert False, "as a user's test may"

@pytest.fixture
def application(request):
    copied(request.getfixturevalue("quorate"))
    raise RuntimeError("as a user's fixture may")

@pytest.mark.quorate(topics={"orders": 1})
def test_with_a_red_fixture(application):
    pass

@pytest.mark.quorate(node=3)
def test_wrong_marker(quorate):
    pass
"""


class Run(NamedTuple):
    output: str
    reports: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("project")
    (home / "test_application.py").write_text(TESTS)
    (home / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-rA"]
    command += ["--basetemp", str(home / "tmp"), "--quorate-report", "reports", "-n", "2"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=100)
    return Run(done.stdout, home / "reports")


def test_each_test_gets_a_cluster_of_its_own_which_stock_clients_use(run: Run) -> None:
    assert re.search("2 failed, 2 passed, 2 errors", run.output), run.output


def test_a_wrong_marker_is_named(run: Run) -> None:
    assert "unexpected keyword argument 'node'" in run.output


def test_a_red_test_leaves_its_timeline_and_log_though_another_has_a_name_alike(run: Run) -> None:
    assert "quorate: group billing" in run.output
    homes = list(run.reports.glob("*test_red-a-b*"))
    assert len(homes) == 2
    for home in homes:
        (page,) = home.glob("01-billing-*.html")
        assert str(page) in run.output
        assert "<title>Group billing" in page.read_text()
        assert page.with_suffix(".txt").read_text().startswith("Group billing")
    explain = [sys.executable, "-P", "-m", "quorate", "log", "explain", str(homes[0] / "log"), "billing"]
    assert "joined" in subprocess.run(explain, capture_output=True, text=True, check=True).stdout


def test_a_red_fixture_leaves_them_too(run: Run) -> None:
    (home,) = run.reports.glob("*test_with_a_red_fixture-*")
    (story,) = home.glob("01-billing-*.txt")
    assert "joined" in story.read_text()


def test_the_log_goes_elsewhere_if_the_project_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "reports").write_text("a file, in which nothing can be made")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    home = _fresh_directory(tmp_path / "reports", "test_red")
    assert home.is_dir()
    assert home.parent == tmp_path / "temporary"
